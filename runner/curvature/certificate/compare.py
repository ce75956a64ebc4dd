"""Differences at the step that suits each piece, and the errors of products next to them.

A finite difference is that of one smooth function only where both ends lie in the same region as
the point: the same ReLUs on, the same entries chosen by a maximum. Numbers tell: next to a kink the
slopes ahead and behind differ by as much at smaller steps, where those of a smooth function come
together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runner.curvature.certificate.reference import Reference, Slopes, Vectors
from runner.curvature.estimators.estimate import norm_of
from runner.curvature.operators.symmetric import SymmetricOperator

STEPS = (1e-5, 1e-6, 1e-7, 1e-8)
LADDER = tuple(10.0**-k for k in range(2, 11))
COARSE = (0.1, 0.03, 0.01, 0.003, 0.001)
"""Steps that most pieces settle at, those for the others, and those of a network that has no
float64 copy."""

DOUBTS, BLUNT = 3.0, 0.002
"""Error of a difference in distances to that of the next step: truncation leaves 1, rounding less;
and the relative distance from which on a difference is no evidence."""
STEADY, UNSTEADY = 10.0, 0.1
"""Slopes ahead and behind that differ by ten distances are as steady as they are wrong; a jump of
the gradient leaves a tenth or more at every step. Less of both is rounding."""
ROUNDINGS = 1e3
"""Roundings of a field that a turn of it may be."""


@dataclass(frozen=True)
class Chosen:
    """Of every piece: the difference, (pieces, d_v), its uncertainty, (pieces,), and step; the
    relative error that remains, and whether that is a kink."""

    value: Vectors
    doubt: dict[str, Tensor]
    step: Tensor
    remains: Tensor
    kinked: Tensor


@dataclass
class Found:
    """The differences of all pieces, (pieces, d_v), with their uncertainty, (pieces,), and step.
    kinks: piece -> the values that its product may have, for pieces with a kink within every
    step."""

    value: Vectors
    doubt: dict[str, Tensor]
    step: Tensor
    kinks: dict[int, list[Vectors]]

    def take(self, pieces: Sequence[int], other: Found) -> None:
        """Replaces these pieces by those of the other."""
        for v in self.value:
            self.value[v][pieces], self.doubt[v][pieces] = other.value[v], other.doubt[v]
        self.step[pieces] = other.step
        kept = {piece: sides for piece, sides in self.kinks.items() if piece not in pieces}
        self.kinks = kept | {pieces[i]: sides for i, sides in other.kinks.items()}


class Differences:
    """Differences of one field of gradients along one direction. spent: gradients of all pieces so
    far."""

    def __init__(self, reference: Reference, direction: Vectors, tolerance: float) -> None:
        self.reference, self.direction, self.tolerance = reference, direction, tolerance
        self.spent = 0.0

    def spend(self, gradients: float, pieces: int | None = None) -> None:
        """Counts gradients of some pieces, or of all."""
        self.spent += gradients if pieces is None else gradients * pieces / self.reference.examples

    def settled(self) -> Found:
        """All pieces, each at a step of its own: the ladder is for those that a few steps do not
        settle."""
        steps = STEPS if self.reference.double else COARSE
        found, settled = self._at(range(self.reference.examples), steps)
        waiting = [piece for piece, done in enumerate(settled.tolist()) if not done]
        if waiting and self.reference.double:
            found.take(waiting, self._at(waiting, LADDER)[0])
        return found

    def _at(self, pieces: Sequence[int], steps: Sequence[float]) -> tuple[Found, Tensor]:
        slopes = self._slopes(pieces, steps)
        best = chosen(slopes, steps, self.tolerance)
        kinks = {}
        for piece in best.kinked.nonzero().flatten().tolist():
            kinks[piece] = [self._side(slopes, piece, sign) for sign in (0.5, -0.5)]
        settled = (best.remains <= self.tolerance / 20) & (best.step == steps[0])
        return Found(best.value, best.doubt, best.step, kinks), settled

    def _side(self, slopes: Slopes, piece: int, sign: float) -> Vectors:
        """The slope ahead (0.5) or behind (-0.5) of one piece, at the step that suits it."""
        value = {v: (slopes.value[v] + sign * slopes.turn[v])[:, piece, None] for v in slopes.value}
        changes = {v: norms(d[:-1] - d[1:]) for v, d in value.items()}
        best = int(ratio(changes, value).nan_to_num(math.inf).argmin())
        return {v: d[best, 0] for v, d in value.items()}

    def _slopes(self, pieces: Sequence[int], steps: Sequence[float], centre: float = 0.0) -> Slopes:
        self.spend(1 + 2 * len(steps), len(pieces))
        return self.reference.slopes(self.direction, pieces, steps, centre)

    def beyond_rounding(self, found: Found, rounding: float) -> None:
        """Files kinks so near that a network in lower precision need not be on the same side as its
        float64 copy."""
        pieces = [piece for piece in range(self.reference.examples) if piece not in found.kinks]
        if not pieces:
            return
        steps = (rounding / 10,)
        ends = [self._slopes(pieces, steps, place * rounding).value for place in (0, -2, 2)]
        for i, piece in enumerate(pieces):
            mine = {v: d[piece] for v, d in found.value.items()}
            here, *sides = (_row(end, i) for end in ends)
            if found.step[piece] > rounding and distance(mine, here) > self.tolerance:
                continue  # smooth, and so small a step shows its rounding alone
            if any(distance(mine, side) > self.tolerance for side in sides):
                found.kinks[piece] = [mine, *sides]


def _row(vectors: Vectors, piece: int) -> Vectors:
    """Those of one piece, at the first step."""
    return {v: d[0, piece] for v, d in vectors.items()}


def finite(vectors: Vectors) -> bool:
    return all(bool(d.isfinite().all()) for d in vectors.values())


def chosen(slopes: Slopes, steps: Sequence[float], tolerance: float) -> Chosen:
    """Every piece at the step where neighbouring differences agree best and no kink spoils them."""
    size = torch.tensor(steps, dtype=torch.float64, device="cpu")[:, None]
    doubts = {v: norms(d[:-1] - d[1:]) for v, d in slopes.value.items()}
    noise = {v: ROUNDINGS * norms(n) / size for v, n in slopes.noise.items()}
    turned = {v: (norms(d) - noise[v]).clamp_min(0) for v, d in slopes.turn.items()}
    doubts = {v: _with_rounding(d, size) for v, d in doubts.items()}
    distances, turns = ratio(doubts, slopes.value), ratio(turned, slopes.value)
    smooth = (turns[:-1] <= tolerance / 2) | (turns[1:] <= turns[:-1] / 2)
    steady = (turns[:-1] > STEADY * distances) | (distances.nan_to_num(math.inf).amin(0) > UNSTEADY)
    kinked = torch.where(~smooth & steady, turns[:-1] / 2, 0.0)
    worst = torch.maximum(distances, kinked).nan_to_num(math.inf)
    best = _consistent(slopes.value, worst)
    rows = torch.arange(len(best), device="cpu")
    value = {v: _picked(d, best) for v, d in slopes.value.items()}
    doubt = {v: d[best, rows] for v, d in doubts.items()}
    doubt_rows = {v: d[None] for v, d in doubt.items()}
    value_rows = {v: d[None] for v, d in value.items()}
    settled = torch.maximum(ratio(doubt_rows, value_rows)[0], kinked[best, rows])
    return Chosen(value, doubt, size[best, 0], settled, kinked[best, rows] > tolerance)


def _consistent(value: Vectors, worst: Tensor) -> Tensor:
    """The place of the least error, (pieces,), or of the first least one after the largest step
    where those two contradict each other: differences at steps that are too small move in quanta,
    and agree while they are wrong."""
    least = worst.argmin(0)
    turning = worst < UNSTEADY
    turning[:-1] &= worst[1:] >= worst[:-1]
    first = torch.where(turning.any(0), turning.double().argmax(0), least)
    rows = torch.arange(len(least), device="cpu")
    apart = {v: norms(_picked(d, least) - _picked(d, first))[None] for v, d in value.items()}
    contradict = (
        ratio(apart, {v: _picked(d, first)[None] for v, d in value.items()})[0]
        > STEADY * worst[first, rows]
    )
    return torch.where(contradict & (first < least), first, least)


def _picked(rows: Tensor, places: Tensor) -> Tensor:
    """Of (steps, pieces, d): the place of each piece, (pieces, d)."""
    pieces = torch.arange(len(places), device=rows.device)
    return rows[places.to(rows.device), pieces]


def _with_rounding(doubts: Tensor, size: Tensor) -> Tensor:
    """The distances, (steps, pieces), with what smaller steps show of rounding, which goes as one
    over the step: two neighbouring differences that rounding has spoilt may agree by accident."""
    scaled = doubts * size[:-1]
    return scaled.flip(0).cummax(0).values.flip(0) / size[:-1]


def norms(vectors: Tensor) -> Tensor:
    """Along the last dimension, float64 on the CPU."""
    return vectors.norm(dim=-1).cpu().double()


def ratio(part: Mapping[str, Tensor], of: Vectors) -> Tensor:
    """Largest relative size at a node, (steps, pieces), of a part with norms (steps, pieces); nodes
    far below the others count against those."""
    sizes = {v: norms(d)[: len(part[v])] for v, d in of.items()}
    largest = torch.stack(list(sizes.values())).amax(0)
    relative = []
    for v, d in part.items():
        scale = torch.maximum(sizes[v], 1e-6 * largest)
        relative.append(torch.where(d == 0, 0.0, d / scale))
    return torch.stack(relative).amax(0)


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Largest relative difference at a node; nodes far below the others count against those."""
    largest = max(norm_of(d) for d in one.values())
    scales = {v: max(norm_of(one[v]), 1e-6 * largest, 1e-300) for v in one}
    return max(norm_of(one[v] - other[v]) / scales[v] for v in one)


@dataclass(frozen=True)
class Expected:
    """What the products should be at each node, (d_v,), and how far neighbouring steps differ
    there."""

    value: Vectors
    doubt: dict[str, float]

    def errors(
        self,
        own: Vectors,
        whole: Vectors,
        dtype: torch.dtype,
        tolerance: float,
        beside: Vectors | None = None,
    ) -> dict[str, float]:
        """Relative error at each node; where the value is below the roundings of the product and of
        the difference, it counts against those. beside: what the product is added to, whose
        rounding it cannot change."""
        largest = max(norm_of(e) for e in self.value.values())
        slack = torch.finfo(dtype).eps * 64
        found = {}
        for v, e in self.value.items():
            size = norm_of(whole[v])
            if beside is not None:
                size = max(size, norm_of(beside[v]))
            floor = slack * size + DOUBTS * self.doubt[v] + 1e-10 * largest
            scale = max(norm_of(e), floor / tolerance)
            error = norm_of(own[v] - e)
            found[v] = 0.0 if error == 0 else error / max(scale, 1e-300)
        return found

    def blunt(self, rounding: float) -> list[str]:
        """Nodes whose difference is too uncertain to certify anything."""
        return [
            v for v, m in self.value.items() if self.doubt[v] > max(BLUNT * norm_of(m), rounding)
        ]

    def resolution(self, rounding: float) -> float:
        """The largest relative error, at a node above the rounding, that these differences would
        not tell."""
        told = [v for v, m in self.value.items() if norm_of(m) * BLUNT > rounding]
        return max((DOUBTS * self.doubt[v] / norm_of(self.value[v]) for v in told), default=0.0)


def products_of(operator: Any, direction: Vectors) -> tuple[Vectors, Vectors]:
    """(the products, those of the whole that the operator is a part of) at every node, in
    float64."""
    rows = {v: r.unsqueeze(0).to(operator.dtype) for v, r in direction.items()}
    if isinstance(operator, SymmetricOperator):
        own, whole = operator.whole(rows)
    else:
        own = whole = operator.apply(rows)
    return {v: p[0].double() for v, p in own.items()}, {v: p[0].double() for v, p in whole.items()}
