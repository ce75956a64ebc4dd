"""Newton-Kantorovich in place of Theorem J.1: certified balls, and convergence within and beyond them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.attention.newton.problem import Problem, draw, equations
from runner.contract import Context
from runner.curvature.closed_form import attention as att
from runner.curvature.closed_form.attention.certificate import certificate, certified_radius
from runner.training.levenberg_marquardt import LeastSquares
from runner.training.newton import observed_order

if TYPE_CHECKING:
    from experiments.attention.newton.settings import AttentionNewton

Row = dict[str, Any]
ARRIVED = 1e-8  # |X - X_true| / |X_true| after the last step
ORDER_FLOOR = 1e-12


def certificate_rows(setup: AttentionNewton, n: int, d: int, ctx: Context) -> list[Row]:
    """Rows of `balls`: per problem and multiple of the certified radius, starts on that sphere.

    Half of the starts lie in random directions, the others along the singular vectors of J, the smallest first, both
    ways: the flattest directions are where Newton's step errs most.
    """
    rows = []
    for index in range(setup.problems):
        problem = draw(n, d, 0.0, setup.score_scale, index, ctx)
        least = equations(problem.layer, problem.b)
        radius = certified_radius(problem.x, problem.w, problem.v)
        beta = certificate(problem.x, problem.w, problem.v, problem.b).beta
        away = directions(setup, problem, ctx.torch_generator(f"attention_newton spheres {index} {n} {d}"))
        for multiple in setup.multiple:
            start = problem.data + multiple * radius * away
            paths = newton_path(least, start, setup.certified_steps)
            errors = (paths - problem.data).norm(dim=-1) / problem.data.norm()
            good = errors[-1] <= ARRIVED
            sure = torch.tensor([_certified(problem, point) for point in start])
            orders = [observed_order(errors[:, i], ORDER_FLOOR) for i in good.nonzero().flatten().tolist()]
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
    random = torch.randn(setup.sphere_starts - half, len(problem.data), generator=generator, dtype=torch.float64)
    vectors = torch.linalg.svd(problem.layer.jacobian(problem.x).flatten(0, 1)).Vh.flip(0)
    flat = torch.stack([vectors, -vectors], 1).flatten(0, 1)[:half]
    return torch.cat([random / random.norm(dim=-1, keepdim=True), flat])


def _certified(problem: Problem, point: Tensor) -> bool:
    return certificate(att.unvec(point, problem.layer.width), problem.w, problem.v, problem.b).certified


def _solved(least: LeastSquares, points: Tensor, b: Tensor) -> Tensor:
    return least.value(points).nan_to_num(torch.inf).norm(dim=-1) <= ARRIVED * b.norm()


def newton_path(least: LeastSquares, start: Tensor, steps: int) -> Tensor:
    """x - J^-1 r, undamped: points (steps + 1, S, N). A start whose J is singular or overflows stays where it is."""
    path = [start]
    for _ in range(steps):
        x = path[-1]
        move, failed = torch.linalg.solve_ex(least.jacobian(x), least.value(x).unsqueeze(-1))
        new = x - move.squeeze(-1)
        path.append(torch.where(((failed == 0) & torch.isfinite(new).all(-1)).unsqueeze(-1), new, x))
    return torch.stack(path)
