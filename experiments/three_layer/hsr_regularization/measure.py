"""What is measured of one data set: the search, and the methods from its sharp and flat starts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.certificates import of_hessian
from experiments.three_layer.ends import (
    Limits,
    gradient_columns,
    in_place,
    lead,
    led_columns,
    nearest_columns,
    short,
    stack,
)
from experiments.three_layer.hsr_regularization.ablation import measure_ablation
from experiments.three_layer.hsr_regularization.draws import measure_draws, measure_scan
from experiments.three_layer.hsr_regularization.problem import Problem, Seeds, draw
from experiments.three_layer.hsr_regularization.settings import METHODS, HsrRegularization
from experiments.three_layer.hsr_regularization.views import (
    boundaries,
    boundary_length,
    dynamics,
    profiles,
    saddle_depth,
)
from experiments.three_layer.polish import Polished
from runner.closed_form import three_layer as tl
from runner.contract import Cell, Context, Table
from runner.training.descent.descent import DescentResult, Endpoints

Columns = dict[str, Any]


def measure(experiment: HsrRegularization, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    if cell.params.get("part") == "draws":
        return measure_draws(experiment, ctx)
    if cell.params.get("part") == "ablation":
        return measure_ablation(experiment, ctx)
    if "search_rate" in cell.params:
        return measure_scan(experiment, cell, ctx)
    return measure_contest(experiment, ctx)


def measure_contest(experiment: HsrRegularization, ctx: Context) -> dict[str, Table]:
    """The search of the seed, and every method from its sharp and flat starts."""
    problem = draw(experiment, ctx)
    ctx.progress(0, 6, f"search from {len(problem.starts)} starts")
    ends = problem.search(experiment.rate)
    points = problem.critical_points(ends)
    seeds = Seeds.of(points)
    by_table: dict[str, list[Columns]] = {}
    finals = {}
    for number, method in enumerate(METHODS):
        ctx.progress(1 + number, 6, f"{method} from {len(seeds)} starts")
        result, tables = measure_method(problem, method, seeds)
        finals[method] = result.final.theta
        for name, parts in tables.items():
            by_table.setdefault(name, []).extend(parts)
    theta = finals["gd"][0] if len(seeds) else problem.starts[0]
    certificate = of_hessian("Hessian", problem.hessian(theta), problem.loss, theta, ctx)
    further = where_they_lead(problem, ends, points["start"])
    return {
        "data": data_table(problem),
        "search": search_summary(experiment, ends, points),
        "critical_points": points | further,
        **{name: stack(parts) for name, parts in by_table.items()},
        "certificate": [certificate],
        "boundaries": boundaries(problem, finals, seeds, points),
    }


def measure_method(
    problem: Problem, method: str, seeds: Seeds
) -> tuple[DescentResult, dict[str, list[Columns]]]:
    """One method from the chosen starts, and its parts of the tables: where it ends under every
    reading of the stop rule and once polished, the descent, and profiles around both."""
    direction = problem.direction_of(method)
    result = problem.train(seeds.start, direction, record=True)
    endpoints = []
    for reading in problem.experiment.reading:
        ends = problem.end_under(reading, seeds.start, direction, result)
        rows = endpoint_rows(problem, ends, seeds)
        endpoints.append({"reading": reading, "method": method, **rows})
    led, near = polished(problem, result.final)
    rows = endpoint_rows(problem, led, seeds, brief=True)
    endpoints.append({"reading": "polished", "method": method, **rows})
    lines = []
    for kind, ends in (("nearest", near.ends), ("stopped", result.final)):
        lines.append({"method": method, **profiles(problem, ends, seeds, kind)})
    nearest = {"method": method, "group": seeds.group, "start": seeds.start, **near.columns}
    return result, {
        "endpoints": endpoints,
        "nearest": [nearest],
        "dynamics": [{"method": method, **dynamics(problem, result, seeds)}],
        "profiles": lines,
    }


def search_summary(experiment: HsrRegularization, ends: Endpoints, points: Columns) -> Columns:
    """One row: the counts of Section VI-A and the thresholds of Fig. 9."""
    bound = points["lambda_sup"]
    group = points["group"]
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
    if len(bound):
        share = experiment.group_share
        steps = ends.steps[ends.converged].double()
        row["flat_threshold"] = float(bound.quantile(share))
        row["sharp_threshold"] = float(bound.quantile(1 - share))
        row["steps_median"] = float(steps.median())
    return {name: [value] for name, value in row.items()}


@dataclass(frozen=True)
class Nearest:
    """The point without gradient nearest to every end: as ends, and as columns."""

    ends: Endpoints
    columns: Columns


def polished(problem: Problem, ends: Endpoints) -> tuple[Endpoints, Nearest]:
    """Where the ends of a method lead downhill, and what lies nearest to them; a diverged end stays
    as it is.

    Converged is what polishing has finished.
    """
    finite = (~ends.diverged).nonzero()[:, 0]
    count = len(ends.theta)
    theta = ends.theta[finite]
    limits = _limits(problem)
    down = lead(problem, theta, limits)
    near = lead(problem, theta, limits, "nearest")
    columns: Columns = {"kind": _named(down.kind, finite, count)}
    for name, value in nearest_columns(near, theta).items():
        place = _named if name == "nearest_kind" else in_place
        columns[name] = place(value, finite, count)
    nearest = Nearest(_moved(ends, finite, near), columns)
    return _moved(ends, finite, down), nearest


def _limits(problem: Problem) -> Limits:
    experiment = problem.experiment
    return Limits.of(experiment, problem.starts.shape[1], experiment.rounding_steps)


def _named(names: list[str], place: Tensor, count: int) -> list[str]:
    kinds = ["diverged"] * count
    for k, name in zip(place.tolist(), names, strict=True):
        kinds[k] = name
    return kinds


def _moved(ends: Endpoints, place: Tensor, polished: Polished) -> Endpoints:
    finished = torch.tensor([kind != "unfinished" for kind in polished.kind], dtype=torch.bool)
    nowhere = torch.zeros_like(ends.converged)
    return Endpoints(
        theta=ends.theta.index_copy(0, place, polished.theta),
        steps=ends.steps.index_copy(0, place, polished.steps),
        converged=nowhere.index_copy(0, place, finished),
        diverged=ends.diverged,
    )


def where_they_lead(problem: Problem, ends: Endpoints, start: Tensor) -> Columns:
    """The gradient that the stop rule leaves at the points of the search, and what they lead to
    downhill.
    """
    theta = ends.theta[start]
    led = lead(problem, theta, _limits(problem))
    columns: Columns = dict(gradient_columns(problem, theta, problem.starts[start]))
    for name, values in led_columns(problem, led, theta).items():
        columns[f"led_{name}"] = values
    return columns


def endpoint_rows(
    problem: Problem, ends: Endpoints, seeds: Seeds, *, brief: bool = False
) -> Columns:
    """One row per start: status and curvature, F1 on test data and boundary where the method ended
    (Figs. 12, 14).

    brief: to the digits that are kept of polished points.
    """
    theta = ends.theta
    mean, std = tl.mean_and_std(theta, *problem.args)
    gradient = problem.gradient_norm(theta)
    first = problem.gradient_norm(problem.starts[seeds.start])
    measured = problem.curvature(theta) | {
        "mean": mean,
        "std": std,
        "saddle_depth": saddle_depth(problem, theta),
        "f1": problem.f1(theta, *problem.test),
        "boundary_length": boundary_length(problem, theta),
        "gradient": gradient,
        "gradient_ratio": gradient / first,
    }
    status = ["ok" if status == "converged" else status for status in ends.status]
    table = {"group": seeds.group, "start": seeds.start, "status": status, "steps": ends.steps}
    for name, values in measured.items():
        values = values.where(~ends.diverged, torch.nan)
        table[name] = short(values) if brief else values
    return table


def data_table(problem: Problem) -> Columns:
    """Training and test data (Fig. 8)."""
    test_x, test_q = problem.test
    x = torch.cat([problem.x, test_x])
    q = torch.cat([problem.q, test_q])
    kind = ["train"] * len(problem.q) + ["test"] * len(test_q)
    return {"set": kind, "x1": x[:, 0], "x2": x[:, 1], "label": q.long()}
