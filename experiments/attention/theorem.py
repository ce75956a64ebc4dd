"""Theorem J.1 in numbers and the minimiser against gamma; Newton–Kantorovich in place of the
theorem: certified balls, and convergence within and beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.attention.bounds import BOUNDS
from experiments.attention.certified import certified_radius
from experiments.attention.levenberg_marquardt import LeastSquares
from experiments.attention.newton_method import minimise, observed_order
from experiments.attention.newton_steps import Objective
from experiments.attention.problem import Problem, draw, follow, relative_error
from experiments.attention.settings import AttentionNewton
from runner.contract import Context

Row = dict[str, Any]
ACCURACY = 1e-3  # epsilon of Theorem J.1 relative to |X0 - X*|
SMALLEST_R = 1.0 + 1e-9  # the theorem needs R > 1
ARRIVED = 1e-8  # |X - X_true| / |X_true| after the last step
ORDER_FLOOR = 1e-12


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
    """Tables `theorem`, a row per problem, and `scan`, a row per problem and gamma."""
    theorem = []
    scan = []
    for index in range(setup.problems):
        problem = draw(n, d, setup.score_scale, index, ctx)
        theorem.append({"problem": index} | theorem_row(problem))
        scanned = scan_rows(problem, setup.scan)
        scan += [{"problem": index} | row for row in scanned]
    return {"theorem": theorem, "scan": scan}


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
    identity = torch.eye(n * d, dtype=torch.float64)
    offsets = identity[:8]
    starts = minimiser + distance * offsets
    steps = math.ceil(math.log2(1 / ACCURACY))
    trace = minimise(objective, starts, "full", steps, 0.0)
    errors = (trace.points - minimiser).norm(dim=-1)
    contraction = errors[1] / errors[0]
    last = float(errors[-1].max())
    recovery_error = relative_error(minimiser, data)
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
        "recovery_error": float(recovery_error),
        "status": status,
    }


def steps_between(objective: Objective, start: Tensor, minimiser: Tensor) -> int:
    """Full Newton steps from a start, which may be far outside the admitted ball, to within 1e-6 of
    the minimiser; -1 if 20 are too few."""
    starts = start.unsqueeze(0)
    trace = minimise(objective, starts, "full", 20, 0.0)
    differences = trace.points[:, 0] - minimiser
    distances = differences.norm(dim=-1)
    arrived = (distances <= 1e-6 * minimiser.norm()).nonzero()
    if len(arrived):
        return int(arrived[0])
    return -1


# ------------------------------------------------------------------ certified balls


def certificate_tables(
    setup: AttentionNewton, n: int, d: int, ctx: Context
) -> dict[str, list[Row]]:
    """Table `balls`: per problem and multiple of the certified radius, starts on that sphere.

    Half of the starts lie in random directions, the others along the singular vectors of J, the
    smallest first, both ways: the flattest directions are where Newton's step errs most.
    """
    rows = []
    for index in range(setup.problems):
        problem = draw(n, d, setup.score_scale, index, ctx)
        data = problem.data
        radius = certified_radius(problem.x, problem.w, problem.v)
        generator = ctx.torch_generator(f"attention_newton spheres {index} {n} {d}")
        away = directions(setup, problem, generator)
        radius_share = radius / float(data.norm())
        beta = problem.certificate(data).beta
        for multiple in setup.multiple:
            row: Row = {"problem": index, "multiple": multiple}
            row["radius_share"] = radius_share
            row["beta"] = beta
            start = data + multiple * radius * away
            rows.append(row | sphere_row(problem, start, setup.certified_steps))
    return {"balls": rows}


def sphere_row(problem: Problem, start: Tensor, steps: int) -> Row:
    """How many of the starts (S, N) reach the data or certify themselves, and the median order."""
    paths = newton_path(problem.equations, start, steps)
    errors = relative_error(paths, problem.data)
    arrived = errors[-1] <= ARRIVED
    proved = [problem.certificate(point).certified for point in start]
    certified = torch.tensor(proved)
    values = problem.equations.value(paths[-1])
    residual = values.nan_to_num(torch.inf)
    limit = ARRIVED * problem.b.norm()
    solved = residual.norm(dim=-1) <= limit
    orders = []
    for path in errors[:, arrived].unbind(1):
        order = observed_order(path, ORDER_FLOOR)
        if not math.isnan(order):
            orders.append(order)
    certified_solved = certified & solved
    return {
        "starts": len(start),
        "converged": int(arrived.sum()),
        "certified": int(certified.sum()),
        "certified_solved": int(certified_solved.sum()),
        "order": float(torch.tensor(orders).median()) if orders else math.nan,
    }


def directions(setup: AttentionNewton, problem: Problem, generator: torch.Generator) -> Tensor:
    """Unit vectors (sphere_starts, N)."""
    half = setup.sphere_starts // 2
    shape = (setup.sphere_starts - half, len(problem.data))
    random = torch.randn(shape, generator=generator, dtype=torch.float64)
    random = random / random.norm(dim=-1, keepdim=True)
    blocks = problem.layer.jacobian(problem.x)
    jacobian = blocks.flatten(0, 1)
    vectors = torch.linalg.svd(jacobian).Vh.flip(0)
    both_ways = torch.stack([vectors, -vectors], 1)
    singular = both_ways.flatten(0, 1)
    return torch.cat([random, singular[:half]])


def newton_path(least: LeastSquares, start: Tensor, steps: int) -> Tensor:
    """x - J^-1 r, undamped: points (steps + 1, S, N). A start whose J is singular or overflows
    stays where it is."""
    path = [start]
    for _ in range(steps):
        x = path[-1]
        residual = least.value(x).unsqueeze(-1)
        jacobian = least.jacobian(x)
        move, failed = torch.linalg.solve_ex(jacobian, residual)
        new = x - move.squeeze(-1)
        finite = torch.isfinite(new).all(-1)
        moved = (failed == 0) & finite
        point = torch.where(moved.unsqueeze(-1), new, x)
        path.append(point)
    return torch.stack(path)
