"""Theorem J.1 in numbers and the minimiser against gamma; Newton–Kantorovich in place of the
theorem: certified balls, and convergence within and beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.attention.bounds import BOUNDS, certificate, certified_radius
from experiments.attention.levenberg_marquardt import LeastSquares
from experiments.attention.newton_method import minimise, observed_order
from experiments.attention.problem import Problem, draw, equations, follow
from experiments.attention.settings import AttentionNewton
from runner.contract import Context
from runner.curvature.closed_form import attention as att

Row = dict[str, Any]
ACCURACY = 1e-3  # epsilon of Theorem J.1 relative to |X0 - X*|
SMALLEST_R = 1.0 + 1e-9  # the theorem needs R > 1
ARRIVED = 1e-8  # |X - X_true| / |X_true| after the last step
ORDER_FLOOR = 1e-12


def theorem_radius(problem: Problem) -> float:
    """Smallest R that the conditions of Theorem J.1 admit: Frobenius norms of W, V, X and the
    entries of B."""
    norms = [float(m.norm()) for m in (problem.w, problem.v, problem.x)]
    return max(*norms, float(problem.b.abs().max()), SMALLEST_R)


def admissible_gamma(problem: Problem) -> float:
    """gamma = 42 n d R^8 (Theorem J.1 with the constant of Lemma I.3)."""
    d, n = problem.x.shape
    return BOUNDS["I.3"].printed(n, d, theorem_radius(problem))


def theorem_tables(setup: AttentionNewton, n: int, d: int, ctx: Context) -> dict[str, list[Row]]:
    """Tables `theorem`, a row per problem, and `scan`, a row per problem and gamma; B without
    noise."""
    theorem: list[Row] = []
    scan: list[Row] = []
    for index in range(setup.problems):
        problem = draw(n, d, 0.0, setup.score_scale, index, ctx)
        theorem.append(theorem_row(problem, index))
        scan += scan_rows(problem, setup.scan, index)
    return {"theorem": theorem, "scan": scan}


def scan_rows(problem: Problem, gammas: Sequence[float], index: int) -> list[Row]:
    """The minimiser followed from the data over rising gamma, the last gamma being the admissible
    one."""
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

    l: smallest eigenvalue at X*; M: 9193 n^3 d^3 R^10; admitted distance 0.1 l / M. excess: error
    over epsilon after T = ceil(log2(1 / 1e-3)) full steps from that distance, worst of the signed
    coordinate directions tried.
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


# ------------------------------------------------------------------ certified balls


def certificate_rows(setup: AttentionNewton, n: int, d: int, ctx: Context) -> list[Row]:
    """Rows of `balls`: per problem and multiple of the certified radius, starts on that sphere.

    Half of the starts lie in random directions, the others along the singular vectors of J, the
    smallest first, both ways: the flattest directions are where Newton's step errs most.
    """
    rows = []
    for index in range(setup.problems):
        problem = draw(n, d, 0.0, setup.score_scale, index, ctx)
        least = equations(problem.layer, problem.b)
        radius = certified_radius(problem.x, problem.w, problem.v)
        beta = certificate(problem.x, problem.w, problem.v, problem.b).beta
        away = directions(
            setup, problem, ctx.torch_generator(f"attention_newton spheres {index} {n} {d}")
        )
        for multiple in setup.multiple:
            start = problem.data + multiple * radius * away
            paths = newton_path(least, start, setup.certified_steps)
            errors = (paths - problem.data).norm(dim=-1) / problem.data.norm()
            good = errors[-1] <= ARRIVED
            sure = torch.tensor([_certified(problem, point) for point in start])
            orders = [
                observed_order(errors[:, i], ORDER_FLOOR) for i in good.nonzero().flatten().tolist()
            ]
            kept = [order for order in orders if order == order]
            rows.append(
                {
                    "problem": index,
                    "multiple": multiple,
                    "radius_share": radius / float(problem.data.norm()),
                    "beta": beta,
                    "starts": len(start),
                    "converged": int(good.sum()),
                    "certified": int(sure.sum()),
                    "certified_solved": int((sure & _solved(least, paths[-1], problem.b)).sum()),
                    "order": float(torch.tensor(kept).median()) if kept else float("nan"),
                }
            )
    return rows


def directions(setup: AttentionNewton, problem: Problem, generator: torch.Generator) -> Tensor:
    """Unit vectors (sphere_starts, N)."""
    half = setup.sphere_starts // 2
    random = torch.randn(
        setup.sphere_starts - half, len(problem.data), generator=generator, dtype=torch.float64
    )
    vectors = torch.linalg.svd(problem.layer.jacobian(problem.x).flatten(0, 1)).Vh.flip(0)
    flat = torch.stack([vectors, -vectors], 1).flatten(0, 1)[:half]
    return torch.cat([random / random.norm(dim=-1, keepdim=True), flat])


def _certified(problem: Problem, point: Tensor) -> bool:
    return certificate(
        att.unvec(point, problem.layer.width), problem.w, problem.v, problem.b
    ).certified


def _solved(least: LeastSquares, points: Tensor, b: Tensor) -> Tensor:
    return least.value(points).nan_to_num(torch.inf).norm(dim=-1) <= ARRIVED * b.norm()


def newton_path(least: LeastSquares, start: Tensor, steps: int) -> Tensor:
    """x - J^-1 r, undamped: points (steps + 1, S, N). A start whose J is singular or overflows
    stays where it is."""
    path = [start]
    for _ in range(steps):
        x = path[-1]
        move, failed = torch.linalg.solve_ex(least.jacobian(x), least.value(x).unsqueeze(-1))
        new = x - move.squeeze(-1)
        path.append(
            torch.where(((failed == 0) & torch.isfinite(new).all(-1)).unsqueeze(-1), new, x)
        )
    return torch.stack(path)
