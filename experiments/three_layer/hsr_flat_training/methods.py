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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.hsr_flat_training.settings import HSR, METHODS, RADII, WIDE
from experiments.three_layer.stochastic_bound import combine, hessian_vector_product, signs

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


SCALE_CONSTANT = 0.01
"""η of adaptive SAM, the default of its authors."""

Losses = Callable[[], Tensor]
"""The loss at the present parameters, (1,)."""


class Stepper:
    """Steps of one method; keeps what the method remembers from one step to the next.

    parameters: weight and bias of every layer in turn, each with a first dimension of 1. price: gradients of the loss
    that were spent, as `Settings.gradients` counts them.
    """

    def __init__(
        self,
        settings: Settings,
        parameters: Sequence[Tensor],
        probes: torch.Generator,
        memory: float,
    ) -> None:
        self.settings, self.parameters, self.probes, self.memory = (
            settings,
            list(parameters),
            probes,
            memory,
        )
        self.rate, self.radius, self.weight = (
            self.parameters[0].new_tensor([value])
            for value in (settings.rate, settings.radius, settings.weight)
        )
        self.depth = len(self.parameters) // 2
        kept = self.settings.layers or self.depth
        self.bounded = self.parameters[-2 * kept :]
        self.squared, self.remembered = torch.zeros_like(self.rate), 0.0
        self.number = 0
        self.price = 0.0

    def step(self, losses: Losses, progress: float) -> None:
        """Move the parameters against the method's gradients."""
        gradients = self.gradients(losses, progress)
        with torch.no_grad():
            for p, g in zip(self.parameters, gradients, strict=True):
                p.sub_(g * _like(self.rate, p))

    def gradients(self, losses: Losses, progress: float) -> Sequence[Tensor]:
        """What the parameters move against; progress: share of the training that is done."""
        s = self.settings
        acts = s.probes > 0 and self.number % s.interval == 0 and progress >= s.start
        self.number += 1
        self.price += s.gradients(acts, self.depth)
        if s.method in ("sam", "asam", "asam_all"):
            return self._sharpness_aware(losses)
        values = losses()
        total = values + s.interval * self.weight * self._penalty(values) if acts else values
        return torch.autograd.grad(total.sum(), self.parameters)

    def _sharpness_aware(self, losses: Losses) -> Sequence[Tensor]:
        """∇L at θ + ρ T² ∇L/‖T ∇L‖: T = 1 (SAM), or |θ| + η (adaptive SAM), or that for weights and 1 for biases."""
        gradients = torch.autograd.grad(losses().sum(), self.parameters)
        before = [p.detach().clone() for p in self.parameters]
        scales = [self._scale(p, bias=bool(i % 2)) for i, p in enumerate(before)]
        norm = _total([(t * g).square() for t, g in zip(scales, gradients, strict=True)]).sqrt()
        length = self.radius / (norm + (norm == 0))
        with torch.no_grad():
            for p, t, g in zip(self.parameters, scales, gradients, strict=True):
                p.add_(t * t * g * _like(length, p))
        found = torch.autograd.grad(losses().sum(), self.parameters)
        with torch.no_grad():
            for p, value in zip(self.parameters, before, strict=True):
                p.copy_(value)
        return found

    def _scale(self, p: Tensor, *, bias: bool) -> Tensor:
        if self.settings.method == "sam" or (bias and self.settings.method == "asam"):
            return torch.ones_like(p)
        return p.abs() + SCALE_CONSTANT

    def _penalty(self, values: Tensor) -> Tensor:
        """tr H, or λ_sup, of the Hessian by the bounded parameters, (1,), from probes and with graph."""
        dimension = sum(p.numel() for p in self.bounded)
        gradients = torch.autograd.grad(values.sum(), self.bounded, create_graph=True)
        forms, squares = [], []
        for _ in range(self.settings.probes):
            probe = signs(self.bounded, self.probes)
            image = hessian_vector_product(gradients, self.bounded, probe, graph=True)
            forms.append(_total([z * h for z, h in zip(probe, image, strict=True)]))
            squares.append(_total([h.square() for h in image]))
        if self.settings.method == "trace":
            return torch.stack(forms).mean(0)
        return self._bound(torch.stack(forms, 1), torch.stack(squares, 1), dimension)

    def _bound(self, forms: Tensor, squares: Tensor, dimension: int) -> Tensor:
        """λ_sup (1,) from zᵀHz and |Hz|², (1, K), whose gradient divides by a σ that hardly depends on these probes."""
        if (
            forms.shape[1] == 1
        ):  # μ² cannot be had from one probe; σ² is replaced by tr H²/D, which is never smaller
            trace, variance = forms[:, 0], squares[:, 0] / dimension
        else:
            found = combine(forms, squares, dimension)
            trace, variance = found.trace, found.variance
        value = variance.detach()
        self.squared = self.memory * self.squared + (1 - self.memory) * value
        self.remembered = self.memory * self.remembered + (1 - self.memory)
        divisor = torch.maximum(self.squared / self.remembered, value).clamp(min=0).sqrt()
        root = variance / (2 * torch.where(divisor > 0, divisor, torch.inf))
        return trace / dimension + math.sqrt(dimension - 1) * root


def _like(values: Tensor, p: Tensor) -> Tensor:
    """(1,) in a shape that multiplies p."""
    return values.view(-1, *[1] * (p.ndim - 1))


def _total(parts: Sequence[Tensor]) -> Tensor:
    """Sum over all entries, (1,)."""
    return torch.stack([part.flatten(1).sum(1) for part in parts]).sum(0)
