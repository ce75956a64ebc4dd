"""What is measured at the points that a search reaches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.certificates import of_hessian
from experiments.ws_bound.portraits import portraits
from experiments.ws_bound.search import DTYPE, Search, macro_f1, run_search
from experiments.ws_bound.settings import WsBound
from experiments.ws_bound.theorems import equality_cases, theorem_slack, vanishing_error
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import three_layer as tl


def measure_search(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    search = run_search(experiment, cell, ctx)
    ctx.progress(1, 3, "curvature")
    points = critical_points(search, experiment)
    tables: dict[str, Table] = {
        "critical_points": points,
        "search": search_summary(search, points),
        "theorems": theorem_slack(search.ends.theta[search.unique], search.x, search.q, search.activation),
        "equality": equality_cases(search, ctx.torch_generator("equality")),
        "limits": vanishing_error(search),
        "certificate": certificates(search, ctx),
    }
    if experiment.has_portraits(cell) and len(search.unique):
        ctx.progress(2, 3, "portraits")
        tables |= portraits(experiment, search)
    return tables


def certificates(search: Search, ctx: Context) -> list[dict[str, Any]]:
    """The closed-form Hessian at the first start, and at the sharpest critical point where there is one."""
    places = {"start": search.starts[0]}
    if len(search.unique):
        places["sharpest critical point"] = search.ends.theta[search.ranked[0]]
    args = (search.x, search.q, search.activation)
    return [
        of_hessian("Hessian", tl.hessian(theta, *args), lambda t: tl.loss(t, *args), theta, ctx, place=place)
        for place, theta in places.items()
    ]


def critical_points(search: Search, experiment: WsBound) -> dict[str, Any]:
    """One row per start; curvature is measured where the search converged and NaN elsewhere, with the reason."""
    ends = search.ends
    status = ["ok" if s == "converged" else s for s in ends.status]
    theta = ends.theta[ends.converged]
    args = (search.x, search.q, search.activation)
    hessian = tl.hessian(theta, *args)
    spectrum = torch.linalg.eigvalsh(hessian)
    W, V = tl.split(theta, search.x.shape[1])
    trace, square = tl.traces(theta, *args)
    measured = {
        "loss": tl.loss(theta, *args),
        "lambda_max": spectrum[:, -1],
        "lambda_min": spectrum[:, 0],
        "lambda_sup": tl.upper_bound(theta, *args),
        "lambda_inf": tl.lower_bound(theta, *args),
        "trace": trace,
        "trace_of_square": square,
        "V_norm_sq": V.square().sum(-1),
        "W_norm_sq": W.square().sum((-2, -1)),
        "RtR_norm_sq": tl.hidden_gram_norm_squared(theta, search.x, search.activation),
        "hessian_error": hessian_error(search, theta, hessian, experiment),
    }
    for count, (x, q) in search.test.items():
        measured[f"f1_test{count}"] = macro_f1(tl.predict(theta, x, search.activation) > 0.5, q > 0.5)
    columns: dict[str, Any] = {
        "start": range(len(status)),
        "status": status,
        "converged": ends.converged.to(torch.int64),
        "duplicate": search.repeated.to(torch.int64),
        "steps": ends.steps,
    }
    return columns | {name: _in_place(values, ends.converged) for name, values in measured.items()}


def _in_place(values: Tensor, converged: Tensor) -> Tensor:
    full = torch.full((len(converged),), torch.nan, dtype=DTYPE)
    full[converged] = values
    return full


def hessian_error(search: Search, theta: Tensor, hessian: Tensor, experiment: WsBound) -> Tensor:
    """||ΔH||_F of `hessian` at theta (S, D) against three-point differences of the loss, (S,) (WS bound, Section V-B).

    The differences cost 4 D² losses a point: of networks wider than the one that the paper compares only the first few
    points are taken, the others are NaN.
    """
    count = experiment.error_points if search.hidden > experiment.portrait_hidden else len(theta)
    found = torch.full((len(theta),), torch.nan, dtype=DTYPE)
    if len(theta):
        chosen, step = theta[:count], experiment.difference_step
        numerical = tl.numerical_hessian(chosen, search.x, search.q, search.activation, step=step, of="loss")
        found[:count] = torch.linalg.matrix_norm(numerical - hessian[:count])
    return found


def search_summary(search: Search, points: Mapping[str, Any]) -> dict[str, Any]:
    """One row: how many starts converged and are unique, their bounds, and how many are stable at this rate.

    Gradient descent leaves any point with λ_1 > 2/η, so large rates cannot end at sharp points.
    """
    ends, chosen = search.ends, search.unique
    bounds, largest = points["lambda_sup"][chosen].sort().values, points["lambda_max"][chosen]
    limit = 2 / search.rate
    starts_largest = points["lambda_max"][ends.converged]
    return {
        "stop_ratio": [search.ratio],
        "starts": [len(search.starts)],
        "converged": [int(ends.converged.sum())],
        "diverged": [int(ends.diverged.sum())],
        "not_converged": [int((~ends.converged & ~ends.diverged).sum())],
        "unique": [len(chosen)],
        "steps_median": [float(ends.steps[ends.converged].double().median()) if ends.converged.any() else float("nan")],
        "stability_limit": [limit],
        "beyond_limit": [int((starts_largest > limit).sum())],
        "lambda_max_not_converged": [_unsettled(search)],
        "lambda_max_largest": [_quantile(largest, 1.0)],
        "lambda_max_median": [_quantile(largest, 0.5)],
        "lambda_sup_smallest": [_quantile(bounds, 0.0)],
        "lambda_sup_second_smallest": [float(bounds[1]) if len(bounds) > 1 else float("nan")],
        "lambda_sup_median": [_quantile(bounds, 0.5)],
        "lambda_sup_largest": [_quantile(bounds, 1.0)],
        "hessian_error_mean": [float(points["hessian_error"][chosen].nanmean())],
        "f1_test_median": [_quantile(points[f"f1_test{max(search.test)}"][chosen], 0.5)],
    }


def _unsettled(search: Search) -> float:
    """Median λ_1 where the starts that neither converged nor diverged are at the last step."""
    theta = search.ends.theta[~search.ends.converged & ~search.ends.diverged]
    hessian = tl.hessian(theta, search.x, search.q, search.activation)
    finite = torch.isfinite(hessian).all((1, 2))  # one step before it diverges a start may overflow here
    return _quantile(torch.linalg.eigvalsh(hessian[finite])[:, -1], 0.5)


def _quantile(values: Tensor, level: float) -> float:
    return float(values.quantile(level)) if len(values) else float("nan")
