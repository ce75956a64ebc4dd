"""Is the derivative right? Numbers that are equal for a right one, compared before anything is
measured.

0  same function: the module's own parameters in place give the loss and gradient of the replaced
   ones.
1  repeatable: two different seeds give one loss and gradient.
2  gradient: (L(u'+td) - L(u'-td)) / 2t = <g, d>, at a generic point u' near u, on few
   examples in float64.
3  product: (g(u'+td) - g(u'-td)) / 2t = H d in each group.
4  weights (weights.py).

How derivatives and differences are compared, with three outcomes: comparison.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from runner.curvature.basics.vectors import (
    Flat,
    Values,
    divided,
    dot_of,
    norm,
    norm_of,
    norms,
)
from runner.curvature.function.batch import Batch
from runner.curvature.function.context import counted
from runner.curvature.function.function import Evaluated, Function, Point, gradients, moved
from runner.curvature.identities.comparison import Comparison, Difference, Rows

DISPLACED = 1e-3
"""Distance of u' from u, in root mean squares of each variable."""
FARTHER = 1.0
"""Distance of the point where what is inconclusive at u' is compared once more, likewise. A loss
whose examples are all fitted has no digits near u."""
AGREES = 1e-4
STEPS = (1e-8, 1e-7, 1e-9, 1e-6, 1e-5)
STEPS_IN_FLOAT32 = (1e-3, 3e-3, 1e-2, 3e-4)
SMALL = 1e-5
"""Share of a product that errors of its variables are relative to at least."""
COMPARED = ("2 gradient", "3 product")
PERIOD = 10_007
"""Random numbers that are drawn for a direction; longer ones repeat them."""

SAME = "0 same function"
COPY = "0 float64 copy"
"""Whether the product in the network's own precision is that of its copy."""
NOT_REACHED = "reached"
LOWER_PRECISION = "lower precision"
"""Names of outcomes that say what a comparison could not see."""


@dataclass(frozen=True)
class Outcome:
    """Of an identity. status: "right", "wrong" or "inconclusive"; error: relative; what: the names
    concerned."""

    identity: str
    status: str
    error: float
    what: tuple[str, ...] = ()


def noise(function: Function, values: Values, seed: int) -> Values:
    """One direction, normal with the root mean square of each variable, the same at every call."""
    like = Flat(values)
    count = min(like.size, PERIOD)
    drawn = _drawn(seed, count).to(like.device, like.dtype)
    steps = divided(drawn.repeat(-(-like.size // count))[: like.size], values)
    function.variables.scale(steps, values)
    return steps


@lru_cache(maxsize=8)
def _drawn(seed: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, generator=generator, dtype=torch.float64, device="cpu")


def displaced(function: Function, values: Values) -> Values:
    """u': near u, and at no special place of the function. values: of the function's variables at
    u, which stay as they are while it is prepared."""
    with function.prepared():
        if function.near is None:
            function.near = moved(values, noise(function, values, 1), DISPLACED)
        return function.near


def in_double(values: Values) -> Values:
    """The values in float64."""
    return {name: t.double() for name, t in values.items()}


# ------------------------------------------------------------------ identities 0 and 1


Own = tuple[Tensor, dict[str, Tensor]]
"""The loss, and its gradient by parameter."""


def same_function(function: Function, values: Values, batch: Batch, own: Own) -> list[Outcome]:
    """Identities 0 and 1, on one batch. own: of a plain call, with another seed. Counts the bytes
    that the graph keeps for its backward pass, some more than once, in `function.saved`."""
    point = Point(values, seed=2)
    ours, function.saved = counted(lambda: function.gradient(point, batch), values.values())
    allowed = _tolerance(values)
    wrong = _differing(function, values, own, ours, allowed)
    error = 0.0
    if function.seed is None and (wrong is not None or len(own[1]) < len(values)):
        error = _apart(ours, function.gradient(Point(values, seed=1), batch))
    if error > allowed:
        again = function.gradient(Point(values, seed=2), batch)
        what = "draws" if _apart(ours, again) <= allowed else "state"
        return [Outcome("1 repeatable", "wrong", error, (what,))]
    if wrong is not None:
        return [wrong]
    return [Outcome(SAME, "right", 0.0), Outcome("1 repeatable", "right", 0.0)]


def own_parameters(function: Function, batch: Batch) -> Own:
    """The loss, and the gradients of parameters, of a plain call with the module's own
    parameters."""
    live = {
        k: p
        for k, p in function.variables.originals.items()
        if p.requires_grad and p.is_leaf and not p.is_inference()
    }
    with function.at(Point({}, seed=1, own=True), 1):
        loss = function.evaluate(batch)[1]
        found = []
        if live:
            found = gradients([loss], list(live.values()))
    slopes = {}
    for name, g in zip(live, found, strict=True):
        slope = g.detach()
        slopes[name] = torch.view_as_real(slope) if slope.is_complex() else slope
    return loss.detach(), slopes


def _differing(
    function: Function, values: Values, own: Own, ours: Evaluated, allowed: float
) -> Outcome | None:
    loss, slopes = own
    error = _relative(ours.loss, loss)
    names = list[str]()
    if slopes:
        apart = {name: norm(ours.slopes[name] - slope) for name, slope in slopes.items()}
        size = math.hypot(*map(norm, slopes.values()))
        if (total := math.hypot(*apart.values())) > allowed * size:
            size = max(size, total)
            apart = {name: distance / size for name, distance in apart.items()}
            far = [name for name, e in apart.items() if e > allowed]
            names = sorted(far, key=lambda name: -apart[name])
            error = max([error, *apart.values()])
    if error > allowed:
        return Outcome(SAME, "wrong", error, tuple(names))
    return None


def _tolerance(values: Values) -> float:
    eps = max(torch.finfo(t.dtype).eps for t in values.values())
    return max(1e-9, min(1e-1, 100 * eps if eps > 1e-10 else 0.0))


def _relative(one: Tensor, other: Tensor) -> float:
    a = float(one)
    b = float(other)
    if a != b:
        return abs(a - b) / max(abs(a), abs(b), 1e-300)
    return 0.0


def _apart(one: Evaluated, other: Evaluated) -> float:
    """Of losses or gradients."""
    size = max(norm_of(one.slopes), norm_of(other.slopes), 1e-300)
    apart = norm_of({name: slope - other.slopes[name] for name, slope in one.slopes.items()})
    return max(_relative(one.loss, other.loss), apart / size)


# ------------------------------------------------------------------ identities 2 and 3


Pieces = Mapping[str, Tensor]


def scalar(value: float | Tensor) -> Tensor:
    """A number in float64, whatever the default device is."""
    return torch.tensor([float(value)], dtype=torch.float64, device="cpu")


Compared = tuple[dict[str, list[Comparison]], list[Outcome], Values]
"""Comparisons by identity, what else is to be said, and the product."""


def _row(pieces: Pieces) -> Rows:
    return {name: piece.reshape(1, -1) for name, piece in pieces.items()}


class SecondOrder:
    """Identities 2 and 3 of one function at u', in float64 where the network allows it. farther:
    at a point that is not near u."""

    def __init__(
        self, function: Function, values: Values, batch: Batch, wide: bool, *, farther: bool = False
    ) -> None:
        self.function = function
        self.values = values
        self.batch = batch
        self.wide = wide
        near = displaced(function, values)
        if farther:
            near = moved(values, noise(function, values, 1), FARTHER)
        d = noise(function, near, 2)
        self.own = Point(near, False, 1)
        self.own_d = d
        self.point = in_double(near) if wide else near
        self.d = in_double(d) if wide else d
        self.here = Point(self.point, wide, 1)
        self.double = wide or all(t.dtype == torch.float64 for t in d.values())
        self.steps: Sequence[float] = STEPS
        self.eps = 2.2e-16
        self.tolerance = AGREES
        self.slopes: dict[str, float] = {}
        """Norm of the slope by each variable."""
        if not self.double:
            self._take_large_steps()

    def _take_large_steps(self) -> None:
        """For what is computed in float32."""
        self.double = False
        self.steps = STEPS_IN_FLOAT32
        self.eps = 1.2e-7
        self.tolerance = 2e-2

    def evaluated(self, *directions: Values) -> Evaluated:
        """The loss, its gradient and products with directions at u'. Where operations of the
        float64 copy give less than float64, steps are large from then on."""
        self.function.record.clear()
        found = self.function.gradient(self.here, self.batch, directions)
        self.slopes = norms(found.slopes)
        if self.function.record.narrowed:
            self._take_large_steps()
        return found

    @property
    def size_of_gradient(self) -> float:
        """Its norm."""
        return math.hypot(*self.slopes.values())

    @cached_property
    def c(self) -> Values:
        """A second direction."""
        return noise(self.function, self.point, 3)

    def moved(self, t: float) -> Point:
        """u' + t d."""
        return self.here._replace(values=moved(self.point, self.d, t))

    def slope(self, whole: Evaluated) -> Comparison:
        """Identity 2."""
        along = dot_of(whole.slopes, self.d)
        size = sum(t.numel() for t in self.d.values())
        least = self.size_of_gradient * norm_of(self.d) / math.sqrt(size)
        return Comparison({"": scalar(along)}, self.tolerance, {"": least})

    def loss(self, t: float) -> Pieces:
        """The loss at u' + td."""
        return {"": scalar(self.function.value(self.moved(t), self.batch))}

    def compare(
        self,
        compared: Sequence[Comparison],
        here: Sequence[Pieces],
        ends: Callable[[float], Sequence[Pieces]],
    ) -> None:
        """Takes steps until every piece is right, small ones first where there is a kink within.
        here: what is differentiated, at u'; ends: at u' + td, evaluated together."""
        steps = [*self.steps]
        while steps:
            t = steps.pop(0)
            ahead = ends(t)
            behind = ends(-t)
            right = True
            for i, one in enumerate(compared):
                rows = map(_row, (ahead[i], here[i], behind[i]))
                right &= one.add(Difference.between(*rows, step=t, eps=self.eps))
            if right:
                return
            if all(one.kinked for one in compared):
                steps.sort()

    def of_hessian(self) -> Compared:
        whole = self.evaluated(self.d)
        self.function.record.finish()
        (hd,) = whole.products
        least = dict.fromkeys(hd, SMALL * norm_of(hd))
        compared = [self.slope(whole), Comparison(hd, self.tolerance, least)]

        def ends(t: float) -> list[Pieces]:
            found = self.function.gradient(self.moved(t), self.batch)
            return [{"": scalar(found.loss)}, found.slopes]

        here = [{"": scalar(whole.loss)}, whole.slopes]
        self.compare(compared, here, ends)
        by_identity = {name: [one] for name, one in zip(COMPARED, compared, strict=True)}
        return by_identity, self.remarks(whole), hd

    def remarks(self, whole: Evaluated) -> list[Outcome]:
        """What was not compared, and what was compared with large steps."""
        found = self._not_reached(whole)
        if self.wide and not self.double:
            names = tuple(sorted(self.function.record.narrowed))
            found.append(Outcome(LOWER_PRECISION, "inconclusive", 0.0, names))
        return found

    def _not_reached(self, whole: Evaluated) -> list[Outcome]:
        """Variables without a gradient are moved together: they must not move the loss."""
        still = [name for name, size in self.slopes.items() if size == 0]
        if not still:
            return []
        loss = float(whole.loss)
        steps = {name: torch.zeros_like(t) for name, t in self.point.items()}
        steps |= {name: t for name, t in self.c.items() if name in still}
        after = self.here._replace(values=moved(self.point, steps, 1e-2))
        error = abs(float(self.function.value(after, self.batch)) - loss) / max(abs(loss), 1e-300)
        names = self.by_group(still)
        if error > max(1e-9, 100 * self.eps):
            return [Outcome("2 gradient", "wrong", error, names)]
        return [Outcome(NOT_REACHED, "inconclusive", 0.0, names)]

    def by_group(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names of variables, or of groups that they make."""
        whole = dict[str, str]()
        for group, members in self.function.variables.members.items():
            if set(members) <= set(names):
                whole |= dict.fromkeys(members, group)
        return tuple(dict.fromkeys(whole.get(name, name) for name in names))
