"""From stored cells to a report: which cells belong together, which of them are judged, what is
missing, and where the report goes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from runner.contract import Experiment, Tables, figure_settings
from runner.contract.records import CERTIFICATE
from runner.contract.schema import identifying
from runner.report.commands import measuring
from runner.report.costs import Costs, total
from runner.report.departures import Lacking, lacking, scope_of, with_marked
from runner.report.place import Place, Protocol, place_of
from runner.report.scope import Scope
from runner.stats.tables import chosen
from runner.store.cells import within
from runner.store.identity import Identity, digest
from runner.store.job import PAPER, Job
from runner.store.store import Stored


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
        place = self.place
        seeds = place.paper.paper_seeds
        of_grid = [cell for cell in self.failures if cell.words == place.words]
        failed = sum(cell.seed in seeds for cell in of_grid)
        return scope_of(self.job.experiment, place.paper, place.profile, self.cells, failed)

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
        return with_marked(self.job.experiment, self.place.paper, "grid", "report")

    @property
    def lacking(self) -> list[Lacking]:
        """The cells that some seeds of the verdicts have and others lack."""
        if not self.scope.unmeasured:
            return []
        return lacking(self.place.paper, self.judged, self.scope.seeds)

    @property
    def replication(self) -> list[Stored]:
        """The cells of the second verdict; none where no seeds are declared, or not all stored."""
        seeds = self.scope.replication
        if seeds:
            return within(self.cells, self.place.paper, seeds)
        return []

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
        name = f"experiment={self.job.name}"
        return [measuring([name, *words], wanted) for words, wanted in seeds.items()]


def collect(jobs: Sequence[Job], protocol: Protocol, any_seed: bool = False) -> Collection:
    """Every stored cell with the settings of `jobs`, whatever grid or seed it was asked for by.

    jobs: of one experiment with the same settings; they may differ in grid and seed. any_seed: no
    seed was asked for, so that where cells are stored and none at a job's own seed, that seed is
    not missing.
    """
    place = place_of(jobs[0], protocol)
    job = replace(jobs[0], experiment=with_marked(jobs[0].experiment, place.experiment, "grid"))
    identity = job.identity
    store = job.store
    stored_cells = list(store.all())
    companions = companions_of(job, stored_cells)
    damage = tuple(store.quarantine(name) for name in sorted(store.damaged))
    of_companions = {cell.id for cells in companions.values() for cell in cells}
    of_settings = [cell for cell in stored_cells if cell.meta["settings_key"] == identity.key]
    cells = [cell for cell in of_settings if cell.id not in of_companions] or of_settings
    stored_seeds = {int(cell.meta["seed"]) for cell in cells}
    only_beside = {cell.meta["seed"] for cell in of_settings} - stored_seeds
    jobs = [one for one in jobs if one.seed not in only_beside]
    if any_seed and stored_seeds and stored_seeds.isdisjoint(one.seed for one in jobs):
        jobs = [replace(one, seed=min(stored_seeds)) for one in jobs]
    seeds = sorted(stored_seeds | {one.seed for one in jobs})
    wanted = _wanted(job, place, jobs, seeds)
    for cell in of_settings:
        wanted.pop(cell.id, None)
    for cell_id, failure in store.failed().items():
        if cell_id in wanted:
            wanted[cell_id] = replace(wanted[cell_id], error=str(failure["error"]))
    return Collection(
        job=job,
        place=place,
        cells=_in_order(cells, place.experiment),
        seeds=tuple(seeds),
        missing=tuple(wanted.values()),
        damage=damage,
        beside=companions,
    )


def with_lacking(tables: Tables, cells: Sequence[Lacking]) -> Tables:
    """Tables with rows for the lacking cells, as another seed has them, in which every float that
    is no parameter of the cell is missing: a group of rows that lacks some of its cells says so
    itself, and the judge counts them as lost."""
    import pandas as pd

    if not cells:
        return tables
    made = {}
    for name, table in tables.items():
        rows = [table]
        for cell in cells:
            copied = chosen(table, **cell.params, seed=cell.like).assign(seed=cell.seed)
            floats = [c for c in copied.select_dtypes("float") if c not in cell.params]
            rows.append(copied.assign(**dict.fromkeys(floats, math.nan)))
        made[name] = pd.concat(rows, ignore_index=True)
    return made


def _in_order(cells: Iterable[Stored], experiment: Experiment) -> tuple[Stored, ...]:
    """The cells in the order of the grid, then of the seed; others after them."""
    grid = [digest(dict(cell.params)) for cell in experiment.cells()]
    order = {params: i for i, params in enumerate(grid)}

    def place(cell: Stored) -> tuple[int, str, int]:
        params = cell.meta["params"]
        return order.get(digest(params), len(grid)), str(params), cell.meta["seed"]

    return tuple(sorted(cells, key=place))


def _wanted(
    job: Job, place: Place, jobs: Iterable[Job], seeds: Iterable[int]
) -> dict[str, Missing]:
    """Every cell that the report needs, by id: of the grid at these seeds, as far as verdicts read
    them, and those that the jobs asked for in addition."""
    of_paper = scope_of(job.experiment, place.paper, place.profile).seeds
    grid = list(place.experiment.cells())
    wanted = {}
    for seed in seeds:
        if of_paper and seed not in of_paper:
            continue
        for cell in grid:
            cell_id = job.identity.cell_id(cell, seed)
            wanted[cell_id] = Missing(seed, cell.label, "", place.words)
    # off the grid: the words of the grid would not measure it
    for asked in jobs:
        words = asked.overrides
        if asked.profile != PAPER:
            words = (f"profile={asked.profile}", *words)
        for cell_id, cell in asked.cells():
            wanted.setdefault(cell_id, Missing(asked.seed, cell.label, "", words))
    return wanted


def companions_of(job: Job, cells: Sequence[Stored]) -> dict[str, tuple[Stored, ...]]:
    """The cells of each companion that has any, in the order of parameters and seeds."""
    companions = {}
    for name, companion in job.experiment.companions().items():
        key = Identity.of(job.name, companion.experiment, job.threads, job.device).key
        of_settings = [cell for cell in cells if cell.meta["settings_key"] == key]
        found = within(of_settings, companion.experiment, companion.seeds)
        if found:
            found.sort(key=lambda cell: (str(cell.meta["params"]), cell.meta["seed"]))
            companions[name] = tuple(found)
    return companions


CELL_KEYS = ("wall_seconds", "cpu_seconds", "peak_memory_mib", "finished")
"""Keys of cell.json in the manifest of a report."""


def _cell_record(cell: Stored) -> dict[str, Any]:
    return {
        "id": cell.id,
        "params": cell.meta["params"],
        "seed": cell.meta["seed"],
        **{key: cell.meta[key] for key in CELL_KEYS},
        "git_commit": cell.meta["software"]["git_commit"],
        "certificate": CERTIFICATE in cell.meta["tables"],
    }


def a_seed(experiment: Experiment, cells: Sequence[Stored]) -> dict[str, Any]:
    """What a listing says of an experiment without composing it: the cells of one seed, and what
    they cost, by the medians of these."""
    grid = list(experiment.cells())
    cost = total(map(Costs(cells, grid), grid))
    return {
        "reproduces": experiment.reproduces,
        "paper_seeds": list(experiment.paper_seeds),
        "cells": len(grid),
        "seconds": round(cost.seconds, 2),
        "gib": round(cost.gib, 3),
        "bytes": round(cost.bytes),
    }


def manifest(collection: Collection) -> dict[str, Any]:
    """What a report was made from."""
    job = collection.job
    cells = collection.cells
    experiment = job.experiment
    beside = {}
    for name, of_companion in collection.beside.items():
        beside[name] = [cell.id for cell in of_companion]
    return {
        "experiment": job.name,
        "title": experiment.title,
        "paper": experiment.paper,
        "version": experiment.version,
        "profile": collection.place.profile,
        "changed": " ".join(collection.place.changed),
        "scope": collection.scope.record(),
        "settings": identifying(experiment),
        "settings_key": job.identity.key,
        "drawn_with": figure_settings(experiment),
        "threads": job.threads,
        "device": job.device,
        "seeds": list(collection.seeds),
        "cells": [_cell_record(cell) for cell in cells],
        "beside": beside,
        "missing": [str(cell) for cell in collection.missing],
        "failures": [
            {"seed": cell.seed, "cell": cell.label, "error": cell.error}
            for cell in collection.failures
        ],
        "fill_commands": collection.fill_commands,
        "wall_seconds": round(sum(cell.meta["wall_seconds"] for cell in cells), 2),
    }
