"""Attention paper, Section J: convexity, convergence and recovery, on small problems."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from experiments.paper_audit.attention.bounds import DRAWS, RADII, SIZES, draw
from experiments.paper_audit.formula import Entry, Outcome, Witness, needs
from runner.curvature.closed_form import attention as att
from runner.curvature.closed_form.attention.bounds import (
    BOUNDS,
)
from runner.training.newton import Objective, minimise
from runner.training.recovery import recovery_objective


def admissible_gamma(n: int, d: int, radius: float) -> float:
    """gamma = 42 n d R^8, the regularisation that Theorem J.1 asks for with the constant of Lemma I.3."""
    return 42.0 * n * d * radius**8


def _regularised(n: int, d: int, radius: float) -> tuple[Tensor, Tensor, Objective]:
    """vec X of the data, vec X* and the objective at the admissible gamma, B = attention of the data."""
    x, _, w, v, _ = (m[0] for m in draw(n, d, radius, 1, frobenius=True))
    objective = recovery_objective(w, v, att.outputs(x, w, v), admissible_gamma(n, d, radius))
    trace = minimise(objective, att.vec(x).unsqueeze(0), "line search", tolerance=1e-9)
    return att.vec(x), trace.points[-1, 0], objective


def _convex() -> Outcome:
    """Theorem J.1: smallest eigenvalue of the regularised Hessian over random X, as -lambda_min / (2 gamma) <= 0."""
    worst = -math.inf
    for n, d in SIZES:
        for radius in RADII:
            x, _, w, v, b = draw(n, d, radius, frobenius=True)
            gamma = admissible_gamma(n, d, radius)
            values = torch.linalg.eigvalsh(att.hessian(x, w, v, b, gamma))[..., 0]
            worst = max(worst, float((-values / (2 * gamma)).max()))
    return Outcome(worst, instances=len(SIZES) * len(RADII) * DRAWS)


def _newton_converges() -> Outcome:
    """Theorem J.1: error over eps, - 1, after ceil(log2(|X0 - X*| / eps)) full steps from the admitted distance."""
    worst = -math.inf
    for n, d in SIZES:
        _, minimiser, objective = _regularised(n, d, 2.0)
        convexity = float(torch.linalg.eigvalsh(objective.hessian(minimiser.unsqueeze(0)))[0, 0])
        distance = 0.1 * convexity / BOUNDS["H.10"].printed(n, d, 2.0)
        offset = torch.randn(5, n * d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        start = minimiser + distance * offset / offset.norm(dim=-1, keepdim=True)
        accuracy = 0.1 * distance
        steps = math.ceil(math.log2(distance / accuracy))
        trace = minimise(objective, start, "full", max_steps=steps, tolerance=0.0)
        worst = max(worst, float((trace.points[-1] - minimiser).norm(dim=-1).max()) / accuracy - 1)
    return Outcome(worst, instances=5 * len(SIZES))


def _recovers() -> Outcome:
    """Theorem J.1: |X* - X_true| / |X_true| at the admissible gamma: 0 if the minimiser were the data."""
    worst, witness = 0.0, None
    for n, d in SIZES:
        data, minimiser, _ = _regularised(n, d, 2.0)
        error = float((minimiser - data).norm() / data.norm())
        share = float(minimiser.norm() / data.norm())
        where = f"n = {n}, d = {d}, R = 2, γ = 42 n d R⁸, B exact"
        witness = witness or Witness(where, "X* = X_true", "", f"|X*| = {share:.1e} |X_true|, error {error:.5f}")
        worst = max(worst, error)
    return Outcome(worst, None, len(SIZES), witness)


def _without_gamma() -> Outcome:
    """Theorem J.1, convexity, without the regularisation: -lambda_min of the Hessian of the loss."""
    worst = -math.inf
    for n, d in SIZES:
        x, _, w, v, b = draw(n, d, 2.0, frobenius=True)
        worst = max(worst, float((-torch.linalg.eigvalsh(att.hessian(x, w, v, b))[..., 0]).max()))
    return Outcome(worst, instances=len(SIZES) * DRAWS)


CHECKS: dict[str, Entry] = {
    "attention.theorem_j.1.convexity": needs(_convex, ("gamma >= 42 n d R^8", _without_gamma)),
    "attention.theorem_j.1.convergence": _newton_converges,
    "attention.theorem_j.1.recovery": _recovers,
}
