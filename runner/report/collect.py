"""From stored cells to a report: which cells belong together, what is missing, how their settings depart from the
paper's protocol, and where the report goes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from runner.contract import Experiment
from runner.contract.records import CERTIFICATE
from runner.store.identity import Identity, digest, settings as settings_of
from runner.store.job import Job
from runner.store.store import Stored

Protocol = Callable[[str, str], Experiment]
"""(experiment name, profile) -> that experiment as its YAML file has it under the profile, nothing changed."""


@dataclass(frozen=True)
class Scope:
    """Where the report of some settings goes, and the grid whose cells it needs.

    `<outputs>/<experiment>` and the grid of the YAML file for the paper's protocol; `<outputs>/<experiment>/<profile>`
    likewise for a profile; a folder of its own below that, named after the settings, and the grid asked for, for
    anything else. So a quick look never replaces finished results.
    """

    folder: Path
    experiment: Experiment
    words: tuple[str, ...]
    """What selects these settings on the command line, besides experiment and seed."""
    paper: Experiment
    """The experiment under the paper's protocol: what departures are counted from."""
    changed: tuple[str, ...] = ()
    """Overrides that make these settings neither the paper's protocol nor a profile's."""


def scope(job: Job, protocol: Protocol) -> Scope:
    """The scope of a job's settings."""
    outputs = (f"outputs={job.outputs}",) if str(job.outputs) != "outputs" else ()
    paper = protocol(job.name, "paper")
    if job.identity.key == Identity.of(job.name, paper).key:
        return Scope(job.store.root, paper, outputs, paper)
    profile = (f"profile={job.profile}",)
    if job.profile != "paper":
        plain = protocol(job.name, job.profile)
        if job.identity.key == Identity.of(job.name, plain).key:
            return Scope(job.store.root / job.profile, plain, (*profile, *outputs), paper)
    folder = job.store.root / f"{job.profile}-{job.identity.key[:8]}"
    changed = tuple(word for word in job.overrides if not word.startswith("outputs="))
    return Scope(folder, job.experiment, (*profile, *job.overrides), paper, changed)


@dataclass(frozen=True)
class Missing:
    """A cell that is not stored: what it is, why it failed last time ("" where it did not), and the words that ask
    for it on the command line, besides experiment and seed."""

    seed: int
    label: str
    error: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"seed={self.seed} {self.label}"


@dataclass(frozen=True)
class Collection:
    """The stored cells of one experiment under one set of settings, over all seeds. job: with the grid of the report.

    cells: in the order of the grid, then of the seed. missing: every cell that is not stored, of the grid (for the
    seeds asked for or found) and of those that the jobs asked for in addition.
    """

    job: Job
    scope: Scope
    cells: tuple[Stored, ...]
    seeds: tuple[int, ...]
    missing: tuple[Missing, ...]
    damage: tuple[str, ...] = ()
    """A line for each cell that was found damaged and moved away."""
    beside: Mapping[str, tuple[Stored, ...]] = field(default_factory=dict)
    """Stored cells of the companions of these settings (`Experiment.companions`), by name."""

    @property
    def failures(self) -> tuple[Missing, ...]:
        """The missing cells that failed last time."""
        return tuple(cell for cell in self.missing if cell.error)

    @property
    def fill_commands(self) -> list[str]:
        """Commands that measure what is missing: one for the grid, one for each way to ask for other cells."""
        seeds: dict[tuple[str, ...], set[int]] = {}
        for cell in self.missing:
            seeds.setdefault(cell.words, set()).add(cell.seed)
        commands = []
        for words, wanted in seeds.items():
            multirun = ["-m"] if len(wanted) > 1 else []
            seed = f"seed={','.join(map(str, sorted(wanted)))}"
            commands.append(
                shlex.join(["hess-run", *multirun, f"experiment={self.job.name}", *words, seed])
            )
        return commands


def collect(jobs: Sequence[Job], protocol: Protocol, any_seed: bool = False) -> Collection:
    """Every stored cell with the settings of `jobs`, whatever grid or seed it was asked for by.

    jobs: of one experiment with the same settings; they may differ in grid and seed. any_seed: no seed was asked for,
    so that where cells are stored and none at a job's own seed, that seed is not missing.
    """
    place = scope(jobs[0], protocol)
    grids = {
        f.name: getattr(place.experiment, f.name)
        for f in fields(place.experiment)
        if f.metadata.get("grid")
    }
    job = replace(jobs[0], experiment=replace(jobs[0].experiment, **grids))
    identity = job.identity
    store = job.store
    stored_cells = list(store.all())
    beside = beside_of(job, stored_cells)
    aside = {cell.id for cells in beside.values() for cell in cells}
    own = [cell for cell in stored_cells if cell.meta["settings_key"] == identity.key]
    found = [cell for cell in own if cell.id not in aside] or own
    aside_only = {c.meta["seed"] for c in own} - {c.meta["seed"] for c in found}
    jobs = [j for j in jobs if j.seed not in aside_only]
    damage = tuple(store.quarantine(name) for name in sorted(store.damaged))
    grid = list(place.experiment.cells())
    order = {digest(dict(cell.params)): i for i, cell in enumerate(grid)}
    found.sort(
        key=lambda c: (
            order.get(digest(c.meta["params"]), len(grid)),
            str(c.meta["params"]),
            c.meta["seed"],
        )
    )
    there = {int(cell.meta["seed"]) for cell in found}
    if any_seed and there and not there & {j.seed for j in jobs}:
        jobs = [replace(j, seed=min(there)) for j in jobs]
    seeds = sorted(there | {j.seed for j in jobs})
    stored, failed = {cell.id for cell in own}, job.store.failed()
    wanted = {
        identity.cell_id(cell, seed): Missing(seed, cell.label, "", place.words)
        for seed in seeds
        for cell in grid
    }
    for asked in jobs:
        profile = (f"profile={asked.profile}",) if asked.profile != "paper" else ()
        for (
            cell_id,
            cell,
        ) in asked.cells():  # off the grid: the words of the grid would not measure it
            wanted.setdefault(
                cell_id, Missing(asked.seed, cell.label, "", (*profile, *asked.overrides))
            )
    missing = tuple(
        replace(cell, error=str(failed[cell_id]["error"]) if cell_id in failed else "")
        for cell_id, cell in wanted.items()
        if cell_id not in stored
    )
    return Collection(job, place, tuple(found), tuple(seeds), missing, damage, beside)


def beside_of(job: Job, cells: Sequence[Stored]) -> dict[str, tuple[Stored, ...]]:
    """The cells of each companion that has any, in the order of parameters and seeds."""
    found = {}
    for name, companion in job.experiment.companions().items():
        key = Identity.of(job.name, companion.experiment, job.threads, job.device).key
        of = [
            c for c in cells if c.meta["settings_key"] == key and c.meta["seed"] in companion.seeds
        ]
        if of:
            found[name] = tuple(sorted(of, key=lambda c: (str(c.meta["params"]), c.meta["seed"])))
    return found


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
        "not_comparable": not_comparable(experiment, collection.scope.paper),
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
                "cpu_seconds": cell.meta["cpu_seconds"],
                "peak_memory_mib": cell.meta["peak_memory_mib"],
                "finished": cell.meta["finished"],
                "git_commit": cell.meta["software"]["git_commit"],
                "certificate": CERTIFICATE in cell.meta["tables"],
            }
            for cell in cells
        ],
        "beside": {name: [cell.id for cell in cells] for name, cells in collection.beside.items()},
        "missing": [str(cell) for cell in collection.missing],
        "failures": [
            {"seed": cell.seed, "cell": cell.label, "error": cell.error}
            for cell in collection.failures
        ],
        "fill_commands": collection.fill_commands,
        "wall_seconds": round(sum(cell.meta["wall_seconds"] for cell in cells), 2),
    }


def reference_path(name: str) -> Path | None:
    """experiments/reference/<name>.csv, where there is one."""
    path = Path(__file__).resolve().parents[2] / "experiments" / "reference" / f"{name}.csv"
    return path if path.is_file() else None


ASIDE = ("grid", "report", "free")
"""Marks of fields that no departure is counted from: which cells there are, what is drawn, what does not matter."""


def departures(experiment: Experiment, paper: Experiment) -> list[str]:
    """One phrase for every setting that is not the paper's, such as "training.epochs=4 instead of 50".

    paper: the same experiment as its YAML file has it. Left out are grid fields (a reference row names its own grid
    point), those that only reports read, and those made with `free()`. Another kind of data, model, metric or training
    is one phrase, whatever else differs with it. Of a field that is a mapping only the paper's keys count: an entry
    added next to them changes none of its numbers.
    """
    return [
        f"{key}={found} instead of {wanted}"
        for key, found, wanted in _differing(experiment, paper, "")
    ]


def _differing(found: Any, wanted: Any, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, this run's value, the paper's) of every field that differs."""
    for one in fields(wanted):
        if not any(one.metadata.get(mark) for mark in ASIDE):
            yield from _field(one.name, getattr(found, one.name), getattr(wanted, one.name), prefix)


def _field(name: str, found: Any, wanted: Any, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    name = prefix + name
    if is_dataclass(wanted):
        kinds = getattr(found, "kind", None), getattr(wanted, "kind", None)
        if kinds[0] != kinds[1]:
            yield name, *kinds
        elif type(found) is type(wanted):
            yield from _differing(found, wanted, f"{name}.")
    elif isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in wanted:
            if found.get(key) != wanted[key]:
                yield f"{name}.{key}", found.get(key), wanted[key]
    elif found != wanted:
        yield name, found, wanted


def not_comparable(experiment: Experiment, paper: Experiment) -> str:
    """Why a run cannot be compared with the paper's numbers, '' where it can."""
    found = departures(experiment, paper)
    return f"not the paper's protocol: {', '.join(found)}" if found else ""


def said_of(manifest: Mapping[str, Any]) -> list[str]:
    """How a reported run departs from the paper (other data, another profile), from its manifest; a phrase each."""
    found = []
    if manifest.get("surrogate"):
        found.append("surrogate data, not the paper's data set")
    profile = str(manifest.get("profile") or "paper")
    if profile != "paper":
        found.append(f"profile={profile}: not the paper's protocol; nothing is scored")
    return found
