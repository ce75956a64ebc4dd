"""How a run departs from the paper's protocol: its settings against those of the experiment's own YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any

from runner.contract import Experiment

ASIDE = ("grid", "report", "free")
"""Marks of fields that no departure is counted from: which cells there are, what is drawn, what does not matter."""


def departures(experiment: Experiment, paper: Experiment) -> list[str]:
    """One phrase for every setting that is not the paper's, such as "training.epochs=4 instead of 50".

    paper: the same experiment as its YAML file has it. Left out are grid fields (a reference row names its own grid
    point), those that only reports read, and those made with `free()`. Another kind of data, model, metric or training
    is one phrase, whatever else differs with it. Of a field that is a mapping only the paper's keys count: an entry
    added beside them changes none of its numbers.
    """
    return [f"{key}={found} instead of {wanted}" for key, found, wanted in _differing(experiment, paper, "")]


def _differing(found: Any, wanted: Any, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    """(dotted name, this run's value, the paper's) of every field that differs."""
    for field in fields(wanted):
        if not any(field.metadata.get(mark) for mark in ASIDE):
            yield from _field(field, getattr(found, field.name), getattr(wanted, field.name), prefix)


def _field(field: Field[Any], found: Any, wanted: Any, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    name = prefix + field.name
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
    """Why a run cannot be held against the paper's numbers, '' where it can."""
    found = departures(experiment, paper)
    return f"not the paper's protocol: {', '.join(found)}" if found else ""


def said_of(manifest: Mapping[str, Any]) -> list[str]:
    """How a reported run departs from the paper (other data, another profile), from its manifest; a phrase each."""
    found = []
    if manifest.get("surrogate"):
        found.append("surrogate data, not the paper's data set")
    profile = str(manifest.get("profile") or "paper")
    if profile != "paper":
        found.append(f"profile={profile}: not the paper's protocol")
    return found
