"""`hess-run list` and `hess-run plan`: what there is, what is stored, what it would cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from runner.contract.experiment import Cell
from runner.contract.schema import SettingError
from runner.run.config import experiment_names, preview
from runner.store.identity import Identity
from runner.store.job import Job
from runner.store.store import Store, Stored


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Costs:
    """Predicted cost of cells: the median of stored cells with the same parameters, else what the experiment says.

    Processor time, not wall time: it hardly depends on what else the machine was doing.
    """

    def __init__(self, stored: Sequence[Stored]) -> None:
        self._seen: dict[str, list[tuple[float, float]]] = {}
        for cell in stored:
            cost = (cell.meta["cpu_seconds"], cell.meta["peak_memory_mib"] / 1024)
            self._seen.setdefault(_params_key(cell.meta["params"]), []).append(cost)

    def __call__(self, cell: Cell) -> tuple[float, float]:
        """(seconds, GiB)"""
        seen = self._seen.get(_params_key(cell.params))
        if not seen:
            return cell.seconds, cell.memory_gib
        return statistics.median(s for s, _ in seen), max(m for _, m in seen)


def _params_key(params: object) -> str:
    return repr(sorted(dict(params).items()))  # type: ignore[call-overload]


def listing(outputs: Path) -> list[str]:
    """Lines of `hess-run list`."""
    rows = [("experiment", "paper", "cells a seed", "stored", "cost a seed", "reproduces")]
    for name in experiment_names():
        try:
            experiment = preview(name)
        except SettingError as error:
            rows.append((name, "", "", "", "", f"cannot be read: {error}"))
            continue
        key = Identity.of(name, experiment).key
        stored = [cell for cell in Store(outputs, name).all() if cell.meta["settings_key"] == key]
        seeds = sorted({cell.meta["seed"] for cell in stored})
        costs = Costs(stored)
        cells = list(experiment.cells())
        seconds = sum(costs(cell)[0] for cell in cells)
        where = f"{len(stored)} (seeds {_ranges(seeds)})" if stored else "0"
        rows.append((name, experiment.paper, str(len(cells)), where, duration(seconds), experiment.reproduces))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(part.ljust(w) for part, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _ranges(numbers: Sequence[int]) -> str:
    """42, 43, 44, 46 -> '42-44,46'."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def plan(jobs: Sequence[Job]) -> list[str]:
    """Lines of `hess-run plan`."""
    lines: list[str] = []
    total, peak, count, known = 0.0, 0.0, 0, 0
    for job in jobs:
        costs = Costs([c for c in job.store.all() if c.meta["settings_key"] == job.identity.key])
        failed = job.store.failed()
        lines.append(f"{job.name} seed={job.seed} profile={job.profile} outputs={job.outputs}")
        for cell_id, cell in job.cells():
            seconds, memory = costs(cell)
            stored = job.store.has(cell_id) and not job.force
            state = "stored" if stored else "to run, failed last time" if cell_id in failed else "to run"
            lines.append(f"  {cell_id}  {duration(seconds):>7}  {memory:5.1f} GiB  {state:7}  {cell.label}")
            count += 1
            known += stored
            if not stored:
                total += seconds
                peak = max(peak, memory * job.jobs)
    run = count - known
    lines.append(
        f"{count} cells: {known} stored, {run} to run"
        + (f"; about {duration(total)} of one core, up to {peak:.1f} GiB at a time" if run else "; nothing to do")
    )
    return lines
