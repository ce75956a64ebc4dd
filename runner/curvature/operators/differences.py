"""Differences of the gradients of a user's function, over all its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from runner.curvature.function.comparison import Difference, Differences, Rows, of_quotients
from runner.curvature.function.data import Batch
from runner.curvature.function.function import Point, leaves_of, moved
from runner.curvature.function.identities import in_double, noise
from runner.curvature.function.vectors import Flat, divided, joined, norm
from runner.curvature.operators.checked import rounding
from runner.curvature.operators.operator import FunctionOperator
from runner.curvature.operators.products import FactoredGraph, outputs_at


class FunctionDifferences(Differences):
    """Of any part. copied: whether a float64 copy is looked at; bar: counts gradients."""

    piece = "batch"

    def __init__(self, operator: FunctionOperator, copied: bool, seed: int, bar: Any) -> None:
        self.operator = operator
        self.function = operator.function
        self.bar = bar
        self.copied = copied
        self.wide = copied or operator.dtype == torch.float64
        self.narrowed = self.function.record.narrowed
        self.narrowed.clear()
        self.noun = operator.noun
        self.cost = 3.0
        self.start = operator.values
        if copied:
            self.start = in_double(operator.values)
        self.drawn = noise(self.function, self.start, seed)
        self.direction = self._rows(self.drawn)

    def product(self) -> Rows:
        """The operator's own, (d,) by group."""
        return self._rows(self.operator @ self.drawn.to(self.operator.dtype))

    def at(self, step: float, centre: float = 0.0) -> Difference:
        if self.operator.part == "hessian":
            return Difference.of(self._gradient, step, centre)
        value, turn = self._over_data(lambda batch: self._of_outputs(batch, step, centre))
        found = self._row(value)
        return Difference(found, self._row(turn), dict.fromkeys(found, 0.0))

    def allowance(self) -> float:
        """Of a batch whose examples are fitted: its loss has few digits."""
        eps = 2.2e-16 if self.double else 1.2e-7
        at = Point(self.start, self.copied, 1)
        found = rounding(self.function, at, self.operator.data.first, eps)
        return of_quotients(found, self.steps)

    def _rows(self, vector: Tensor) -> Rows:
        return {group: vector[..., place] for group, place in self.operator.groups.items()}

    def _row(self, vector: Tensor) -> Rows:
        return self._rows(vector.unsqueeze(0))

    def _over_data(self, of_batch: Callable[[Batch], Tensor]) -> Tensor:
        """The weighted sum over batches."""
        total = torch.zeros((), dtype=self.drawn.dtype, device=self.drawn.device)
        for batch, share in self.operator.data.weighed():
            if share > 0:
                total = total + share * of_batch(batch)
                self.bar.update(share)
        return total

    def _point(self, place: float) -> Point:
        return Point(moved(self.start, self.drawn, place), self.copied, 1)

    def _gradient(self, place: float) -> Rows:
        point = self._point(place)
        return self._row(
            self._over_data(lambda batch: self.function.gradient(point, batch).gradient)
        )

    def _of_outputs(self, batch: Batch, step: float, centre: float) -> Tensor:
        """J^T (A J d), (2, n): outputs and slopes by differences, and one backward pass; then the
        turn, which is as large relative to it as that of the outputs is to J d."""
        point = self._point(centre)
        leaves = leaves_of(point.values)
        with self.function.at(point._replace(values=leaves)):
            graph = FactoredGraph(self.function, leaves, batch, 1.0, self.copied)
        shapes = dict(enumerate(graph.outputs))

        def outputs(place: float) -> Tensor:
            tensors = outputs_at(self.function, self._point(place), batch, graph.places)
            return joined(tensors).detach()

        base = joined(graph.outputs).detach()
        ahead = outputs(centre + step)
        behind = outputs(centre - step)
        apart = ahead - behind
        with self.function.at(point._replace(values=leaves)):
            change = graph.slope_at(base + apart / 2) - graph.slope_at(base - apart / 2)
            curved = change / (2 * step)
            images = graph.pull([*divided(curved, shapes).values()], False)
        value = Flat(self.start).join(images).detach()
        turn = 2 * norm(ahead + behind - 2 * base) / max(norm(apart), 1e-300)
        return torch.stack([value, turn * value])
