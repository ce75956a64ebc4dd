"""The sharpest and flattest critical points of a search in detail: paths, loss lines, decisions,
Hessian entries.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.ends import stack
from experiments.three_layer.ws_bound.analysis import PAPER_ACTIVATION
from experiments.three_layer.ws_bound.search import Search
from experiments.three_layer.ws_bound.settings import WsBound
from runner.closed_form import three_layer as tl
from runner.contract import Table
from runner.training.descent.descent import descend

LOGIT_GRAIN = 1 / 64
LOSS_GRAIN = 1 / 256
"""What is only drawn is rounded to these: exact binary fractions with few digits, a quarter of the
size on disk.
"""
MARGIN = 1.0
"""The decision boundary's grid reaches this far beyond the training samples."""


def portraits(experiment: WsBound, search: Search) -> dict[str, Table]:
    """All tables of the portrayed points, and those that only need drawing once a search.

    Loss lines and decision boundaries, the largest tables, are kept for the activation whose
    figures draw them.
    """
    chosen = portrayed(search)
    step = experiment.difference_step
    tables: dict[str, Table] = {}
    if search.activation == PAPER_ACTIVATION:
        points = experiment.line_points
        half_range = experiment.line_half_range
        tables["landscapes"] = landscapes(search, chosen, points, half_range)
        tables["boundaries"] = boundaries(search, chosen, experiment.boundary_step)
    tables["portraits"] = portrayed_points(search, chosen)
    tables["trajectories"] = trajectories(search, chosen, experiment.path_points)
    tables["hessian_entries"] = hessian_entries(search, chosen, experiment.entry_points, step)
    tables["traces"] = numerical_traces(search, step)
    x = search.x
    samples: dict[str, Any] = {"x1": x[:, 0], "x2": x[:, 1], "label": search.q.to(torch.int64)}
    tables["samples"] = samples
    tables["activations"] = activation_curve(search.activation)
    return tables


def portrayed(search: Search) -> dict[str, int]:
    """Name -> start of the two sharpest and the two flattest unique critical points (fewer where
    there are fewer).
    """
    ranked = search.ranked.tolist()
    flat_count = min(2, len(ranked) // 2)
    sharp_count = min(2, len(ranked) - flat_count)
    chosen = {}
    for i in range(sharp_count):
        chosen[f"sharpest_{i + 1}"] = ranked[i]
    for i in range(flat_count):
        chosen[f"flattest_{i + 1}"] = ranked[-1 - i]
    return chosen


def portrayed_points(search: Search, chosen: dict[str, int]) -> dict[str, Any]:
    """One row per portrayed point."""
    starts = list(chosen.values())
    curvature = search.curvature(search.ends.theta[starts])
    shown = {name: curvature[name] for name in ("loss", "lambda_max", "lambda_sup")}
    return {"point": list(chosen), "start": starts} | shown


def trajectories(search: Search, chosen: dict[str, int], points: int) -> dict[str, Any]:
    """Loss, λ_sup, λ_1 and λ_D along the descent to the sharpest and the flattest point (WS bound,
    Fig. 5).
    """
    tables: list[dict[str, Any]] = []
    for name, start in chosen.items():
        if not name.endswith("_1"):
            continue
        steps = int(search.ends.steps[start])
        first = search.starts[start : start + 1]
        result = descend(
            first,
            search.direction,
            rate=search.rate,
            max_steps=search.steps,
            stop_ratios=(search.ratio,),
            record=(0,),
            record_every=max(1, steps // points),
        )
        path = result.trajectories[0]
        tables.append({"point": name, "step": path.steps} | search.curvature(path.theta))
    return stack(tables)


def landscapes(
    search: Search, chosen: dict[str, int], points: int, half_range: float
) -> dict[str, Any]:
    """L(θ* + α u_d) along every eigenvector u_d, one column per portrayed point (WS bound, Figs. 3,
    4).

    direction: d = 1 … D by falling eigenvalue. alpha: in units of θ, since ||u_d|| = 1.
    """
    steps = 2 * torch.arange(points, dtype=search.x.dtype) - (points - 1)
    alpha = half_range * steps / (points - 1)
    dimension = search.starts.shape[1]
    table = {
        "direction": torch.arange(1, dimension + 1).repeat_interleave(points),
        "alpha": alpha.repeat(dimension),
    }
    for name, start in chosen.items():
        theta = search.ends.theta[start]
        vectors = torch.linalg.eigh(search.hessian(theta)).eigenvectors
        falling = vectors.t().flip(0)[:, None, :]
        lines = theta + alpha[:, None] * falling
        table[name] = _rounded(search.loss(lines.flatten(0, 1)), LOSS_GRAIN)
    return table


def boundaries(search: Search, chosen: dict[str, int], step: float) -> dict[str, Any]:
    """The logit z on a grid around the training samples, one column per portrayed point; z > 0 is
    class 1.

    The first two inputs vary, any others are zero. The logit rather than p: it stays informative
    where p is flat.
    """
    x = search.x
    inputs = x.shape[1]
    low = float((x.min() - MARGIN).floor())
    high = float((x.max() + MARGIN).ceil())
    line = torch.arange(low, high + step / 2, step, dtype=x.dtype)
    plane = torch.cartesian_prod(line, line)
    grid = torch.zeros(len(plane), inputs, dtype=x.dtype)
    grid[:, :2] = plane[:, :inputs]
    table = {"x1": plane[:, 0], "x2": plane[:, 1]}
    for name, start in chosen.items():
        theta = search.ends.theta[start]
        V = tl.split(theta, inputs).V
        logit = tl.hidden_representation(theta, grid, search.activation) @ V[1:] + V[0]
        table[name] = _rounded(logit, LOGIT_GRAIN)
    return table


def _rounded(values: Tensor, grain: float) -> Tensor:
    return (values / grain).round() * grain


def hessian_entries(
    search: Search, chosen: dict[str, int], count: int, step: float
) -> dict[str, Any]:
    """Entries of the analytic and the numerical Hessian at `count` of the portrayed points (WS
    bound, Fig. 8).
    """
    every = max(1, len(chosen) // count)
    names = list(chosen)[::every][:count]
    theta = search.ends.theta[[chosen[name] for name in names]]
    dimension = theta.shape[1]
    index = torch.arange(dimension)
    rows = index.repeat_interleave(dimension)
    numerical = numerical_hessian(theta, *search.args, step=step)
    analytic = search.hessian(theta)
    return {
        "point": [name for name in names for _ in rows],
        "row": rows.repeat(len(names)),
        "column": index.repeat(dimension * len(names)),
        "analytic": analytic.flatten(),
        "numerical": numerical.flatten(),
    }


def numerical_traces(search: Search, step: float) -> dict[str, Any]:
    """tr H and tr H² of the numerical Hessian at every unique critical point (WS bound, Fig. 9)."""
    chosen = search.unique
    numerical = numerical_hessian(search.ends.theta[chosen], *search.args, step=step)
    square = numerical @ numerical
    diagonal = numerical.diagonal(dim1=-2, dim2=-1)
    of_square = square.diagonal(dim1=-2, dim2=-1)
    return {
        "start": chosen,
        "trace_numerical": diagonal.sum(-1),
        "trace_of_square_numerical": of_square.sum(-1),
    }


def activation_curve(activation: str) -> dict[str, Any]:
    """f, f' and f'' on [−5, 5] (WS bound, Fig. 13)."""
    y = torch.linspace(-5, 5, 81, dtype=torch.float64)
    value, slope, bend = tl.get_activation(activation).derivatives(y, 2)
    return {"y": y, "f": value, "f_slope": slope, "f_bend": bend}


def numerical_hessian(
    theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid", step: float = 1e-4
) -> Tensor:
    """H_L by three-point central differences of the loss, taken twice, (..., D, D) (WS bound, Fig.
    8): nothing of the closed forms enters. Error O(h²) + O(eps/h²).
    """
    shifts = step * torch.eye(theta.shape[-1], dtype=theta.dtype)
    base = theta[..., None, :]

    def loss(point: Tensor) -> Tensor:
        return tl.loss(point, x, q, activation)

    rows = []
    for shift in shifts:
        ahead = base + shift
        behind = base - shift
        rise_ahead = loss(ahead + shifts) - loss(ahead - shifts)
        fall_behind = rise_ahead - loss(behind + shifts)
        change = fall_behind + loss(behind - shifts)
        rows.append(change / (4 * step**2))
    return torch.stack(rows, dim=-2)
