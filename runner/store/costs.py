"""Predicted time, memory and disk space of cells, and sums of them in words."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from runner.contract import Cell, Experiment
from runner.store.store import Stored


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 3.6e6 else f"{seconds / 3.156e7:.3g} years"


TAKEN_UP = 3.0
"""How much longer than a stored cell an experiment may say before the cell counts as one whose
training was taken from a checkpoint; for cells stored before that was recorded."""


class Cost(NamedTuple):
    """What a cell takes: processor time, memory, and bytes of disk (0 where that is not known)."""

    seconds: float
    gib: float
    bytes: float = 0


def total(costs: Iterable[Cost]) -> Cost:
    """What cells take one after the other."""
    every = list(costs)
    return Cost(
        sum(cost.seconds for cost in every),
        max((cost.gib for cost in every), default=0.0),
        sum(cost.bytes for cost in every),
    )


def price(costs: Sequence[Cost], processes: int = 1) -> str:
    """The sum in words.

    >>> price([Cost(90.0, 0.5, 2e5), Cost(60.0, 1.0, 1e5)])
    'about 2 min of one core, up to 1.0 GiB at a time, 0.3 MB on disk'
    """
    seconds, gib, size = total(costs)
    disk = f"{size / 1e6:.2g} MB on disk" if size else "disk not known"
    if size and not all(cost.bytes for cost in costs):
        disk = f"at least {disk}"
    peak = gib * processes
    return f"about {duration(seconds)} of one core, up to {peak:.1f} GiB at a time, {disk}"


class Costs:
    """Predicted cost of cells: the median of stored cells with the same parameters that trained,
    else the longest of the stored ones or what the experiment says.

    Processor time, not wall time: it hardly depends on what else the machine was doing. What the
    experiment says is scaled by how the stored cells of `grid` that trained compare with it.
    """

    def __init__(self, stored: Sequence[Stored], grid: Sequence[Cell] = ()) -> None:
        self._seen: dict[str, list[Mapping[str, Any]]] = {}
        self._known: dict[str, Cost] = {}
        sizes: dict[str, list[int]] = {}
        for cell in stored:
            key = _params_key(cell.meta["params"])
            self._seen.setdefault(key, []).append(cell.meta)
            sizes.setdefault(key, []).append(cell.files.size(cell.id))
        self._bytes = {key: statistics.median(of) for key, of in sizes.items()}
        self._usual_bytes = 0.0
        if sizes:
            self._usual_bytes = statistics.median(self._bytes.values())
        pairs = [(cell.seconds, self._trained(_params_key(cell.params))) for cell in grid]
        known = [(seconds, statistics.median(trained)) for seconds, trained in pairs if trained]
        predicted = sum(seconds for seconds, _ in known)
        self._pace = 1.0
        if known:
            self._pace = sum(took for _, took in known) / predicted

    def __call__(self, cell: Cell) -> Cost:
        key = _params_key(cell.params)
        if key not in self._known:
            seconds, gib = self._time(cell, self._seen.get(key, []), self._trained(key))
            self._known[key] = Cost(seconds, gib, self._bytes.get(key, self._usual_bytes))
        return self._known[key]

    def _trained(self, key: str) -> list[float]:
        return [
            meta["cpu_seconds"] for meta in self._seen.get(key, []) if meta.get("resumed") is False
        ]

    def _time(
        self, cell: Cell, seen: Sequence[Mapping[str, Any]], trained: Sequence[float]
    ) -> tuple[float, float]:
        """(seconds, GiB)"""
        if not seen:
            return cell.seconds * self._pace, cell.memory_gib
        memory = max(meta["peak_memory_mib"] for meta in seen) / 1024
        if trained:
            return statistics.median(trained), memory
        longest = max(meta["cpu_seconds"] for meta in seen)
        return (cell.seconds if cell.seconds > TAKEN_UP * longest else longest), memory


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


def _params_key(params: object) -> str:
    return repr(sorted(dict(params).items()))  # type: ignore[call-overload]
