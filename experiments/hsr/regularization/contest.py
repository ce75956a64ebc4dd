"""One data set under one protocol: search, choice of starts, four methods, and what is measured where they end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from experiments.certificates import of_hessian
from experiments.hsr.regularization.methods import METHODS
from experiments.hsr.regularization.problem import DTYPE, Problem, draw
from experiments.hsr.regularization.views import boundaries, boundary_length, dynamics, profiles, saddle_depth
from experiments.ws_bound.polished import Limits, lead, led_columns, nearest_columns, short
from experiments.ws_bound.search import macro_f1
from runner.contract import Cell, Context, Table
from runner.curvature.closed_form import three_layer as tl
from runner.training.descent.descent import DescentResult, Endpoints, LossGradient, descend, duplicates
from runner.training.descent.directions import Direction
from runner.training.flatness.flatness import training_direction
from runner.training.polish import Polished

if TYPE_CHECKING:
    from experiments.hsr.regularization.settings import HsrRegularization


def measure_contest(experiment: HsrRegularization, cell: Cell, ctx: Context) -> dict[str, Table]:
    """All tables of one cell."""
    problem = draw(experiment, ctx)
    ctx.progress(0, 6, f"search from {len(problem.starts)} starts")
    ends = search(experiment, problem, experiment.rate)
    points, group = critical_points(experiment, problem, ends)
    tables: dict[str, Any] = {
        "data": data_table(problem),
        "search": search_summary(experiment, ends, points),
        "critical_points": points | where_they_lead(experiment, problem, ends.theta[points["start"]], points["start"]),
    }
    chosen = torch.tensor([k for k, name in zip(points["start"], group, strict=True) if name], dtype=torch.long)
    names = [name for name in group if name]
    found: dict[str, list[dict[str, Any]]] = {"endpoints": [], "nearest": [], "dynamics": [], "profiles": []}
    finals: dict[str, Tensor] = {}
    for number, method in enumerate(METHODS):
        ctx.progress(1 + number, 6, f"{method} from {len(chosen)} starts")
        direction = direction_of(experiment, problem, method)
        result = train(experiment, problem, chosen, direction, record=True)
        finals[method] = result.final.theta
        for reading in experiment.reading:
            ended = end_under(reading, experiment, problem, chosen, direction, result)
            about = {"reading": reading, "method": method}
            found["endpoints"].append(about | endpoint_rows(experiment, problem, ended, chosen, names, brief=False))
        led, near = polished(experiment, problem, result.final)
        about = {"reading": "polished", "method": method}
        found["endpoints"].append(about | endpoint_rows(experiment, problem, led, chosen, names, brief=True))
        found["nearest"].append({"method": method, "group": names, "start": chosen} | near.columns)
        found["profiles"].append(
            {"method": method} | profiles(experiment, problem, near.ends, names, chosen, "nearest")
        )
        found["dynamics"].append({"method": method} | dynamics(experiment, problem, result, names))
        found["profiles"].append(
            {"method": method} | profiles(experiment, problem, result.final, names, chosen, "stopped")
        )
    tables |= {name: stack(parts) for name, parts in found.items()}
    theta = finals["gd"][0] if "gd" in finals and len(chosen) else problem.starts[0]
    tables["certificate"] = [
        of_hessian("Hessian", tl.hessian(theta, *problem.args), lambda t: tl.loss(t, *problem.args), theta, ctx)
    ]
    tables["boundaries"] = boundaries(experiment, problem, finals, names, chosen, points)
    return tables


def direction_of(experiment: HsrRegularization, problem: Problem, method: str) -> Direction:
    """Which way a method goes; "asam_wide" is A-SAM at the wide radius."""
    return training_direction(
        method.removesuffix("_wide"),
        problem.x,
        problem.q,
        problem.activation,
        strength=experiment.strength(method),
        radius=experiment.wide_radius if method == "asam_wide" else experiment.radius,
        until=experiment.switch,
    )


def search(experiment: HsrRegularization, problem: Problem, rate: float) -> Endpoints:
    """Plain gradient descent from every start (Section VI-A)."""
    return descend(
        problem.starts,
        LossGradient(*problem.args),
        rate=rate,
        max_steps=experiment.training.steps,
        stop_ratios=(problem.ratio,),
    ).final


def critical_points(
    experiment: HsrRegularization, problem: Problem, ends: Endpoints
) -> tuple[dict[str, Any], list[str]]:
    """Unique critical points with their sharpness, and which group each belongs to ("sharp", "flat" or "")."""
    met = ends.converged.nonzero()[:, 0]
    unique = met[~duplicates(ends.theta[met])] if len(met) else met
    theta = ends.theta[unique]
    spectrum = torch.linalg.eigvalsh(tl.hessian(theta, *problem.args))
    bound = tl.upper_bound(theta, *problem.args)
    group = [""] * len(unique)
    if len(unique):
        low, high = bound.quantile(experiment.group_share), bound.quantile(1 - experiment.group_share)
        group = ["sharp" if b >= high else "flat" if b <= low else "" for b in bound]
    table = {
        "start": unique,
        "group": group,
        "lambda_max": spectrum[:, -1],
        "lambda_min": spectrum[:, 0],
        "lambda_sup": bound,
    }
    return table, group


def search_summary(experiment: HsrRegularization, ends: Endpoints, points: dict[str, Any]) -> dict[str, Any]:
    """One row: the counts of Section VI-A and the thresholds of Fig. 9."""
    bound, group = points["lambda_sup"], points["group"]
    known = len(bound) > 0
    return {
        "starts": [len(ends.steps)],
        "converged": [int(ends.converged.sum())],
        "diverged": [int(ends.diverged.sum())],
        "unique": [len(bound)],
        "sharp": [group.count("sharp")],
        "flat": [group.count("flat")],
        "flat_threshold": [float(bound.quantile(experiment.group_share)) if known else float("nan")],
        "sharp_threshold": [float(bound.quantile(1 - experiment.group_share)) if known else float("nan")],
        "steps_median": [float(ends.steps[ends.converged].double().median()) if known else float("nan")],
    }


def train(
    experiment: HsrRegularization,
    problem: Problem,
    chosen: Tensor,
    direction: Direction,
    *,
    stop_from: int = 0,
    record: bool = False,
) -> DescentResult:
    """Descend from the chosen starts, 0 of them included."""
    if not len(chosen):
        empty = problem.starts[:0]
        nothing = torch.zeros(0, dtype=torch.bool)
        return DescentResult({problem.ratio: Endpoints(empty, nothing.long(), nothing, nothing)})
    return descend(
        problem.starts[chosen],
        direction,
        rate=experiment.rate,
        max_steps=experiment.training.steps,
        stop_ratios=(problem.ratio,),
        stop_from=stop_from,
        record=range(len(chosen)) if record else (),
        record_every=experiment.record_every,
    )


def end_under(
    reading: str,
    experiment: HsrRegularization,
    problem: Problem,
    chosen: Tensor,
    direction: Direction,
    result: DescentResult,
) -> Endpoints:
    """The ends of `result` (every_step), or those of a stop rule that is first judged at `switch` (second_half).

    A start that did not stop before `switch` ends at the same point either way, and a start's path does not depend on
    its company, so only the others descend again.
    """
    if reading == "every_step":
        return result.final
    early = (result.final.steps < experiment.switch) & ~result.final.diverged
    again = train(experiment, problem, chosen[early], direction, stop_from=experiment.switch).final
    ended = Endpoints(*(value.clone() for value in vars(result.final).values()))
    for name, value in vars(ended).items():
        value[early] = getattr(again, name)
    return ended


@dataclass(frozen=True)
class Nearest:
    """The point without gradient nearest to every end: as ends, and as columns."""

    ends: Endpoints
    columns: dict[str, Any]


def limits(experiment: HsrRegularization, problem: Problem) -> Limits:
    """When polishing ends; `far` is a multiple of the largest norm of a start."""
    largest = experiment.training.half_range * problem.starts.shape[1] ** 0.5
    steps = (experiment.polish_steps, experiment.further_steps, experiment.rounding_steps)
    return Limits(experiment.far * largest, experiment.polish_tolerance, *steps)


def polished(experiment: HsrRegularization, problem: Problem, ends: Endpoints) -> tuple[Endpoints, Nearest]:
    """Where the ends of a method lead downhill, and what lies nearest to them; a diverged end stays as it is.

    Converged is what polishing has finished.
    """
    finite = (~ends.diverged).nonzero()[:, 0]
    theta = ends.theta[finite]
    down = lead(theta, *problem.args, limits(experiment, problem))
    near = lead(theta, *problem.args, limits(experiment, problem), "nearest")
    columns: dict[str, Any] = {"kind": _named(down.kind, finite, len(ends.theta))}
    for name, value in nearest_columns(near, theta).items():
        kept = _named(value, finite, len(ends.theta)) if name == "nearest_kind" else _placed(value, finite, ends)
        columns[name] = kept
    return _moved(ends, finite, down), Nearest(_moved(ends, finite, near), columns)


def _named(names: list[str], place: Tensor, count: int) -> list[str]:
    found = ["diverged"] * count
    for k, name in zip(place.tolist(), names, strict=True):
        found[k] = name
    return found


def _placed(values: Tensor, place: Tensor, ends: Endpoints) -> Tensor:
    full = torch.full((len(ends.theta),), torch.nan, dtype=DTYPE)
    full[place] = values
    return full


def _moved(ends: Endpoints, place: Tensor, found: Polished) -> Endpoints:
    theta, steps, done = ends.theta.clone(), ends.steps.clone(), torch.zeros_like(ends.converged)
    theta[place], steps[place] = found.theta, found.steps
    done[place] = torch.tensor([kind != "unfinished" for kind in found.kind], dtype=torch.bool)
    return Endpoints(theta, steps, done, ends.diverged)


def where_they_lead(experiment: HsrRegularization, problem: Problem, theta: Tensor, start: Tensor) -> dict[str, Any]:
    """The gradient that the stop rule leaves at the points of the search, and what they lead to downhill."""
    found = lead(theta, *problem.args, limits(experiment, problem))
    left = tl.gradient(theta, *problem.args).norm(dim=1)
    first = tl.gradient(problem.starts[start], *problem.args).norm(dim=1)
    columns = {"gradient": short(left), "gradient_ratio": short(left / first)}
    return columns | {f"led_{k}": v for k, v in led_columns(found, theta, *problem.args).items()}


def endpoint_rows(
    experiment: HsrRegularization, problem: Problem, ends: Endpoints, chosen: Tensor, names: list[str], *, brief: bool
) -> dict[str, Any]:
    """One row per start: status and curvature, F1 on test data and boundary where the method ended (Figs. 12, 14).

    brief: to the digits that are kept of polished points.
    """
    theta = ends.theta
    spectrum = torch.linalg.eigvalsh(tl.hessian(theta, *problem.args).nan_to_num())
    mean, std = tl.mean_and_std(theta, *problem.args)
    measured = {
        "loss": tl.loss(theta, *problem.args),
        "lambda_max": spectrum[:, -1],
        "lambda_min": spectrum[:, 0],
        "lambda_sup": tl.upper_bound(theta, *problem.args),
        "mean": mean,
        "std": std,
        "saddle_depth": saddle_depth(experiment, problem, theta),
        "f1": macro_f1(tl.predict(theta, problem.test_x, problem.activation) > 0.5, problem.test_q > 0.5),
        "boundary_length": boundary_length(experiment, problem, theta),
        "gradient": tl.gradient(theta, *problem.args).norm(dim=1),
    }
    measured["gradient_ratio"] = measured["gradient"] / tl.gradient(problem.starts[chosen], *problem.args).norm(dim=1)
    status = ["ok" if s == "converged" else s for s in ends.status]
    table = {"group": names, "start": chosen, "status": status, "steps": ends.steps}
    shown = {name: value.where(~ends.diverged, torch.nan) for name, value in measured.items()}
    return table | {name: short(v) if brief else v for name, v in shown.items()}


def data_table(problem: Problem) -> dict[str, Any]:
    """Training and test data (Fig. 8)."""
    x, q = torch.cat([problem.x, problem.test_x]), torch.cat([problem.q, problem.test_q])
    kind = ["train"] * len(problem.q) + ["test"] * len(problem.test_q)
    return {"set": kind, "x1": x[:, 0], "x2": x[:, 1], "label": q.long()}


def stack(parts: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Tables below each other; a text stands for a column of it."""
    joined: dict[str, list[Any]] = {}
    for part in parts:
        length = max(len(value) for value in part.values() if not isinstance(value, str))
        for key, value in part.items():
            rows = [value] * length if isinstance(value, str) else value
            joined.setdefault(key, []).extend(rows.tolist() if isinstance(rows, Tensor) else rows)
    return joined
