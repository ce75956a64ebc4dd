"""What verdicts read of the cells of a report: the paper's own grid and seeds, what they lack, and
the cells of a second verdict."""

from __future__ import annotations

import math
from collections.abc import Collection as Several, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from runner.contract import Experiment, Tables
from runner.report.answers.findings import Material, Subject
from runner.report.answers.labels import label
from runner.report.answers.reference import numbers_of
from runner.report.answers.scope import Scope
from runner.report.collect import Collection
from runner.report.departures import departures, restated, stand_in, with_marked
from runner.stats.tables import chosen
from runner.store.cells import Stored, merge, within
from runner.store.identity import digest


@dataclass(frozen=True)
class Judged:
    """What is shown and what is judged of stored cells."""

    collection: Collection

    @cached_property
    def scope(self) -> Scope:
        """What the report is."""
        found = self.collection
        place = found.place
        of_grid = [cell for cell in found.failures if cell.words == place.words]
        failed = sum(cell.seed in place.paper.paper_seeds for cell in of_grid)
        return scope_of(found.job.experiment, place.paper, place.profile, found.cells, failed)

    @property
    def _is_papers(self) -> bool:
        return self.scope.is_papers and bool(self.scope.paper)

    @property
    def cells(self) -> list[Stored]:
        """The cells that verdicts read."""
        found = self.collection
        if not self._is_papers:
            return list(found.cells)
        return within(found.cells, found.place.paper, self.scope.seeds)

    @property
    def experiment(self) -> Experiment:
        """The settings that verdicts read."""
        found = self.collection
        if not self._is_papers:
            return found.job.experiment
        return with_marked(found.job.experiment, found.place.paper, "grid", "report")

    @property
    def lacking(self) -> list[Lacking]:
        """The cells that some seeds of the verdicts have and others lack."""
        if not self.scope.unmeasured:
            return []
        return lacking(self.collection.place.paper, self.cells, self.scope.seeds)

    @property
    def replication(self) -> list[Stored]:
        """The cells of the second verdict; none where no seeds are declared, or not all stored."""
        found = self.collection
        seeds = self.scope.replication
        return within(found.cells, found.place.paper, seeds) if seeds else []

    @property
    def shown(self) -> list[Stored]:
        """The cells of figures and tables: all but those that only the second verdict reads."""
        further = {*self.scope.replication} - {*self.scope.seeds}
        return [cell for cell in self.collection.cells if cell.meta["seed"] not in further]

    @cached_property
    def material(self) -> Material:
        """What the report is made from."""
        found = self.collection
        beside = {name: merge(cells) for name, cells in found.beside.items()}
        shown = Subject(found.job.experiment, merge(self.shown), beside)
        same = len(self.cells) == len(self.shown) and self.experiment == shown.experiment
        judged = shown
        if self.lacking or not same:
            judged = Subject(self.experiment, with_lacking(merge(self.cells), self.lacking), beside)
        further = self.replication
        return Material(
            scope=self.scope,
            shown=shown,
            judged=judged,
            replication=Subject(self.experiment, merge(further), beside) if further else None,
            reference=numbers_of(found.job.name) if self.scope.paper else None,
        )


def scope_of(
    experiment: Experiment,
    paper: Experiment,
    profile: str,
    cells: Sequence[Stored] = (),
    failed: int = 0,
) -> Scope:
    """The scope of a report.

    Parameters
    ----------
    experiment
        The settings of the run.
    paper
        The experiment under the paper's protocol.
    profile
        Profile of the run.
    cells
        Every cell that the report shows.
    failed
        Cells of the paper's grid and seeds whose measurement failed.
    """
    found = Scope(
        paper=paper.paper,
        profile=profile,
        stand_in=stand_in(experiment, paper),
        departures=tuple(departures(experiment, paper)),
        restated=tuple(restated(experiment, paper)),
    )
    if not found.is_papers:
        return found
    of_grid = within(cells, paper, ())
    found = replace(
        found,
        seeds=tuple(paper.paper_seeds),
        replication=_replicated(paper, of_grid),
        lost=tuple(_lost(paper, of_grid, failed)),
        unmeasured=_unmeasured(paper, of_grid),
    )
    return replace(found, shown=tuple(_not_judged(paper, found, cells, of_grid)))


def _replicated(paper: Experiment, of_grid: Sequence[Stored]) -> tuple[int, ...]:
    """The seeds of the second verdict, none until every cell of them is stored."""
    seeds = tuple(paper.replication_seeds)
    stored = sum(cell.meta["seed"] in seeds for cell in of_grid)
    complete = stored and stored == len(seeds) * len(list(paper.cells()))
    return seeds if complete else ()


def _lost(paper: Experiment, of_grid: Sequence[Stored], failed: int) -> Iterator[str]:
    """What verdicts lack: seeds of the paper without any cell, and cells that failed. Neither is
    missing at random: what diverges fails, and who stops may have seen the result."""
    seeds = {*paper.paper_seeds}
    absent = sorted(seeds - {cell.meta["seed"] for cell in of_grid})
    if absent and len(absent) < len(seeds):
        yield f"{len(absent)} of {len(seeds)} seeds missing ({', '.join(map(str, absent))})"
    if failed:
        yield f"{failed} of {len(seeds) * len(list(paper.cells()))} cells failed"


@dataclass(frozen=True)
class Lacking:
    """A cell that a seed lacks. like: a seed that has it."""

    params: Mapping[str, Any]
    seed: int
    like: int


def lacking(paper: Experiment, cells: Sequence[Stored], seeds: Sequence[int]) -> list[Lacking]:
    """The cells of the paper's grid that some of `seeds` have and others, which have any cell, have
    not. cells: those that verdicts read."""
    stored: dict[str, set[int]] = {}
    for cell in cells:
        stored.setdefault(digest(cell.meta["params"]), set()).add(cell.meta["seed"])
    begun = {cell.meta["seed"] for cell in cells} & {*seeds}
    found = []
    for wanted in paper.cells():
        there = stored.get(digest(dict(wanted.params)), set()) & begun
        absent = sorted(begun - there) if there else []
        found += [Lacking(wanted.params, seed, min(there)) for seed in absent]
    return found


def _unmeasured(paper: Experiment, of_grid: Sequence[Stored]) -> str:
    """'3 of 60 cells are not measured (seeds 45, 46)'; "" where no begun seed lacks any."""
    absent = lacking(paper, of_grid, paper.paper_seeds)
    if not absent:
        return ""
    total = len(paper.paper_seeds) * len(list(paper.cells()))
    seeds = _named({cell.seed for cell in absent})
    return f"{len(absent)} of {total} cells are not measured ({seeds})"


def _named(seeds: Several[int]) -> str:
    word = "seed" if len(seeds) == 1 else "seeds"
    return f"{word} {', '.join(map(str, sorted(seeds)))}"


def _not_judged(
    paper: Experiment, scope: Scope, cells: Sequence[Stored], of_grid: Sequence[Stored]
) -> Iterator[str]:
    """What the cells outside the paper's grid and seeds have that those inside have not."""
    if not paper.paper:
        return
    grid = [cell.params for cell in paper.cells()]
    inside = set(map(id, of_grid))
    off = [cell for cell in cells if id(cell) not in inside]
    values: dict[str, dict[str, None]] = {}
    for cell in off:
        for name, value in cell.meta["params"].items():
            if all(params.get(name) != value for params in grid):
                values.setdefault(name, {})[str(value)] = None
    yield from (_values(name, list(found)) for name, found in values.items())
    if off and not values:
        yield f"{len(off)} cells outside the paper's grid"
    judged = {*scope.seeds, *scope.replication}
    seeds = {cell.meta["seed"] for cell in cells} - judged
    if scope.seeds and seeds:
        yield _named(seeds)


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


MOST = 3
"""Values that are named; of more, their number."""


def _values(name: str, values: Sequence[str]) -> str:
    """A parameter with its values, in words.

    >>> _values("draw_seed", ["22", "8"]), _values("activation", ["gelu"])
    ('draw seed 22 and 8', 'activation GELU')
    """
    if len(values) > MOST:
        return f"{label(name)}: {len(values)} further values"
    *first, last = map(label, values)
    named = f"{', '.join(first)} and {last}" if first else last
    return f"{label(name)} {named}"
