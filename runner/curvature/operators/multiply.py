"""Products with one vector or several, by the way that timings choose."""

from __future__ import annotations

import math
import time
import warnings

import torch
from torch import Tensor

from runner.curvature.function.errors import MeasurementError, first_line
from runner.curvature.operators.graphs import Graphs
from runner.curvature.operators.products import FactoredGraph, linearized

TIMED = 5
"""Products with one direction whose time is taken: the clock is slow next to a small network."""
TOGETHER = 4
"""Directions from which on they may go through the graph together."""
_WARM: list[bool] = []
"""Whether torch.func.linearize has run in this process: it takes seconds at first."""


def clock(device: torch.device) -> float:
    """Seconds of this process, which others do not change; of the wall for other devices."""
    if device.type == "cpu":
        return time.process_time()
    return time.perf_counter()


class Multiplication:
    """z (n,), or rows z (k, n), to H z, by graphs.

    batched: whether several rows go through a graph together, None before it was tried. seconds:
    the shortest product with one row. count: products with one row. writes: to tensors of the
    network, before its graphs were made.
    """

    writes = 0

    def __init__(self, graphs: Graphs) -> None:
        self.graphs = graphs
        self.device = graphs.flat.device
        self.batched: bool | None = None
        self.why_not = ""
        self.seconds = math.inf
        self.count = 0
        self.linear = ""

    def __call__(self, rows: Tensor) -> Tensor:
        if self.graphs.part == "gauss_newton":
            self._linearize()
        if rows.dim() == 1:
            return self._one(rows)
        if len(rows) >= TOGETHER and self.batched is None:
            self.batched = self._pays(rows)
        if len(rows) < TOGETHER or not self.batched:  # the same bits for the same rows
            return torch.stack([self._one(row) for row in rows])
        width = self.graphs.planned.width
        return torch.cat([self.graphs.apply(some, True) for some in rows.split(width)])

    def forget(self, writes: int) -> None:
        """Graphs that were made before tensors were written to."""
        self.graphs.kept = {}
        self.linear = ""
        self.writes = writes

    def words(self) -> list[str]:
        """How products are taken."""
        planned = self.graphs.planned
        found = ["graph kept" if planned.keep else "graph made for each product"]
        if planned.chunk is not None:
            found.append(f"pieces of {planned.chunk} examples")
        if self.linear == "linearize":
            found.append("linearize")
        if self.batched:
            found.append("vectors together")
        elif self.batched is not None:
            found.append(f"one vector at a time ({self.why_not})")
        return found

    def _one(self, row: Tensor) -> Tensor:
        self.count += 1
        if self.count > TIMED:
            return self.graphs.apply(row, False)
        image, spent = self._best(row, False, 1)
        self.seconds = min(self.seconds, spent)
        return image

    def _best(self, rows: Tensor, batched: bool, rounds: int) -> tuple[Tensor, float]:
        """A product, and the shortest of a few of them."""
        best = math.inf
        for _ in range(rounds):
            start = clock(self.device)
            image = self.graphs.apply(rows, batched)
            best = min(best, clock(self.device) - start)
        return image, best

    def _pays(self, rows: Tensor) -> bool:
        """Whether one timing shows that directions should go through the graph together."""
        width = min(self.graphs.planned.width, len(rows), 16)
        if width < 2:
            self.why_not = "memory"
            return False
        one = torch.stack([self._one(row) for row in rows[:2]])
        try:
            with warnings.catch_warnings():  # torch's about operations without a batching rule
                warnings.simplefilter("ignore")
                self.graphs.apply(rows[:width], True)
            together, spent = self._best(rows[:width], True, 2)
        except (RuntimeError, NotImplementedError, MeasurementError) as error:
            self.why_not = first_line(error)
            return False
        allowed = 1e-3 * float(one.abs().nan_to_num().max())
        self.why_not = "quicker"
        same = torch.allclose(together[:2], one, 1e-3, allowed, equal_nan=True)
        return spent / width < self.seconds and same

    def _linearize(self) -> None:
        """J v by `linearize` after as much time in products as it takes to make."""
        graphs = self.graphs
        costs = 1.0 if _WARM else 4.0
        spent = self.count * self.seconds if self.count else 0.0
        if self.linear or spent < costs or not graphs.planned.keep or len(graphs.kept) != 1:
            return
        (graph,) = graphs.kept.values()
        assert isinstance(graph, FactoredGraph)
        row = torch.ones(graphs.flat.size, dtype=graphs.flat.dtype, device=self.device)
        self.linear = "two backward passes"
        true = graphs.apply(row, False)
        try:
            batch = next(graphs.data.pieces(None)).batch
            graph.push = linearized(graphs.function, graphs.leaves, graph, batch)
            _WARM.append(True)
            graphs.apply(row, False)
            image, best = self._best(row, False, 3)
            if best > self.seconds:
                raise RuntimeError("slower")
            if not torch.allclose(image, true, rtol=1e-3, atol=1e-4 * float(true.abs().max())):
                raise RuntimeError("different")
            self.linear = "linearize"
            self.seconds = best
            self.batched = None
        except Exception:  # torch.func does not support every network
            return
        finally:
            if self.linear != "linearize":
                graph.push = None
