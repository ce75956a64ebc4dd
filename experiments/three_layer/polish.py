"""Where the end of a descent leads: downhill by a trust region, and to the stationary point nearest
to it.

A descent that stops at a fraction of its first gradient norm stops somewhere, not at a critical
point. `polish` goes on from there, all points at once in float64, with the exact Hessian H = Q
diag(λ) Qᵀ, toward one of two goals:

- "downhill": minimise f. Step: the global minimiser of g·p + ½ pᵀHp in the ball ||p|| <= Δ
  (Moré–Sorensen); negative curvature is followed, so that a saddle is left.
- "nearest": solve ∇f = 0, by the minimiser of ½||g + Hp||² in the ball. Saddles attract as minima
  do.

In the basis of Q both are the same problem, min e·p + ½ Σ c p² with (c, e) = (λ, b) or (λ², λ b), b
= Qᵀg, and cost O(D) once the eigenvalues are known. A step of one point costs one gradient and one
value of f for the trial, and after an accepted one H and its eigendecomposition, about I D² + 9 D³
multiply-adds: 0.02 million for D = 13, I = 50. Finished points leave the batch.

What becomes of a point:

minimum, saddle: ||∇f|| <= tolerance, the Newton step |H|⁻¹∇f is within ISOLATED (1 + ||θ||), and H
    is regular against what is left of the gradient (CONTRACTION): by Newton–Kantorovich there is
    one stationary point here, of the index of H
infinity: ||θ|| > far; or ||∇f|| <= tolerance with a singular H, along whose kernel the point has
    come a LONG way since its gradient fell below √tolerance, and as far again f and ||∇f|| are no
    larger: the valley goes on (toward a degenerate minimum that way is short, and the other side of
    it rises)
degenerate: ||∇f|| <= tolerance with a singular H, and the valley does not go on (far out in a steep
    valley float64 holds no point of so small a gradient: with `rounding` the tolerance is there
    what moving θ by its own rounding does to ∇f, ε || |H| |θ| ||)
unfinished: none of these in `max_steps`; toward "nearest" also a minimum of ||∇f|| that is not 0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from experiments.three_layer.trust_region import ball_minimiser

Goal = Literal["downhill", "nearest"]
KINDS = ("minimum", "saddle", "infinity", "degenerate", "unfinished")

ISOLATED = 1e-6
"""Newton step, relative to 1 + ||θ||, below which a stationary point is taken to be isolated."""
REGULAR = 1e-12
"""|λ| below this share of the largest is rounding."""
CONTRACTION = 1e-2
"""Largest ||H⁻¹|| ||H|| times that step:

Newton–Kantorovich's constant where H changes by itself over a length of 1 + ||θ||. Beyond it the
smallest eigenvalue may be what is left of the gradient.
"""
SINGULAR = 1e-9
"""|λ| below this share of the largest, at the start or now, belongs to the kernel: where a loss
vanishes all of its curvature does, and no eigenvalue is small against the others.
"""
LONG = 0.1
"""A way, relative to 1 + ||θ||, that no convergence explains: a gradient of √tolerance is near any
attained minimum.
"""
FLOOR = 1e-3
"""Share of the tolerance at which a gradient is rounding: a point that is not isolated by then will
not be.
"""
SMALLEST_RADIUS = 1e-12


def length(theta: Tensor) -> Tensor:
    """||θ|| of points (S, D)."""
    return theta.norm(dim=-1)


@dataclass(frozen=True)
class Smooth:
    """A function of D variables; every callable takes a batch of points (S, D).

    value -> (S,); gradient -> (S, D); hessian -> (S, D, D), symmetric. size -> (S,): the norm that
    `far` limits, ||θ|| unless the variables are others (`experiments.three_layer.ends`).
    """

    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    hessian: Callable[[Tensor], Tensor]
    size: Callable[[Tensor], Tensor] = length


@dataclass(frozen=True)
class Polished:
    """Where S points ended. theta (S, D); gradient_norm, newton_step (S,):

    ||g||, |||H|⁻¹ g||; eigenvalues (S, D), rising; steps (S,), tried; kind: S of KINDS.
    """

    theta: Tensor
    gradient_norm: Tensor
    newton_step: Tensor
    eigenvalues: Tensor
    steps: Tensor
    kind: list[str]


def polish(
    function: Smooth,
    start: Tensor,
    goal: Goal = "downhill",
    *,
    far: float,
    tolerance: float = 1e-9,
    steps: int = 200,
    rounding: bool = False,
) -> Polished:
    """Go on from start (S, D) until every point is isolated, beyond `far`, without gradient, or out
    of steps.

    rounding: a gradient that is the rounding of its point counts as none.

    Raises ValueError for an unknown goal, a start that is not (S, D) of finite float64, a limit
    that is not positive.

        >>> import torch
        >>> twice = 2 * torch.eye(2, dtype=torch.float64)
        >>> hessian = lambda t: twice.expand(len(t), 2, 2)
        >>> bowl = Smooth(lambda t: t.square().sum(-1), lambda t: 2 * t, hessian)
        >>> polish(bowl, torch.ones(1, 2, dtype=torch.float64), far=100.0).kind
        ['minimum']
    """
    if goal not in ("downhill", "nearest"):
        raise ValueError(f"goal: expected downhill or nearest, found {goal!r}")
    if start.ndim != 2 or start.dtype != torch.float64 or not bool(torch.isfinite(start).all()):
        raise ValueError(
            f"start: expected finite float64 of shape (S, D), found {start.dtype} "
            f"{tuple(start.shape)}"
        )
    if not (far > 0 and tolerance > 0 and steps > 0):
        raise ValueError(
            f"expected far, tolerance and steps above zero, found {far}, {tolerance} and {steps}"
        )
    walk = _Walk(function, start, goal, far, tolerance, rounding)
    for _ in range(steps):
        if not bool(walk.going.any()):
            break
        walk.step()
    return walk.ended()


class _Walk:
    """The state of all points: position, f, gradient, eigendecomposition, radius; `going` marks the
    unfinished.
    """

    def __init__(
        self,
        function: Smooth,
        start: Tensor,
        goal: Goal,
        far: float,
        tolerance: float,
        rounding: bool,
    ) -> None:
        self.function = function
        self.goal = goal
        self.far = far
        self.tolerance = tolerance
        self.theta = start.clone()
        self.entry = start.clone()  # where the gradient was last above √tolerance
        self.gradient = function.gradient(start)
        self.value = function.value(start)
        self.eigenvalues, self.vectors = torch.linalg.eigh(function.hessian(start))
        # the curvature that the kernel is nothing against
        self.scale = self.eigenvalues.abs().amax(-1)
        self.radius = torch.ones_like(self.value)
        self.steps = torch.zeros(len(start), dtype=torch.long)
        self.rounding = rounding
        self.going = ~self._done(torch.arange(len(start)))

    def _noise(self, index: Tensor, theta: Tensor) -> Tensor:
        """What the rounding of theta does to the gradients in index, ε || |H| |θ| ||; 0 unless it
        is asked for.
        """
        if not self.rounding:
            return torch.zeros_like(self.value[index])
        vectors = self.vectors[index]
        scaled = vectors * self.eigenvalues[index].unsqueeze(-2)
        hessian = scaled @ vectors.mT
        amplified = (hessian.abs() @ theta.abs().unsqueeze(-1)).squeeze(-1)
        return torch.finfo(theta.dtype).eps * amplified.norm(dim=-1)

    def _newton(self, index: Tensor) -> Tensor:
        """|||H|⁻¹ g|| of the points in index; infinite for a singular H with a gradient along its
        kernel.
        """
        along = self._along(index)
        quotients = torch.where(along == 0, 0.0, along / self.eigenvalues[index].abs())
        return quotients.norm(dim=-1)

    def _along(self, index: Tensor) -> Tensor:
        return (self.vectors[index].mT @ self.gradient[index].unsqueeze(-1)).squeeze(-1)

    def _isolated(self, index: Tensor) -> Tensor:
        theta = self.theta[index]
        size = self.eigenvalues[index].abs()
        step = self._newton(index) / (1 + theta.norm(dim=-1))
        least = size.amin(-1)
        most = size.amax(-1)
        regular = least > REGULAR * most
        contracts = step * most <= CONTRACTION * least
        limit = self._noise(index, theta).clamp(min=self.tolerance)
        stationary = self.gradient[index].norm(dim=-1) <= limit
        return regular & contracts & stationary & (step <= ISOLATED)

    def _done(self, index: Tensor) -> Tensor:
        theta = self.theta[index]
        floor = self._noise(index, theta).clamp(min=FLOOR * self.tolerance)
        no_gradient = self.gradient[index].norm(dim=-1) <= floor
        beyond = self.function.size(theta) > self.far
        stuck = self.radius[index] < SMALLEST_RADIUS
        return no_gradient | beyond | stuck | self._isolated(index)

    def step(self) -> None:
        """One trial of every point that goes on."""
        index = self.going.nonzero()[:, 0]
        before = self.value[index]
        radius = self.radius[index]
        c = self.eigenvalues[index]
        e = self._along(index)
        downhill = self.goal == "downhill"
        if not downhill:
            e = c * e
            c = c.square()
        p = ball_minimiser(c, e, radius)
        predicted = -(e * p).sum(-1) - 0.5 * (c * p.square()).sum(-1)
        step = self.vectors[index] @ p.unsqueeze(-1)
        trial = self.theta[index] + step.squeeze(-1)
        value = self.function.value(trial)
        gradient = self.function.gradient(trial)
        old = self.gradient[index].square().sum(-1)
        new = gradient.square().sum(-1)
        if downhill:
            gained = before - value
            resolved = 1e-12 * before.abs()
        else:
            gained = (old - new) / 2
            resolved = 0 * old
        # once f cannot resolve the gain, a smaller gradient is the better point
        smaller = torch.where(new < old, 1.0, -1.0)
        ratio = torch.where(predicted <= resolved, smaller, gained / predicted)
        ratio = torch.where(torch.isfinite(value) & torch.isfinite(new), ratio, -1.0)
        length = p.norm(dim=-1)
        grown = (ratio > 0.75) & (length > 0.8 * radius)
        radius = torch.where(grown, 2 * radius, radius)
        self.radius[index] = torch.where(ratio < 0.25, length / 4, radius)
        self.steps[index] += 1
        better = ratio > 1e-4
        moved = index[better]
        steep = better & (old.sqrt() > self.tolerance**0.5)
        self.entry[index[steep]] = trial[steep]
        self.theta[moved] = trial[better]
        self.value[moved] = value[better]
        self.gradient[moved] = gradient[better]
        if len(moved):
            hessian = self.function.hessian(trial[better])
            self.eigenvalues[moved], self.vectors[moved] = torch.linalg.eigh(hessian)
        self.going[index] = ~self._done(index)

    def _flat_part(self, way: Tensor) -> Tensor:
        """The part of way (S, D) along eigenvectors whose eigenvalue is nothing against the
        largest, now or then.
        """
        size = self.eigenvalues.abs()
        largest = torch.maximum(size.amax(-1), self.scale).unsqueeze(-1)
        along = (self.vectors.mT @ way.unsqueeze(-1)).squeeze(-1)
        singular = size <= SINGULAR * largest
        along = torch.where(singular, along, 0.0)
        return (self.vectors @ along.unsqueeze(-1)).squeeze(-1)

    def ended(self) -> Polished:
        """The result, every point with its kind."""
        theta = self.theta
        every = torch.arange(len(theta))
        norm = self.gradient.norm(dim=-1)
        limit = self._noise(every, theta).clamp(min=self.tolerance)
        still = norm <= limit
        goes_on = self._goes_on(every)
        beyond = self.function.size(theta) > self.far
        isolated = self._isolated(every)
        least = self.eigenvalues[:, 0]
        kind = torch.full((len(every),), KINDS.index("unfinished"))
        for name, where in (
            ("degenerate", still & ~goes_on),
            ("infinity", (still & goes_on) | beyond),
            ("saddle", isolated & (least < 0)),
            ("minimum", isolated & (least > 0)),
        ):
            kind[where] = KINDS.index(name)
        kinds = [KINDS[k] for k in kind.tolist()]
        return Polished(theta, norm, self._newton(every), self.eigenvalues, self.steps, kinds)

    def _goes_on(self, every: Tensor) -> Tensor:
        """Whether the way along the kernel since the gradient fell is long, and f and the gradient
        are no larger as far again."""
        way = self._flat_part(self.theta - self.entry)
        further = self.theta + way
        long = way.norm(dim=-1) > LONG * (1 + self.theta.norm(dim=-1))
        level = self.function.value(further) <= self.value + self.tolerance
        limit = self._noise(every, further).clamp(min=self.tolerance)
        still = self.function.gradient(further).norm(dim=-1) <= limit
        return long & level & still
