"""The search on further draws of the data."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from experiments.three_layer.ends import lead
from experiments.three_layer.polish import KINDS
from experiments.three_layer.ws_bound.search import Protocol, Search, search_from
from experiments.three_layer.ws_bound.settings import WsBound
from runner.contract import Context, Table
from runner.data.synthetic import sample


def measure_draws(experiment: WsBound, ctx: Context) -> dict[str, Table]:
    """Table `draws`: the search of the fitted protocol with the paper's network on further draws of
    data and starts.
    """
    rows = []
    for draw in range(experiment.draws):
        ctx.progress(draw, experiment.draws, f"draw {draw + 1}")
        search = _drawn(experiment, draw, ctx)
        theta = search.ends.theta[search.unique]
        led = lead(search, theta, search.limits(experiment))
        counts = {kind: led.kind.count(kind) for kind in KINDS}
        stages = (("stopped", theta), ("polished", led.theta))
        for stage, points in stages:
            for row in _group_rows(experiment, search, points):
                rows.append({"draw": draw, "stage": stage} | row | counts)
    return {"draws": rows}


def _drawn(experiment: WsBound, draw: int, ctx: Context) -> Search:
    data = experiment.dataset
    hidden = experiment.portrait_hidden
    role = f"draw/{draw}"
    train = sample(data, data.train, ctx, f"{role}/train")
    test = {size: sample(data, size, ctx, f"{role}/test{size}") for size in data.test}
    protocol = Protocol("sigmoid", hidden, experiment.fitted_rate, experiment.fitted_ratio)
    return search_from(experiment, protocol, train, test, ctx.torch_generator(f"{role}/starts"))


def _group_rows(experiment: WsBound, search: Search, theta: Tensor) -> list[dict[str, Any]]:
    """Macro F1 of the points with low and with high λ_sup (WS bound, Fig. 7), one row for each test
    set.

    effect: share of pairs in which the low point is better less the share in which the high one is.
    """
    order = search.bound(theta).argsort(stable=True)
    count = int(experiment.low_share * len(order))
    rows = []
    scores = search.test_f1(theta).values()
    for size, f1 in zip(search.test, scores, strict=True):
        low = f1[order[:count]]
        high = f1[order[count:]]
        effect = math.nan
        if len(low) and len(high):
            effect = float((low[:, None] - high).sign().mean())
        row: dict[str, Any] = {
            "test_samples": size,
            "low": len(low),
            "high": len(high),
            "f1_low": float(low.mean()),
            "f1_high": float(high.mean()),
            "effect": effect,
            "spread_low": float(low.std()),
            "spread_high": float(high.std()),
        }
        rows.append(row)
    return rows
