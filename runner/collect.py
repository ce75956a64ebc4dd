"""From stored cells to a report: which cells belong together, what is missing, and where the report goes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.execute import Job, software
from runner.store import Identity, Stored, claim_outputs, merge
from runner.store import settings as settings_of


@dataclass(frozen=True)
class Collection:
    """The stored cells of one experiment under one set of settings, over all seeds.

    cells: in the order of the grid, then of the seed. missing: (seed, label) of every cell of the grid that is not
    stored, for the seeds asked for or found. failures: (seed, label, error) of those that failed.
    """

    job: Job
    cells: tuple[Stored, ...]
    seeds: tuple[int, ...]
    missing: tuple[tuple[int, str], ...]
    failures: tuple[tuple[int, str, str], ...]


def collect(job: Job, seeds: Iterable[int] = ()) -> Collection:
    """Every stored cell with the settings of `job`, whatever grid or seed it was asked for by."""
    identity = job.identity
    found = [cell for cell in job.store.all() if cell.meta["settings_key"] == identity.key]
    grid = list(job.experiment.cells())
    order = {tuple(cell.params.items()): i for i, cell in enumerate(grid)}
    found.sort(key=lambda c: _place(c, order, len(grid)))
    all_seeds = sorted({*seeds, job.seed, *(int(cell.meta["seed"]) for cell in found)})
    stored = {cell.id for cell in found}
    failed = job.store.failed()
    missing, failures = [], []
    for seed in all_seeds:
        for cell in grid:
            cell_id = identity.cell_id(cell, seed)
            if cell_id not in stored:
                missing.append((seed, cell.label))
                if cell_id in failed:
                    failures.append((seed, cell.label, str(failed[cell_id]["error"])))
    return Collection(job, tuple(found), tuple(all_seeds), tuple(missing), tuple(failures))


def _place(cell: Stored, order: dict[tuple, int], last: int) -> tuple:
    names = tuple(next(iter(order), ()))
    params = cell.meta["params"]
    key = tuple((name, params.get(name)) for name, _ in names)
    return (order.get(key, last), [str(v) for v in params.values()], cell.meta["seed"])


def report_folder(job: Job) -> Path:
    """Where the report of these settings goes.

    `<outputs>/<experiment>` for the paper's protocol as the YAML file has it; a folder of its own below that, named
    after profile and settings, for anything else, so that a quick look never replaces finished results.
    """
    from runner.config import preview

    if job.identity.key == Identity.of(job.name, preview(job.name)).key:
        return job.store.root
    if job.profile != "paper":
        from runner.config import build_job

        plain = build_job([f"experiment={job.name}", f"profile={job.profile}"])
        if plain.identity.key == job.identity.key:
            return job.store.root / job.profile
    return job.store.root / f"{job.profile}-{job.identity.key[:8]}"


def fill_commands(collection: Collection) -> list[str]:
    """Commands that measure what is missing."""
    job = collection.job
    profile = [f"profile={job.profile}"] if job.profile != "paper" else []
    outputs = [f"outputs={job.outputs}"] if str(job.outputs) != "outputs" else []
    overrides = [o for o in job.overrides if not o.startswith("outputs=")]
    words = [f"experiment={job.name}", *profile, *outputs, *overrides]
    seeds = sorted({seed for seed, _ in collection.missing})
    if not seeds:
        return []
    if len(seeds) == 1:
        return [" ".join(["hess-run", *words, f"seed={seeds[0]}"])]
    return [" ".join(["hess-run -m", *words, f"seed={','.join(map(str, seeds))}"])]


def manifest(collection: Collection) -> dict[str, Any]:
    """What a report was made from."""
    job, cells = collection.job, collection.cells
    experiment = job.experiment
    dataset = getattr(experiment, "dataset", None)
    return {
        "experiment": job.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "version": experiment.version,
        "profile": job.profile,
        "surrogate": getattr(dataset, "kind", "") == "surrogate",
        "not_comparable": experiment.comparable(),
        "settings": settings_of(experiment),
        "settings_key": job.identity.key,
        "threads": job.threads,
        "device": job.device,
        "seeds": list(collection.seeds),
        "cells": [
            {
                "id": cell.id,
                "params": cell.meta["params"],
                "seed": cell.meta["seed"],
                "wall_seconds": cell.meta["wall_seconds"],
                "peak_memory_mib": cell.meta["peak_memory_mib"],
                "finished": cell.meta["finished"],
                "git_commit": cell.meta["software"]["git_commit"],
            }
            for cell in cells
        ],
        "missing": [f"seed={seed} {label}" for seed, label in collection.missing],
        "failures": [{"seed": s, "cell": label, "error": error} for s, label, error in collection.failures],
        "fill_commands": fill_commands(collection),
        "wall_seconds": round(sum(cell.meta["wall_seconds"] for cell in cells), 2),
        "software": software(),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def reference_path(name: str) -> Path | None:
    """experiments/reference/<name>.csv, where there is one."""
    path = Path(__file__).resolve().parent.parent / "experiments" / "reference" / f"{name}.csv"
    return path if path.is_file() else None


def report(job: Job, seeds: Sequence[int] = ()) -> list[str]:
    """Write the report of a job's settings from the store; returns lines for the console."""
    from runner.report import write_report

    collection = collect(job, seeds)
    commands = fill_commands(collection)
    if not collection.cells:
        todo = "; to measure: " + commands[0] if commands else ""
        return [f"{job.name}: no stored cells for these settings{todo}"]
    claim_outputs(job.outputs)
    folder = report_folder(job)
    missing = [f"seed={seed} {label}" for seed, label in collection.missing]
    summary = write_report(
        folder, job.name, job.experiment, merge(collection.cells), manifest(collection), missing, reference_path(job.name)
    )
    lines = [f"{job.name}: {len(collection.cells)} cells, report in {folder}", *summary.lines()]
    if missing:
        lines.append(f"  missing: {len(missing)} cells; to fill: {commands[0]}")
    return lines
