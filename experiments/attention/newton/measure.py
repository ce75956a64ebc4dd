"""Runs of every method from starts at controlled distances: where they end, how fast, and what went wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.attention.newton.problem import Problem, draw, follow
from experiments.attention.newton.regularised import cost_rows, scan_rows, theorem_row
from experiments.certificates import of_hessian
from runner.contract.experiment import Cell, Context, Table
from runner.training.newton import (
    INDEFINITE,
    NOT_FINITE,
    SINGULAR,
    STALLED,
    STATUS,
    Objective,
    Trace,
    lbfgs,
    minimise,
)
from runner.training.newton import observed_order as order_of

if TYPE_CHECKING:
    from experiments.attention.newton import AttentionNewton

OUTCOMES = ("minimiser", "equal minimum", "other minimum", "saddle", "stalled", "not finite", "not converged")
"""equal minimum: another point with the same loss; other minimum: stationary with a positive definite Hessian."""
STATIONARY = 1e-8  # gradient norm
EQUAL = 1e-10  # loss within this share of |B|^2 of the minimiser's
ORDER_FLOOR = 1e-11  # relative errors below are rounding

Row = dict[str, Any]


def measure(setup: AttentionNewton, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Tables `basin`, `iterates` and `certificate` always, `scan`, `theorem` and `cost` where the cell asks for it."""
    n, d = int(cell.params["tokens"]), int(cell.params["width"])
    gamma, noise = float(cell.params["gamma"]), float(cell.params["noise"])
    rows: dict[str, list[Row]] = {"basin": [], "iterates": [], "certificate": []}
    for index in range(setup.problems):
        ctx.progress(index, setup.problems)
        problem = draw(n, d, noise, setup.score_scale, index, ctx)
        offsets = torch.randn(
            setup.starts, n * d, generator=ctx.torch_generator(f"attention_newton starts {index}"), dtype=torch.float64
        )
        for name, found in runs(setup, problem, offsets, index, gamma):
            rows[name] += found
        if setup.follows(cell):
            rows.setdefault("scan", []).extend(scan_rows(problem, setup.scan, index))
        if setup.tests_theorem(cell):
            rows.setdefault("theorem", []).append(theorem_row(problem, index))
    rows["certificate"].append(certificate(draw(n, d, noise, setup.score_scale, 0, ctx), gamma, ctx))
    if setup.tests_theorem(cell):
        rows["cost"] = cost_rows(draw(n, d, noise, setup.score_scale, 0, ctx), gamma, setup.repeats)
    return {name: {key: [row[key] for row in found] for key in found[0]} for name, found in rows.items()}


def certificate(problem: Problem, gamma: float, ctx: Context) -> Row:
    """Row of `certificate`: the Hessian that every method steps with, at the data of the first problem."""
    objective, at = problem.objective(gamma), problem.data
    hessian = objective.hessian(at.unsqueeze(0))[0]
    return of_hessian("Hessian", hessian, lambda t: objective.value(t.unsqueeze(0))[0], at, ctx)


def runs(
    setup: AttentionNewton, problem: Problem, offsets: Tensor, index: int, gamma: float
) -> Iterator[tuple[str, list[Row]]]:
    """Rows of `basin` and `iterates` of one problem, method by method."""
    objective = problem.objective(gamma)
    minimiser, smallest, status = follow(objective, problem.data)
    known = {
        "problem": index,
        "minimiser_eigenvalue": smallest,
        "status": status if status == "ok" else f"X*: {status}",
    }
    directions = offsets / offsets.norm(dim=-1, keepdim=True)
    for method in setup.method:
        count = setup.lbfgs_starts if method == "l-bfgs" else setup.starts
        used = directions[:count]
        start = torch.cat([minimiser + r * problem.data.norm() * used for r in setup.distance])
        trace = run(method, objective, start, setup)
        blocks = torch.arange(len(start)).split(len(used))
        yield (
            "basin",
            [
                {**known, "method": method, "distance": distance}
                | summarise(setup, problem, objective, trace, block, minimiser)
                for distance, block in zip(setup.distance, blocks, strict=True)
            ],
        )
        if index == 0:
            shown = [(r, int(block[0])) for r, block in zip(setup.distance, blocks, strict=True) if r in setup.shown]
            yield "iterates", [row for r, i in shown for row in iterate_rows(method, r, trace, i, minimiser, problem)]


def run(method: str, objective: Objective, start: Tensor, setup: AttentionNewton) -> Trace:
    """One method from all starts."""
    if method == "l-bfgs":
        return lbfgs(objective, start, setup.lbfgs_steps, setup.tolerance)
    return minimise(objective, start, method, setup.steps, setup.tolerance)  # type: ignore[arg-type]


def outcomes(
    setup: AttentionNewton, problem: Problem, objective: Objective, trace: Trace, block: Tensor, minimiser: Tensor
) -> list[str]:
    """Where each start of the block ended, one of OUTCOMES."""
    ends, losses, norms = trace.points[-1, block], trace.loss[-1, block], trace.gradient_norm[-1, block]
    errors = (ends - minimiser).norm(dim=-1) / minimiser.norm()
    best = objective.value(minimiser.unsqueeze(0))[0]
    found = []
    for i, start in enumerate(block.tolist()):
        last = int(trace.status[max(int(trace.steps[start]) - 1, 0), start]) if len(trace.status) else 0
        if errors[i] <= setup.reached:
            found.append("minimiser")
        elif last == NOT_FINITE or not math.isfinite(float(losses[i])):
            found.append("not finite")
        elif norms[i] > STATIONARY:
            found.append("stalled" if last == STALLED else "not converged")
        elif losses[i] <= best + EQUAL * problem.b.square().sum():
            found.append("equal minimum")
        else:
            lowest = torch.linalg.eigvalsh(objective.hessian(ends[i : i + 1]))[0, 0]
            found.append("other minimum" if lowest > 0 else "saddle")
    return found


def summarise(
    setup: AttentionNewton, problem: Problem, objective: Objective, trace: Trace, block: Tensor, minimiser: Tensor
) -> Row:
    """One row of `basin`: outcomes, steps, order and trouble of the starts in the block."""
    ended = outcomes(setup, problem, objective, trace, block, minimiser)
    good = torch.tensor([name == "minimiser" for name in ended])
    errors = (trace.points[:, block] - minimiser).norm(dim=-1) / minimiser.norm()
    to_data = (trace.points[-1, block] - problem.data).norm(dim=-1) / problem.data.norm()
    taken = torch.arange(len(trace.status)).unsqueeze(-1) < trace.steps[block]
    status = trace.status[:, block]
    paths = [errors[: int(trace.steps[block[i]]) + 1, i] for i in good.nonzero().flatten().tolist()]
    orders = torch.tensor([order_of(path, ORDER_FLOOR) for path in paths])
    orders = orders[~orders.isnan()]
    total = max(1, int(taken.sum()))
    return {
        "starts": len(block),
        **{name.replace(" ", "_"): ended.count(name) for name in OUTCOMES},
        "recovered": int((to_data <= setup.recovered).sum()),
        "steps": _median(trace.steps[block][good].double()),
        "work": _median(trace.work[:, block].sum(0)[good].double()),
        "order": _median(orders),
        "orders": len(orders),
        "indefinite_share": int(((status == INDEFINITE) & taken).sum()) / total,
        "singular_share": int(((status == SINGULAR) & taken).sum()) / total,
    }


def _median(values: Tensor) -> float:
    return float(values.median()) if len(values) else math.nan


def iterate_rows(
    method: str, distance: float, trace: Trace, start: int, minimiser: Tensor, problem: Problem
) -> list[Row]:
    """The path of one start: relative errors to the minimiser and to the data, step by step."""
    steps = int(trace.steps[start])
    rows = []
    for k in range(steps + 1):
        point = trace.points[k, start]
        rows.append(
            {
                "method": method,
                "distance": distance,
                "step": k,
                "error": float((point - minimiser).norm() / minimiser.norm()),
                "error_data": float((point - problem.data).norm() / problem.data.norm()),
                "loss": float(trace.loss[k, start]),
                "gradient_norm": float(trace.gradient_norm[k, start]),
                "step_length": float(trace.step_length[k - 1, start]) if k else math.nan,
                "work": float(trace.work[k - 1, start]) if k else 0.0,
                "status": STATUS[int(trace.status[k - 1, start])] if k else "ok",
            }
        )
    return rows
