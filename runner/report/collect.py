"""From stored cells to a report: which cells belong together, which of them are judged, what is
missing, and where the report goes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.contract import Experiment
from runner.contract.records import CERTIFICATE
from runner.report.scope import Scope, judged_settings, scope_of
from runner.store.cells import within
from runner.store.identity import Identity, digest, settings as settings_of
from runner.store.job import PAPER, Job
from runner.store.store import Stored

Protocol = Callable[[str, str], Experiment]
"""(experiment name, profile) -> that experiment as its YAML file has it under the profile, nothing
changed."""


@dataclass(frozen=True)
class Place:
    """Where the report of some settings goes, and the grid whose cells it needs.

    `<outputs>/<experiment>` and the grid of the YAML file for the paper's protocol;
    `<outputs>/<experiment>/<profile>` likewise for a profile; a folder of its own below that, named
    after the settings, and the grid asked for, for anything else. So a quick look never replaces
    finished results.
    """

    folder: Path
    experiment: Experiment
    words: tuple[str, ...]
    """What selects these settings on the command line, besides experiment and seed."""
    paper: Experiment
    """The experiment under the paper's protocol: what departures are counted from."""
    profile: str = PAPER
    changed: tuple[str, ...] = ()
    """Overrides that make these settings neither the paper's protocol nor a profile's."""


def place_of(job: Job, protocol: Protocol) -> Place:
    """The place of the report of a job's settings."""
    outputs = (f"outputs={job.outputs}",) if str(job.outputs) != "outputs" else ()
    paper = protocol(job.name, PAPER)
    if job.identity.key == Identity.of(job.name, paper).key:
        return Place(job.store.root, paper, outputs, paper)
    profile = (f"profile={job.profile}",)
    if job.profile != PAPER:
        plain = protocol(job.name, job.profile)
        if job.identity.key == Identity.of(job.name, plain).key:
            return Place(
                job.store.root / job.profile, plain, (*profile, *outputs), paper, job.profile
            )
    folder = job.store.root / f"{job.profile}-{job.identity.key[:8]}"
    changed = tuple(word for word in job.overrides if not word.startswith("outputs="))
    return Place(folder, job.experiment, (*profile, *job.overrides), paper, job.profile, changed)


@dataclass(frozen=True)
class Missing:
    """A cell that is not stored: what it is, why it failed last time ("" where it did not), and the
    words that ask for it on the command line, besides experiment and seed."""

    seed: int
    label: str
    error: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"seed={self.seed} {self.label}"


@dataclass(frozen=True)
class Collection:
    """The stored cells of one experiment under one set of settings, over all seeds. job: with the
    grid of the report.

    cells: in the order of the grid, then of the seed. missing: every cell that is not stored, of
    the grid (for the seeds asked for or found) and of those that the jobs asked for in addition.
    """

    job: Job
    place: Place
    cells: tuple[Stored, ...]
    seeds: tuple[int, ...]
    missing: tuple[Missing, ...]
    damage: tuple[str, ...] = ()
    """A line for each cell that was found damaged and moved away."""
    beside: Mapping[str, tuple[Stored, ...]] = field(default_factory=dict)
    """Stored cells of the companions of these settings (`Experiment.companions`), by name."""

    @cached_property
    def scope(self) -> Scope:
        """What the report is."""
        return scope_of(self.job.experiment, self.place.paper, self.place.profile, self.cells)

    @property
    def judged(self) -> list[Stored]:
        """The cells that verdicts read."""
        if not (self.scope.is_papers and self.scope.paper):
            return list(self.cells)
        return within(self.cells, self.place.paper, self.scope.seeds)

    @property
    def judged_experiment(self) -> Experiment:
        """The settings that verdicts read."""
        if not (self.scope.is_papers and self.scope.paper):
            return self.job.experiment
        return judged_settings(self.job.experiment, self.place.paper)

    @property
    def replication(self) -> list[Stored]:
        """The cells of the second verdict; none where no seeds are declared, or not all stored."""
        seeds = self.scope.replication
        return within(self.cells, self.place.paper, seeds) if seeds else []

    @property
    def shown(self) -> list[Stored]:
        """The cells of figures and tables: all but those that only the second verdict reads."""
        further = {*self.scope.replication} - {*self.scope.seeds}
        return [cell for cell in self.cells if cell.meta["seed"] not in further]

    @property
    def failures(self) -> tuple[Missing, ...]:
        """The missing cells that failed last time."""
        return tuple(cell for cell in self.missing if cell.error)

    @property
    def fill_commands(self) -> list[str]:
        """Commands that measure what is missing: one for the grid, one for each way to ask for
        other cells."""
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

    jobs: of one experiment with the same settings; they may differ in grid and seed. any_seed: no
    seed was asked for, so that where cells are stored and none at a job's own seed, that seed is
    not missing.
    """
    place = place_of(jobs[0], protocol)
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
    papers = scope_of(job.experiment, place.paper, place.profile).seeds
    wanted = {
        identity.cell_id(cell, seed): Missing(seed, cell.label, "", place.words)
        for seed in seeds
        for cell in grid
        if not papers or seed in papers
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
    return {
        "experiment": job.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "version": experiment.version,
        "profile": collection.place.profile,
        "changed": " ".join(collection.place.changed),
        "scope": collection.scope.record(),
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


REFERENCE = Path(__file__).resolve().parents[2] / "experiments" / "reference"
"""Folder of the papers' values."""


def reference_path(name: str) -> Path | None:
    """experiments/reference/<name>.csv, where there is one."""
    path = REFERENCE / f"{name}.csv"
    return path if path.is_file() else None
