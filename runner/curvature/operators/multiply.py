"""Products with one vector or several: together through a graph, or one after the other."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from runner.curvature.function.errors import MeasurementError, first_line
from runner.curvature.operators.graphs import Graphs

TOGETHER = 4
"""Directions from which on they may go through the graph together."""


class Multiplication:
    """z (n,), or rows z (k, n), to H z, by graphs.

    batched: whether several rows go through a graph together, None before it was tried. why_not:
    why they do not. writes: to tensors of the network, before its graphs were made.
    """

    writes = 0

    def __init__(self, graphs: Graphs) -> None:
        self.graphs = graphs
        self.batched: bool | None = None
        self.why_not = ""

    def __call__(self, rows: Tensor) -> Tensor:
        if rows.dim() == 1:
            return self.graphs.apply(rows, False)
        if len(rows) >= TOGETHER and self.batched is None:
            self.batched = self._agrees(rows[:2])
        if len(rows) < TOGETHER or not self.batched:  # the same bits for the same rows
            return self._one_by_one(rows)
        width = self.graphs.planned.width
        return torch.cat([self.graphs.apply(some, True) for some in rows.split(width)])

    def forget(self, writes: int) -> None:
        """Graphs that were made before tensors were written to."""
        self.graphs.kept = {}
        self.writes = writes

    def words(self) -> list[str]:
        """How products are taken."""
        planned = self.graphs.planned
        found = ["graph kept" if planned.keep else "graph made for each product"]
        if planned.chunk is not None:
            found.append(f"pieces of {planned.chunk} examples")
        if self.batched:
            found.append("vectors together")
        elif self.batched is not None:
            found.append(f"one vector at a time ({self.why_not})")
        return found

    def _one_by_one(self, rows: Tensor) -> Tensor:
        return torch.stack([self.graphs.apply(row, False) for row in rows])

    def _agrees(self, two: Tensor) -> bool:
        """Whether the sizes are such that several vectors go at once, and torch gives two the
        products that each has alone."""
        if self.graphs.planned.width < 2:
            self.why_not = "sizes"
            return False
        alone = self._one_by_one(two)
        try:
            with warnings.catch_warnings():  # torch's about operations without a batching rule
                warnings.simplefilter("ignore")
                together = self.graphs.apply(two, True)
        except (RuntimeError, NotImplementedError, MeasurementError) as error:
            self.why_not = first_line(error)
            return False
        self.why_not = "their products differ"
        allowed = 1e-3 * float(alone.abs().nan_to_num().max())
        return torch.allclose(together, alone, 1e-3, allowed, equal_nan=True)
