"""Are they critical points? Where the ends of a search lead when it is not stopped, and thirty draws of the data.

The stop rule leaves a gradient. Every end is polished (`runner.training.polish`) downhill, and toward the nearest
stationary point; what was measured at the ends is measured again where they lead. Operations, S points of D parameters
on I samples: a step costs S (I D² + 9 D³) multiply-adds and about 60 steps are taken downhill, so 500 points of N = 3
cost 0.6 · 10⁹, less than a hundredth of the search that found them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.ws_bound.search import Search, macro_f1, run_search, search_from
from experiments.ws_bound.theorems import theorem_slack
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import three_layer as tl
from runner.data.gaussian import sample
from runner.training.polish import KINDS, Goal, Polished, Smooth, polish
from runner.training.stretched import polish_further

if TYPE_CHECKING:
    from experiments.ws_bound.settings import WsBound

DIGITS = 5
"""Significant digits kept of what is measured at polished points: enough for ranks and ratios, half the size."""


@dataclass(frozen=True)
class Limits:
    """When polishing ends. far: norm of theta beyond which a point runs off; tolerance: of the gradient norm; further:
    steps in asinh theta of what is unfinished after `steps`, as many again in theta; to_rounding: the same of what is
    unfinished then, where a gradient that is the rounding of its point counts as none."""

    far: float
    tolerance: float
    steps: int
    further: int = 0
    to_rounding: int = 0


def limits(experiment: WsBound, search: Search) -> Limits:
    """`far` is a multiple of the largest norm that a start can have, half_range √D."""
    largest = experiment.training.half_range * search.starts.shape[1] ** 0.5
    return Limits(
        experiment.far * largest,
        experiment.polish_tolerance,
        experiment.polish_steps,
        experiment.further_steps,
        experiment.to_rounding.get(search.activation, 0),
    )


def lead(theta: Tensor, x: Tensor, q: Tensor, activation: str, limits: Limits, goal: Goal = "downhill") -> Polished:
    """`polish` of the network's loss from theta (S, D)."""
    args = (x, q, activation)
    loss = Smooth(lambda t: tl.loss(t, *args), lambda t: tl.gradient(t, *args), lambda t: tl.hessian(t, *args))
    found = polish(loss, theta, goal, far=limits.far, tolerance=limits.tolerance, steps=limits.steps)
    for steps, rounding in ((limits.further, False), (limits.to_rounding, True)):
        if goal == "downhill" and steps:
            found = polish_further(
                loss, found, far=limits.far, tolerance=limits.tolerance, steps=steps, rounding=rounding
            )
    return found


def short(values: Tensor) -> Tensor:
    """Rounded to DIGITS significant digits."""
    return torch.tensor([float(f"{v:.{DIGITS}g}") for v in values.tolist()], dtype=torch.float64)


def led_columns(found: Polished, start: Tensor, x: Tensor, q: Tensor, activation: str) -> dict[str, Any]:
    """What became of each point and its curvature there, one entry a point; start (S, D): where polishing began."""
    measured = {
        "distance": (found.theta - start).norm(dim=1),
        "norm": found.theta.norm(dim=1),
        "gradient": found.gradient_norm,
        "loss": tl.loss(found.theta, x, q, activation),
        "lambda_max": found.eigenvalues[:, -1],
        "lambda_min": found.eigenvalues[:, 0],
        "lambda_sup": tl.upper_bound(found.theta, x, q, activation),
    }
    columns: dict[str, Any] = {"kind": found.kind, "polish_steps": found.steps}
    return columns | {name: short(values) for name, values in measured.items()}


def nearest_columns(found: Polished, start: Tensor) -> dict[str, Any]:
    """What lies nearest to each point among the points without gradient."""
    return {
        "nearest_kind": found.kind,
        "nearest_distance": short((found.theta - start).norm(dim=1)),
        "nearest_gradient": short(found.gradient_norm),
        "nearest_lambda_max": short(found.eigenvalues[:, -1]),
        "nearest_lambda_min": short(found.eigenvalues[:, 0]),
    }


def measure_polished(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Tables `gradients` (every start), `polished` (unique ends) and `theorems_polished` of one search."""
    search = run_search(experiment, cell, ctx)
    ctx.progress(1, 3, f"polishing {len(search.unique)} ends")
    args = (search.x, search.q, search.activation)
    theta = search.ends.theta[search.unique]
    found = lead(theta, *args, limits(experiment, search))
    table: dict[str, Any] = {"start": search.unique} | led_columns(found, theta, *args)
    for size, (x, q) in search.test.items():
        table[f"f1_test{size}"] = short(macro_f1(tl.predict(found.theta, x, search.activation) > 0.5, q > 0.5))
    if search.hidden == experiment.portrait_hidden:
        ctx.progress(2, 3, "nearest stationary points")
        table |= nearest_columns(lead(theta, *args, limits(experiment, search), "nearest"), theta)
    return {
        "gradients": gradients(search),
        "polished": table,
        "theorems_polished": theorem_slack(found.theta, *args),
    }


def gradients(search: Search) -> dict[str, Any]:
    """||∇L|| at the end of every start, and its share of that at the start."""
    args = (search.x, search.q, search.activation)
    last = tl.gradient(search.ends.theta, *args).norm(dim=1)
    first = tl.gradient(search.starts, *args).norm(dim=1)
    return {"start": range(len(last)), "gradient": short(last), "gradient_ratio": short(last / first)}


def measure_draws(experiment: WsBound, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Table `draws`: the search of the fitted protocol with the paper's network on further draws of data and starts."""
    rows: list[dict[str, Any]] = []
    for draw in range(experiment.draws):
        ctx.progress(draw, experiment.draws, f"draw {draw + 1}")
        search = _drawn(experiment, draw, ctx)
        theta = search.ends.theta[search.unique]
        found = lead(theta, search.x, search.q, search.activation, limits(experiment, search))
        for stage, points in (("stopped", theta), ("polished", found.theta)):
            rows += _groups(experiment, search, points, {"draw": draw, "stage": stage}, found.kind)
    return {"draws": rows}


def _drawn(experiment: WsBound, draw: int, ctx: Context) -> Search:
    data, hidden, role = experiment.dataset, experiment.portrait_hidden, f"draw/{draw}"
    train = sample(data, data.train, ctx, f"{role}/train")
    test = {size: sample(data, size, ctx, f"{role}/test{size}") for size in data.test}
    return search_from(
        experiment,
        ("sigmoid", hidden, experiment.fitted_rate, experiment.fitted_ratio),
        (*train, test),
        ctx.torch_generator(f"{role}/starts"),
    )


def _groups(
    experiment: WsBound, search: Search, theta: Tensor, about: Mapping[str, Any], kinds: list[str]
) -> list[dict[str, Any]]:
    """Macro F1 of the points with low and with high λ_sup (WS bound, Fig. 7), one row for each test set.

    effect: share of pairs in which the low point is better less the share in which the high one is.
    """
    bound = tl.upper_bound(theta, search.x, search.q, search.activation)
    order = bound.argsort(stable=True)
    count = int(experiment.low_share * len(order))
    low, high = order[:count], order[count:]
    rows = []
    for size, (x, q) in search.test.items():
        f1 = macro_f1(tl.predict(theta, x, search.activation) > 0.5, q > 0.5)
        better = (f1[low][:, None] - f1[high]).sign().mean() if count and len(high) else torch.tensor(torch.nan)
        row = dict(about) | {"test_samples": size, "low": len(low), "high": len(high)}
        row |= {"f1_low": float(f1[low].mean()), "f1_high": float(f1[high].mean()), "effect": float(better)}
        row |= {"spread_low": float(f1[low].std()), "spread_high": float(f1[high].std())}
        rows.append(row | {kind: kinds.count(kind) for kind in KINDS})
    return rows
