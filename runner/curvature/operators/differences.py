"""Differences of the gradients of a user's function, over all its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from runner.curvature.function.differences import Difference, Differences, Rows
from runner.curvature.function.function import Point, Tensors, dot, gradients, less, moved, norm
from runner.curvature.function.identities import by_group, in_double, noise
from runner.curvature.function.trees import tree_flatten
from runner.curvature.operators.checked import rounding
from runner.curvature.operators.operator import FunctionOperator
from runner.curvature.operators.products import FactoredGraph


class FunctionDifferences(Differences):
    """Of any part. double: whether a float64 copy is looked at; bar: counts gradients."""

    piece = "batch"

    def __init__(self, operator: FunctionOperator, double: bool, seed: int, bar: Any) -> None:
        self.operator, self.function, self.bar = operator, operator.function, bar
        self.wide, self.double = double, double or operator.dtype == torch.float64
        self.noun, self.cost = operator.noun, 3.0
        self.start = in_double(operator.values) if double else operator.values
        self.drawn = noise(self.function, self.start, seed)
        self.direction = self._rows(self.drawn)

    def product(self) -> Rows:
        """The operator's own, (d,) by group."""
        flat = self.operator.flat
        direction = flat.join([t.to(self.operator.dtype) for t in self.drawn])
        return self._rows(flat.split(self.operator @ direction))

    def at(self, step: float, centre: float = 0.0) -> Difference:
        if self.operator.part == "hessian":
            return Difference.of(self._gradient, step, centre)
        if self.operator.part == "empirical_fisher":
            value = self._over_data(self._of_examples)
            return Difference(self._row(value), self._row([0 * t for t in value]), 0.0)
        both = self._over_data(lambda batch: self._of_outputs(batch, step, centre))
        half = len(both) // 2
        return Difference(self._row(both[:half]), self._row(both[half:]), 0.0)

    def allowance(self) -> float:
        """Of a batch whose examples are fitted: its loss has few digits."""
        eps = 2.2e-16 if self.double else 1.2e-7
        return rounding(
            self.function, Point(self.start, self.wide, 1), self.operator.data.first, eps
        )

    def _rows(self, tensors: Tensors) -> Rows:
        rows = {}
        for group, members in by_group(self.function, tensors).items():
            rows[group] = torch.cat([t.reshape(-1) for t in members])
        return rows

    def _row(self, tensors: Tensors) -> Rows:
        return {group: row.unsqueeze(0) for group, row in self._rows(tensors).items()}

    def _over_data(self, of_batch: Callable[[Any], Tensors]) -> Tensors:
        """The weighted sum over batches."""
        total: Tensors = []
        for batch, share in self.operator.data.weighed():
            if share == 0:
                continue
            terms = [share * t for t in of_batch(batch)]
            self.bar.update(share)
            total = [a + b for a, b in zip(total, terms, strict=True)] if total else terms
        return total

    def _point(self, place: float) -> Point:
        return Point(moved(self.start, self.drawn, place), self.wide, 1)

    def _gradient(self, place: float) -> Rows:
        point = self._point(place)
        return self._row(
            self._over_data(lambda batch: self.function.gradient(point, batch).gradient)
        )

    def _of_examples(self, batch: Any) -> Tensors:
        """B^-1 sum_i g_i <g_i, d>, one example after the other."""
        layout = self.operator.data.require_layout(batch)
        total = [torch.zeros_like(v) for v in self.start.values()]
        for i in range(layout.examples):
            one = layout.cut(batch, i, i + 1)
            slopes = self.function.gradient(self._point(0.0), one).gradient
            along = dot(slopes, self.drawn) / layout.examples
            total = [s + along * u for s, u in zip(total, slopes, strict=True)]
        return total

    def _of_outputs(self, batch: Any, step: float, centre: float) -> Tensors:
        """J^T (A J d): outputs and slopes by differences, and one backward pass; then the turn,
        which is as large relative to it as that of the outputs is to J d."""
        point = self._point(centre)
        leaves = {k: v.detach().requires_grad_() for k, v in point.values.items()}
        with self.function.at(point._replace(values=leaves)):
            graph = FactoredGraph(self.function, leaves, batch, 1.0, None, self.wide)

        def outputs(place: float) -> Tensors:
            with self.function.at(self._point(place)):
                tensors, _ = tree_flatten(self.function.output(batch.input, self.wide))
            return [tensors[i].detach() for i in graph.places]

        def slope(side: int) -> Tensors:
            ends = [f + side * step * j for f, j in zip(base, tangents, strict=True)]
            for end in ends:
                end.requires_grad_()
            return gradients(graph.loss_at(ends), ends)

        base = [f.detach() for f in graph.outputs]
        ahead, behind = outputs(centre + step), outputs(centre - step)
        tangents = [t / (2 * step) for t in less(ahead, behind)]
        with self.function.at(point._replace(values=leaves)):
            curved = [t.detach() / (2 * step) for t in less(slope(1), slope(-1))]
            images = graph.pull(curved, False)
        zeros = [torch.zeros_like(v) for v in self.start.values()]
        value = [z if g is None else g for z, g in zip(zeros, images, strict=True)]
        turns = [(u - 2 * f + w) / step for u, f, w in zip(ahead, base, behind, strict=True)]
        share = norm(turns) / max(norm(tangents), 1e-300)
        return [*value, *(share * g for g in value)]
