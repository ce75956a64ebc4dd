"""Attention paper, Theorem J.1: convexity, Newton's method and recovery of the input."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from experiments.attention.bounds import BOUNDS
from experiments.attention.newton_method import minimise
from experiments.attention.newton_steps import Objective
from experiments.attention.problem import recovery_objective
from experiments.paper_audit.attention.bounds import DRAWS, GRID, SIZES, draw
from experiments.paper_audit.checks import Checks, Errors, Outcome, worked
from experiments.paper_audit.tensors import gauss, seeded
from runner.closed_form import attention as att

CHECKS = Checks()
RADIUS = 2.0


def admissible_gamma(n: int, d: int, radius: float) -> float:
    """gamma = 42 n d R^8, the regularisation that Theorem J.1 asks for with the constant of Lemma
    I.3."""
    return 42.0 * n * d * radius**8


def regularised(n: int, d: int) -> tuple[Tensor, Tensor, Objective]:
    """vec X of the data, vec X* and the objective at the admissible gamma, B = attention of the
    data, R = 2."""
    x, _, w, v, _ = (m[0] for m in draw(n, d, RADIUS, 1, frobenius=True))
    gamma = admissible_gamma(n, d, RADIUS)
    objective = recovery_objective(w, v, att.outputs(x, w, v), gamma)
    trace = minimise(objective, att.vec(x).unsqueeze(0), "line search", tolerance=1e-9)
    return att.vec(x), trace.points[-1, 0], objective


@CHECKS.clause("attention.theorem_j.1.convexity", instances=len(GRID) * DRAWS)
def convex() -> Errors:
    """Theorem J.1: smallest eigenvalue of the regularised Hessian over random X, as -lambda_min /
    (2 gamma) <= 0."""
    for n, d, radius in GRID:
        x, _, w, v, b = draw(n, d, radius, frobenius=True)
        gamma = admissible_gamma(n, d, radius)
        smallest = torch.linalg.eigvalsh(att.hessian(x, w, v, b, gamma))[..., 0]
        violation = -smallest / (2 * gamma)
        yield float(violation.max())


def without_gamma() -> Outcome:
    """Theorem J.1, convexity, without the regularisation: -lambda_min of the Hessian of the
    loss."""
    worst = -math.inf
    for n, d in SIZES:
        x, _, w, v, b = draw(n, d, RADIUS, frobenius=True)
        smallest = torch.linalg.eigvalsh(att.hessian(x, w, v, b))[..., 0]
        worst = max(worst, float((-smallest).max()))
    return Outcome(worst, instances=len(SIZES) * DRAWS)


CHECKS.without["attention.theorem_j.1.convexity", "gamma >= 42 n d R^8"] = without_gamma


@CHECKS.clause("attention.theorem_j.1.convergence", instances=5 * len(SIZES))
def newton_converges() -> Errors:
    """Theorem J.1: error over eps, - 1, after ceil(log2(|X0 - X*| / eps)) full steps from the
    admitted distance."""
    for n, d in SIZES:
        _, minimiser, objective = regularised(n, d)
        values = torch.linalg.eigvalsh(objective.hessian(minimiser.unsqueeze(0)))
        distance = 0.1 * float(values[0, 0]) / BOUNDS["H.10"].printed(n, d, RADIUS)
        offset = gauss(seeded(0), 5, n * d)
        start = minimiser + distance * offset / offset.norm(dim=-1, keepdim=True)
        accuracy = 0.1 * distance
        steps = math.ceil(math.log2(distance / accuracy))
        trace = minimise(objective, start, "full", max_steps=steps, tolerance=0.0)
        error = float((trace.points[-1] - minimiser).norm(dim=-1).max())
        yield error / accuracy - 1


@CHECKS.clause("attention.theorem_j.1.recovery")
def recovers() -> Outcome:
    """Theorem J.1: |X* - X_true| / |X_true| at the admissible gamma: small if the minimiser were
    near the data."""
    worst = 0.0
    witness = None
    for n, d in SIZES:
        data, minimiser, _ = regularised(n, d)
        error = float((minimiser - data).norm() / data.norm())
        share = float(minimiser.norm() / data.norm())
        worst = max(worst, error)
        witness = witness or worked(
            f"n = {n}, d = {d}, R = 2, γ = 42 n d R⁸, B exact",
            "recover the initial data",
            "",
            f"|X*| = {share:.1e} |X_true|, error {error:.5f}",
        )
    return Outcome(worst, None, len(SIZES), witness)
