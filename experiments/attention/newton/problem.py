"""One recovery problem: data, weights and target, and the minimiser that belongs to the data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from runner.contract.experiment import Context
from runner.curvature.closed_form import attention as att
from runner.training.newton import Objective, minimise
from runner.training.recovery import recovery_objective

POLISH_STEPS = 80
POLISHED = 1e-10  # gradient norm below which a followed point counts as stationary


@dataclass(frozen=True)
class Problem:
    """X (d, n) is the data, B (n, d) its attention output with noise; W, V (d, d)."""

    x: Tensor
    w: Tensor
    v: Tensor
    b: Tensor

    @property
    def data(self) -> Tensor:
        """vec X."""
        return att.vec(self.x)

    def objective(self, gamma: float) -> Objective:
        return recovery_objective(self.w, self.v, self.b, gamma)

    def predicted_shift(self, gamma: float) -> float:
        """|X* - X| / |X| to first order: the Gauss–Newton step at the data, (J^T J + gamma)^-1 (J^T c + gamma x)."""
        jac = att.jacobian(self.x, self.w, self.v).flatten(0, 1)
        right = jac.T @ att.residual(self.x, self.w, self.v, self.b).flatten() + gamma * self.data
        values, vectors = torch.linalg.eigh(jac.T @ jac)
        inverse = 1 / (values.clamp_min(0.0) + max(gamma, torch.finfo(values.dtype).tiny))
        return float((inverse * (vectors.T @ right)).norm() / self.data.norm())


def draw(n: int, d: int, noise: float, scale: float, index: int, ctx: Context) -> Problem:
    """Problem `index` of a size: standard normal X, normal W and V of variance scale^2 / d and 1 / d.

    The same X, W, V and direction of the noise in every cell of that size; noise is relative to the spread of B.
    """
    generator = ctx.torch_generator(f"attention_newton problem {index} tokens={n} width={d}")
    shapes = ((d, n), (d, d), (d, d), (n, d))
    x, w, v, e = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    w, v = scale * w / d**0.5, v / d**0.5
    b = att.outputs(x, w, v)
    return Problem(x, w, v, b + noise * b.std() * e)


def follow(objective: Objective, start: Tensor) -> tuple[Tensor, float, str]:
    """Minimiser that Newton's method with line search reaches from start (N,): point, smallest eigenvalue, status.

    status: "ok", "not converged" (gradient norm above 1e-10), or "not a minimum" (an eigenvalue below zero).
    """
    trace = minimise(objective, start.unsqueeze(0), "line search", POLISH_STEPS, 1e-12)
    point = trace.points[-1, 0]
    smallest = float(torch.linalg.eigvalsh(objective.hessian(point.unsqueeze(0)))[0, 0])
    if not float(trace.gradient_norm[-1, 0]) <= POLISHED:
        return point, smallest, "not converged"
    return point, smallest, "ok" if smallest > 0 else "not a minimum"
