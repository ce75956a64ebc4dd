"""The scope of a report, from how its settings and cells depart from the paper's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from runner.contract import Experiment
from runner.report.labels import label
from runner.report.scope import STAND_IN, Departure, Scope
from runner.store.cells import Stored, within
from runner.store.identity import digest


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
    here, there = (_kind_of_data(one) for one in (experiment, paper))
    found = Scope(
        paper=paper.paper,
        profile=profile,
        stand_in=there if here == STAND_IN != there else "",
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


def _kind_of_data(experiment: Experiment) -> str:
    return str(getattr(getattr(experiment, "dataset", None), "kind", ""))


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


def _named(seeds: Collection[int]) -> str:
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


ASIDE = ("grid", "report", "free")
"""Marks of fields that no departure is counted from: which cells there are, what is drawn, what
does not matter."""


def marked(experiment: Any, *marks: str) -> list[str]:
    """Names of the fields with one of these marks."""
    return [f.name for f in fields(experiment) if not f.metadata.keys().isdisjoint(marks)]


def with_marked(experiment: Experiment, source: Experiment, *marks: str) -> Experiment:
    """The settings, with those of another one in the fields with these marks."""
    return replace(experiment, **{name: getattr(source, name) for name in marked(source, *marks)})


def departures(experiment: Experiment, paper: Experiment) -> list[Departure]:
    """Every setting that is not the paper's.

    Left out are grid fields (a reference row names its own grid point), those that only reports
    read, and those made with `free()`. Another kind of data, model, metric or training is one
    departure, whatever else differs with it. Of a field that is a mapping only the paper's keys
    count: an entry added next to them changes none of its numbers.
    """
    return list(_differing(experiment, paper, ""))


def _differing(found: Any, wanted: Any, prefix: str) -> Iterator[Departure]:
    """Every field that differs."""
    aside = marked(wanted, *ASIDE)
    for one in fields(wanted):
        if one.name not in aside:
            name = one.name
            yield from _field(f"{prefix}{name}", getattr(found, name), getattr(wanted, name))


def _field(name: str, found: Any, wanted: Any) -> Iterator[Departure]:
    if is_dataclass(wanted):
        kinds = getattr(found, "kind", None), getattr(wanted, "kind", None)
        if kinds[0] != kinds[1]:
            yield Departure(name, *map(str, kinds))
        elif type(found) is type(wanted):
            yield from _differing(found, wanted, f"{name}.")
    elif isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in wanted:
            if found.get(key) != wanted[key]:
                yield Departure(f"{name}.{key}", str(found.get(key)), str(wanted[key]))
    elif found != wanted:
        yield Departure(name, str(found), str(wanted))


def restated(experiment: Experiment, paper: Experiment) -> Iterator[Departure]:
    """Settings that only reports read and that are not those of the YAML file."""
    for name in marked(paper, "report"):
        yield from _field(name, getattr(experiment, name), getattr(paper, name))
