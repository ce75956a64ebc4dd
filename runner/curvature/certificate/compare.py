"""Products of an operator against differences of gradients: the step, the error at every node, what cannot be told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runner.curvature.certificate.causes import largest_ratio, nan_last
from runner.curvature.matrix_free.probes import norm_of, whole_products
from runner.curvature.matrix_free.reference import Vectors, central

STEPS = tuple(10.0**-k for k in (2, 3, 4, 5, 6, 7))
COARSE_STEPS = (0.1, 0.03, 0.01, 0.003)
"""Of the float64 copy, and of a network that has none."""


class Differences:
    """Differences of one operator's gradient field, along one direction, at the step that suits it."""

    def __init__(self, reference: Any, direction: Vectors) -> None:
        self.reference, self.direction = reference, direction
        self.steps = STEPS if getattr(reference, "double", True) else COARSE_STEPS
        self.step = self.steps[0]

    def at(self, piece: int, step: float) -> Vectors:
        if hasattr(self.reference, "difference"):
            return self.reference.difference(self.direction, piece, step)
        return central(lambda shift: self.reference.gradient(shift, piece), self.direction, step)

    def best(self, piece: int, tolerance: float) -> tuple[Vectors, Vectors]:
        """(difference, its distance to that of the next step) at the last good step, else the best of all steps."""
        place = self.steps.index(self.step)
        if piece > 0:
            found = self._pair(piece, place)
            if largest_ratio(found[1], found[0]) < tolerance / 20:
                return found
        pairs = [self._pair(piece, k) for k in range(len(self.steps) - 1)]
        place = min(range(len(pairs)), key=lambda k: nan_last(largest_ratio(pairs[k][1], pairs[k][0])))
        if piece == 0:
            self.step = self.steps[place]
        return pairs[place]

    def noise(self) -> float:
        """Norm that the rounding of gradients has in a difference, over the step."""
        reference, eps = self.reference, torch.finfo(torch.float64).eps
        if not getattr(reference, "double", True):
            eps = max(torch.finfo(r.dtype).eps for r in self.direction.values())
        with reference.quiet() if hasattr(reference, "quiet") else nullcontext():
            zero = {v: torch.zeros_like(r) for v, r in self.direction.items()}
            found = [reference.gradient(zero, piece) for piece in range(reference.examples)]
        return 1e3 * eps * max(norm_of(g) for gradients in found for g in gradients.values()) / self.step

    def _pair(self, piece: int, place: int) -> tuple[Vectors, Vectors]:
        one, other = (self.at(piece, self.steps[k]) for k in (place, place + 1))
        return one, {v: one[v] - other[v] for v in one}


@dataclass(frozen=True)
class Expected:
    """What the products should be at each node, and how far neighbouring steps differ there."""

    value: Vectors
    doubt: Vectors

    @classmethod
    def mean(cls, found: Sequence[tuple[Vectors, Vectors]], weights: Sequence[float] | None = None) -> Expected:
        """Of the pieces' differences; weights: their shares, which add up to one (default equal)."""
        shares = [1 / len(found)] * len(found) if weights is None else weights

        def over(part: int, v: str) -> Tensor:
            pieces = (share * pair[part][v].double() for share, pair in zip(shares, found, strict=True))
            return torch.stack([p.abs() if part else p for p in pieces]).sum(0)

        return cls({v: over(0, v) for v in found[0][0]}, {v: over(1, v) for v in found[0][0]})

    def errors(
        self, own: Vectors, whole: Vectors, dtype: torch.dtype, tolerance: float, beside: Vectors | None = None
    ) -> dict[str, float]:
        """Relative error at each node; where the value is below the roundings of the product and of the difference, it
        counts against those. beside: what the product is added to, whose rounding it cannot change."""
        largest = max(norm_of(e) for e in self.value.values())
        slack = torch.finfo(dtype).eps * 64
        found = {}
        for v, e in self.value.items():
            size = max(norm_of(whole[v]), 0.0 if beside is None else norm_of(beside[v]))
            floor = slack * size + 20 * norm_of(self.doubt[v]) + 1e-10 * largest
            scale = max(norm_of(e), floor / tolerance)
            error = norm_of(own[v] - e)
            found[v] = error / scale if scale > 0 else (0.0 if error == 0 else math.inf)
        return found

    def blunt(self, rounding: float) -> list[str]:
        """Nodes whose difference is too uncertain to certify anything."""
        return [v for v, m in self.value.items() if norm_of(self.doubt[v]) > max(0.05 * norm_of(m), rounding)]


def products_of(operator: Any, direction: Vectors) -> tuple[Vectors, Vectors]:
    """(the products, those of the whole that the operator is a part of) at every node, in float64."""
    rows = {v: r.unsqueeze(0).to(operator.dtype) for v, r in direction.items()}
    own, whole = whole_products(operator, rows)
    return tuple({v: p[0].double() for v, p in found.items()} for found in (own, whole))  # type: ignore[return-value]


def errors_alone(
    operator: Any, direction: Vectors, found: list[tuple[Vectors, Vectors]], whole: Vectors | None, tolerance: float
) -> list[float]:
    """Error of the product of each example alone; whole: the batch's, beside which an example may be nothing."""
    if not hasattr(operator, "single"):
        return []
    errors = []
    for b, pair in enumerate(found):
        try:
            own, own_whole = products_of(operator.single(b), direction)
            now = Expected.mean([pair]).errors(own, own_whole, operator.dtype, tolerance, whole)
            errors.append(max(now.values(), key=nan_last))
        except (ValueError, RuntimeError):
            errors.append(math.nan)
    return errors
