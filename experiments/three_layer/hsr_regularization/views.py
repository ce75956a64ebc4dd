"""What is kept of the descents and of the networks they end at: dynamics, loss along eigenvectors,
boundaries.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.contours import contour_length
from experiments.three_layer.ends import columns
from experiments.three_layer.hsr_regularization.problem import Problem, Seeds
from experiments.three_layer.hsr_regularization.settings import GROUPS, HsrRegularization
from runner.closed_form import three_layer as tl
from runner.training.descent.descent import DescentResult, Endpoints

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
COLUMNS = tuple(f"q{round(100 * level)}" for level in QUANTILES)
DIGITS = 5  # significant digits of quantiles, which are drawn and compared by ratios
DEPTHS = 5  # distances at which a saddle is looked for


def _quantiles(values: Tensor) -> list[list[float]]:
    """Quantiles over the last dimension, one list for each of COLUMNS, NaN left out."""
    quantiles = values.nanquantile(torch.tensor(QUANTILES, dtype=values.dtype), dim=-1)
    return [_rounded(row) for row in quantiles.tolist()]


def _rounded(values: list[float]) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def dynamics(problem: Problem, result: DescentResult, seeds: Seeds) -> dict[str, list[Any]]:
    """Quantiles over the starts of a group of L and λ₁ at recorded steps (Fig. 10).

    A start that has stopped counts with its last point. Every curve would be megabytes.
    """
    experiment = problem.experiment
    steps = torch.arange(0, experiment.training.steps + 1, experiment.record_every)
    theta = problem.starts.new_zeros(len(seeds), len(steps), problem.starts.shape[1])
    for start, path in result.trajectories.items():
        theta[start] = path.theta[torch.searchsorted(path.steps, steps, right=True) - 1]
    values = {"loss": problem.loss(theta), "lambda_max": problem.spectrum(theta)[..., -1]}
    rows = []
    for group, quantity in product(GROUPS, values):
        if group in seeds.group:
            quantiles = _quantiles(values[quantity][seeds.within(group)].t())
            for row in zip(steps.tolist(), *quantiles, strict=True):
                rows.append((group, quantity, *row))
    return columns(("group", "quantity", "step", *COLUMNS), rows)


def _along(problem: Problem, theta: Tensor, direction: Tensor, offsets: Tensor) -> Tensor:
    """L(theta + t u) − L(theta), (S, T)."""
    points = theta[:, None] + offsets[:, None] * direction[:, None]
    return problem.loss(points) - problem.loss(theta)[:, None]


def saddle_depth(problem: Problem, theta: Tensor) -> Tensor:
    """How far the loss falls on both sides along u_D, (S,): max over t <= reach of L(theta) − mean
    of L(theta ± t u_D).

    The mean of both sides takes out the slope that the stop rule leaves; it is ½ |λ_D| t² to
    leading order, 0 where the loss does not fall.
    """
    vectors = torch.linalg.eigh(problem.hessian(theta).nan_to_num()).eigenvectors
    offsets = torch.linspace(0, problem.experiment.line_half_range, DEPTHS + 1, dtype=theta.dtype)
    last = vectors[..., 0]
    ahead = _along(problem, theta, last, offsets)
    behind = _along(problem, theta, last, -offsets)
    fall = -(ahead + behind) / 2
    return fall.amax(-1)


def profiles(problem: Problem, ends: Endpoints, seeds: Seeds, at: str) -> dict[str, list[Any]]:
    """Loss along u_1 over the sharp group as quantiles (Fig. 11), and along u_1 and u_D at the tip
    of λ_D's lower whisker in the flat group, the smallest λ_D within 1.5 interquartile ranges of
    the quartile (Fig. 13).

    at: what the ends are, in a column of that name ("stopped", "nearest").
    """
    experiment = problem.experiment
    offsets = torch.linspace(-1, 1, experiment.line_points, dtype=ends.theta.dtype)
    offsets = offsets * experiment.line_half_range
    rows: list[tuple[Any, ...]] = []

    def add(kind: str, direction: str, start: int, values: Tensor) -> None:
        quantiles = _quantiles(values.t())
        for line in zip(offsets.tolist(), *quantiles, strict=True):
            rows.append((at, kind, direction, start, *line))

    shown = torch.isfinite(ends.theta).all(1)
    if at == "nearest":
        shown &= ends.converged
    for group in GROUPS:
        of_group = (seeds.within(group) & shown).nonzero()[:, 0]
        if not len(of_group):
            continue
        theta = ends.theta[of_group]
        values, vectors = torch.linalg.eigh(problem.hessian(theta))
        loss = _along(problem, theta, vectors[..., -1], offsets)
        add(f"{group} group", "u_1", -1, loss)
        if group == "flat":
            tip = _whisker_tip(values[:, 0])
            start = int(seeds.start[of_group[tip]])
            point = theta[tip : tip + 1]
            for direction, column in (("u_1", -1), ("u_D", 0)):
                loss = _along(problem, point, vectors[tip : tip + 1, :, column], offsets)
                add("whisker tip", direction, start, loss)
    return columns(("at", "kind", "direction", "start", "offset", *COLUMNS), rows)


def _whisker_tip(values: Tensor) -> int:
    """Place of the smallest value within 1.5 interquartile ranges of the lower quartile."""
    low = values.quantile(0.25)
    high = values.quantile(0.75)
    within = values >= low - 1.5 * (high - low)
    return int(values.where(within, torch.inf).argmin())


def _grid(experiment: HsrRegularization, dtype: torch.dtype) -> tuple[Tensor, float]:
    """Points (K², 2) of a square of the input plane, row by row of x₂, and their distance."""
    axis = torch.linspace(-1, 1, experiment.plane_points, dtype=dtype)
    axis = axis * experiment.plane_half_range
    second, first = torch.meshgrid(axis, axis, indexing="ij")
    return torch.stack([first.flatten(), second.flatten()], dim=1), float(axis[1] - axis[0])


def boundary_length(problem: Problem, theta: Tensor) -> Tensor:
    """Euclidean length of the decision boundary in the square of the input plane, (S,).

    Marching squares on the logit z: in every cell of the grid the line from edge to edge on which
    its linear interpolation vanishes. No direction is preferred: a turned boundary is as long, to
    the square of the grid's step.
    """
    points, distance = _grid(problem.experiment, theta.dtype)
    side = problem.experiment.plane_points
    lengths = [theta.new_zeros(0)]
    for part in theta.split(64):
        V = tl.split(part, points.shape[1]).V
        hidden = tl.hidden_representation(part, points, problem.activation)
        logit = (hidden @ V[..., 1:, None]).squeeze(-1) + V[..., :1]
        lengths.append(contour_length(logit.unflatten(-1, (side, side))) * distance)
    return torch.cat(lengths)


def boundaries(
    problem: Problem, finals: dict[str, Tensor], seeds: Seeds, points: dict[str, Any]
) -> dict[str, list[Any]]:
    """p over the input plane without regularisation and with HSR, for the sharpest starts (Fig.
    15).
    """
    experiment = problem.experiment
    bound = dict(zip(points["start"].tolist(), points["lambda_sup"].tolist(), strict=True))
    starts = seeds.start.tolist()
    sharp = [k for k, name in enumerate(seeds.group) if name == "sharp"]
    sharp.sort(key=lambda k: -bound[starts[k]])
    sharpest = sharp[: experiment.boundary_starts]
    plane, _ = _grid(experiment, problem.x.dtype)
    rows = []
    for method, k in product(("gd", "hsr"), sharpest):
        p = tl.predict(finals[method][k], plane, problem.activation).tolist()
        for x, value in zip(plane.tolist(), p, strict=True):
            rows.append((method, starts[k], *x, round(value, 3)))  # drawn only: a third of the size
    return columns(("method", "start", "x1", "x2", "p"), rows)
