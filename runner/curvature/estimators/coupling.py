"""What a block-diagonal approximation of curvature discards."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from runner.curvature.estimators.operator import TOGETHER, Symmetric, own_generator
from runner.curvature.estimators.samples import student
from runner.curvature.estimators.work import Method
from runner.curvature.function.errors import require_counts
from runner.curvature.removed import refuses_removed
from runner.curvature.result import Interval


@dataclass(frozen=True, repr=False)
class DiscardedCoupling(Interval):
    """The share of curvature between groups.

    Attributes
    ----------
    value, low, high
        Φ and its 95 % interval, inside [0, 1] (equal to the value where exact).
    products, reason
        Products used; why the value is NaN, else "".
    diagonal, off_diagonal
        By group g: ‖H[g,g]‖_F², and the sum of ‖H[h,g]‖_F² over h other than g.
    """

    value: float
    low: float
    high: float
    products: int
    reason: str
    diagonal: dict[str, float]
    off_diagonal: dict[str, float]


@refuses_removed
def discarded_coupling(
    operator: Any,
    probes: int = 30,
    *,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> DiscardedCoupling:
    """Φ = 1 − Σ_g ‖H[g,g]‖_F² / ‖H‖_F² over the groups: the share of curvature between the blocks.

    Parameters
    ----------
    operator
        A `ParameterOperator` or `LayerOperator`, or any symmetric operator with `groups`, name →
        slice.
    probes
        Random vectors on each group, at least 2. Exact where n products cost no more.
    generator, progress
        As for `trace_estimate`.

    Returns
    -------
    DiscardedCoupling
        NaN with a reason for a zero matrix and one that is not finite.

    Raises
    ------
    ValueError
        For fewer than two probes or groups.

    Notes
    -----
    A product with a vector z on group g gives |H[h,g]z|² of all h, with means ‖H[h,g]‖_F², never
    negative. The interval is that of log(Φ / (1 − Φ)) by the delta method: its variance, 2 ‖M‖_F²
    with M = Σ_h c_h H[h,g]ᵀH[h,g], is the mean of (zᵢᵀMzⱼ)² over pairs of vectors, which needs no
    further products.
    """
    groups = getattr(operator, "groups", None)
    if groups is None:
        raise ValueError(f"expected an operator with groups, found {type(operator).__name__}")
    require_counts(2, probes=probes)
    if len(groups) < 2:
        raise ValueError(f"expected at least 2 groups, found {list(groups)}")
    symmetric = Symmetric(operator)
    coupling = _Coupling(symmetric, dict(groups), probes, own_generator(generator))
    return coupling.run(progress)


@dataclass
class _Group:
    """Products with vectors on one group: squares inside and outside of it, and of pairs of
    vectors."""

    inside: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    pairs: list[tuple[float, float]] = field(default_factory=list)

    def add(self, images: Tensor, rows: slice) -> None:
        near = images[:, rows]
        whole = images @ images.mT
        inside = near @ near.mT
        outside = whole - inside
        self.inside += inside.diagonal().tolist()
        self.outside += outside.diagonal().clamp(min=0).tolist()
        above = torch.ones_like(inside, dtype=torch.bool).triu(1)
        self.pairs += zip(inside[above].tolist(), outside[above].tolist(), strict=True)

    def variance(self, a: float, b: float) -> float:
        """Of the mean of z ᵀ(M_outside / b − M_inside / a) z."""
        squares = [(outside / b - inside / a) ** 2 for inside, outside in self.pairs]
        return 2 * math.fsum(squares) / max(len(squares), 1) / len(self.inside)


class _Coupling(Method[DiscardedCoupling]):
    """Rounds over the groups."""

    title = "discarded coupling"

    def __init__(
        self, symmetric: Symmetric, spans: dict[str, slice], probes: int, generator: torch.Generator
    ) -> None:
        super().__init__(symmetric, probes * len(spans))
        self.spans = spans
        self.generator = generator
        rounds = math.ceil(probes / TOGETHER)
        self.counts = [probes // rounds + (i < probes % rounds) for i in range(rounds)]
        self.groups = {g: _Group() for g in spans}

    def of_matrix(self, matrix: Tensor) -> DiscardedCoupling:
        squares = matrix.square()
        inside = {g: float(squares[s, s].sum()) for g, s in self.spans.items()}
        whole = {g: float(squares[:, s].sum()) for g, s in self.spans.items()}
        return self._share(inside, {g: whole[g] - inside[g] for g in inside})

    def ahead(self) -> int:
        if self.counts:
            return self.counts[0] * len(self.spans)
        return 0

    def step(self) -> None:
        count = self.counts.pop(0)
        results = {}
        for g, span in self.spans.items():
            z = self.symmetric.on_sphere_of(span, count, self.generator)
            results[g] = self.symmetric.rows(z)
        for g, images in results.items():
            self.groups[g].add(images, self.spans[g])

    def result(self) -> DiscardedCoupling | None:
        if not all(group.inside for group in self.groups.values()):
            return None
        inside = {}
        outside = {}
        for g, group in self.groups.items():
            inside[g] = math.fsum(group.inside) / len(group.inside)
            outside[g] = math.fsum(group.outside) / len(group.outside)
        found = self._share(inside, outside)
        if found.reason or not 0 < found.value < 1:
            return found
        ends = self._interval(math.fsum(inside.values()), math.fsum(outside.values()))
        return replace(found, low=min(ends[0], found.value), high=max(ends[1], found.value))

    def _share(self, inside: dict[str, float], outside: dict[str, float]) -> DiscardedCoupling:
        a = math.fsum(inside.values())
        b = math.fsum(outside.values())
        if not a + b > 0:
            return self.undefined("the matrix is zero")
        value = b / (a + b)
        unscaled = self.symmetric.unscaled
        products = self.symmetric.products
        kept = {g: unscaled(v, 2) for g, v in inside.items()}
        discarded = {g: unscaled(v, 2) for g, v in outside.items()}
        return DiscardedCoupling(value, value, value, products, "", kept, discarded)

    def _interval(self, a: float, b: float) -> tuple[float, float]:
        variances = [group.variance(a, b) for group in self.groups.values()]
        total = math.fsum(variances)
        probes = len(next(iter(self.groups.values())).inside)
        # Welch and Satterthwaite: one group with most of the variance has its own probes alone
        freedom = total**2 / max(math.fsum(v * v for v in variances), 1e-300) * (probes - 1)
        half = student(max(1.0, freedom)) * math.sqrt(total)
        centre = math.log(b / a)
        return _logistic(centre - half), _logistic(centre + half)

    def undefined(self, reason: str) -> DiscardedCoupling:
        nothing = dict.fromkeys(self.spans, math.nan)
        nan = math.nan
        return DiscardedCoupling(nan, nan, nan, self.symmetric.products, reason, nothing, nothing)


def _logistic(odds: float) -> float:
    """The share of these logarithmic odds."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))
