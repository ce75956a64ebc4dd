"""The minimiser against gamma, and Theorem J.1 in numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.attention.newton.problem import Problem, draw, follow
from runner.contract import Context
from runner.curvature.closed_form.attention.bounds import BOUNDS
from runner.training.newton import minimise

if TYPE_CHECKING:
    from experiments.attention.newton.settings import AttentionNewton

Row = dict[str, Any]
ACCURACY = 1e-3  # epsilon of Theorem J.1 relative to |X0 - X*|
SMALLEST_R = 1.0 + 1e-9  # the theorem needs R > 1


def theorem_radius(problem: Problem) -> float:
    """Smallest R that the conditions of Theorem J.1 admit: Frobenius norms of W, V, X and the entries of B."""
    norms = [float(m.norm()) for m in (problem.w, problem.v, problem.x)]
    return max(*norms, float(problem.b.abs().max()), SMALLEST_R)


def admissible_gamma(problem: Problem) -> float:
    """gamma = 42 n d R^8 (Theorem J.1 with the constant of Lemma I.3)."""
    d, n = problem.x.shape
    return BOUNDS["I.3"].printed(n, d, theorem_radius(problem))


def theorem_tables(setup: AttentionNewton, n: int, d: int, ctx: Context) -> dict[str, list[Row]]:
    """Tables `theorem`, a row per problem, and `scan`, a row per problem and gamma; B without noise."""
    theorem: list[Row] = []
    scan: list[Row] = []
    for index in range(setup.problems):
        problem = draw(n, d, 0.0, setup.score_scale, index, ctx)
        theorem.append(theorem_row(problem, index))
        scan += scan_rows(problem, setup.scan, index)
    return {"theorem": theorem, "scan": scan}


def scan_rows(problem: Problem, gammas: Sequence[float], index: int) -> list[Row]:
    """The minimiser followed from the data over rising gamma, the last gamma being the admissible one."""
    rows = []
    point = problem.data
    values = [(gamma, False) for gamma in gammas] + [(admissible_gamma(problem), True)]
    for gamma, admissible in sorted(values):
        point, smallest, status = follow(problem.objective(gamma), point)
        size = problem.data.norm()
        rows.append(
            {
                "problem": index,
                "scanned_gamma": gamma,
                "admissible": admissible,
                "error_data": float((point - problem.data).norm() / size),
                "predicted": problem.predicted_shift(gamma),
                "norm_share": float(point.norm() / size),
                "smallest_eigenvalue": smallest,
                "status": status,
            }
        )
    return rows


def theorem_row(problem: Problem, index: int) -> Row:
    """Conditions and conclusion of Theorem J.1 at the admissible gamma.

    l: smallest eigenvalue at X*; M: 9193 n^3 d^3 R^10; admitted distance 0.1 l / M. excess: error over epsilon after
    T = ceil(log2(1 / 1e-3)) full steps from that distance, worst of the signed coordinate directions tried.
    """
    d, n = problem.x.shape
    radius, gamma = theorem_radius(problem), admissible_gamma(problem)
    objective = problem.objective(gamma)
    minimiser, convexity, status = follow_scaled(problem, gamma)
    lipschitz = BOUNDS["H.10"].printed(n, d, radius)
    distance = 0.1 * convexity / lipschitz
    offsets = torch.eye(n * d, dtype=torch.float64)[: min(8, n * d)]
    bound = math.ceil(math.log2(1 / ACCURACY))
    trace = minimise(objective, minimiser + distance * offsets, "full", bound, 0.0)
    errors = (trace.points - minimiser).norm(dim=-1)
    # from the data itself, far outside the admitted ball
    home = minimise(objective, problem.data.unsqueeze(0), "full", 20, 0.0)
    reached = (home.points[:, 0] - minimiser).norm(dim=-1) <= 1e-6 * minimiser.norm()
    return {
        "problem": index,
        "radius": radius,
        "admissible_gamma": gamma,
        "convexity": convexity,
        "lipschitz": lipschitz,
        "admitted_distance": distance,
        "admitted_share": distance / float(problem.data.norm()),
        "first_contraction": float((errors[1] / errors[0]).max()),
        "steps_allowed": bound,
        "excess": float(errors[-1].max()) / (ACCURACY * distance),
        "steps_from_data": int(reached.nonzero()[0]) if reached.any() else -1,
        "norm_share": float(minimiser.norm() / problem.data.norm()),
        "recovery_error": float((minimiser - problem.data).norm() / problem.data.norm()),
        "status": status,
    }


def follow_scaled(problem: Problem, gamma: float) -> tuple[Tensor, float, str]:
    """As `follow`, with the gradient judged on the scale of gamma |X|, which is huge here."""
    objective = problem.objective(gamma)
    trace = minimise(objective, problem.data.unsqueeze(0), "full", 50, 0.0)
    point = trace.points[-1, 0]
    smallest = float(torch.linalg.eigvalsh(objective.hessian(point.unsqueeze(0)))[0, 0])
    small = float(trace.gradient_norm[-1, 0]) <= 1e-12 * gamma * float(problem.data.norm())
    return point, smallest, "ok" if small and smallest > 0 else "not converged"
