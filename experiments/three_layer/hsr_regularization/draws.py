"""The methods on data of other draws: the printed search at several rates, and further draws.

Both are smaller than the paper's experiment, since starts of one draw share its data: what decides
a statement about data is their number.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.hsr_regularization.problem import Problem, Seeds, drawn
from experiments.three_layer.hsr_regularization.settings import (
    GROUPS,
    METHODS,
    PAIRS,
    HsrRegularization,
)
from runner.contract import Cell, Context, Table
from runner.training.descent.descent import Endpoints


class Ends:
    """Where every method ends from the sharp and the flat starts of one problem, the stop rule
    judged from the first step. lambda_max, f1: method -> (S,); reached: method -> (S,) bool.
    """

    def __init__(self, problem: Problem, rate: float) -> None:
        self.search = problem.search(rate)
        points = problem.critical_points(self.search)
        self.unique = len(points["start"])
        self.seeds = Seeds.of(points)
        self.lambda_max: dict[str, Tensor] = {}
        self.f1: dict[str, Tensor] = {}
        self.reached: dict[str, Tensor] = {}
        for method in METHODS:
            trained = problem.train(self.seeds.start, problem.direction_of(method))
            self._measure(method, problem, trained.final)

    def _measure(self, method: str, problem: Problem, ends: Endpoints) -> None:
        finite = ~ends.diverged
        largest = problem.spectrum(ends.theta)[..., -1]
        f1 = problem.f1(ends.theta, *problem.test)
        self.lambda_max[method] = largest.where(finite, torch.nan)
        self.f1[method] = f1.where(finite, torch.nan)
        self.reached[method] = ends.converged


def measure_scan(experiment: HsrRegularization, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Table `scan`: the printed stop rule, the search at one rate, the methods at the printed γ₁.

    reached: starts of a group from which the method meets the stop rule; pairs: those from which
    plain descent does too, which is what the paper's tests compare. lambda_max, f1: medians over
    all finite ends.
    """
    rate = float(cell.params["search_rate"])
    ctx.progress(0, 1, f"search at rate {rate:g} and {len(METHODS)} methods")
    ends = Ends(drawn(experiment, ctx, "scan", experiment.printed_ratio), rate)
    about = {
        "starts": experiment.draw_starts,
        "converged": int(ends.search.converged.sum()),
        "unique": ends.unique,
    }
    rows = []
    for method, group in product(METHODS, GROUPS):
        of_group = ends.seeds.within(group)
        reached = of_group & ends.reached[method]
        pairs = reached & ends.reached["gd"]
        row = about | {"method": method, "group": group, "chosen": int(of_group.sum())}
        row["reached"] = int(reached.sum())
        row["pairs"] = int(pairs.sum())
        row["lambda_max"] = _nanmedian(ends.lambda_max[method][of_group])
        row["f1"] = _nanmedian(ends.f1[method][of_group])
        rows.append(row)
    return {"scan": rows}


def _nanmedian(values: Tensor) -> float:
    if len(values):
        return float(values.nanmedian())
    return math.nan


def measure_draws(experiment: HsrRegularization, ctx: Context) -> dict[str, Table]:
    """Table `draws`: for every draw, group and pair of methods the mean difference of F1 and of log
    λ₁ over the starts from which both reach a critical point.
    """
    rows = []
    for number in range(experiment.draws):
        ctx.progress(number, experiment.draws, f"draw {number + 1}")
        problem = drawn(experiment, ctx, f"draw/{number}", experiment.fitted_ratio)
        ends = Ends(problem, experiment.rate)
        for group, (a, b) in product(GROUPS, PAIRS):
            about = {"draw": number, "group": group, "a": a, "b": b}
            rows.append(about | _difference(ends, group, a, b))
    return {"draws": rows}


def _difference(ends: Ends, group: str, a: str, b: str) -> dict[str, Any]:
    both = ends.seeds.within(group) & ends.reached[a] & ends.reached[b]
    gain = ends.f1[a] - ends.f1[b]
    ratio = (ends.lambda_max[a] / ends.lambda_max[b]).log()
    return {
        "pairs": int(both.sum()),
        "f1": float(gain[both].mean()),
        "log_ratio": float(ratio[both].mean()),
    }
