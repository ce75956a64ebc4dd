"""Products along one direction next to differences: what agrees, and what does not.

Where one step agrees at a node, its product is right. Else each piece (an example, or all data)
takes the step whose neighbour agrees best with it. Where none does, a kink lies within every step
(a ReLU at 0): the piece is named, and nothing can be told of the nodes that its slopes on both
sides leave open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from runner.curvature.estimators.estimate import norm_of
from runner.curvature.function.differences import Difference, Differences, Rows, Vectors
from runner.curvature.function.errors import some

SMALL = 1e-6
"""Nodes whose product is smaller than this share of the largest count against that."""


def worst_of(errors: Mapping[str, float]) -> float:
    """The largest error, NaN before all."""
    values = list(errors.values()) or [math.nan]
    if any(map(math.isnan, values)):
        return math.nan
    return max(values)


JUMP = 0.1
BLUNT = 2e-3
"""Relative distance of neighbouring differences that a jump of the gradient leaves at every step;
and the one from which on a difference is no evidence."""


@dataclass
class Product:
    """What one method gives along the direction, (d,) by node, in float64. whole: of the matrix
    that it is a part of, whose roundings it has."""

    method: str
    own: Vectors
    whole: Vectors
    errors: dict[str, float]
    expected: Vectors = field(default_factory=dict)

    @classmethod
    def of(cls, method: str, own: Mapping[str, Tensor], whole: Mapping[str, Tensor]) -> Product:
        wide = {v: t.double() for v, t in own.items()}
        errors = dict.fromkeys(wide, math.inf)
        return cls(method, wide, {v: t.double() for v, t in whole.items()}, errors)


class Comparison:
    """Products next to the differences of one gradient, at step after step."""

    def __init__(self, differences: Differences, dtype: torch.dtype, tolerance: float) -> None:
        self.differences = differences
        self.dtype = dtype
        self.tolerance = tolerance
        self.tried: list[Difference] = []
        self.gradients = 0.0

    def run(self, products: Sequence[Product], most: float) -> None:
        """Steps until every node agrees at one of them, or `most` gradients are spent; at least two
        where none agrees."""
        for step in self.differences.steps:
            self._at(step)
            newest = self.tried[-1]
            value = {v: rows.double().sum(0) for v, rows in newest.value.items()}
            for product in products:
                now = self.errors(product, value)
                product.errors = {v: min(now[v], product.errors[v]) for v in now}
            spent = self.gradients > most and len(self.tried) > 1
            if self.agree(products) or spent:
                break

    def _at(self, step: float) -> Difference:
        self.gradients += self.differences.cost
        self.tried.append(self.differences.at(step))
        return self.tried[-1]

    def agree(self, products: Sequence[Product]) -> bool:
        return all(e <= self.tolerance for product in products for e in product.errors.values())

    def errors(
        self, product: Product, value: Vectors, doubt: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Relative error at each node; where the value is below the roundings of both sides, it
        counts against those. doubt: of the value at a node, absolute."""
        largest = max(norm_of(expected) for expected in value.values())
        slack = 64 * torch.finfo(self.dtype).eps
        errors = {}
        for v, expected in value.items():
            floor = slack * norm_of(product.whole[v]) + 10 * self.rounding + 1e-10 * largest
            floor += 0.0 if doubt is None else 3 * doubt[v]
            scale = max(norm_of(expected), floor / self.tolerance, 1e-300)
            apart = norm_of(product.own[v] - expected) / scale
            errors[v] = math.inf if math.isnan(apart) else apart
        return errors

    @property
    def rounding(self) -> float:
        """Of the differences at the largest step."""
        return self.tried[0].rounding

    def settled(self) -> Settled:
        """Each piece at the step whose neighbour agrees best with it."""
        scales = self._scales()
        gaps = []
        for one, other in zip(self.tried, self.tried[1:], strict=False):
            gaps.append(_relative(one.value, scales, other.value))
        gap = torch.stack(gaps)
        turn = torch.stack([_relative(one.turn, scales) for one in self.tried])
        bends = turn[:-1] > 10 * gap.clamp_min(self.tolerance / 4)
        kinked = bends & (turn[1:] > turn[:-1] / 2)
        doubts = (gap + torch.where(kinked, turn[:-1], 0.0)).nan_to_num(math.inf)
        best = doubts.amax(1).argmin(0)
        pieces = torch.arange(len(best), device="cpu")
        doubt = doubts[best, :, pieces].T
        value = {}
        for v in scales:
            rows = torch.stack([one.value[v].double() for one in self.tried])
            value[v] = rows[best.to(rows.device), pieces.to(rows.device)]
        turned = kinked.any(1)[best, pieces] & (doubt.amax(0) > self.tolerance / 4)
        waiting = turned | (doubt.amax(0) > JUMP)
        return Settled(value, scales, doubt, set(waiting.nonzero().flatten().tolist()))

    def _scales(self) -> dict[str, float]:
        sizes = {}
        for v in self.tried[0].value:
            sizes[v] = min(norm_of(one.value[v].double().sum(0)) for one in self.tried)
        least = max(SMALL * max(sizes.values()), 10 * self.rounding / self.tolerance, 1e-300)
        return {v: max(size, least) for v, size in sizes.items()}

    def beyond_rounding(self, settled: Settled) -> None:
        """Adds kinks so near that a network in lower precision need not be on the same side as its
        float64 copy."""
        reach = 16 * torch.finfo(self.dtype).eps
        ends = [self.differences.at(reach / 10, side * reach).value for side in (-2, 2)]
        self.gradients += 2 * self.differences.cost
        apart = [_relative(end, settled.scales, settled.value) for end in ends]
        largest = torch.stack(apart).amax(0)
        near = largest.amax(0) > self.tolerance / 4
        settled.doubts = settled.doubts + torch.where(near, largest, 0.0)
        settled.kinks |= set(near.nonzero().flatten().tolist())


@dataclass
class Settled:
    """The differences of all pieces, how far neighbouring steps or the slopes on both sides of a
    kink differ, (nodes, pieces), and the pieces with a kink."""

    value: Rows
    scales: dict[str, float]
    doubts: Tensor
    kinks: set[int]

    @property
    def doubt(self) -> dict[str, float]:
        """At each node, of all pieces."""
        return dict(zip(self.scales, self.doubts.sum(1).tolist(), strict=True))

    @property
    def pieces(self) -> int:
        return len(next(iter(self.value.values())))

    @property
    def total(self) -> Vectors:
        """The sum over the pieces."""
        return {v: rows.sum(0) for v, rows in self.value.items()}


def _relative(rows: Rows, scales: Mapping[str, float], other: Rows | None = None) -> Tensor:
    """Sizes of the rows, or of their distance from others, (nodes, pieces)."""
    sizes = []
    for v, scale in scales.items():
        vectors = rows[v] if other is None else rows[v] - other[v]
        sizes.append(vectors.double().norm(dim=1).cpu() / scale)
    return torch.stack(sizes)


@dataclass
class Verdict:
    """What is wrong, of which nodes nothing can be told, and notes."""

    wrong: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    nodes: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    kinks: tuple[int, ...] = ()

    def look(self, comparison: Comparison, products: Sequence[Product]) -> None:
        """Why not every node agrees at one step."""
        allowed = comparison.differences.allowance()
        if allowed > comparison.tolerance:
            comparison.tolerance = allowed
            self.notes.append(f"examples are fitted; their loss allows errors of {allowed:.0e}")
        settled = comparison.settled()
        self._compare(comparison, settled, products)
        rounds = comparison.dtype != torch.float64 and comparison.differences.double
        if rounds and not comparison.agree(products):
            comparison.beyond_rounding(settled)
            self._compare(comparison, settled, products)
        self.kinks = tuple(sorted(settled.kinks))
        if len(self.kinks) == settled.pieces > 1:
            self.untold.append(
                f"a kink lies within every usable step in all {settled.pieces} examples: the "
                "second derivative is not defined there, and nothing is certified"
            )
            for product in products:
                self.nodes |= dict.fromkeys(product.errors)
                product.errors = dict.fromkeys(product.errors, math.nan)
            return
        for product in products:
            self._judge(comparison, settled, product)
        if self.kinks and settled.pieces > 1:
            self._name_kinks(comparison.differences.piece, settled.pieces)

    def _compare(
        self, comparison: Comparison, settled: Settled, products: Sequence[Product]
    ) -> None:
        doubt = {}
        for v, relative in settled.doubt.items():
            doubt[v] = relative * settled.scales[v] if relative < BLUNT else 0.0
        for product in products:
            product.expected = settled.total
            now = comparison.errors(product, product.expected, doubt)
            product.errors = {v: min(now[v], product.errors[v]) for v in now}

    def _judge(self, comparison: Comparison, settled: Settled, product: Product) -> None:
        noun = comparison.differences.noun
        off = {v: e for v, e in product.errors.items() if not e <= comparison.tolerance}
        doubt = settled.doubt
        wrong = [v for v, e in off.items() if doubt[v] < e / 10]
        if wrong:
            cause = _cause(product, comparison.tolerance)
            self.wrong.append(
                f"{product.method} are wrong: first at {noun} {wrong[-1]!r} on the way back from "
                f"the output: {cause}"
            )
        untold = sorted(off.keys() - set(wrong))
        if untold:
            self.nodes |= dict.fromkeys(untold)
            self.untold.append(
                f"nothing can be told of {noun} {some(map(repr, untold), 3)}: a kink within every "
                "step, or rounding"
            )

    def _name_kinks(self, piece: str, pieces: int) -> None:
        count = len(self.kinks)
        noun = piece if count == 1 else f"{piece}s"
        self.notes.append(
            f"a kink lies within every usable step of {noun} {some(self.kinks, 12)} of {pieces}"
        )


def _cause(product: Product, tolerance: float) -> str:
    """What the numbers tell."""
    own = torch.cat([product.own[v].reshape(-1) for v in product.expected])
    mean = torch.cat(list(product.expected.values()))
    if not bool(own.isfinite().all()):
        return "they are not finite"
    if not bool(own.any()):
        return "they are zero. Gradients are off, or a backward has no second derivative"
    if not bool(mean.any()):
        return "the gradient does not change"
    factor = float(own @ mean) / float(mean @ mean)
    if abs(factor - 1) > tolerance and norm_of(own - factor * mean) <= 10 * tolerance * norm_of(
        own
    ):
        whole = factor > 1.5 and abs(factor - round(factor)) < 10 * tolerance * factor
        hint = ". Is the loss a sum, not a mean?" if whole else ", at every node alike"
        return f"they are {factor:.4g} times the mean over the examples{hint}"
    return "the second derivative is not that of the gradient"
