"""Products of an operator against differences of gradients: the step, the error at every node, what cannot be told.

A finite difference is that of one smooth function only where both ends lie in the same region as the point: the same
ReLUs on, the same entries chosen by a maximum, the same outcome of every comparison. `Regions` sees all operations of
an evaluation and of its backward pass, whoever wrote the function, so that nothing needs to be known of the network.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from runner.curvature.certificate.result import largest_ratio, nan_last
from runner.curvature.graph.errors import CallsChanged
from runner.curvature.matrix_free.base import SymmetricOperator, norm_of
from runner.curvature.matrix_free.reference import Reference, Vectors

Decisions = list[tuple[str, Tensor]]
"""(operation, the side or the place that it chose, element by element), in the order of the computation."""

COURSE = "the course of the computation"
"""In place of an operation where two evaluations are not made of the same ones."""

_OUTCOME = {
    "gt",
    "lt",
    "ge",
    "le",
    "eq",
    "ne",
    "floor",
    "ceil",
    "round",
    "trunc",
    "argmax",
    "argmin",
    "argsort",
}
_CHOSEN = {
    "max", "min", "topk", "sort", "kthvalue", "median", "mode", "cummax", "cummin", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d",
    "fractional_max_pool3d",
}  # fmt: skip
_AT_ZERO = {
    "relu",
    "leaky_relu",
    "_prelu_kernel",
    "rrelu_with_noise",
    "elu",
    "celu",
    "selu",
    "abs",
    "sign",
    "sgn",
}
_AT_BOUNDS: dict[str, Callable[..., Sequence[Any]]] = {
    "threshold": lambda threshold, *_: (threshold,),
    "hardtanh": lambda low=-1.0, high=1.0: (low, high),
    "hardsigmoid": lambda: (-3.0, 3.0),
    "hardswish": lambda: (-3.0, 3.0),
    "softshrink": lambda lambd=0.5: (-lambd, lambd),
    "hardshrink": lambda lambd=0.5: (-lambd, lambd),
    "clamp": lambda low=None, high=None, **named: (low, high, *named.values()),
    "clamp_min": lambda low=None, **named: (low, *named.values()),
    "clamp_max": lambda high=None, **named: (high, *named.values()),
}
_OF_TWO = {"maximum", "minimum", "fmax", "fmin"}
_OF_A_DISTANCE = {"smooth_l1_loss", "huber_loss"}
_LARGEST = {"amax", "amin"}


class Regions(TorchDispatchMode):
    """While active, files the decisions of all piecewise operations in `seen`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Decisions = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        named = kwargs or {}
        name = func.overloadpacket.__name__
        name = name if name.startswith("__") else name.rstrip("_")
        side = _side_before(name, args, named)  # before: the operation may overwrite its input
        found = func(*args, **named)
        if side is None:
            side = _side_after(name, args, found)
        if side is not None:
            self.seen.append((name.removesuffix("_with_indices"), side))
        return found


def _side_before(name: str, args: tuple, named: dict) -> Tensor | None:
    if not args or not isinstance(args[0], Tensor):
        return None
    t = args[0]
    if name in _AT_ZERO:
        return t.sign().to(torch.int8)
    if name in _AT_BOUNDS:
        bounds = [b for b in _AT_BOUNDS[name](*args[1:], **named) if b is not None]
        sides = [(t > b).to(torch.int8) + (t >= b).to(torch.int8) for b in bounds]
        return torch.stack(sides) if sides else None
    if name in _OF_TWO:
        return (t - args[1]).sign().to(torch.int8)
    if name in _OF_A_DISTANCE:
        width = (
            args[3]
            if len(args) > 3
            else next((named[k] for k in ("beta", "delta") if k in named), 1.0)
        )
        return ((t - args[1]).abs() < width).to(torch.int8)
    return t.clone() if name == "where" and t.dtype == torch.bool else None


def _side_after(name: str, args: tuple, found: Any) -> Tensor | None:
    if name in _OUTCOME and isinstance(found, Tensor):
        return found.clone()
    if (
        name in _CHOSEN
        and isinstance(found, tuple | list)
        and len(found) > 1
        and isinstance(found[1], Tensor)
    ):
        return found[1].clone()
    if name in _CHOSEN and isinstance(found, Tensor) and isinstance(args[0], Tensor):
        return args[0] == found  # of the whole tensor
    if name in _LARGEST:
        dims = args[1] if len(args) > 1 else []
        return args[0] == getattr(torch, name)(args[0], dims, keepdim=True)
    return None


def decisions(evaluate: Callable[[], Any]) -> Decisions | None:
    """The decisions taken while `evaluate` runs; None where it cannot run while being watched."""
    try:
        with Regions() as watched:
            evaluate()
    except Exception:  # a compiled function, or a mode of its own
        return None
    return watched.seen


def crossed(one: Decisions | None, other: Decisions | None) -> str:
    """Which operations cross a kink between two evaluations, "relu (3), max_pool2d (1)"; "" for none."""
    if one is None or other is None:
        return ""
    if [(name, side.shape) for name, side in one] != [(name, side.shape) for name, side in other]:
        return COURSE
    changes: Counter[str] = Counter()
    for (name, a), (_, b) in zip(one, other, strict=True):
        changes[name] += int((a != b).sum())
    named = {name: count for name, count in changes.items() if count}
    plain = {
        name: count for name, count in named.items() if name not in _OUTCOME | {"where"}
    }  # parts of the others
    return ", ".join(f"{name} ({count})" for name, count in (plain or named).items())


STEPS = tuple(10.0**-k for k in (2, 3, 4, 5, 6, 7))
FINE_STEPS = tuple(10.0**-k for k in (8, 9, 10, 11))
COARSE_STEPS = (0.1, 0.03, 0.01, 0.003)
"""Of the float64 copy; of it near a kink, where rounding is the lesser evil; of a network that has no such copy."""

Progress = Callable[[float, float], None]
DOUBTS = 3.0
BLUNT = 0.002
"""Error of a difference in distances to that of the next step: truncation leaves 1, rounding less; and the relative
distance from which on a difference is no evidence."""


@dataclass(frozen=True)
class Difference:
    """Of one piece: value, its distance to that of the next step, the step, and the kink that no step avoids. sides:
    the values on both sides of a kink that is so near that the network's own rounding decides."""

    value: Vectors
    doubt: Vectors
    step: float
    kink: str = ""
    sides: tuple[Vectors, ...] = ()


class Differences:
    """Differences of one operator's gradient field, along one direction, at the step that suits it.

    spent: gradients of all pieces so far, products included, of which `most` are allowed; stopped: whether more were
    wanted. progress(spent, most) is called as they are spent.
    """

    def __init__(
        self, reference: Reference, direction: Vectors, most: float, progress: Progress | None
    ) -> None:
        self.reference, self.direction, self.most, self.progress = (
            reference,
            direction,
            most,
            progress,
        )
        self.spent, self.stopped = 0.0, False
        self.shares = reference.weights or [1 / reference.examples] * reference.examples
        self.steps, self.fine = (STEPS, FINE_STEPS) if reference.double else (COARSE_STEPS, ())
        self.step = self.steps[0]

    def spend(self, gradients: float, piece: int | None = None) -> None:
        """Counts gradients of one piece, or of all."""
        self.spent += gradients if piece is None else gradients * self.shares[piece]
        if self.progress is not None:
            self.progress(self.spent, self.most)

    def left(self) -> bool:
        """Whether there are gradients left to look closer with."""
        self.stopped = self.stopped or self.spent >= self.most
        return not self.stopped

    def at(self, piece: int, step: float) -> Vectors:
        """NaN where the step takes the network on another way than it was traced on."""
        self.spend(2, piece)
        try:
            return self.reference.difference(self.direction, piece, step)
        except CallsChanged:
            return {v: torch.full_like(r, torch.nan) for v, r in self.direction.items()}

    def best(self, piece: int, tolerance: float) -> Difference:
        """At the last good step, else the best of all steps."""
        if piece > 0:
            found = self._pair(piece, self.step)
            if largest_ratio(found.doubt, found.value) < tolerance / 20:
                return found
        found = min(
            self._ladder(piece, self.steps), key=lambda d: nan_last(largest_ratio(d.doubt, d.value))
        )
        if piece == 0:
            self.step = found.step
        return found

    def beside_kinks(self, piece: int, found: Difference, tolerance: float) -> Difference:
        """The same at the largest step within which the network keeps to one region; what crosses a kink if none does.

        A kink at distance u spoils every step larger than u: the jump of a gradient is divided by the step, and an
        average over both sides is as steady as it is wrong. No step is smaller than rounding allows.
        """
        here = self._decisions(piece, 0.0)
        kink = self._crossed(piece, found.step, here)
        if not kink:
            return self._with_rounding(piece, self._before_rounding(piece, found, here))
        for step in [s for s in (*self.steps, *self.fine)[:-1] if s < found.step]:
            if not self.left():
                break
            changed = self._crossed(piece, step, here)
            if not changed:
                again = self._pair(piece, step)
                if largest_ratio(again.doubt, again.value) < max(tolerance, 1e-5):
                    return again
            kink = changed or kink
        return replace(found, kink=kink)

    def _before_rounding(self, piece: int, found: Difference, here: Decisions | None) -> Difference:
        """The same at a larger step, where rounding has begun before: the last one up to which the distances fall.

        Where a gradient is all that is left of a difference, as one less a probability near one, it moves in quanta:
        differences at steps that are too small for it agree with each other, and are wrong together.
        """
        last: Difference | None = None
        for step in (s for s in self.steps[:-1] if s > found.step):
            if not self.left():
                break
            if self._crossed(piece, step, here):
                last = None
                continue
            pair = self._pair(piece, step)
            if last is not None and largest_ratio(pair.doubt, pair.value) > largest_ratio(
                last.doubt, last.value
            ):
                return last
            last = pair
        return found

    def _with_rounding(self, piece: int, found: Difference) -> Difference:
        """The same with the rounding that smaller steps show in its doubt: it goes as one over the step.

        Two neighbouring differences that rounding has spoilt may agree by accident; those at all smaller steps do not.
        """
        doubt = dict(found.doubt)
        for pair in self._ladder(piece, [s for s in (*self.steps, *self.fine) if s < found.step]):
            for v, own in pair.doubt.items():
                if norm_of(own) * pair.step / found.step > norm_of(
                    doubt[v]
                ):  # never where it is NaN
                    doubt[v] = own * (pair.step / found.step)
            if not self.left():
                break
        return replace(found, doubt=doubt)

    def within_rounding(self, piece: int, found: Difference, rounding: float) -> Difference:
        """The same with its kink, where there is one within a step of `rounding`, and the values on both its sides."""
        kink = self._crossed(piece, rounding, self._decisions(piece, 0.0))
        if not kink:
            return found
        sides = self.reference.sides(self.direction, piece, rounding / 10, 2 * rounding)
        return replace(found, kink=f"{kink}, within rounding", sides=(found.value, *sides))

    def _crossed(self, piece: int, step: float, here: Decisions | None) -> str:
        ends = (crossed(here, self._decisions(piece, s * step)) for s in (1, -1))
        return next((change for change in ends if change), "")

    def _decisions(self, piece: int, step: float) -> Decisions | None:
        shift = {v: step * r for v, r in self.direction.items()}
        self.spend(1, piece)
        with self.reference.quiet():
            try:
                return decisions(lambda: self.reference.gradient(shift, piece))
            except CallsChanged:
                return []  # another course than any

    def noise(self) -> float:
        """Norm that the rounding of gradients has in a difference, over the step."""
        reference, eps = self.reference, torch.finfo(torch.float64).eps
        if not reference.double:
            eps = max(torch.finfo(r.dtype).eps for r in self.direction.values())
        self.spend(1)
        with reference.quiet():
            zero = {v: torch.zeros_like(r) for v, r in self.direction.items()}
            found = [reference.gradient(zero, piece) for piece in range(reference.examples)]
        return (
            1e3
            * eps
            * max(norm_of(g) for gradients in found for g in gradients.values())
            / self.step
        )

    def _pair(self, piece: int, step: float) -> Difference:
        ladder = (*self.steps, *self.fine)
        return next(self._ladder(piece, ladder[ladder.index(step) :]))

    def _ladder(self, piece: int, steps: Sequence[float]) -> Iterator[Difference]:
        """The differences at all steps but the last, each next to the one at the next step."""
        one = self.at(piece, steps[0]) if len(steps) > 1 else {}
        for step, following in pairwise(steps):
            other = self.at(piece, following)
            yield Difference(one, {v: one[v] - other[v] for v in one}, step)
            one = other


@dataclass(frozen=True)
class Expected:
    """What the products should be at each node, and how far neighbouring steps differ there."""

    value: Vectors
    doubt: Vectors

    @classmethod
    def mean(cls, found: Sequence[Difference], weights: Sequence[float] | None = None) -> Expected:
        """Of the pieces' differences; weights: their shares, which add up to one (default equal)."""
        shares = [1 / len(found)] * len(found) if weights is None else weights
        nodes = list(found[0].value)
        value = {
            v: torch.stack([s * d.value[v].double() for s, d in zip(shares, found, strict=True)])
            for v in nodes
        }
        doubt = {
            v: torch.stack([s * d.doubt[v].double() for s, d in zip(shares, found, strict=True)])
            for v in nodes
        }
        return cls(
            {v: t.sum(0) for v, t in value.items()}, {v: t.abs().sum(0) for v, t in doubt.items()}
        )

    def errors(
        self,
        own: Vectors,
        whole: Vectors,
        dtype: torch.dtype,
        tolerance: float,
        beside: Vectors | None = None,
    ) -> dict[str, float]:
        """Relative error at each node; where the value is below the roundings of the product and of the difference, it
        counts against those. beside: what the product is added to, whose rounding it cannot change."""
        largest = max(norm_of(e) for e in self.value.values())
        slack = torch.finfo(dtype).eps * 64
        found = {}
        for v, e in self.value.items():
            size = max(norm_of(whole[v]), 0.0 if beside is None else norm_of(beside[v]))
            floor = slack * size + DOUBTS * norm_of(self.doubt[v]) + 1e-10 * largest
            scale = max(norm_of(e), floor / tolerance)
            error = norm_of(own[v] - e)
            found[v] = error / scale if scale > 0 else (0.0 if error == 0 else math.inf)
        return found

    def blunt(self, rounding: float) -> list[str]:
        """Nodes whose difference is too uncertain to certify anything."""
        return [
            v
            for v, m in self.value.items()
            if norm_of(self.doubt[v]) > max(BLUNT * norm_of(m), rounding)
        ]

    def resolution(self, rounding: float) -> float:
        """The largest relative error, at a node above the rounding, that these differences would not tell."""
        shares = (
            DOUBTS * norm_of(self.doubt[v]) / norm_of(m)
            for v, m in self.value.items()
            if norm_of(m) * BLUNT > rounding
        )
        return max(shares, default=0.0)


def products_of(operator: Any, direction: Vectors) -> tuple[Vectors, Vectors]:
    """(the products, those of the whole that the operator is a part of) at every node, in float64."""
    rows = {v: r.unsqueeze(0).to(operator.dtype) for v, r in direction.items()}
    if isinstance(operator, SymmetricOperator):
        own, whole = operator.whole(rows)
    else:
        own = whole = operator.apply(rows)
    return tuple({v: p[0].double() for v, p in found.items()} for found in (own, whole))  # type: ignore[return-value]
