"""Is the derivative right? Numbers that are equal for a right one, compared before anything is
measured.

0  same function: the module's own parameters in place give the loss and gradient of the replaced
   ones.
1  repeatable: two different seeds give one loss and gradient.
2  gradient: (L(u'+td) - L(u'-td)) / 2t = <g, d>, at a generic point u' near u, on few
   examples in float64.
3  product: (g(u'+td) - g(u'-td)) / 2t = H d in each group; where no step tells,
   <c, H d> = <d, H c>.
4  weights (weights.py).   5  likelihood (likelihood.py).

A comparison has three outcomes. "right": one step t agrees. "wrong": two steps agree with each
other ten times better than with the derivative, without a kink between them. "inconclusive":
neither; it is named and never refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.function.data import Batch
from runner.curvature.function.function import (
    Evaluated,
    Function,
    Point,
    Tensors,
    dot,
    gradients,
    less,
    moved,
    norm,
)
from runner.curvature.function.variables import Parameters, Values

DISPLACED = 1e-3
"""Distance of u' from u, in root mean squares of each variable."""
AGREES = 1e-4
STEPS = (1e-8, 1e-7, 1e-9, 1e-6, 1e-5)
STEPS_IN_FLOAT32 = (1e-3, 3e-3, 1e-2, 3e-4)
PERIOD = 10_007
"""Random numbers that are drawn for a direction; longer ones repeat them."""


@dataclass(frozen=True)
class Outcome:
    """Of an identity. status: "right", "wrong" or "inconclusive"; error: relative; what: the names
    concerned."""

    identity: str
    status: str
    error: float
    what: tuple[str, ...] = ()


def noise(function: Function, values: Values, seed: int) -> Tensors:
    """One direction, normal with the root mean square of each variable, the same at every call."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for name, value in values.items():
        period = min(value.numel(), PERIOD)
        drawn = torch.randn(period, generator=generator, dtype=torch.float64, device="cpu")
        drawn = drawn.repeat(-(-value.numel() // max(1, period)))[: value.numel()].reshape(
            value.shape
        )
        step = drawn.to(value.device, value.dtype) * function.variables.scale(name, value)
        found.append(function.variables.moving(name, step))
    return found


def displaced(function: Function, values: Values) -> Values:
    """u': near u, and at no special place of the function."""
    return moved(values, noise(function, values, 1), DISPLACED)


def in_double(values: Values) -> Values:
    """The values in float64."""
    return {name: t.double() for name, t in values.items()}


# ------------------------------------------------------------------ identities 0 and 1


Own = tuple[Tensor, dict[str, Tensor]]
"""The loss, and its gradient by parameter."""


def same_function(function: Function, values: Values, batch: Batch, own: Own) -> list[Outcome]:
    """Identities 0 and 1, on one batch. own: of a plain call."""
    outcomes = []
    first = function.gradient(Point(values, seed=function.seed or 1), batch)
    allowed = _tolerance(values)
    wrong = _differing(function, own, first, allowed)
    if wrong is not None:
        outcomes.append(wrong)
    if function.seed is None:
        again = function.gradient(Point(values, seed=2), batch)
        error = max(_relative(first.loss, again.loss), _apart(first.gradient, again.gradient))
        if error > allowed:
            same_seed = function.gradient(Point(values, seed=1), batch)
            drawn = (
                max(
                    _relative(first.loss, same_seed.loss),
                    _apart(first.gradient, same_seed.gradient),
                )
                <= allowed
            )
            outcomes = [
                Outcome("1 repeatable", "wrong", error, ("draws",) if drawn else ("state",))
            ]
    return outcomes or [
        Outcome("0 same function", "right", 0.0),
        Outcome("1 repeatable", "right", 0.0),
    ]


def own_parameters(function: Function, batch: Batch) -> Own:
    """The loss, and the gradients of parameters, of a plain call with the module's own
    parameters."""
    originals: Mapping[str, Tensor] = getattr(function.variables, "originals", {})
    live = {
        k: p for k, p in originals.items() if p.requires_grad and p.is_leaf and not p.is_inference()
    }
    with function.at(Point({}, seed=function.seed or 1, own=True)):
        loss = function.evaluate(batch)[1]
        found = gradients(loss, list(live.values())) if live else []
    slopes = {name: g.detach() for name, g in zip(live, found, strict=True)}
    return loss.detach(), {
        name: torch.view_as_real(g) if g.is_complex() else g for name, g in slopes.items()
    }


def _differing(function: Function, own: Own, ours: Evaluated, allowed: float) -> Outcome | None:
    loss, slopes = own
    error = _relative(ours.loss, loss)
    names: list[str] = []
    if isinstance(function.variables, Parameters):
        mine = dict(zip(function.variables.values, ours.gradient, strict=True))
        pairs = {name: (mine[name], slope) for name, slope in slopes.items()}
        size = (
            max(norm([a for a, _ in pairs.values()]), norm([b for _, b in pairs.values()]))
            if pairs
            else 0.0
        )
        apart = {name: norm([a - b]) / size for name, (a, b) in pairs.items()} if size > 0 else {}
        names = [
            name for name, e in sorted(apart.items(), key=lambda item: -item[1]) if e > allowed
        ]
        error = max([error, *apart.values()])
    return Outcome("0 same function", "wrong", error, tuple(names)) if error > allowed else None


def _tolerance(values: Values) -> float:
    eps = max(torch.finfo(t.dtype).eps for t in values.values())
    return max(1e-9, min(1e-1, 100 * eps if eps > 1e-10 else 0.0))


def _relative(one: Tensor, other: Tensor) -> float:
    a, b = float(one), float(other)
    return abs(a - b) / max(abs(a), abs(b), 1e-300) if a != b else 0.0


def _apart(one: Tensors, other: Tensors) -> float:
    return norm(less(one, other)) / max(norm(one), norm(other), 1e-300)


# ------------------------------------------------------------------ identities 2 and 3


@dataclass
class Comparison:
    """One derivative next to differences at several steps, in pieces by name."""

    identity: str
    derivative: Mapping[str, Tensors]
    floors: Mapping[str, float]
    tolerance: float = AGREES

    def __post_init__(self) -> None:
        self.found: list[tuple[dict[str, float], dict[str, float], Mapping[str, Tensors]]] = []
        self.open = set(self.derivative)
        self.best = dict.fromkeys(self.derivative, math.inf)

    def add(
        self, difference: Mapping[str, Tensors], gap: Mapping[str, float], live: Mapping[str, bool]
    ) -> None:
        """The difference at one more step; gap: how far its two sides differ; live: whether it
        rises above rounding."""
        errors, gaps = {}, {}
        for name, derivative in self.derivative.items():
            scale = max(norm(derivative), self.floors[name], 1e-300)
            apart = norm(less(difference[name], derivative)) / scale
            errors[name] = apart if live[name] else math.inf
            gaps[name] = gap[name] / scale
            self.best[name] = min(self.best[name], errors[name])
            zero = norm(derivative) == 0 == norm(difference[name])
            if apart <= self.tolerance and (live[name] or zero):
                self.open.discard(name)
        self.found.append((errors, gaps, {name: difference[name] for name in self.open}))

    def outcome(self) -> Outcome:
        """The verdict over all pieces."""
        wrong = {name: error for name in self.open if (error := self._wrong(name)) is not None}
        if wrong:
            names = sorted(wrong, key=lambda name: -wrong[name])
            return Outcome(self.identity, "wrong", wrong[names[0]], tuple(names))
        if self.open:
            worst = max(self.best[name] for name in self.open)
            return Outcome(self.identity, "inconclusive", worst, tuple(sorted(self.open)))
        settled = max((e for e in self.best.values() if math.isfinite(e)), default=0.0)
        return Outcome(self.identity, "right", settled)

    def _wrong(self, name: str) -> float | None:
        """The error, where two steps agree with each other and not with the derivative, or that is
        not finite."""
        if not math.isfinite(norm(self.derivative[name])):
            return math.inf
        scale = max(norm(self.derivative[name]), self.floors[name], 1e-300)
        for i, (errors, gaps, one) in enumerate(self.found):
            for other_errors, other_gaps, other in self.found[:i]:
                error = min(errors[name], other_errors[name])
                if (
                    not math.isfinite(max(errors[name], other_errors[name]))
                    or name not in one
                    or name not in other
                ):
                    continue
                agree = norm(less(one[name], other[name])) / scale < error / 10
                if agree and min(gaps[name], other_gaps[name]) < error / 10:
                    return error
        return None


def by_group(function: Function, tensors: Tensors) -> dict[str, Tensors]:
    """One tensor for each variable, by group."""
    named = dict(zip(function.variables.values, tensors, strict=True))
    groups = {}
    for group, members in function.variables.members.items():
        groups[group] = [named[k] for k in members]
    return groups


def divided(tensors: Tensors, by: float) -> Tensors:
    """Each of the tensors over a number."""
    return [t / by for t in tensors]


def scalar(value: float) -> Tensor:
    """A number in float64, whatever the default device is."""
    return torch.tensor([value], dtype=torch.float64, device="cpu")


def bend_of(above: Tensors, here: Tensors, below: Tensors) -> Tensors:
    """The second difference, which is large where a kink lies between."""
    return [u - 2 * v + w for u, v, w in zip(above, here, below, strict=True)]


class SecondOrder:
    """Identities 2 and 3 of one function at u', in float64 where the network allows it."""

    def __init__(self, function: Function, values: Values, batch: Batch, wide: bool) -> None:
        self.function, self.batch, self.wide = function, batch, wide
        start = in_double(values) if wide else values
        self.point = displaced(function, start)
        self.d, self.c = noise(function, start, 2), noise(function, start, 3)
        self.here = Point(self.point, wide, function.seed or 1)
        self.double = wide or next(iter(values.values())).dtype == torch.float64
        self.steps: Sequence[float] = STEPS if self.double else STEPS_IN_FLOAT32
        self.eps = 2.2e-16 if self.double else 1.2e-7
        self.tolerance = AGREES if self.double else 2e-2

    def moved(self, t: float) -> Point:
        """u' + t d."""
        return self.here._replace(values=moved(self.point, self.d, t))

    def check(self) -> list[Outcome]:
        """Of the gradient and the Hessian."""
        whole = self.function.gradient(self.here, self.batch, (self.d,))
        (hd,) = whole.products
        slope, g = dot(whole.gradient, self.d), whole.gradient
        size = max(abs(slope), norm(g) * norm(self.d) / math.sqrt(sum(t.numel() for t in g)))
        first = Comparison("2 gradient", {"": [scalar(slope)]}, {"": size}, self.tolerance)
        groups = by_group(self.function, g)
        floors = {name: 1e3 * self.eps * norm(part) for name, part in groups.items()}
        next_one = Comparison("3 product", by_group(self.function, hd), floors, self.tolerance)
        for t in self.steps:
            above, below = (self.function.gradient(self.moved(s * t), self.batch) for s in (1, -1))
            a, b, here = float(above.loss), float(below.loss), float(whole.loss)
            live = abs(a - b) > 100 * self.eps * abs(here)
            bend = abs(a - 2 * here + b) / t
            first.add({"": [scalar((a - b) / (2 * t))]}, {"": bend}, {"": live})
            difference = by_group(self.function, less(above.gradient, below.gradient))
            bends = by_group(self.function, bend_of(above.gradient, g, below.gradient))
            above_rounding = {
                name: norm(part) > 100 * self.eps * norm(groups[name])
                for name, part in difference.items()
            }
            slopes = {name: divided(part, 2 * t) for name, part in difference.items()}
            next_one.add(
                slopes, {name: norm(part) / t for name, part in bends.items()}, above_rounding
            )
            if not first.open and not next_one.open:
                break
        outcome = next_one.outcome()
        if outcome.status == "inconclusive":
            (hc,) = self.function.gradient(self.here, self.batch, (self.c,)).products
            outcome = self.with_symmetry(outcome, hd, hc)
        outcomes = [first.outcome(), outcome]
        return outcomes + self.not_reached(groups, float(whole.loss))

    def with_symmetry(self, outcome: Outcome, hd: Tensors, hc: Tensors) -> Outcome:
        """What differences have not decided: wrong where <c, H d> differs from <d, H c>."""
        size = norm(self.c) * norm(hd) + norm(self.d) * norm(hc)
        skew = abs(dot(self.c, hd) - dot(self.d, hc)) / max(size, 1e-300)
        allowed = 1e-8 if self.double else 1e-3
        return Outcome("3 product", "wrong", skew, ("symmetry",)) if skew > allowed else outcome

    def not_reached(self, groups: Mapping[str, Tensors], loss: float) -> list[Outcome]:
        """Groups without a gradient are moved together: they must not move the loss."""
        still = [name for name, part in groups.items() if norm(part) == 0]
        if not still:
            return []
        members = {k for name in still for k in self.function.variables.members[name]}
        step = [
            v if k in members else torch.zeros_like(v)
            for k, v in zip(self.point, self.c, strict=True)
        ]
        after = float(
            self.function.value(
                self.here._replace(values=moved(self.point, step, 1e-2)), self.batch
            )
        )
        error = abs(after - loss) / max(abs(loss), 1e-300)
        if error > max(1e-9, 100 * self.eps):
            return [Outcome("2 gradient", "wrong", error, tuple(still))]
        return [Outcome("reached", "inconclusive", 0.0, tuple(still))]
