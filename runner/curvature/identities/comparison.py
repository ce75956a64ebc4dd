"""A derivative next to differences of what it is the derivative of, in pieces by name.

right          one step agrees.
wrong          two steps agree with each other ten times better than with the derivative, without a
               kink between them, by more than what rounding allows.
inconclusive   neither: a kink within every step, or rounding.

The one comparison of the engine: of identities 2 and 3 when an operator is built, of `verify`, and
of the certificates of stated graphs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from runner.curvature.basics.vectors import norm

Rows = dict[str, Tensor]
"""Name of a node or group -> (pieces, d), the sum over pieces being the whole."""
Vectors = dict[str, Tensor]
"""Name -> (d,)."""

STEPS = (1e-5, 1e-6, 1e-7, 1e-8)
COARSE = (0.1, 0.03, 0.01, 0.003, 0.001)
"""Steps in float64, and those of a network that has no float64 copy."""
NARROWED = 0.1
"""Error up to which nothing is wrong where a float64 copy has operations of lower precision."""
MOST_ALLOWED = 2e-2
"""Largest error that counts as right where rounding allows it."""
TINY = 1e-150
"""Norm under which squares are below the range of float64."""
NEAR = 16.0
"""Roundings within which a kink leaves open on which side of it a function is."""


class Difference(NamedTuple):
    """Of something g along a direction, at one step t.

    value: (g(t) - g(-t)) / 2t. turn: by name (g(t) - 2 g(0) + g(-t)) / t, by which the slopes ahead
    and behind differ: it falls with the step, except where a kink lies within. rounding: size of
    the roundings in value, by name.
    """

    value: Rows
    turn: Callable[[str], Tensor]
    rounding: dict[str, float]

    @classmethod
    def of(cls, gradient: Callable[[float], Rows], step: float, centre: float = 0.0) -> Difference:
        """Of something at places along the direction."""
        ahead, here, behind = (gradient(centre + side * step) for side in (1, 0, -1))
        return cls.between(ahead, here, behind, step=step)

    @classmethod
    def between(
        cls, ahead: Rows, here: Rows, behind: Rows, *, step: float, eps: float | None = None
    ) -> Difference:
        """eps: the rounding of what is given; default that of its dtype."""
        value = {}
        rounding = {}
        for v, middle in here.items():
            value[v] = (ahead[v] - behind[v]).div_(2 * step)
            rounding[v] = norm(middle) * (eps or torch.finfo(middle.dtype).eps) / step
        return cls(value, lambda v: (ahead[v] - 2 * here[v] + behind[v]) / step, rounding)

    def minus(self, other: Difference) -> Difference:
        """The difference of both."""
        value = {v: rows - other.value[v] for v, rows in self.value.items()}
        sums = {v: size + other.rounding[v] for v, size in self.rounding.items()}
        return Difference(value, lambda v: self.turn(v) - other.turn(v), sums)

    def total(self, name: str) -> Tensor:
        """The sum of the value over the pieces, in float64."""
        return _summed(self.value[name])


class Tried(NamedTuple):
    """What is kept of a difference at one step, without what its turn is made of. apart: its
    distance from the derivative, relative, by name. Of what is not right: bend, the size of the
    turn of the whole, and turns, that of each row."""

    value: Rows
    rounding: dict[str, float]
    apart: dict[str, float]
    bend: dict[str, float]
    turns: dict[str, Tensor]

    def total(self, name: str) -> Tensor:
        """As of `Difference`."""
        return _summed(self.value[name])


def _summed(rows: Tensor) -> Tensor:
    whole = rows[0] if len(rows) == 1 else rows.double().sum(0)
    return whole.double()


class Differences(ABC):
    """Differences of something along `direction`.

    noun, piece: what a name is, and what a row is of. wide: whether they are taken in float64.
    narrowed: operations that give less than float64 there. cost: of one, in gradients.
    """

    noun = "node"
    piece = "example"
    wide = True
    cost = 3.0
    direction: Vectors
    narrowed: set[str]

    @property
    def double(self) -> bool:
        """Whether all of it is in float64."""
        return self.wide and not self.narrowed

    @property
    def steps(self) -> Sequence[float]:
        """The steps to try, one after the other."""
        return STEPS if self.double else COARSE

    @abstractmethod
    def at(self, step: float, centre: float = 0.0) -> Difference:
        """The difference around the point displaced by `centre` directions."""

    def allowance(self) -> float:
        """The relative error that the data allow, where it is larger than rounding."""
        return 0.0


def fitted(slopes: Sequence[Tensor], eps: float) -> float:
    """Relative rounding of derivatives of a loss with these slopes (rows of the examples) by the
    outputs: where all examples are fitted, a slope is the rest of a difference of numbers near 1,
    and has few digits."""
    largest = max(float(slope.detach().abs().max()) * len(slope) for slope in slopes)
    return 100 * eps / max(largest, 1e-300)


def of_quotients(rounding: float, steps: Sequence[float]) -> float:
    """Relative rounding of difference quotients of what has this one."""
    return 0.1 * rounding / max(steps)


class Comparison:
    """One derivative next to differences at several steps. tolerance: of relative errors. least:
    what errors are relative to at least, by name."""

    def __init__(
        self,
        derivative: Mapping[str, Tensor],
        tolerance: float,
        least: Mapping[str, float] | None = None,
    ) -> None:
        self.derivative = {name: piece.flatten() for name, piece in derivative.items()}
        self.tolerance = tolerance
        self.least = least or {}
        self.errors = dict.fromkeys(self.derivative, math.inf)
        self.tried: list[Tried] = []

    def add(self, found: Difference) -> bool:
        """Takes one more step; whether every piece is right."""
        apart = {name: self._error(name, found) for name in self.derivative}
        self.errors = {name: min(self.errors[name], error) for name, error in apart.items()}
        bend = {}
        turns = {}
        for name in self.open:
            turn = found.turn(name)
            bend[name] = norm(_summed(turn))
            turns[name] = _sizes(turn)
        self.tried.append(Tried(found.value, found.rounding, apart, bend, turns))
        return not self.open

    @property
    def open(self) -> list[str]:
        """Names of the pieces that are not right."""
        return [name for name, error in self.errors.items() if not error <= self.tolerance]

    @property
    def kinked(self) -> bool:
        """Whether a kink within the last step is why pieces are not right: the slopes on its two
        sides differ by as much."""
        last = self.tried[-1]
        return all(
            last.apart[name] * self._scale(name, last) < 4 * last.bend[name] for name in self.open
        )

    @property
    def error(self) -> float:
        """The largest of the smallest error of each piece."""
        return max(self.errors.values())

    def _scale(self, name: str, found: Difference | Tried) -> float:
        return max(norm(found.total(name)), self.least.get(name, 0.0), TINY)

    def _error(self, name: str, found: Difference) -> float:
        """Relative; infinite where the difference is below rounding."""
        apart = norm(self.derivative[name].double() - found.total(name))
        scale = self._scale(name, found)
        if apart == 0 or scale > 50 * found.rounding[name]:
            return math.inf if math.isnan(apart) else apart / scale
        return math.inf

    def wrong(self, allowed: float = 0.0) -> dict[str, float]:
        """The pieces that are wrong by more than what is allowed, with their errors."""
        errors = {name: self._wrong(name) for name in self.open}
        return {name: error for name, error in errors.items() if error > allowed}

    def _wrong(self, name: str) -> float:
        """The error, where two steps agree with each other and not with the derivative, or that is
        not finite; else 0."""
        if not math.isfinite(norm(self.derivative[name])):
            return math.inf
        for one, other in combinations(self.tried, 2):
            error = min(one.apart[name], other.apart[name])
            scale = min(self._scale(name, one), self._scale(name, other))
            if not math.isfinite(max(one.apart[name], other.apart[name])):
                continue
            agree = norm(one.total(name) - other.total(name)) < scale * error / 10
            if agree and min(one.bend[name], other.bend[name]) < scale * error / 10:
                return error
        return 0.0

    def allow(self, error: float) -> bool:
        """What rounding allows counts as right; whether every piece is right then."""
        self.tolerance = max(self.tolerance, min(error, MOST_ALLOWED))
        return not self.open

    def moved(self, ends: Sequence[Difference]) -> dict[str, float]:
        """How far the differences at points nearby are from those here, relative."""
        last = self.tried[-1]
        found = {}
        for name in self.open:
            apart = [norm(end.total(name) - last.total(name)) for end in ends]
            found[name] = max(apart) / self._scale(name, last)
        return found

    def kinks(self, ends: Sequence[Difference] = ()) -> set[int]:
        """The rows with a kink: within the two smallest steps alike, or between here and points
        nearby."""
        found = set[int]()
        last = self.tried[-1]
        for name in self.open:
            least = max(self.tolerance * self._scale(name, last) / 4, 100 * last.rounding[name])
            if len(self.tried) > 1:
                wide, narrow = (one.turns[name] for one in self.tried[-2:])
                bent = (narrow > least) & (narrow > wide / 2)
                found |= set(bent.nonzero().flatten().tolist())
            for end in ends:
                apart = _sizes(end.value[name] - last.value[name])
                found |= set((apart > least).nonzero().flatten().tolist())
        return found


def _sizes(rows: Tensor) -> Tensor:
    return rows.double().norm(dim=1).cpu()


def nearby(differences: Differences, dtype: torch.dtype) -> list[Difference]:
    """Differences at both sides of the point, for a product in lower precision than they are: a
    network in lower precision need not be on the same side of a kink within a few roundings."""
    if dtype == torch.float64 or not differences.double:
        return []
    reach = NEAR * torch.finfo(dtype).eps
    return [differences.at(reach / 10, side * reach) for side in (-2, 2)]


def bent(gradient: Callable[[Tensor], Tensor], at: Tensor, tangent: Tensor, reach: float) -> Tensor:
    """The second derivative of each example's loss at its outputs (B, ...) times the tangent.

    reach: of the step, relative to the outputs.
    """
    size = tangent.flatten(1).norm(dim=1).clamp_min(torch.finfo(at.dtype).tiny)
    step = reach * (1 + at.flatten(1).norm(dim=1)) / size
    step = step.view(-1, *[1] * (at.dim() - 1))
    return (gradient(at + step * tangent) - gradient(at - step * tangent)) / (2 * step)
