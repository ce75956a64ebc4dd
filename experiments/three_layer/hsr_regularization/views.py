"""What is kept of the descents and of the networks they end at: dynamics, loss along eigenvectors,
boundaries.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.contours import contour_length
from experiments.three_layer.ends import columns
from experiments.three_layer.hsr_regularization.problem import Problem
from experiments.three_layer.hsr_regularization.settings import GROUPS, HsrRegularization
from runner.curvature.closed_form import three_layer as tl
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


def dynamics(
    experiment: HsrRegularization, problem: Problem, result: DescentResult, names: list[str]
) -> dict[str, list[Any]]:
    """Quantiles over the starts of a group of L and λ₁ at recorded steps (Fig. 10).

    A start that has stopped counts with its last point. Every curve would be megabytes.
    """
    steps = torch.arange(0, experiment.training.steps + 1, experiment.record_every)
    paths = []
    for start in range(len(names)):
        path = result.trajectories[start]
        last = torch.searchsorted(path.steps, steps, right=True) - 1
        paths.append(path.theta[last])
    if paths:
        theta = torch.stack(paths)
    else:
        theta = problem.starts.new_zeros(0, len(steps), problem.starts.shape[1])
    values = {
        "loss": problem.loss(theta),
        "lambda_max": problem.spectrum(theta)[..., -1],
    }
    rows = []
    for group in GROUPS:
        of = torch.tensor([name == group for name in names], dtype=torch.bool)
        for quantity, value in values.items() if bool(of.any()) else ():
            rows += [
                (group, quantity, *row)
                for row in zip(steps.tolist(), *_quantiles(value[of].t()), strict=True)
            ]
    return columns(("group", "quantity", "step", *COLUMNS), rows)


def _along(problem: Problem, theta: Tensor, direction: Tensor, offsets: Tensor) -> Tensor:
    """L(theta + t u) − L(theta), (S, T)."""
    points = theta[:, None] + offsets[:, None] * direction[:, None]
    return problem.loss(points) - problem.loss(theta)[:, None]


def saddle_depth(experiment: HsrRegularization, problem: Problem, theta: Tensor) -> Tensor:
    """How far the loss falls on both sides along u_D, (S,): max over t <= reach of L(theta) − mean
    of L(theta ± t u_D).

    The mean of both sides takes out the slope that the stop rule leaves; it is ½ |λ_D| t² to
    leading order, 0 where the loss does not fall.
    """
    vectors = torch.linalg.eigh(problem.hessian(theta).nan_to_num()).eigenvectors
    offsets = torch.linspace(0, experiment.line_half_range, DEPTHS + 1, dtype=theta.dtype)
    both = (
        _along(problem, theta, vectors[..., 0], offsets)
        + _along(problem, theta, vectors[..., 0], -offsets)
    ) / 2
    return (-both).amax(-1)


def profiles(
    experiment: HsrRegularization,
    problem: Problem,
    ends: Endpoints,
    names: list[str],
    chosen: Tensor,
    at: str,
) -> dict[str, list[Any]]:
    """Loss along u_1 over the sharp group as quantiles (Fig. 11), and along u_1 and u_D at the tip
    of λ_D's lower whisker in the flat group, the smallest λ_D within 1.5 interquartile ranges of
    the quartile (Fig. 13).

    at: what the ends are, in a column of that name ("stopped", "nearest").
    """
    offsets = (
        torch.linspace(-1, 1, experiment.line_points, dtype=ends.theta.dtype)
        * experiment.line_half_range
    )
    rows: list[tuple[Any, ...]] = []

    def add(kind: str, direction: str, start: int, values: Tensor) -> None:
        lines = zip(offsets.tolist(), *_quantiles(values.t()), strict=True)
        rows.extend((at, kind, direction, start, *line) for line in lines)

    finite = torch.isfinite(ends.theta).all(1)
    if at == "nearest":
        finite &= ends.converged
    for group in GROUPS:
        of = (torch.tensor([name == group for name in names], dtype=torch.bool) & finite).nonzero()[
            :, 0
        ]
        if not len(of):
            continue
        theta = ends.theta[of]
        values, vectors = torch.linalg.eigh(problem.hessian(theta))
        add(f"{group} group", "u_1", -1, _along(problem, theta, vectors[..., -1], offsets))
        if group == "flat":
            least = values[:, 0]
            low = least.quantile(0.25)
            high = least.quantile(0.75)
            inside = least.where(least >= low - 1.5 * (high - low), torch.inf)
            tip = int(inside.argmin())
            for direction, column in (("u_1", -1), ("u_D", 0)):
                line = _along(
                    problem, theta[tip : tip + 1], vectors[tip : tip + 1, :, column], offsets
                )
                add("whisker tip", direction, int(chosen[of[tip]]), line)
    return columns(("at", "kind", "direction", "start", "offset", *COLUMNS), rows)


def _grid(experiment: HsrRegularization, dtype: torch.dtype) -> tuple[Tensor, float]:
    """Points (K², 2) of a square of the input plane, row by row of x₂, and their distance."""
    axis = torch.linspace(-1, 1, experiment.plane_points, dtype=dtype) * experiment.plane_half_range
    second, first = torch.meshgrid(axis, axis, indexing="ij")
    return torch.stack([first.flatten(), second.flatten()], dim=1), float(axis[1] - axis[0])


def boundary_length(experiment: HsrRegularization, problem: Problem, theta: Tensor) -> Tensor:
    """Euclidean length of the decision boundary in the square of the input plane, (S,).

    Marching squares on the logit z: in every cell of the grid the line from edge to edge on which
    its linear interpolation vanishes. No direction is preferred: a turned boundary is as long, to
    the square of the grid's step.
    """
    points, distance = _grid(experiment, theta.dtype)
    side = experiment.plane_points
    lengths = []
    for part in theta.split(64):
        V = tl.split(part, points.shape[1]).V
        hidden = tl.hidden_representation(part, points, problem.activation)
        logit = (hidden @ V[..., 1:, None]).squeeze(-1) + V[..., :1]
        lengths.append(contour_length(logit.unflatten(-1, (side, side))) * distance)
    if lengths:
        return torch.cat(lengths)
    return theta.new_zeros(0)


def boundaries(
    experiment: HsrRegularization,
    problem: Problem,
    finals: dict[str, Tensor],
    names: list[str],
    chosen: Tensor,
    points: dict[str, Any],
) -> dict[str, list[Any]]:
    """p over the input plane without regularisation and with HSR, for the sharpest starts (Fig.
    15).
    """
    bound = dict(
        zip(torch.as_tensor(points["start"]).tolist(), points["lambda_sup"].tolist(), strict=True)
    )
    sharp = [k for k, name in enumerate(names) if name == "sharp"]
    ranked = sorted(sharp, key=lambda k: -bound[int(chosen[k])])[: experiment.boundary_starts]
    plane, _ = _grid(experiment, problem.x.dtype)
    rows = []
    for method in ("gd", "hsr"):
        for k in ranked:
            p = tl.predict(finals[method][k], plane, problem.activation).tolist()
            start = int(chosen[k])  # rounded: drawn only, a third of the size
            rows += [
                (method, start, *x, round(value, 3))
                for x, value in zip(plane.tolist(), p, strict=True)
            ]
    return columns(("method", "start", "x1", "x2", "p"), rows)
