"""Recovery without regularisation: Levenberg-Marquardt on attention(X) = B, which of its starts
recover the data, and what else they find."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.attention.levenberg_marquardt import levenberg_marquardt
from experiments.attention.problem import (
    Problem,
    distinct,
    draw,
    ended,
    invariances,
    near,
    relative_error,
    symmetric_error,
)
from experiments.attention.settings import AttentionNewton
from runner.contract import Context

Row = dict[str, Any]
BLIND = "blind"


def recovery_tables(setup: AttentionNewton, n: int, d: int, ctx: Context) -> dict[str, list[Row]]:
    """Tables `recovery`, a row per problem and origin of the starts, and `solutions`, a row per
    problem."""
    recovery = []
    solutions = []
    for index in range(setup.problems):
        ctx.progress(index, setup.problems)
        problem = draw(n, d, setup.score_scale, index, ctx)
        generator = ctx.torch_generator(f"attention_newton blind starts {index} {n} {d}")
        rows, exact = origin_rows(setup, problem, starts(setup, problem, generator))
        recovery += [{"problem": index} | row for row in rows]
        row = solution_row(problem, exact, setup.recovered)
        solutions.append({"problem": index} | row)
    return {"recovery": recovery, "solutions": solutions}


def starts(
    setup: AttentionNewton, problem: Problem, generator: torch.Generator
) -> dict[str, Tensor]:
    """Starts (S, N) by origin: "blind", standard normal like the data but independent of them, and
    the distances |X0 - X_true| / |X_true| in random directions."""
    data = problem.data
    blind = torch.randn(setup.blind_starts, len(data), generator=generator, dtype=data.dtype)
    by_origin = {BLIND: blind}
    for distance in setup.distance:
        by_origin[f"{distance:g}"] = near(data, distance, setup.near_starts, generator)
    return by_origin


def origin_rows(
    setup: AttentionNewton, problem: Problem, by_origin: dict[str, Tensor]
) -> tuple[list[Row], Tensor]:
    """What the starts of each origin come to, and all exact solutions (S, N) among their ends.

    wrong: exact, but not the data; capped: stopped by max_steps.
    """
    run = levenberg_marquardt(
        problem.equations,
        torch.cat(list(by_origin.values())),
        max_steps=setup.max_steps,
        decrease=setup.decrease,
    )
    ends = ended(problem, run.points)
    recovered = ends.error <= setup.recovered
    counted = {
        "recovered": recovered,
        "exact": ends.exact,
        "wrong": ends.exact & ~recovered,
        "capped": run.capped,
        "steps": run.steps,
    }
    rows: list[Row] = [
        {"origin": origin, "starts": len(points)} for origin, points in by_origin.items()
    ]
    sizes = [len(points) for points in by_origin.values()]
    for name, values in counted.items():
        for row, of_origin in zip(rows, values.split(sizes), strict=True):
            row[name] = int(of_origin.sum())
    return rows, ends.points[ends.exact]


def solution_row(problem: Problem, exact: Tensor, recovered: float) -> Row:
    """The distinct exact solutions that all starts together find, and what the wrong ones are."""
    d, n = problem.x.shape
    solutions = distinct(exact)
    errors = relative_error(solutions, problem.data)
    far = errors > recovered
    wrong = solutions[far]
    moves = invariances(problem.w, problem.v, n)
    symmetric = symmetric_error(wrong, problem.data, moves, d) <= recovered
    return {
        "distinct": len(solutions),
        "wrong": len(wrong),
        "wrong_by_symmetry": int(symmetric.sum()),
        "nearest_wrong": float(errors[far].min()) if len(wrong) else float("nan"),
        "truth_found": int(len(wrong) < len(solutions)),
        "sigma_min": float(torch.linalg.svdvals(problem.equations.jacobian(problem.data))[-1]),
    }
