"""Newton's method from many starts at once, with three kinds of step.

One smooth objective f on R^N is minimised from S starts; every start has its own step, line search
and stop. The step p solves H p = -g in one of three ways:

- "full": H^-1 g whatever the sign of the eigenvalues, step length 1. The textbook iteration: it
  goes to the nearest stationary point, saddles included.
- "line search": Cholesky where H is positive definite, else |H|^-1 g with |H| from the absolute
  eigenvalues, floored; then backtracking until f falls by the Armijo condition. A descent direction
  always.
- "truncated CG": conjugate gradients on H p = -g with products only, to the relative residual
  min(1/2, sqrt(|g|)), cut at the first direction of non-positive curvature; then the same
  backtracking.

An indefinite or singular Hessian is never hidden: each step has a status. Eigenvalues with |lambda|
below N eps max|lambda| count as zero, and the full step then takes the pseudo-inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Step = Literal["full", "line search", "truncated CG"]
STEPS: tuple[Step, ...] = ("full", "line search", "truncated CG")

OK, INDEFINITE, SINGULAR, STALLED, NOT_FINITE = range(5)
STATUS = ("ok", "indefinite", "singular", "stalled", "not finite")
"""What happened in a step: stalled = no length decreased f; not finite = f overflowed and the start
was given up."""

ARMIJO = 1e-4
EIGENVALUE_FLOOR = (
    1e-8  # of the largest absolute eigenvalue, in the modified Hessian of the line-search step
)


@dataclass(frozen=True)
class Objective:
    """A smooth function of N variables; every callable takes a batch of points (S, N).

    value -> (S,); gradient -> (S, N); hessian -> (S, N, N); product(points, directions) -> (S, N),
    H times direction.
    """

    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    hessian: Callable[[Tensor], Tensor]
    product: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Trace:
    """Every iterate of every start. T steps were taken at most; a start that stopped earlier
    repeats its last point.

    points (T+1, S, N); loss, gradient_norm (T+1, S); status, work (T, S): of step t, with status
    index into STATUS, and work in products with H (CG) or values of f (L-BFGS), 0 for a direct
    solve; steps (S,): number of steps taken; converged (S,): the gradient norm reached the
    tolerance.
    """

    points: Tensor
    loss: Tensor
    gradient_norm: Tensor
    status: Tensor
    work: Tensor
    steps: Tensor
    converged: Tensor


def minimise(
    objective: Objective,
    start: Tensor,
    step: Step = "line search",
    max_steps: int = 50,
    tolerance: float = 1e-12,
    decrease: float = 0.0,
) -> Trace:
    """Newton's method from start (S, N) until |gradient| <= tolerance, a stall, an overflow, or
    max_steps.

    decrease: where positive, a start also ends (STALLED) once a step lowers f by less than this
    share of it. Raises ValueError for an unknown step or a start that is not (S, N).
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
        direction, status, work = _direction(objective, point, slope, step)
        if step != "full":
            length, status = _backtrack(objective, point, before, slope, direction, status)
            direction = length.unsqueeze(-1) * direction
        point = point + direction
        after = objective.value(point)
        slope = objective.gradient(point)
        if decrease > 0:
            fall = before - after
            creeps = (fall >= 0) & (fall <= decrease * before)
            status = torch.where(creeps, STALLED, status)
        finite = torch.isfinite(after) & torch.isfinite(slope).all(-1)
        status = torch.where(finite, status, NOT_FINITE)
        x[index] = point
        f[index] = after
        g[index] = slope
        log.add(x, f, g, index, status, work)
        active[index] = (slope.norm(dim=-1) > tolerance) & (status < STALLED)
    return log.trace(tolerance)


class _Log:
    """Iterates of all starts, and what happened in each step."""

    def __init__(self, x: Tensor, f: Tensor, g: Tensor) -> None:
        self.points = [x.clone()]
        self.loss = [f.clone()]
        self.norm = [g.norm(dim=-1)]
        self.status: list[Tensor] = []
        self.work: list[Tensor] = []
        self.steps = torch.zeros(len(x), dtype=torch.long)

    def add(
        self,
        x: Tensor,
        f: Tensor,
        g: Tensor,
        index: Tensor,
        status: Tensor,
        work: Tensor,
    ) -> None:
        """A step of the starts `index`, which ended at x."""
        self.steps[index] += 1
        self.points.append(x.clone())
        self.loss.append(f.clone())
        self.norm.append(g.norm(dim=-1))
        for column, values in ((self.status, status), (self.work, work)):
            full = values.new_zeros(len(x))
            full[index] = values
            column.append(full)

    def trace(self, tolerance: float) -> Trace:
        status = torch.zeros(0, len(self.steps), dtype=torch.long)
        work = torch.zeros(0, len(self.steps))
        if self.status:
            status = torch.stack(self.status)
            work = torch.stack(self.work)
        points = torch.stack(self.points)
        loss = torch.stack(self.loss)
        norm = torch.stack(self.norm)
        converged = norm[-1] <= tolerance
        return Trace(points, loss, norm, status, work, self.steps, converged)


def _direction(
    objective: Objective, x: Tensor, g: Tensor, step: Step
) -> tuple[Tensor, Tensor, Tensor]:
    if step == "truncated CG":
        return conjugate_gradients(lambda p: objective.product(x, p), g)
    hessian = objective.hessian(x)
    factor, failed = torch.linalg.cholesky_ex(hessian)
    status = torch.full((len(x),), OK)
    direction = torch.empty_like(g)
    # LAPACK lets a pivot of rounding size pass: hand those to the eigenvalues too
    pivots = factor.diagonal(dim1=-2, dim2=-1).square()
    largest = hessian.diagonal(dim1=-2, dim2=-1).abs().amax(-1)
    rounding = g.shape[-1] * torch.finfo(g.dtype).eps * largest
    good = (failed == 0) & (pivots.amin(-1) > rounding)
    right = g[good].unsqueeze(-1)
    solution = torch.cholesky_solve(right, factor[good])
    direction[good] = -solution.squeeze(-1)
    bad = ~good
    if bad.any():
        absolute = step != "full"
        direction[bad], status[bad] = spectral_step(hessian[bad], g[bad], absolute)
    return direction, status, torch.zeros(len(x))


def spectral_step(hessian: Tensor, g: Tensor, absolute: bool) -> tuple[Tensor, Tensor]:
    """Step and status from the eigenvalues of hessian (S, N, N): -H^+ g, or -|H|^-1 g with floored
    |H|.

    Status SINGULAR where an eigenvalue is zero to rounding, else INDEFINITE where one is negative,
    else OK; NOT_FINITE (step zero) where the Hessian holds an infinity or a NaN.
    """
    n = g.shape[-1]
    identity = torch.eye(n, dtype=g.dtype)
    finite = torch.isfinite(hessian).all(-1).all(-1)
    safe = torch.where(finite[:, None, None], hessian, identity)
    values, vectors = torch.linalg.eigh(safe)
    sizes = values.abs()
    largest = sizes.amax(-1, keepdim=True)
    number = torch.finfo(g.dtype)
    zero = sizes <= n * number.eps * largest
    if absolute:
        floored = sizes.maximum(EIGENVALUE_FLOOR * largest)
        inverse = 1 / floored.clamp_min(number.tiny)
    else:
        inverse = 1 / torch.where(zero, torch.inf, values)
    rotated = (vectors.mT @ g.unsqueeze(-1)).squeeze(-1)
    scaled = (inverse * rotated).unsqueeze(-1)
    direction = -(vectors @ scaled).squeeze(-1)
    direction = torch.where(finite.unsqueeze(-1), direction, 0.0)
    status = torch.where((values < 0).any(-1), INDEFINITE, OK)
    status = torch.where(zero.any(-1), SINGULAR, status)
    status = torch.where(finite, status, NOT_FINITE)
    return direction, status


def conjugate_gradients(
    product: Callable[[Tensor], Tensor], g: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Truncated CG for H p = -g, all rows of g (S, N) together: step, status, number of products.

    Stops a row at relative residual min(1/2, sqrt(|g|)) (superlinear convergence, order 3/2), after
    2 N products, or at p^T H p <= 0: then the step so far is kept (-g if it was the first) and the
    status is INDEFINITE. A curvature within rounding of zero counts as non-positive.
    """
    eps = torch.finfo(g.dtype).eps
    norm = g.norm(dim=-1)
    target = norm * norm.sqrt().clamp_max(0.5)
    step = torch.zeros_like(g)
    residual = -g
    direction = residual.clone()
    square = norm.square()
    status = torch.full((len(g),), OK)
    count = torch.zeros(len(g))
    running = norm > 0
    for iteration in range(2 * g.shape[-1]):
        if not running.any():
            break
        image = product(direction)
        count += running
        curve = (direction * image).sum(-1)
        rounding = eps * direction.norm(dim=-1) * image.norm(dim=-1)
        flat = running & ~(curve > rounding)
        status = torch.where(flat, INDEFINITE, status)
        if iteration == 0:
            step = torch.where(flat.unsqueeze(-1), -g, step)
        running = running & ~flat
        length = torch.where(running, square / curve, 0.0).unsqueeze(-1)
        step = step + length * direction
        residual = residual - length * image
        new = residual.square().sum(-1)
        running = running & (new.sqrt() > target)
        ratio = torch.where(running, new / square, 0.0)
        conjugate = residual + ratio.unsqueeze(-1) * direction
        direction = torch.where(running.unsqueeze(-1), conjugate, direction)
        square = torch.where(running, new, square)
    return step, status, count


def _backtrack(
    objective: Objective,
    x: Tensor,
    f: Tensor,
    g: Tensor,
    direction: Tensor,
    status: Tensor,
    halvings: int = 40,
) -> tuple[Tensor, Tensor]:
    """Largest length 2^-k with f(x + t p) <= f + 1e-4 t g^T p, allowing for rounding of f; 0 and
    STALLED if none."""
    slope = (g * direction).sum(-1)
    slack = 8 * torch.finfo(f.dtype).eps * f.abs()
    length = torch.ones_like(f)
    open_ = torch.ones(len(f), dtype=torch.bool)
    for _ in range(halvings):
        index = open_.nonzero().squeeze(-1)
        t = length[index]
        trial = objective.value(x[index] + t.unsqueeze(-1) * direction[index])
        allowed = f[index] + ARMIJO * t * slope[index] + slack[index]
        accepted = trial <= allowed
        open_[index[accepted]] = False
        if not open_.any():
            break
        length[open_] *= 0.5
    length[open_] = 0.0
    status = torch.where(open_, STALLED, status)
    return length, status


def observed_order(
    errors: Tensor, floor: float = 1e-14, local: float = 0.1, pairs: int = 3
) -> float:
    """Order of convergence q of errors (T,), e_{k+1} ~ C e_k^q: slope of log e_{k+1} against log
    e_k by least squares.

    Over the last `pairs` with e_k <= local (the asymptotic part) and e_{k+1} > floor (above
    rounding); a fit, since Newton errors of ill-conditioned problems fall in alternately long and
    short strides. NaN for fewer than two pairs or equal errors.
    """
    now = errors[:-1].double()
    after = errors[1:].double()
    usable = (now <= local) & (after > floor)
    x = now[usable][-pairs:].log()
    y = after[usable][-pairs:].log()
    if len(x) < 2:
        return float("nan")
    x = x - x.mean()
    y = y - y.mean()
    if x.abs().max() <= 1e-9:
        return float("nan")
    return float((x * y).sum() / x.square().sum())
