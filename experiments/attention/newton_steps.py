"""The two kinds of step of Newton's method, for many starts at once.

The step p solves H p = -g in one of two ways:

- "full": H^-1 g whatever the sign of the eigenvalues, step length 1. The textbook iteration: it
  goes to the nearest stationary point, saddles included.
- "line search": Cholesky where H is positive definite, else |H|^-1 g with |H| from the absolute
  eigenvalues, floored; then backtracking until f falls by the Armijo condition. A descent direction
  always.

An indefinite or singular Hessian is never hidden: each step has a status. Eigenvalues with |lambda|
below N eps max|lambda| count as zero, and the full step then takes the pseudo-inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Step = Literal["full", "line search"]
STEPS: tuple[Step, ...] = ("full", "line search")

OK, INDEFINITE, SINGULAR, STALLED, NOT_FINITE = range(5)
"""What happened in a step: stalled = no length decreased f; not finite = f overflowed and the start
was given up."""

ARMIJO = 1e-4
HALVINGS = 40
"""Of the step, at most, in a line search."""
EIGENVALUE_FLOOR = 1e-8
"""Of the largest absolute eigenvalue, in the modified Hessian of the line-search step."""


@dataclass(frozen=True)
class Objective:
    """A smooth function of N variables; every callable takes a batch of points (S, N).

    value -> (S,); gradient -> (S, N); hessian -> (S, N, N).
    """

    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    hessian: Callable[[Tensor], Tensor]


def newton_direction(
    objective: Objective, x: Tensor, g: Tensor, step: Step
) -> tuple[Tensor, Tensor]:
    """The step from each point x (S, N) with gradient g, and its status (S,)."""
    hessian = objective.hessian(x)
    factor, failed = torch.linalg.cholesky_ex(hessian)
    status = torch.full((len(x),), OK)
    direction = torch.empty_like(g)
    # LAPACK lets a pivot of rounding size pass: hand those to the eigenvalues too
    pivots = factor.diagonal(dim1=-2, dim2=-1).square()
    largest = hessian.diagonal(dim1=-2, dim2=-1).abs().amax(-1)
    rounding = g.shape[-1] * torch.finfo(g.dtype).eps * largest
    good = (failed == 0) & (pivots.amin(-1) > rounding)
    direction[good] = -torch.cholesky_solve(g[good].unsqueeze(-1), factor[good]).squeeze(-1)
    bad = ~good
    if bad.any():
        absolute = step != "full"
        direction[bad], status[bad] = spectral_step(hessian[bad], g[bad], absolute)
    return direction, status


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
        inverse = 1 / sizes.maximum(EIGENVALUE_FLOOR * largest).clamp_min(number.tiny)
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


def backtrack(
    objective: Objective,
    x: Tensor,
    f: Tensor,
    g: Tensor,
    direction: Tensor,
    status: Tensor,
) -> tuple[Tensor, Tensor]:
    """Largest length 2^-k with f(x + t p) <= f + 1e-4 t g^T p, allowing for rounding of f; 0 and
    STALLED if none."""
    slope = (g * direction).sum(-1)
    slack = 8 * torch.finfo(f.dtype).eps * f.abs()
    length = torch.ones_like(f)
    open_ = torch.ones(len(f), dtype=torch.bool)
    for _ in range(HALVINGS):
        index = open_.nonzero().squeeze(-1)
        t = length[index]
        step = t.unsqueeze(-1) * direction[index]
        trial = objective.value(x[index] + step)
        fall = ARMIJO * t * slope[index]
        allowed = f[index] + fall + slack[index]
        accepted = trial <= allowed
        open_[index[accepted]] = False
        if not open_.any():
            break
        length[open_] *= 0.5
    length[open_] = 0.0
    status = torch.where(open_, STALLED, status)
    return length, status
