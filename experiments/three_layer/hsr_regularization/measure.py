"""What is measured of one data set: the methods from sharp and flat starts, the printed search,
further draws.

The printed search and the draws are smaller than the paper's experiment, since starts of one draw
share its data: what decides a statement about data is their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from experiments.certificates import of_hessian
from experiments.three_layer.ends import (
    Limits,
    in_place,
    lead,
    led_columns,
    nearest_columns,
    short,
    stack,
)
from experiments.three_layer.hsr_regularization.problem import (
    Problem,
    critical_points,
    direction_of,
    draw,
    drawn,
    end_under,
    search,
    train,
)
from experiments.three_layer.hsr_regularization.settings import (
    GROUPS,
    METHODS,
    PAIRS,
    HsrRegularization,
)
from experiments.three_layer.hsr_regularization.views import (
    boundaries,
    boundary_length,
    dynamics,
    profiles,
    saddle_depth,
)
from experiments.three_layer.polish import Polished
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import three_layer as tl
from runner.training.descent.descent import DescentResult, Endpoints

Columns = dict[str, Any]


def measure_contest(experiment: HsrRegularization, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    problem = draw(experiment, ctx)
    ctx.progress(0, 6, f"search from {len(problem.starts)} starts")
    ends = search(experiment, problem, experiment.rate)
    points, group = critical_points(experiment, problem, ends)
    start = points["start"]
    chosen, names = chosen_starts(start, group)
    by_table: dict[str, list[Columns]] = {}
    finals = {}
    for number, method in enumerate(METHODS):
        ctx.progress(1 + number, 6, f"{method} from {len(chosen)} starts")
        result, tables = measure_method(experiment, problem, method, chosen, names)
        finals[method] = result.final.theta
        for name, parts in tables.items():
            by_table.setdefault(name, []).extend(parts)
    theta = finals["gd"][0] if "gd" in finals and len(chosen) else problem.starts[0]
    certificate = of_hessian("Hessian", problem.hessian(theta), problem.loss, theta, ctx)
    return {
        "data": data_table(problem),
        "search": search_summary(experiment, ends, points),
        "critical_points": points | where_they_lead(experiment, problem, ends.theta[start], start),
        **{name: stack(parts) for name, parts in by_table.items()},
        "certificate": [certificate],
        "boundaries": boundaries(experiment, problem, finals, names, chosen, points),
    }


def chosen_starts(start: Tensor, group: list[str]) -> tuple[Tensor, list[str]]:
    """The starts of a group, and their groups."""
    pairs = zip(torch.as_tensor(start).tolist(), group, strict=True)
    chosen = [(index, name) for index, name in pairs if name]
    index = torch.tensor([index for index, _ in chosen], dtype=torch.long)
    return index, [name for _, name in chosen]


def measure_method(
    experiment: HsrRegularization, problem: Problem, method: str, chosen: Tensor, names: list[str]
) -> tuple[DescentResult, dict[str, list[Columns]]]:
    """One method from the chosen starts, and its parts of the tables: where it ends under every
    reading of the stop rule and once polished, the descent, and profiles around both."""
    direction = direction_of(experiment, problem, method)
    result = train(experiment, problem, chosen, direction, record=True)
    endpoints = []
    for reading in experiment.reading:
        ended = end_under(reading, experiment, problem, chosen, direction, result)
        rows = endpoint_rows(experiment, problem, ended, chosen, names)
        endpoints.append({"reading": reading, "method": method} | rows)
    led, near = polished(experiment, problem, result.final)
    rows = endpoint_rows(experiment, problem, led, chosen, names, brief=True)
    endpoints.append({"reading": "polished", "method": method} | rows)
    about = {"method": method}
    lines = []
    for kind, ends in (("nearest", near.ends), ("stopped", result.final)):
        lines.append(about | profiles(experiment, problem, ends, names, chosen, kind))
    return result, {
        "endpoints": endpoints,
        "nearest": [{**about, "group": names, "start": chosen} | near.columns],
        "dynamics": [about | dynamics(experiment, problem, result, names)],
        "profiles": lines,
    }


def search_summary(
    experiment: HsrRegularization, ends: Endpoints, points: dict[str, Any]
) -> dict[str, Any]:
    """One row: the counts of Section VI-A and the thresholds of Fig. 9."""
    bound = points["lambda_sup"]
    group = points["group"]
    known = len(bound) > 0
    share = experiment.group_share
    row = {
        "starts": len(ends.steps),
        "converged": int(ends.converged.sum()),
        "diverged": int(ends.diverged.sum()),
        "unique": len(bound),
        "sharp": group.count("sharp"),
        "flat": group.count("flat"),
        "flat_threshold": math.nan,
        "sharp_threshold": math.nan,
        "steps_median": math.nan,
    }
    if known:
        row["flat_threshold"] = float(bound.quantile(share))
        row["sharp_threshold"] = float(bound.quantile(1 - share))
        row["steps_median"] = float(ends.steps[ends.converged].double().median())
    return {name: [value] for name, value in row.items()}


@dataclass(frozen=True)
class Nearest:
    """The point without gradient nearest to every end: as ends, and as columns."""

    ends: Endpoints
    columns: dict[str, Any]


def polished(
    experiment: HsrRegularization, problem: Problem, ends: Endpoints
) -> tuple[Endpoints, Nearest]:
    """Where the ends of a method lead downhill, and what lies nearest to them; a diverged end stays
    as it is.

    Converged is what polishing has finished.
    """
    finite = (~ends.diverged).nonzero()[:, 0]
    count = len(ends.theta)
    theta = ends.theta[finite]
    limits = _limits(experiment, problem)
    down = lead(problem, theta, limits)
    near = lead(problem, theta, limits, "nearest")
    columns: dict[str, Any] = {"kind": _named(down.kind, finite, count)}
    for name, value in nearest_columns(near, theta).items():
        place = _named if name == "nearest_kind" else in_place
        columns[name] = place(value, finite, count)
    return _moved(ends, finite, down), Nearest(_moved(ends, finite, near), columns)


def _limits(experiment: HsrRegularization, problem: Problem) -> Limits:
    return Limits.of(experiment, problem.starts.shape[1], experiment.rounding_steps)


def _named(names: list[str], place: Tensor, count: int) -> list[str]:
    kinds = ["diverged"] * count
    for k, name in zip(place.tolist(), names, strict=True):
        kinds[k] = name
    return kinds


def _moved(ends: Endpoints, place: Tensor, found: Polished) -> Endpoints:
    theta = ends.theta.clone()
    steps = ends.steps.clone()
    done = torch.zeros_like(ends.converged)
    theta[place] = found.theta
    steps[place] = found.steps
    done[place] = torch.tensor([kind != "unfinished" for kind in found.kind], dtype=torch.bool)
    return Endpoints(theta, steps, done, ends.diverged)


def where_they_lead(
    experiment: HsrRegularization, problem: Problem, theta: Tensor, start: Tensor
) -> dict[str, Any]:
    """The gradient that the stop rule leaves at the points of the search, and what they lead to
    downhill.
    """
    led = lead(problem, theta, _limits(experiment, problem))
    left = problem.gradient_norm(theta)
    first = problem.gradient_norm(problem.starts[start])
    columns = {"gradient": short(left), "gradient_ratio": short(left / first)}
    for name, values in led_columns(problem, led, theta).items():
        columns[f"led_{name}"] = values
    return columns


def endpoint_rows(
    experiment: HsrRegularization,
    problem: Problem,
    ends: Endpoints,
    chosen: Tensor,
    names: list[str],
    *,
    brief: bool = False,
) -> dict[str, Any]:
    """One row per start: status and curvature, F1 on test data and boundary where the method ended
    (Figs. 12, 14).

    brief: to the digits that are kept of polished points.
    """
    theta = ends.theta
    spectrum = problem.spectrum(theta)
    mean, std = tl.mean_and_std(theta, *problem.args)
    gradient = problem.gradient_norm(theta)
    first = problem.gradient_norm(problem.starts[chosen])
    measured = {
        "loss": problem.loss(theta),
        "lambda_max": spectrum[:, -1],
        "lambda_min": spectrum[:, 0],
        "lambda_sup": problem.bound(theta),
        "mean": mean,
        "std": std,
        "saddle_depth": saddle_depth(experiment, problem, theta),
        "f1": problem.f1(theta),
        "boundary_length": boundary_length(experiment, problem, theta),
        "gradient": gradient,
        "gradient_ratio": gradient / first,
    }
    status = ["ok" if s == "converged" else s for s in ends.status]
    table = {"group": names, "start": chosen, "status": status, "steps": ends.steps}
    for name, values in measured.items():
        shown = values.where(~ends.diverged, torch.nan)
        table[name] = short(shown) if brief else shown
    return table


def data_table(problem: Problem) -> dict[str, Any]:
    """Training and test data (Fig. 8)."""
    x = torch.cat([problem.x, problem.test_x])
    q = torch.cat([problem.q, problem.test_q])
    kind = ["train"] * len(problem.q) + ["test"] * len(problem.test_q)
    return {"set": kind, "x1": x[:, 0], "x2": x[:, 1], "label": q.long()}


class Ends:
    """Where every method ends from the sharp and the flat starts of one problem, the stop rule
    judged from the first step. lambda_max, f1: method -> (S,); reached: method -> (S,) bool; group:
    S names.
    """

    def __init__(self, experiment: HsrRegularization, problem: Problem, rate: float) -> None:
        self.search = search(experiment, problem, rate)
        points, group = critical_points(experiment, problem, self.search)
        self.unique = len(group)
        index, self.group = chosen_starts(points["start"], group)
        self.lambda_max: dict[str, Tensor] = {}
        self.f1: dict[str, Tensor] = {}
        self.reached: dict[str, Tensor] = {}
        for method in METHODS:
            direction = direction_of(experiment, problem, method)
            self._measure(method, problem, train(experiment, problem, index, direction).final)

    def _measure(self, method: str, problem: Problem, ends: Endpoints) -> None:
        finite = ~ends.diverged
        largest = problem.spectrum(ends.theta)[..., -1]
        self.lambda_max[method] = largest.where(finite, torch.nan)
        self.f1[method] = problem.f1(ends.theta).where(finite, torch.nan)
        self.reached[method] = ends.converged

    def of(self, name: str) -> Tensor:
        """Mask (S,) of a group."""
        return torch.tensor([g == name for g in self.group], dtype=torch.bool)


def measure_scan(experiment: HsrRegularization, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Table `scan`: the printed stop rule, the search at one rate, the methods at the printed γ₁.

    reached: starts of a group from which the method meets the stop rule; pairs: those from which
    plain descent does too, which is what the paper's tests compare. lambda_max, f1: medians over
    all finite ends.
    """
    rate = float(cell.params["search_rate"])
    ctx.progress(0, 1, f"search at rate {rate:g} and {len(METHODS)} methods")
    ends = Ends(experiment, drawn(experiment, ctx, "scan", experiment.printed_ratio), rate)
    about = {
        "starts": experiment.draw_starts,
        "converged": int(ends.search.converged.sum()),
        "unique": ends.unique,
    }
    rows = []
    for method, name in product(METHODS, GROUPS):
        of = ends.of(name)
        met = of & ends.reached[method]
        row = about | {"method": method, "group": name, "chosen": int(of.sum())}
        row["reached"] = int(met.sum())
        row["pairs"] = int((met & ends.reached["gd"]).sum())
        row["lambda_max"] = _nanmedian(ends.lambda_max[method][of])
        row["f1"] = _nanmedian(ends.f1[method][of])
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
        ends = Ends(experiment, problem, experiment.rate)
        for name, (a, b) in product(GROUPS, PAIRS):
            about = {"draw": number, "group": name}
            rows.append(about | _difference(ends, ends.of(name), a, b))
    return {"draws": rows}


def _difference(ends: Ends, of: Tensor, a: str, b: str) -> dict[str, Any]:
    both = of & ends.reached[a] & ends.reached[b]
    gain = ends.f1[a] - ends.f1[b]
    ratio = (ends.lambda_max[a] / ends.lambda_max[b]).log()
    return {
        "a": a,
        "b": b,
        "pairs": int(both.sum()),
        "f1": float(gain[both].mean()),
        "log_ratio": float(ratio[both].mean()),
    }


def measure(experiment: HsrRegularization, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    if cell.params.get("part") == "draws":
        return measure_draws(experiment, ctx)
    if "search_rate" in cell.params:
        return measure_scan(experiment, cell, ctx)
    return measure_contest(experiment, cell, ctx)
