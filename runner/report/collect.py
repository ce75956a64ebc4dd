"""From stored cells to a report: which cells belong together, what is missing, and where the report goes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.contract.experiment import Experiment
from runner.store.identity import Identity, digest
from runner.store.identity import settings as settings_of
from runner.store.job import Job
from runner.store.outputs import claim_outputs
from runner.store.store import Stored, merge
from runner.store.version import software


@dataclass(frozen=True)
class Scope:
    """Where the report of some settings goes, and the grid that it is held against.

    `<outputs>/<experiment>` and the grid of the YAML file for the paper's protocol; `<outputs>/<experiment>/<profile>`
    likewise for a profile; a folder of its own below that, named after the settings, and the grid asked for, for
    anything else. So a quick look never replaces finished results.
    """

    folder: Path
    experiment: Experiment
    words: tuple[str, ...]
    """What selects these settings on the command line, besides experiment and seed."""
    changed: tuple[str, ...] = ()
    """Overrides that make these settings neither the paper's protocol nor a profile's."""


def scope(job: Job) -> Scope:
    """The scope of a job's settings."""
    from runner.run.config import build_job, preview

    outputs = (f"outputs={job.outputs}",) if str(job.outputs) != "outputs" else ()
    paper = preview(job.name)
    if job.identity.key == Identity.of(job.name, paper).key:
        return Scope(job.store.root, paper, outputs)
    profile = (f"profile={job.profile}",)
    if job.profile != "paper":
        plain = build_job([f"experiment={job.name}", *profile])
        if plain.identity.key == job.identity.key:
            return Scope(job.store.root / job.profile, plain.experiment, (*profile, *outputs))
    folder = job.store.root / f"{job.profile}-{job.identity.key[:8]}"
    changed = tuple(word for word in job.overrides if not word.startswith("outputs="))
    return Scope(folder, job.experiment, (*profile, *job.overrides), changed)


@dataclass(frozen=True)
class Collection:
    """The stored cells of one experiment under one set of settings, over all seeds.

    cells: in the order of the grid, then of the seed. missing: (seed, label) of every cell of the grid that is not
    stored, for the seeds asked for or found. failures: (seed, label, error) of those that failed.
    """

    job: Job
    scope: Scope
    cells: tuple[Stored, ...]
    seeds: tuple[int, ...]
    missing: tuple[tuple[int, str], ...]
    failures: tuple[tuple[int, str, str], ...]

    @property
    def fill_commands(self) -> list[str]:
        """Commands that measure what is missing."""
        seeds = sorted({seed for seed, _ in self.missing})
        if not seeds:
            return []
        multirun = ["-m"] if len(seeds) > 1 else []
        words = [f"experiment={self.job.name}", *self.scope.words, f"seed={','.join(map(str, seeds))}"]
        return [" ".join(["hess-run", *multirun, *words])]


def collect(job: Job, seeds: Iterable[int] = ()) -> Collection:
    """Every stored cell with the settings of `job`, whatever grid or seed it was asked for by."""
    identity, place = job.identity, scope(job)
    found = [cell for cell in job.store.all() if cell.meta["settings_key"] == identity.key]
    grid = list(place.experiment.cells())
    order = {digest(dict(cell.params)): i for i, cell in enumerate(grid)}
    found.sort(key=lambda c: (order.get(digest(c.meta["params"]), len(grid)), str(c.meta["params"]), c.meta["seed"]))
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
    return Collection(job, place, tuple(found), tuple(all_seeds), tuple(missing), tuple(failures))


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
        "profile": "paper" if collection.scope.folder == job.store.root else job.profile,
        "changed": " ".join(collection.scope.changed),
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
        "fill_commands": collection.fill_commands,
        "wall_seconds": round(sum(cell.meta["wall_seconds"] for cell in cells), 2),
        "software": software(),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def reference_path(name: str) -> Path | None:
    """experiments/reference/<name>.csv, where there is one."""
    path = Path(__file__).resolve().parents[2] / "experiments" / "reference" / f"{name}.csv"
    return path if path.is_file() else None


def report(job: Job, seeds: Sequence[int] = ()) -> tuple[Collection, list[str]]:
    """Write the report of a job's settings from the store; returns what it covers, and lines for the console."""
    from runner.report.write import write_report

    collection = collect(job, seeds)
    todo = "; to fill: " + collection.fill_commands[0] if collection.missing else ""
    if not collection.cells:
        return collection, [f"{job.name}: no stored cells for these settings{todo}"]
    claim_outputs(job.outputs)
    folder = collection.scope.folder
    missing = [f"seed={seed} {label}" for seed, label in collection.missing]
    tables, reference = merge(collection.cells), reference_path(job.name)
    summary = write_report(folder, job.name, job.experiment, tables, manifest(collection), missing, reference)
    lines = [f"{job.name}: {len(collection.cells)} cells, report in {folder}", *summary.lines()]
    if missing:
        lines.append(f"  missing: {len(missing)} cells{todo}")
    return collection, lines
