"""Where the ends of descents lead: stretched variables for long valleys, and what is measured at
the points reached.

`stretched` gives the same function of u = asinh(θ/s), coordinate by coordinate: a valley toward
infinity becomes short and straight.

A loss of a network often falls for ever along v w = const while w grows: a hyperbola, on which
steps in θ shrink as its curvature tells them to. In u, linear below s = `SCALE` and ± log 2|θ/s|
above, it is the line u_v + u_w = const, and a step of fixed length multiplies w. Critical points
are the same in both; with θ = s sinh u, D = diag(s cosh u),

    ∇_u f = D ∇f        H_u = D H D + diag(θ ∇f)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.network import Network
from experiments.three_layer.polish import Goal, Polished, Smooth, polish

SCALE = 1e-2
"""Size of θ below which u is linear in it.

Of 357 softplus ends of one search, 289 unfinished after 200 steps, 400 in u leave 63 with a scale
of 1, and 27 with this one; 1,400 more steps in θ leave 163.
"""


def to_theta(u: Tensor) -> Tensor:
    """s sinh u."""
    return SCALE * u.sinh()


def from_theta(theta: Tensor) -> Tensor:
    """asinh(θ/s)."""
    return (theta / SCALE).asinh()


def stretched(function: Smooth) -> Smooth:
    """`function` of u = asinh(θ/s); its size is still that of θ.

    >>> import torch
    >>> hessian = lambda t: 2 * torch.eye(1).expand(len(t), 1, 1)
    >>> square = Smooth(lambda t: t.square().sum(-1), lambda t: 2 * t, hessian)
    >>> f = stretched(square)
    >>> u = torch.tensor([[0.7]])
    >>> bool(torch.isclose(f.gradient(u), SCALE**2 * (2 * u).sinh()).all())
    True
    """

    def hessian(u: Tensor) -> Tensor:
        theta = to_theta(u)
        scale = SCALE * u.cosh()
        scaled = function.hessian(theta) * scale.unsqueeze(-1) * scale.unsqueeze(-2)
        return scaled + torch.diag_embed(function.gradient(theta) * theta)

    return Smooth(
        lambda u: function.value(to_theta(u)),
        lambda u: function.gradient(to_theta(u)) * SCALE * u.cosh(),
        hessian,
        lambda u: function.size(to_theta(u)),
    )


def polish_further(
    function: Smooth,
    polished: Polished,
    goal: Goal = "downhill",
    **how: Any,
) -> Polished:
    """Go on with the unfinished of `polished`: at most `steps` in u, then as many in θ, where it is
    said what they are.

    how: far, tolerance, steps and rounding of `polish`. Finished points stay what they are; `steps`
    of the result counts all trials. A point runs to infinity if it gets beyond `far`, or if its
    valley goes on in either variable (`polish`); what is finished in one of them is finished.
    """
    left = torch.tensor([kind == "unfinished" for kind in polished.kind])
    if not bool(left.any()):
        return polished
    away = polish(stretched(function), from_theta(polished.theta[left]), goal, **how)
    ended = polish(function, to_theta(away.theta), goal, **how)
    kinds = list(polished.kind)
    places = left.nonzero()[:, 0].tolist()
    kinds_of_both = zip(places, away.kind, ended.kind, strict=True)
    for i, in_u, in_theta in kinds_of_both:
        kinds[i] = in_theta
        if in_theta == "unfinished":
            kinds[i] = in_u
        if "infinity" in (in_u, in_theta):
            kinds[i] = "infinity"

    def put(old: Tensor, new: Tensor) -> Tensor:
        result = old.clone()
        result[left] = new
        return result

    tried = polished.steps[left] + away.steps + ended.steps
    theta = put(polished.theta, ended.theta)
    return Polished(
        theta,
        put(polished.gradient_norm, ended.gradient_norm),
        put(polished.newton_step, ended.newton_step),
        put(polished.eigenvalues, ended.eigenvalues),
        put(polished.steps, tried),
        kinds,
    )


DIGITS = 5
"""Significant digits kept of what is measured at polished points: enough for ranks and ratios, half
the size.
"""


@dataclass(frozen=True)
class Limits:
    """When polishing ends. far: norm of theta beyond which a point runs off; tolerance: of the
    gradient norm; further: steps in asinh theta of what is unfinished after `steps`, as many again
    in theta; to_rounding: the same of what is unfinished then, where a gradient that is the
    rounding of its point counts as none.
    """

    far: float
    tolerance: float
    steps: int
    further: int = 0
    to_rounding: int = 0

    @classmethod
    def of(cls, experiment: Any, dimension: int, to_rounding: int) -> Limits:
        """Of an experiment's settings; `far` is a multiple of the largest norm that a start can
        have.
        """
        far = experiment.far * experiment.training.half_range * dimension**0.5
        return cls(
            far,
            experiment.polish_tolerance,
            experiment.polish_steps,
            experiment.further_steps,
            to_rounding,
        )


def lead(network: Network, theta: Tensor, limits: Limits, goal: Goal = "downhill") -> Polished:
    """`polish` of the network's loss from theta (S, D)."""
    loss = Smooth(network.loss, network.gradient, network.hessian)
    how: dict[str, Any] = {"far": limits.far, "tolerance": limits.tolerance}
    led = polish(loss, theta, goal, steps=limits.steps, **how)
    if goal == "downhill":
        rounds = ((limits.further, False), (limits.to_rounding, True))
        for steps, rounding in rounds:
            if steps:
                led = polish_further(loss, led, steps=steps, rounding=rounding, **how)
    return led


def uniform(count: int, dimension: int, half_range: float, generator: torch.Generator) -> Tensor:
    """Parameters (count, dimension), uniform within ± half_range."""
    share = torch.rand(count, dimension, dtype=torch.float64, generator=generator)
    return (2 * share - 1) * half_range


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Rows as the columns of a table, which are there without a row, too."""
    by_name: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        values = zip(names, row, strict=True)
        for name, value in values:
            by_name[name].append(value)
    return by_name


def stack(tables: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Tables below each other; a text stands for a column of it."""
    joined: dict[str, list[Any]] = {}
    for table in tables:
        length = max(len(value) for value in table.values() if not isinstance(value, str))
        for name, values in table.items():
            if isinstance(values, str):
                values = [values] * length
            if isinstance(values, Tensor):
                values = values.tolist()
            joined.setdefault(name, []).extend(values)
    return joined


def in_place(values: Tensor, where: Tensor, count: int) -> Tensor:
    """Values at the places `where` (indices or mask) of `count`, NaN elsewhere."""
    full = torch.full((count,), torch.nan, dtype=torch.float64)
    full[where] = values
    return full


def short(values: Tensor) -> Tensor:
    """Rounded to DIGITS significant digits."""
    rounded = [float(f"{value:.{DIGITS}g}") for value in values.tolist()]
    return torch.tensor(rounded, dtype=torch.float64)


def gradient_columns(network: Network, theta: Tensor, start: Tensor) -> dict[str, Tensor]:
    """||∇L|| at theta (S, D), and its share of that at the starts (S, D)."""
    left = network.gradient_norm(theta)
    return {"gradient": short(left), "gradient_ratio": short(left / network.gradient_norm(start))}


def led_columns(network: Network, polished: Polished, start: Tensor) -> dict[str, Any]:
    """What became of each point and its curvature there, one entry a point; start (S, D): where
    polishing began.
    """
    theta = polished.theta
    measured = {
        "distance": (theta - start).norm(dim=1),
        "norm": theta.norm(dim=1),
        "gradient": polished.gradient_norm,
        "loss": network.loss(theta),
        "lambda_max": polished.eigenvalues[:, -1],
        "lambda_min": polished.eigenvalues[:, 0],
        "lambda_sup": network.bound(theta),
    }
    columns = {"kind": polished.kind, "polish_steps": polished.steps}
    return columns | {name: short(values) for name, values in measured.items()}


def nearest_columns(polished: Polished, start: Tensor) -> dict[str, Any]:
    """What lies nearest to each point among the points without gradient."""
    return {
        "nearest_kind": polished.kind,
        "nearest_distance": short((polished.theta - start).norm(dim=1)),
        "nearest_gradient": short(polished.gradient_norm),
        "nearest_lambda_max": short(polished.eigenvalues[:, -1]),
        "nearest_lambda_min": short(polished.eigenvalues[:, 0]),
    }
