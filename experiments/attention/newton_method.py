"""Newton's method from many starts at once.

One smooth objective f on R^N is minimised from S starts; every start has its own step, line search
and stop. `newton_steps` has the kinds of step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.attention.newton_steps import (
    NOT_FINITE,
    STALLED,
    STEPS,
    Objective,
    Step,
    backtrack,
    newton_direction,
)

ASYMPTOTIC = 0.1
"""Largest error at which the order of convergence is read."""


@dataclass(frozen=True)
class Trace:
    """Every iterate of every start. T steps were taken at most; a start that stopped earlier
    repeats its last point.

    points (T+1, S, N); loss, gradient_norm (T+1, S); status (T, S): what happened in step t; steps
    (S,): number of steps taken; converged (S,): the gradient norm reached the tolerance.
    """

    points: Tensor
    loss: Tensor
    gradient_norm: Tensor
    status: Tensor
    steps: Tensor
    converged: Tensor


def minimise(
    objective: Objective,
    start: Tensor,
    step: Step = "line search",
    max_steps: int = 50,
    tolerance: float = 1e-12,
) -> Trace:
    """Newton's method from start (S, N) until |gradient| <= tolerance, a stall, an overflow, or
    max_steps.

    Raises ValueError for an unknown step or a start that is not (S, N).
    """
    if step not in STEPS:
        raise ValueError(f"step: expected one of {', '.join(STEPS)}, found {step!r}")
    if start.ndim != 2:
        raise ValueError(f"start: expected (starts, variables), found shape {tuple(start.shape)}")
    x = start.clone()
    g = objective.gradient(start).clone()
    f = objective.value(start).clone()
    log = _Log(x, f, g)
    active = (g.norm(dim=-1) > tolerance) & torch.isfinite(f)
    while active.any() and len(log.status) < max_steps:
        index = active.nonzero().squeeze(-1)
        point = x[index]
        before = f[index]
        slope = g[index]
        direction, status = newton_direction(objective, point, slope, step)
        if step != "full":
            length, status = backtrack(objective, point, before, slope, direction, status)
            direction = length.unsqueeze(-1) * direction
        point = point + direction
        after = objective.value(point)
        slope = objective.gradient(point)
        finite = torch.isfinite(after) & torch.isfinite(slope).all(-1)
        status = torch.where(finite, status, NOT_FINITE)
        x[index] = point
        f[index] = after
        g[index] = slope
        log.add(x, f, g, index, status)
        steep = slope.norm(dim=-1) > tolerance
        active[index] = steep & (status < STALLED)
    return log.trace(tolerance)


class _Log:
    """Iterates of all starts, and what happened in each step."""

    def __init__(self, x: Tensor, f: Tensor, g: Tensor) -> None:
        self.points = [x.clone()]
        self.loss = [f.clone()]
        self.norm = [g.norm(dim=-1)]
        self.status: list[Tensor] = []
        self.steps = torch.zeros(len(x), dtype=torch.long)

    def add(self, x: Tensor, f: Tensor, g: Tensor, index: Tensor, status: Tensor) -> None:
        """A step of the starts `index`, which ended at x."""
        self.steps[index] += 1
        self.points.append(x.clone())
        self.loss.append(f.clone())
        self.norm.append(g.norm(dim=-1))
        of_all = status.new_zeros(len(x))
        of_all[index] = status
        self.status.append(of_all)

    def trace(self, tolerance: float) -> Trace:
        status = torch.zeros(0, len(self.steps), dtype=torch.long)
        if self.status:
            status = torch.stack(self.status)
        points = torch.stack(self.points)
        loss = torch.stack(self.loss)
        norm = torch.stack(self.norm)
        converged = norm[-1] <= tolerance
        return Trace(points, loss, norm, status, self.steps, converged)


def observed_order(errors: Tensor, floor: float = 1e-14, pairs: int = 3) -> float:
    """Order of convergence q of errors (T,), e_{k+1} ~ C e_k^q: slope of log e_{k+1} against log
    e_k by least squares.

    Over the last `pairs` with e_k <= ASYMPTOTIC and e_{k+1} > floor (above
    rounding); a fit, since Newton errors of ill-conditioned problems fall in alternately long and
    short strides. NaN for fewer than two pairs or equal errors.
    """
    now = errors[:-1].double()
    after = errors[1:].double()
    usable = (now <= ASYMPTOTIC) & (after > floor)
    x = now[usable][-pairs:].log()
    y = after[usable][-pairs:].log()
    if len(x) < 2:
        return float("nan")
    x = x - x.mean()
    y = y - y.mean()
    if x.abs().max() <= 1e-9:
        return float("nan")
    return float((x * y).sum() / x.square().sum())
