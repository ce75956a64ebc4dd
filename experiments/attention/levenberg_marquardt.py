"""Levenberg-Marquardt for nonlinear least squares, from many starts at once.

One residual r: R^N -> R^M; |r(x)|^2 is minimised from S starts, each with its own damping and stop.
Step:

    (J^T J + lambda I) p = -J^T r,

and lambda follows the gain ratio by Nielsen's rule (Madsen, Nielsen and Tingleff, Methods for
Non-Linear Least Squares Problems, Section 3.2). Where r vanishes at a solution the Gauss-Newton
matrix is the whole Hessian there, so the iteration is Newton's near it and a descent method far
from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

DAMPING = 1e-3  # the first lambda over the largest diagonal entry of J^T J
LARGEST = 1e16  # of the first damping: no step of any size lowers the objective
SHORTEST = 1e-14  # a step this small against the point changes nothing
POLISHING = 6  # steps of `polished`


@dataclass(frozen=True)
class LeastSquares:
    """A residual and its Jacobian: value (S, N) -> (S, M), jacobian (S, N) -> (S, M, N)."""

    value: Callable[[Tensor], Tensor]
    jacobian: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Ends:
    """Where the starts ended: points (S, N), square (S,) = |r|^2, steps (S,) tried, accepted or
    not, capped (S,): the last of the allowed steps was still a descent."""

    points: Tensor
    square: Tensor
    steps: Tensor
    capped: Tensor


def levenberg_marquardt(
    problem: LeastSquares,
    start: Tensor,
    *,
    max_steps: int = 400,
    decrease: float = 1e-4,
) -> Ends:
    """Minimise |r|^2 from start (S, N).

    A start stops when J^T r = 0, when an accepted step and its prediction lower |r|^2 by less than
    `decrease` of it (MINPACK's ftol), when a step no longer moves the point, or after max_steps
    trials. decrease: 1e-4 found as many solutions as 1e-8 with a
    quarter of the trials, since `polished` does the rest and a start that creeps does not arrive.
    Raises ValueError for a start that is not (S, N).

    >>> line = LeastSquares(lambda x: x - 3.0, lambda x: torch.eye(1).expand(len(x), 1, 1))
    >>> levenberg_marquardt(line, torch.tensor([[0.0], [7.0]])).points
    tensor([[3.],
            [3.]])
    """
    if start.ndim != 2:
        raise ValueError(f"start: expected (starts, variables), found shape {tuple(start.shape)}")
    state = _State(problem, start)
    for _ in range(max_steps):
        if not state.advance(decrease):
            break
    return Ends(state.x, state.f, state.steps, state.running)


class _State:
    """All starts with their normal equations; only those still running are worked on."""

    def __init__(self, problem: LeastSquares, start: Tensor) -> None:
        self.problem = problem
        self.x = start.clone()
        self.f = problem.value(start).square().sum(-1)
        self.normal, self.slope = self._linearised(start)
        largest = self.normal.diagonal(dim1=-2, dim2=-1).amax(-1)
        self.lam = DAMPING * largest.clamp_min(torch.finfo(start.dtype).tiny)
        self.first = self.lam.clone()
        self.growth = torch.full_like(self.lam, 2.0)
        self.steps = torch.zeros(len(start), dtype=torch.long)
        self.running = torch.isfinite(self.f)

    def _linearised(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """J^T J and J^T r, half the gradient."""
        jac = self.problem.jacobian(x)
        product = jac.mT @ self.problem.value(x).unsqueeze(-1)
        return jac.mT @ jac, product.squeeze(-1)

    def advance(self, decrease: float) -> bool:
        """One trial step of every running start; whether any still runs."""
        self.running &= self.slope.norm(dim=-1) > 0
        at = self.running.nonzero().squeeze(-1)
        if not len(at):
            return False
        x = self.x[at]
        before = self.f[at]
        slope = self.slope[at]
        lam = self.lam[at]
        step, solved = _solve(self.normal[at], slope, lam)
        trial = x + step
        f = self.problem.value(trial).square().sum(-1)
        model = lam.unsqueeze(-1) * step - slope
        predicted = (step * model).sum(-1)
        fall = before - f
        gain = fall / predicted
        little = decrease * before
        good = solved & (gain > 0) & torch.isfinite(f)
        flat = good & (fall <= little) & (predicted <= little)
        self._damp(at, gain, good)
        self.steps[at] += 1
        if good.any():
            accepted = at[good]
            new = trial[good]
            self.x[accepted] = new
            self.f[accepted] = f[good]
            self.normal[accepted], self.slope[accepted] = self._linearised(new)
        shortest = SHORTEST * x.norm(dim=-1)
        moves = step.norm(dim=-1) > shortest
        bounded = self.lam[at] <= LARGEST * self.first[at]
        goes_on = moves | ~solved
        self.running[at] = ~flat & goes_on & bounded
        return bool(self.running.any())

    def _damp(self, at: Tensor, gain: Tensor, good: Tensor) -> None:
        """Nielsen's rule: by max(1/3, 1 - (2 gain - 1)^3) after a success, by 2, 4, 8, ... after
        failures in a row."""
        gain = gain.nan_to_num(0.0).clamp(0.0, 2.0)
        fall = (1 - (2 * gain - 1) ** 3).clamp_min(1 / 3)
        growth = self.growth[at]
        self.lam[at] *= torch.where(good, fall, growth)
        self.growth[at] = torch.where(good, 2.0, 2 * growth)


def _solve(normal: Tensor, slope: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """-(normal + shift I)^-1 slope, and whether the matrix was positive definite (elsewhere the
    step is 0)."""
    shifted = normal.clone()
    diagonal = shifted.diagonal(dim1=-2, dim2=-1)
    diagonal.add_(shift.unsqueeze(-1))
    factor, failed = torch.linalg.cholesky_ex(shifted)
    step = -torch.cholesky_solve(slope.unsqueeze(-1), factor).squeeze(-1)
    solved = (failed == 0) & torch.isfinite(step).all(-1)
    step = torch.where(solved.unsqueeze(-1), step, 0.0)
    return step, solved


def polished(problem: LeastSquares, points: Tensor) -> Tensor:
    """Newton's method on r(x) = 0 by the pseudo-inverse, x - J^+ r, as long as |r| falls: points
    (S, N)."""
    best = points.clone()
    square = problem.value(points).square().sum(-1)
    for _ in range(POLISHING):
        r = problem.value(best).unsqueeze(-1)
        inverse = torch.linalg.pinv(problem.jacobian(best))
        trial = best - (inverse @ r).squeeze(-1)
        after = problem.value(trial).square().sum(-1)
        better = after < square
        best = torch.where(better.unsqueeze(-1), trial, best)
        square = torch.where(better, after, square)
    return best
