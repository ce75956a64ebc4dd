"""Theorem J.1 in numbers, the minimiser against gamma, and the order of Newton's method near the
data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.attention.bounds import BOUNDS
from experiments.attention.newton_method import minimise, observed_order
from experiments.attention.newton_steps import Objective
from experiments.attention.problem import Problem, draw, follow, near, relative_error
from experiments.attention.settings import AttentionNewton
from runner.contract import Context

Row = dict[str, Any]
ACCURACY = 1e-3  # epsilon of Theorem J.1 relative to |X0 - X*|
SMALLEST_R = 1.0 + 1e-9  # the theorem needs R > 1
ARRIVED = 1e-8  # |X - X_true| / |X_true| after the last step
ORDER_FLOOR = 1e-12  # errors below are rounding


def theorem_radius(problem: Problem) -> float:
    """Smallest R that the conditions of Theorem J.1 admit: Frobenius norms of W, V, X and the
    entries of B."""
    norms = [float(m.norm()) for m in (problem.w, problem.v, problem.x)]
    largest_entry = float(problem.b.abs().max())
    return max(*norms, largest_entry, SMALLEST_R)


def admissible_gamma(problem: Problem) -> float:
    """gamma = 42 n d R^8 (Theorem J.1 with the constant of Lemma I.3)."""
    d, n = problem.x.shape
    return BOUNDS["I.3"].printed(n, d, theorem_radius(problem))


def theorem_tables(setup: AttentionNewton, n: int, d: int, ctx: Context) -> dict[str, list[Row]]:
    """Tables `theorem` and `orders`, a row per problem, and `scan`, a row per problem and gamma."""
    theorem = []
    scan = []
    orders = []
    for index in range(setup.problems):
        problem = draw(n, d, setup.score_scale, index, ctx)
        theorem.append({"problem": index} | theorem_row(problem))
        scan += [{"problem": index} | row for row in scan_rows(problem, setup.scan)]
        generator = ctx.torch_generator(f"attention_newton order {index} {n} {d}")
        start = near(problem.data, setup.order_distance, setup.order_starts, generator)
        orders.append({"problem": index} | order_row(problem, start, setup.order_steps))
    return {"theorem": theorem, "scan": scan, "orders": orders}


def scan_rows(problem: Problem, gammas: Sequence[float]) -> list[Row]:
    """The minimiser followed from the data over rising gamma, the last gamma being the admissible
    one."""
    rows = []
    point = problem.data
    size = problem.data.norm()
    values = [*((gamma, False) for gamma in gammas), (admissible_gamma(problem), True)]
    for gamma, admissible in sorted(values):
        point, smallest, status = follow(problem.objective(gamma), point)
        row: Row = {"scanned_gamma": gamma, "admissible": admissible}
        row["error_data"] = float(relative_error(point, problem.data))
        row["predicted"] = problem.predicted_shift(gamma)
        row["norm_share"] = float(point.norm() / size)
        row["smallest_eigenvalue"] = smallest
        row["status"] = status
        rows.append(row)
    return rows


def theorem_row(problem: Problem) -> Row:
    """Conditions and conclusion of Theorem J.1 at the admissible gamma.

    l: smallest eigenvalue at X*; M: 9193 n^3 d^3 R^10; admitted distance 0.1 l / M. excess: error
    over epsilon after T = ceil(log2(1 / 1e-3)) full steps from that distance, worst of the signed
    coordinate directions tried.
    """
    d, n = problem.x.shape
    data = problem.data
    size = data.norm()
    radius = theorem_radius(problem)
    gamma = admissible_gamma(problem)
    objective = problem.objective(gamma)
    # the gradient is judged on the scale of gamma |X|, which is huge here
    limit = 1e-12 * gamma * float(size)
    minimiser, convexity, status = follow(objective, data, "full", 50, 0.0, limit)
    lipschitz = BOUNDS["H.10"].printed(n, d, radius)
    distance = 0.1 * convexity / lipschitz
    offsets = torch.eye(n * d, dtype=torch.float64)[:8]
    starts = minimiser + distance * offsets
    steps = math.ceil(math.log2(1 / ACCURACY))
    trace = minimise(objective, starts, "full", steps, 0.0)
    errors = (trace.points - minimiser).norm(dim=-1)
    contraction = errors[1] / errors[0]
    last = float(errors[-1].max())
    return {
        "radius": radius,
        "admissible_gamma": gamma,
        "convexity": convexity,
        "lipschitz": lipschitz,
        "admitted_distance": distance,
        "admitted_share": distance / float(size),
        "first_contraction": float(contraction.max()),
        "steps_allowed": steps,
        "excess": last / (ACCURACY * distance),
        "steps_from_data": steps_between(objective, data, minimiser),
        "norm_share": float(minimiser.norm() / size),
        "recovery_error": float(relative_error(minimiser, data)),
        "status": status,
    }


def steps_between(objective: Objective, start: Tensor, minimiser: Tensor) -> int:
    """Full Newton steps from a start, which may be far outside the admitted ball, to within 1e-6 of
    the minimiser; -1 if 20 are too few."""
    trace = minimise(objective, start.unsqueeze(0), "full", 20, 0.0)
    distances = (trace.points[:, 0] - minimiser).norm(dim=-1)
    arrived = (distances <= 1e-6 * minimiser.norm()).nonzero()
    if len(arrived):
        return int(arrived[0])
    return -1


def order_row(problem: Problem, start: Tensor, steps: int) -> Row:
    """Full Newton steps on the loss without regularisation, whose minimiser is the data: how many
    of the starts (S, N) converge to it, and the median order of those."""
    trace = minimise(problem.objective(0.0), start, "full", steps, 0.0)
    errors = relative_error(trace.points, problem.data)
    arrived = errors[-1] <= ARRIVED
    orders = [observed_order(path, ORDER_FLOOR) for path in errors[:, arrived].unbind(1)]
    return {
        "starts": len(start),
        "converged": int(arrived.sum()),
        "order": float(torch.tensor(orders).nanmedian()),
    }
