"""What is measured: the points that a search reaches, the same points polished, and further draws
of the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.certificates import of_hessian
from experiments.three_layer.ends import (
    Limits,
    in_place,
    lead,
    led_columns,
    macro_f1,
    nearest_columns,
    short,
)
from experiments.three_layer.polish import KINDS
from experiments.three_layer.ws_bound.portraits import numerical_hessian, portraits
from experiments.three_layer.ws_bound.search import Search, run_search, search_from
from experiments.three_layer.ws_bound.settings import WsBound
from experiments.three_layer.ws_bound.theorems import equality_cases, theorem_slack, vanishing_error
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import three_layer as tl
from runner.data.synthetic import sample


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
    status = ["ok" if s == "converged" else s for s in ends.status]
    columns = {
        "start": range(len(status)),
        "status": status,
        "converged": ends.converged.to(torch.int64),
        "duplicate": search.repeated.to(torch.int64),
        "steps": ends.steps,
    }
    for name, values in curvatures(search, experiment).items():
        columns[name] = in_place(values, ends.converged, len(status))
    return columns


def curvatures(search: Search, experiment: WsBound) -> dict[str, Tensor]:
    """What is measured where the search converged."""
    theta = search.ends.theta[search.ends.converged]
    hessian = search.hessian(theta)
    spectrum = torch.linalg.eigvalsh(hessian)
    W, V = tl.split(theta, search.x.shape[1])
    trace, square = tl.traces(theta, *search.args)
    measured = {
        "loss": search.loss(theta),
        "lambda_max": spectrum[:, -1],
        "lambda_min": spectrum[:, 0],
        "lambda_sup": search.bound(theta),
        "lambda_inf": tl.lower_bound(theta, *search.args),
        "trace": trace,
        "trace_of_square": square,
        "V_norm_sq": V.square().sum(-1),
        "W_norm_sq": W.square().sum((-2, -1)),
        "RtR_norm_sq": hidden_gram_norm_squared(theta, search.x, search.activation),
        "hessian_error": hessian_error(search, theta, hessian, experiment),
    }
    return measured | f1_on_test_sets(search, theta)


def f1_on_test_sets(search: Search, theta: Tensor) -> dict[str, Tensor]:
    """Macro F1 (S,) on each test set."""
    scores = {}
    for size, (x, q) in search.test.items():
        predicted = tl.predict(theta, x, search.activation) > 0.5
        scores[f"f1_test{size}"] = macro_f1(predicted, q > 0.5)
    return scores


def hessian_error(search: Search, theta: Tensor, hessian: Tensor, experiment: WsBound) -> Tensor:
    """||ΔH||_F of `hessian` at theta (S, D) against three-point differences of the loss, (S,) (WS
    bound, Section V-B).

    The differences cost 4 D² losses a point: of networks wider than the one that the paper compares
    only the first few points are taken, the others are NaN.
    """
    count = experiment.error_points if search.hidden > experiment.portrait_hidden else len(theta)
    if not len(theta):
        return theta.new_zeros(0)
    numerical = numerical_hessian(theta[:count], *search.args, step=experiment.difference_step)
    errors = torch.linalg.matrix_norm(numerical - hessian[:count])
    return in_place(errors, torch.arange(len(errors)), len(theta))


def search_summary(search: Search, points: Mapping[str, Any]) -> dict[str, Any]:
    """One row: how many starts converged and are unique, their bounds, and how many are stable at
    this rate.

    Gradient descent leaves any point with λ_1 > 2/η, so large rates cannot end at sharp points.
    """
    ends = search.ends
    chosen = search.unique
    bounds = points["lambda_sup"][chosen].sort().values
    largest = points["lambda_max"][chosen]
    limit = 2 / search.rate
    f1 = points[f"f1_test{max(search.test)}"][chosen]
    summary = {
        "stop_ratio": search.ratio,
        "starts": len(search.starts),
        "converged": int(ends.converged.sum()),
        "diverged": int(ends.diverged.sum()),
        "not_converged": int((~ends.converged & ~ends.diverged).sum()),
        "unique": len(chosen),
        "steps_median": _median(ends.steps[ends.converged].double()),
        "stability_limit": limit,
        "beyond_limit": int((points["lambda_max"][ends.converged] > limit).sum()),
        "lambda_max_not_converged": _unsettled(search),
        "lambda_max_largest": _quantile(largest, 1.0),
        "lambda_max_median": _quantile(largest, 0.5),
        "lambda_sup_smallest": _quantile(bounds, 0.0),
        "lambda_sup_second_smallest": float(bounds[1]) if len(bounds) > 1 else math.nan,
        "lambda_sup_median": _quantile(bounds, 0.5),
        "lambda_sup_largest": _quantile(bounds, 1.0),
        "hessian_error_mean": float(points["hessian_error"][chosen].nanmean()),
        "f1_test_median": _quantile(f1, 0.5),
    }
    return {name: [value] for name, value in summary.items()}


def _unsettled(search: Search) -> float:
    """Median λ_1 where the starts that neither converged nor diverged are at the last step."""
    theta = search.ends.theta[~search.ends.converged & ~search.ends.diverged]
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


def _limits(experiment: WsBound, search: Search) -> Limits:
    rounding = experiment.to_rounding.get(search.activation, 0)
    return Limits.of(experiment, search.starts.shape[1], rounding)


def measure_polished(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Tables `gradients` (every start), `polished` (unique ends) and `theorems_polished` of one
    search.
    """
    search = run_search(experiment, cell, ctx)
    ctx.progress(1, 3, f"polishing {len(search.unique)} ends")
    theta = search.ends.theta[search.unique]
    limits = _limits(experiment, search)
    led = lead(search, theta, limits)
    table = {"start": search.unique} | led_columns(search, led, theta)
    for name, f1 in f1_on_test_sets(search, led.theta).items():
        table[name] = short(f1)
    if search.hidden == experiment.portrait_hidden:
        ctx.progress(2, 3, "nearest stationary points")
        table |= nearest_columns(lead(search, theta, limits, "nearest"), theta)
    return {
        "gradients": gradients(search),
        "polished": table,
        "theorems_polished": theorem_slack(search, led.theta),
    }


def gradients(search: Search) -> dict[str, Any]:
    """||∇L|| at the end of every start, and its share of that at the start."""
    last = search.gradient_norm(search.ends.theta)
    first = search.gradient_norm(search.starts)
    return {
        "start": range(len(last)),
        "gradient": short(last),
        "gradient_ratio": short(last / first),
    }


def measure_draws(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Table `draws`: the search of the fitted protocol with the paper's network on further draws of
    data and starts.
    """
    rows = []
    for draw in range(experiment.draws):
        ctx.progress(draw, experiment.draws, f"draw {draw + 1}")
        search = _drawn(experiment, draw, ctx)
        theta = search.ends.theta[search.unique]
        led = lead(search, theta, _limits(experiment, search))
        counts = {kind: led.kind.count(kind) for kind in KINDS}
        for stage, points in (("stopped", theta), ("polished", led.theta)):
            for row in _group_rows(experiment, search, points):
                rows.append({"draw": draw, "stage": stage} | row | counts)
    return {"draws": rows}


def _drawn(experiment: WsBound, draw: int, ctx: Context) -> Search:
    data = experiment.dataset
    hidden = experiment.portrait_hidden
    role = f"draw/{draw}"
    train = sample(data, data.train, ctx, f"{role}/train")
    test = {size: sample(data, size, ctx, f"{role}/test{size}") for size in data.test}
    protocol = ("sigmoid", hidden, experiment.fitted_rate, experiment.fitted_ratio)
    generator = ctx.torch_generator(f"{role}/starts")
    return search_from(experiment, protocol, (*train, test), generator)


def _group_rows(experiment: WsBound, search: Search, theta: Tensor) -> list[dict[str, Any]]:
    """Macro F1 of the points with low and with high λ_sup (WS bound, Fig. 7), one row for each test
    set.

    effect: share of pairs in which the low point is better less the share in which the high one is.
    """
    order = search.bound(theta).argsort(stable=True)
    count = int(experiment.low_share * len(order))
    low = order[:count]
    high = order[count:]
    rows = []
    for size, f1 in zip(search.test, f1_on_test_sets(search, theta).values(), strict=True):
        effect = math.nan
        if count and len(high):
            effect = float((f1[low][:, None] - f1[high]).sign().mean())
        row: dict[str, Any] = {
            "test_samples": size,
            "low": len(low),
            "high": len(high),
            "f1_low": float(f1[low].mean()),
            "f1_high": float(f1[high].mean()),
            "effect": effect,
            "spread_low": float(f1[low].std()),
            "spread_high": float(f1[high].std()),
        }
        rows.append(row)
    return rows


PARTS = {"search": measure_search, "polish": measure_polished, "draws": measure_draws}


def measure(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell; a cell without `part` is a search."""
    return PARTS[str(cell.params.get("part", "search"))](experiment, cell, ctx)


def hidden_gram_norm_squared(theta: Tensor, x: Tensor, activation: str = "sigmoid") -> Tensor:
    """||Rᵀ R||_F² (...,), computed as ||R Rᵀ||_F² of the smaller side (WS bound, Fig. 12)."""
    r = tl.hidden_representation(theta, x, activation)
    if r.shape[-1] > r.shape[-2]:
        r = r.transpose(-2, -1)
    gram = r.transpose(-2, -1) @ r
    return gram.square().sum((-2, -1))
