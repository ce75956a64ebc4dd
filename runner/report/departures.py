"""How settings depart from the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from runner.contract import Experiment
from runner.store.job import PAPER

STAND_IN = "surrogate"
"""Kind of data set: random fields in place of real images."""


@dataclass(frozen=True)
class Departure:
    """A setting of a run that is not the paper's."""

    setting: str
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{self.setting}={self.found} instead of {self.wanted}"


ASIDE = ("grid", "report", "free")
"""Marks of fields that no departure is counted from: which cells there are, what is drawn, what
does not matter."""


def marked(experiment: Any, *marks: str) -> list[str]:
    """Names of the fields with one of these marks."""
    return [f.name for f in fields(experiment) if not f.metadata.keys().isdisjoint(marks)]


def with_marked(experiment: Experiment, source: Experiment, *marks: str) -> Experiment:
    """The settings, with those of another one in the fields with these marks."""
    return replace(experiment, **{name: getattr(source, name) for name in marked(source, *marks)})


def stand_in(experiment: Experiment, paper: Experiment) -> str:
    """The paper's data set where random fields replace it; "" where they do not."""
    here, there = (_kind_of_data(one) for one in (experiment, paper))
    return there if here == STAND_IN != there else ""


def _kind_of_data(experiment: Experiment) -> str:
    return str(getattr(getattr(experiment, "dataset", None), "kind", ""))


def is_papers(experiment: Experiment, paper: Experiment, profile: str) -> bool:
    """Whether these settings are the paper's, as far as its numbers and statements go."""
    if profile != PAPER:
        return False
    return not paper.paper or not (stand_in(experiment, paper) or departures(experiment, paper))


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
