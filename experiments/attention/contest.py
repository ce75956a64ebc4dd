"""All methods from the same starts, blind and near: which recover the data, at what cost, and what
else they find. Methods step in rounds (`rounds`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.attention.lbfgs import lbfgs
from experiments.attention.levenberg_marquardt import along_ladder, levenberg_marquardt
from experiments.attention.newton_method import Trace, minimise
from experiments.attention.newton_steps import (
    INDEFINITE,
    NOT_FINITE,
    SINGULAR,
    STALLED,
    Objective,
)
from experiments.attention.problem import (
    Ended,
    Problem,
    distinct,
    draw,
    invariances,
    relative_error,
    symmetric_error,
)
from experiments.attention.rounds import Round, Run, followed, in_rounds
from experiments.attention.settings import AttentionNewton
from runner.contract import Context

Row = dict[str, Any]
BLIND = "blind"
CONTINUED = ", continued"
LM = "levenberg-marquardt"


def operations(n: int, d: int) -> dict[str, float]:
    """Multiply-adds of each part of a step, leading order, as derived in
    `curvature.closed_form.attention`."""
    size = n * d
    return {
        "value": 2 * n * n * d + 2 * n * d * d,
        "gradient": 5 * n * n * d + 5 * n * d * d,
        "product": 15 * n * n * d + 10 * n * d * d,
        "hessian": n * size**2 + size**3,
        "jacobian": 3 * n * n * d * d + size**3,  # with J^T J
        "cholesky": size**3 / 6 + size**2,
        "eigenvalues": 9 * size**3,
    }


def contest_rows(setup: AttentionNewton, n: int, d: int, ctx: Context) -> dict[str, list[Row]]:
    """Tables `contest`, a row per problem, method and origin of the starts, and `solutions`, a row
    per problem."""
    contest = []
    solutions = []
    methods = len(setup.method)
    for index in range(setup.problems):
        problem = draw(n, d, setup.score_scale, index, ctx)
        generator = ctx.torch_generator(f"attention_newton blind starts {index} {n} {d}")
        all_starts = starts(setup, problem, generator)
        few_starts = {name: part[: setup.lbfgs_starts] for name, part in all_starts.items()}
        exact = []
        for number, method in enumerate(setup.method):
            done = index * methods + number
            ctx.progress(done, setup.problems * methods, method)
            by_origin = few_starts if method.startswith("l-bfgs") else all_starts
            start = torch.cat(list(by_origin.values()))
            run, late = run_and_follow(setup, method, problem, start)
            ends = problem.ended(run.points)
            exact.append(ends.points[ends.exact])
            rows = method_rows(setup, by_origin, run, late, ends)
            contest += [{"problem": index, "method": method} | row for row in rows]
        row = solution_row(setup, problem, torch.cat(exact))
        solutions.append({"problem": index} | row)
    return {"contest": contest, "solutions": solutions}


def method_rows(
    setup: AttentionNewton, by_origin: Mapping[str, Tensor], run: Run, late: Tensor, ends: Ended
) -> list[Row]:
    """What the starts of each origin came to."""
    recovered = ends.error <= setup.recovered
    counted = {
        "recovered": recovered,
        "exact": ends.exact,
        "wrong": ends.exact & ~recovered,
        "given_up": run.given_up,
        "late": late & ~recovered,
    }
    rows = []
    first = 0
    for origin, points in by_origin.items():
        last = first + len(points)
        row: Row = {"origin": origin, "starts": len(points)}
        for name, flags in counted.items():
            of_origin = flags[first:last]
            row[name] = int(of_origin.sum())
        work = run.work[first:last]
        row["work"] = float(work.sum())
        rows.append(row)
        first = last
    return rows


def starts(
    setup: AttentionNewton, problem: Problem, generator: torch.Generator
) -> dict[str, Tensor]:
    """Starts (S, N) by origin: "blind", standard normal like the data but independent of them, and
    the distances |X0 - X_true| / |X_true| in random directions."""
    data = problem.data

    def normal(count: int) -> Tensor:
        return torch.randn(count, len(data), generator=generator, dtype=data.dtype)

    by_origin = {BLIND: normal(setup.blind_starts)}
    for distance in setup.distance:
        away = normal(setup.near_starts)
        sizes = away.norm(dim=-1, keepdim=True)
        away = distance * data.norm() * away / sizes
        by_origin[f"{distance:g}"] = data + away
    return by_origin


def solution_row(setup: AttentionNewton, problem: Problem, exact: Tensor) -> Row:
    """The distinct exact solutions that all methods together found, and what the wrong ones are."""
    d, n = problem.x.shape
    solutions = distinct(exact)
    errors = relative_error(solutions, problem.data)
    far = errors > setup.recovered
    wrong = solutions[far]
    certified = sum(problem.certificate(point).certified for point in wrong)
    moves = invariances(problem.layer, n)
    errors_of_moves = symmetric_error(wrong, problem.data, moves, d)
    symmetric = errors_of_moves <= setup.recovered
    values = problem.layer.singular_values(problem.x)
    return {
        "distinct": len(solutions),
        "wrong": len(wrong),
        "wrong_certified": certified,
        "wrong_by_symmetry": int(symmetric.sum()),
        "nearest_wrong": float(errors[far].min()) if len(wrong) else float("nan"),
        "truth_found": int(len(wrong) < len(solutions)),
        "sigma_min": float(values[-1]),
    }


def run_and_follow(
    setup: AttentionNewton, method: str, problem: Problem, start: Tensor
) -> tuple[Run, Tensor]:
    """One method from all starts, at gamma = 0 or along the falling ladder of gamma first, and
    which of the starts (S,) that it gave up recover the data when they are followed."""
    start, ladder_work = _rungs(setup, method, problem, start)
    once = partial(_rounds, setup, method, problem)
    # whether a step knows more of the steps before it than where they led
    anew = method.removesuffix(CONTINUED) in (LM, "l-bfgs")
    value = problem.objective(0.0).value(start)
    run = in_rounds(once, start, value, setup.progress, anew)
    beyond = followed(once, run, start, setup.further_rounds, anew)
    late = torch.zeros_like(run.given_up)
    if len(beyond):
        ends = problem.ended(beyond)
        late[run.given_up] = ends.error <= setup.recovered
    run = replace(run, work=ladder_work + run.work)
    return run, late


def _rungs(
    setup: AttentionNewton, method: str, problem: Problem, start: Tensor
) -> tuple[Tensor, Tensor]:
    """Where the ladder of gamma leads from the starts, and what it costs; nowhere and nothing
    without continuation."""
    name = method.removesuffix(CONTINUED)
    counts = _counts(problem)
    total = torch.zeros(len(start), dtype=start.dtype)
    if name == method:
        return start, total
    if name == LM:
        ends = along_ladder(
            problem.equations,
            start,
            setup.ladder,
            rung_steps=setup.rung_steps,
            decrease=setup.decrease,
        )
        return ends.points, ends.steps * _trial(counts)
    cap = setup.rung_steps
    if name == "l-bfgs":
        cap *= 10
    for gamma in setup.ladder:
        objective = problem.objective(gamma)
        goal = 1e-2 * gamma
        trace = _descend(setup, name, objective, start, cap, goal)
        start = trace.points[-1]
        total = total + _work(name, trace, counts)
    return start, total


def _rounds(
    setup: AttentionNewton, method: str, problem: Problem, start: Tensor, rounds: int
) -> Round:
    """So many rounds of at most `steps` steps of a method at gamma = 0."""
    name = method.removesuffix(CONTINUED)
    counts = _counts(problem)
    cap = rounds * setup.steps[name]
    if name == LM:
        ends = levenberg_marquardt(problem.equations, start, max_steps=cap, decrease=setup.decrease)
        work = ends.steps * _trial(counts)
        return Round(ends.points, ends.square, work, ends.capped)
    objective = problem.objective(0.0)
    trace = _descend(setup, name, objective, start, cap, setup.tolerance)
    lowest = trace.loss.nan_to_num(torch.inf).amin(0)
    work = _work(name, trace, counts)
    unfinished = _open(trace, cap)
    return Round(trace.points[-1], lowest, work, unfinished)


def _counts(problem: Problem) -> dict[str, float]:
    d, n = problem.x.shape
    return operations(n, d)


def _trial(counts: dict[str, float]) -> float:
    """Multiply-adds of a trial of Levenberg-Marquardt; every one is charged as if it had been
    accepted."""
    return 2 * counts["value"] + counts["jacobian"] + counts["cholesky"]


def _open(trace: Trace, cap: int) -> Tensor:
    """Starts whose last allowed step was neither at a stationary point nor a stall."""
    capped = ~trace.converged & (trace.steps >= cap)
    if len(trace.status):
        last = trace.status[-1]
        capped &= (last != STALLED) & (last != NOT_FINITE)
    return capped


def _descend(
    setup: AttentionNewton, method: str, objective: Objective, start: Tensor, cap: int, goal: float
) -> Trace:
    """Newton's methods and L-BFGS, with the stop of Levenberg-Marquardt: a start that creeps is
    given up."""
    if method == "l-bfgs":
        return lbfgs(objective, start, cap, goal, setup.lbfgs_memory, setup.decrease)
    return minimise(objective, start, method, cap, goal, setup.decrease)  # type: ignore[arg-type]


def _work(method: str, trace: Trace, counts: dict[str, float]) -> Tensor:
    """Multiply-adds of each start of a trace; the trials of Newton's line searches are not
    charged."""
    steps = trace.steps.double()
    work = trace.work.sum(0).double()
    per_step = counts["gradient"] + counts["value"]
    if method == "l-bfgs":
        return work * per_step
    if method == "truncated CG":
        return steps * per_step + work * counts["product"]
    numbers = torch.arange(len(trace.status)).unsqueeze(-1)
    taken = numbers < trace.steps
    indefinite = (trace.status == INDEFINITE) | (trace.status == SINGULAR)
    spectral = (indefinite & taken).sum(0)
    solves = steps * (per_step + counts["hessian"] + counts["cholesky"])
    return solves + spectral * counts["eigenvalues"]
