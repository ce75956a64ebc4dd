"""What is measured: the points that a search reaches, and the same points polished."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.certificates import of_hessian
from experiments.three_layer.ends import (
    gradient_columns,
    in_place,
    lead,
    led_columns,
    nearest_columns,
    short,
)
from experiments.three_layer.ws_bound.draws import measure_draws
from experiments.three_layer.ws_bound.penalty import measure_penalised
from experiments.three_layer.ws_bound.portraits import numerical_hessian, portraits
from experiments.three_layer.ws_bound.search import Search, run_search
from experiments.three_layer.ws_bound.settings import WsBound
from experiments.three_layer.ws_bound.theorems import equality_cases, theorem_slack, vanishing_error
from runner.closed_form import three_layer as tl
from runner.contract import Cell, Context, Table


def measure(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell; a cell without `part` is a search."""
    part = cell.params.get("part", "search")
    if part == "draws":
        return measure_draws(experiment, ctx)
    if part == "polish":
        return measure_polished(experiment, cell, ctx)
    if part == "penalty":
        return measure_penalised(experiment, cell, ctx)
    return measure_search(experiment, cell, ctx)


def measure_search(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    search = run_search(experiment, cell, ctx)
    ctx.progress(1, 3, "curvature")
    points = critical_points(search, experiment)
    tables: dict[str, Table] = {
        "critical_points": points,
        "search": search_summary(search, points),
        "theorems": theorem_slack(search, search.ends.theta[search.unique]),
        "equality": equality_cases(search, ctx.torch_generator("equality")),
        "limits": vanishing_error(search),
        "certificate": certificates(search, ctx),
    }
    if experiment.has_portraits(cell) and len(search.unique):
        ctx.progress(2, 3, "portraits")
        tables |= portraits(experiment, search)
    return tables


def certificates(search: Search, ctx: Context) -> list[dict[str, Any]]:
    """The closed-form Hessian at the first start, and at the sharpest critical point where there is
    one.
    """
    places = {"start": search.starts[0]}
    if len(search.unique):
        places["sharpest critical point"] = search.ends.theta[search.ranked[0]]
    rows = []
    for place, theta in places.items():
        hessian = search.hessian(theta)
        rows.append(of_hessian("Hessian", hessian, search.loss, theta, ctx, place=place))
    return rows


def critical_points(search: Search, experiment: WsBound) -> dict[str, Any]:
    """One row per start; curvature is measured where the search converged and NaN elsewhere, with
    the reason.
    """
    ends = search.ends
    converged = ends.converged
    count = len(converged)
    repeated = converged.index_fill(0, search.unique, False)
    columns = {
        "start": range(count),
        "status": ["ok" if status == "converged" else status for status in ends.status],
        "converged": converged.to(torch.int64),
        "duplicate": repeated.to(torch.int64),
        "steps": ends.steps,
    }
    measured = curvatures(search, experiment).items()
    for name, values in measured:
        columns[name] = in_place(values, converged, count)
    return columns


def curvatures(search: Search, experiment: WsBound) -> dict[str, Tensor]:
    """What is measured where the search converged."""
    theta = search.ends.theta[search.ends.converged]
    W, V = tl.split(theta, search.x.shape[1])
    trace, square = tl.traces(theta, *search.args)
    further = {
        "lambda_inf": tl.lower_bound(theta, *search.args),
        "trace": trace,
        "trace_of_square": square,
        "V_norm_sq": V.square().sum(-1),
        "W_norm_sq": W.square().sum((-2, -1)),
        "RtR_norm_sq": hidden_gram_norm_squared(theta, search.x, search.activation),
        "hessian_error": hessian_error(search, theta, experiment),
    }
    return search.curvature(theta) | further | search.test_f1(theta)


def hessian_error(search: Search, theta: Tensor, experiment: WsBound) -> Tensor:
    """||ΔH||_F at theta (S, D) of three-point differences of the loss against H, (S,) (WS bound,
    Section V-B).

    The differences cost 4 D² losses a point: of networks wider than the one that the paper compares
    only the first few points are taken, the others are NaN.
    """
    if not len(theta):
        return theta.new_zeros(0)
    exact = search.hessian(theta)
    compared = theta
    if search.hidden > experiment.portrait_hidden:
        compared = theta[: experiment.error_points]
    numerical = numerical_hessian(compared, *search.args, step=experiment.difference_step)
    errors = torch.linalg.matrix_norm(numerical - exact[: len(compared)])
    return in_place(errors, torch.arange(len(errors)), len(theta))


def search_summary(search: Search, points: Mapping[str, Any]) -> dict[str, Any]:
    """One row: how many starts converged and are unique, their bounds, and how many are stable at
    this rate.

    Gradient descent leaves any point with λ_1 > 2/η, so large rates cannot end at sharp points.
    """
    converged = search.ends.converged
    diverged = search.ends.diverged
    chosen = search.unique
    bounds = points["lambda_sup"][chosen].sort().values
    largest = points["lambda_max"][chosen]
    limit = 2 / search.rate
    beyond_limit = points["lambda_max"][converged] > limit
    f1 = points[f"f1_test{max(search.test)}"][chosen]
    unsettled = ~converged & ~diverged
    steps = search.ends.steps[converged].double()
    not_converged = search.ends.theta[unsettled]
    errors = points["hessian_error"][chosen]
    summary = {
        "stop_ratio": search.ratio,
        "starts": len(search.starts),
        "converged": int(converged.sum()),
        "diverged": int(diverged.sum()),
        "not_converged": int(unsettled.sum()),
        "unique": len(chosen),
        "steps_median": _median(steps),
        "stability_limit": limit,
        "beyond_limit": int(beyond_limit.sum()),
        "lambda_max_not_converged": _median_largest(search, not_converged),
        "lambda_max_largest": _quantile(largest, 1.0),
        "lambda_max_median": _quantile(largest, 0.5),
        "lambda_sup_smallest": _quantile(bounds, 0.0),
        "lambda_sup_second_smallest": float(bounds[1]) if len(bounds) > 1 else math.nan,
        "lambda_sup_median": _quantile(bounds, 0.5),
        "lambda_sup_largest": _quantile(bounds, 1.0),
        "hessian_error_mean": float(errors.nanmean()),
        "f1_test_median": _quantile(f1, 0.5),
    }
    return {name: [value] for name, value in summary.items()}


def _median_largest(search: Search, theta: Tensor) -> float:
    """Median λ_1 at theta (S, D)."""
    hessian = search.hessian(theta)
    # one step before it diverges a start may overflow here
    finite = torch.isfinite(hessian).all((1, 2))
    spectrum = torch.linalg.eigvalsh(hessian[finite])
    return _quantile(spectrum[:, -1], 0.5)


def _quantile(values: Tensor, level: float) -> float:
    if len(values):
        return float(values.quantile(level))
    return math.nan


def _median(values: Tensor) -> float:
    """The lower of the two middle values."""
    if len(values):
        return float(values.median())
    return math.nan


def measure_polished(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Tables `gradients` (every start), `polished` (unique ends) and `theorems_polished` of one
    search.
    """
    search = run_search(experiment, cell, ctx)
    ctx.progress(1, 3, f"polishing {len(search.unique)} ends")
    theta = search.ends.theta[search.unique]
    limits = search.limits(experiment)
    gradients: dict[str, Any] = {"start": range(len(search.starts))}
    gradients |= gradient_columns(search, search.ends.theta, search.starts)
    led = lead(search, theta, limits)
    polished = {"start": search.unique} | led_columns(search, led, theta)
    scores = search.test_f1(led.theta)
    for name, f1 in scores.items():
        polished[name] = short(f1)
    if search.hidden == experiment.portrait_hidden:
        ctx.progress(2, 3, "nearest stationary points")
        polished |= nearest_columns(lead(search, theta, limits, "nearest"), theta)
    return {
        "gradients": gradients,
        "polished": polished,
        "theorems_polished": theorem_slack(search, led.theta),
    }


def hidden_gram_norm_squared(theta: Tensor, x: Tensor, activation: str = "sigmoid") -> Tensor:
    """||Rᵀ R||_F² (...,), computed as ||R Rᵀ||_F² of the smaller side (WS bound, Fig. 12)."""
    r = tl.hidden_representation(theta, x, activation)
    if r.shape[-1] > r.shape[-2]:
        r = r.transpose(-2, -1)
    return (r.transpose(-2, -1) @ r).square().sum((-2, -1))
