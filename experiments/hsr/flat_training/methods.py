"""The methods of the contest, what each may tune, and what a step costs.

Every method searches the same number of settings. They come from one low-discrepancy sequence that knows neither seed
nor method, so that all methods try the same learning rates and none is lucky in them: its first coordinate is the rate,
the second the strength of the method, the third whatever else it has. "asam" scales the perturbation by the size of
each weight and leaves biases alone; "asam_all" scales biases, too: the two readings of the operator that the paper does
not print (HSR, Section VI). Three variants of HSR spare products: the bound on every k-th step only (weighted k times),
of the last two layers only, and in the last third of the training only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from experiments.hsr.flat_training.names import HSR, METHODS, RADII, WIDE

RATES = (0.1, 1.0)
STRENGTHS = {
    "sam": (0.01, 0.3),
    "asam": (0.03, 3.0),
    "asam_all": (0.03, 3.0),
    "trace": (3e-6, 3e-4),
    **dict.fromkeys(HSR, (3e-4, 3e-2)),
    WIDE: (1e-3, 1e-1),
}
"""Ranges of radius or weight. A first search at seed 142, over rates 0.03 to 2, radii 0.03 to 3 and weights 1e-5 to
1e-2 (trace) and 1e-3 to 1e-1 (HSR), had wasted most of its runs: the best setting of every method on validation data
lies inside of these ranges, and those of SAM and of the trace lay at the edge of the old ones. "hsr_wide" is a second
search of as many settings for HSR alone, over weights 1e-3 to 1e-1 and 1 to 8 probes at every step: what it finds says
what the narrower ranges cost HSR."""
PROBES = (1, 2, 4)
WIDE_PROBES = (1, 2, 4, 8)
INTERVALS = (2, 4, 8, 16)
LAST = 2
LATE = 2 / 3
OFFSET = 1 / 32
"""Added to the sequence, so that its first 16 points lie in the middles of 16 equal parts of each range."""


@dataclass(frozen=True)
class Settings:
    """What a run of a method is: rate and, where it has them, radius ρ, weight γ, probes, interval, layers, start.

    layers: linear layers at the end whose Hessian is bounded, 0 for all. start: share of the training after which the
    bound acts.
    """

    method: str
    rate: float
    radius: float = 0.0
    weight: float = 0.0
    probes: int = 0
    interval: int = 1
    layers: int = 0
    start: float = 0.0

    @property
    def schedule(self) -> tuple[Any, ...]:
        """What trials must share to step side by side."""
        return self.method, self.probes, self.interval, self.layers, self.start

    def gradients(self, acts: bool, depth: int) -> float:
        """Price of a step in gradients of the loss, of a network with `depth` linear layers.

        A product with a graph that is differentiated again counts four, the gradient that it starts from one; both in
        proportion to the layers that the product is restricted to. By processor time products of a small network cost
        half as much again: the count favours what uses them.
        """
        if self.method in RADII:
            return 2.0
        share = self.layers / depth if self.layers else 1.0
        return 1.0 + share * (1 + 4 * self.probes) if acts else 1.0

    def mean_price(self, depth: int) -> float:
        """Gradients per step, averaged over a training."""
        share = (1 - self.start) / self.interval if self.probes else 0.0
        return share * self.gradients(True, depth) + (1 - share) * self.gradients(False, depth)


def trial(method: str, number: int) -> Settings:
    """Settings number `number` of a method: the same for every seed. Raises ValueError for an unknown method."""
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, found {method!r}")
    first, second, third = _point(number)
    rate = _log_uniform(RATES, first)
    strength = _log_uniform(STRENGTHS[method], second) if method in STRENGTHS else 0.0
    if method == "sgd":
        return Settings(method, rate)
    if method in RADII:
        return Settings(method, rate, radius=strength)
    if method == "hsr_every":
        return Settings(method, rate, weight=strength, probes=1, interval=_pick(INTERVALS, third))
    if method == WIDE:
        return Settings(method, rate, weight=strength, probes=_pick(WIDE_PROBES, third))
    limits = {"hsr_last": {"layers": LAST}, "hsr_late": {"start": LATE}}.get(method, {})
    return Settings(method, rate, weight=strength, probes=_pick(PROBES, third), **limits)  # type: ignore[arg-type]


@cache
def _point(number: int) -> tuple[float, float, float]:
    """Point `number` of Sobol's sequence in three dimensions, moved by `OFFSET` around the torus."""
    points = torch.quasirandom.SobolEngine(3).draw(number + 1, dtype=torch.float64)
    first, second, third = ((points[number] + OFFSET) % 1).tolist()
    return first, second, third


def _log_uniform(bounds: tuple[float, float], u: float) -> float:
    low, high = map(math.log, bounds)
    return float(f"{math.exp(low + u * (high - low)):.3g}")


def _pick(values: Sequence[Any], u: float) -> Any:
    return values[int(u * len(values))]


def columns(settings: Settings) -> Mapping[str, Any]:
    """The settings as columns of a table."""
    names = ("rate", "radius", "weight", "probes", "interval", "layers", "start")
    return {name: getattr(settings, name) for name in names}
