"""The methods of the contest, what each may tune, and what a step costs.

Settings come from one Sobol sequence that knows neither seed nor method: its first coordinate is
the rate, the second the strength of the method (radius or weight), the third the number of probes.
All methods try the same rates.
"asam" scales the perturbation by the size of each weight and leaves biases alone; "asam_all" scales
biases, too: the two normalisations that the paper does not print (HSR, Section VI). A name that
ends in "_half" drops the radius or weight after half of the training, as the authors do with every
method (Section VI-B).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from experiments.three_layer.hsr_flat_training.settings import HALF, METHODS, RADII
from experiments.three_layer.stochastic_bound import combine, hessian_vector_product, signs

RATES = (0.1, 1.0)
STRENGTHS = {
    "sam": (0.01, 0.3),
    "asam": (0.03, 3.0),
    "asam_all": (0.03, 3.0),
    "trace": (3e-6, 3e-4),
    "hsr": (3e-4, 3e-2),
}
"""Ranges of radius or weight. A first search at seed 142, over rates 0.03 to 2, radii 0.03 to 3 and
weights 1e-5 to 1e-2 (trace) and 1e-3 to 1e-1 (HSR), placed the best setting of every method on
validation data inside of these ranges."""
PROBES = (1, 2, 4)
OFFSET = 1 / 32
"""Added to the sequence, so that its first 16 points are the middles of 16 equal parts."""


@dataclass(frozen=True)
class Settings:
    """Rate and, where the method has them, radius ρ, weight γ and probes of a run.

    method: without schedule. end: share of the training after which the step is plain.
    """

    method: str
    rate: float
    radius: float = 0.0
    weight: float = 0.0
    probes: int = 0
    end: float = 1.0

    @property
    def price(self) -> float:
        """Gradients of the loss that a step with radius or weight costs.

        A product with a graph that is differentiated again counts four, the gradient that it starts
        from one. By processor time products of a small network cost half as much again: the count
        favours what uses them.
        """
        if self.method in RADII:
            return 2.0
        if self.probes:
            return 2.0 + 4 * self.probes
        return 1.0

    @property
    def mean_price(self) -> float:
        """Gradients per step, averaged over a training."""
        return self.end * self.price + (1 - self.end)


def trial(method: str, number: int) -> Settings:
    """Settings number `number` of a method: the same for every seed.

    Raises ValueError for an unknown method.
    """
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, found {method!r}")
    plain = method.removesuffix(HALF)
    end = 0.5
    if plain == method:
        end = 1.0
    first, second, third = _point(number)
    rate = _log_uniform(RATES, first)
    if plain == "sgd":
        return Settings(plain, rate)
    strength = _log_uniform(STRENGTHS[plain], second)
    if plain in RADII:
        return Settings(plain, rate, radius=strength, end=end)
    probes = PROBES[int(third * len(PROBES))]
    return Settings(plain, rate, weight=strength, probes=probes, end=end)


@cache
def _point(number: int) -> tuple[float, float, float]:
    """Point `number` of Sobol's sequence in three dimensions, moved by `OFFSET` around the
    torus."""
    points = torch.quasirandom.SobolEngine(3).draw(number + 1, dtype=torch.float64)
    first, second, third = ((points[number] + OFFSET) % 1).tolist()
    return first, second, third


def _log_uniform(bounds: tuple[float, float], u: float) -> float:
    low, high = map(math.log, bounds)
    return float(f"{math.exp(low + u * (high - low)):.3g}")


def columns(settings: Settings) -> Mapping[str, Any]:
    """The settings as columns of a table; the last three are those of archived variants."""
    shown = {name: getattr(settings, name) for name in ("rate", "radius", "weight", "probes")}
    return {**shown, "interval": 1, "layers": 0, "start": 0.0}


SCALE_CONSTANT = 0.01
"""η of adaptive SAM, the default of its authors."""

Losses = Callable[[], Tensor]
"""The loss of each network at the present parameters, (K,)."""


class Stepper:
    """Steps of one method for K networks at once, each with a rate and a strength of its own.

    settings: of each network; they share method, probes and end. parameters: weight and bias of
    every layer in turn, each with a first dimension K. price: gradients of the loss that each
    network has spent, as `Settings.price` counts them.
    """

    def __init__(
        self,
        settings: Sequence[Settings],
        parameters: Sequence[Tensor],
        probes: torch.Generator,
        memory: float,
    ) -> None:
        self.method = settings[0].method
        self.count = settings[0].probes
        self.end = settings[0].end
        self.active_price = settings[0].price
        self.parameters = list(parameters)
        self.probes = probes
        self.memory = memory
        self.rate = self.parameters[0].new_tensor([s.rate for s in settings])
        self.radius = self.parameters[0].new_tensor([s.radius for s in settings])
        self.weight = self.parameters[0].new_tensor([s.weight for s in settings])
        self.squared = torch.zeros_like(self.rate)
        self.remembered = 0.0
        self.price = 0.0

    def step(self, losses: Losses, progress: float) -> None:
        """Move the parameters against the method's gradients."""
        gradients = self.gradients(losses, progress)
        with torch.no_grad():
            for p, g in zip(self.parameters, gradients, strict=True):
                p.sub_(g * _like(self.rate, p))

    def gradients(self, losses: Losses, progress: float) -> Sequence[Tensor]:
        """What the parameters move against; progress: share of the training that is done."""
        active = progress < self.end
        self.price += self.active_price if active else 1.0
        if active and self.method in RADII:
            return self._sharpness_aware(losses)
        values = losses()
        if active and self.count:
            values = values + self.weight * self._penalty(values)
        return torch.autograd.grad(values.sum(), self.parameters)

    def _sharpness_aware(self, losses: Losses) -> Sequence[Tensor]:
        """∇L at θ + ρ T² ∇L/‖T ∇L‖.

        T = 1 (SAM), or |θ| + η (adaptive SAM), or that for weights and 1 for biases.
        """
        gradients = torch.autograd.grad(losses().sum(), self.parameters)
        before = [p.detach().clone() for p in self.parameters]
        scales = [self._scale(p, bias=bool(i % 2)) for i, p in enumerate(before)]
        norm = _total([(t * g).square() for t, g in zip(scales, gradients, strict=True)]).sqrt()
        length = self.radius / (norm + (norm == 0))
        with torch.no_grad():
            for p, t, g in zip(self.parameters, scales, gradients, strict=True):
                p.add_(t * t * g * _like(length, p))
        ascended = torch.autograd.grad(losses().sum(), self.parameters)
        with torch.no_grad():
            for p, value in zip(self.parameters, before, strict=True):
                p.copy_(value)
        return ascended

    def _scale(self, p: Tensor, *, bias: bool) -> Tensor:
        if self.method == "sam" or (bias and self.method == "asam"):
            return torch.ones_like(p)
        return p.abs() + SCALE_CONSTANT

    def _penalty(self, values: Tensor) -> Tensor:
        """tr H, or λ_sup, of each network, (K,), from probes and with graph."""
        gradients = torch.autograd.grad(values.sum(), self.parameters, create_graph=True)
        forms = []
        squares = []
        for _ in range(self.count):
            probe = signs(self.parameters, self.probes)
            image = hessian_vector_product(gradients, self.parameters, probe, graph=True)
            forms.append(_total([z * h for z, h in zip(probe, image, strict=True)]))
            squares.append(_total([h.square() for h in image]))
        if self.method == "trace":
            return torch.stack(forms).mean(0)
        return self._bound(torch.stack(forms, 1), torch.stack(squares, 1))

    def _bound(self, forms: Tensor, squares: Tensor) -> Tensor:
        """λ_sup (K,) from zᵀHz and |Hz|², (K, probes).

        Its gradient divides by a running mean of σ that hardly depends on these probes. μ² cannot
        be had from one probe: σ² is replaced by tr H²/D, which is never smaller.
        """
        dimension = sum(p[0].numel() for p in self.parameters)
        if forms.shape[1] == 1:
            trace = forms[:, 0]
            variance = squares[:, 0] / dimension
        else:
            estimate = combine(forms, squares, dimension)
            trace = estimate.trace
            variance = estimate.variance
        value = variance.detach()
        self.squared = self.memory * self.squared + (1 - self.memory) * value
        self.remembered = self.memory * self.remembered + (1 - self.memory)
        divisor = torch.maximum(self.squared / self.remembered, value).clamp(min=0).sqrt()
        root = variance / (2 * torch.where(divisor > 0, divisor, torch.inf))
        return trace / dimension + math.sqrt(dimension - 1) * root


def _like(values: Tensor, p: Tensor) -> Tensor:
    """(K,) in a shape that multiplies p."""
    return values.view(-1, *[1] * (p.ndim - 1))


def _total(parts: Sequence[Tensor]) -> Tensor:
    """Sum over all entries of each network, (K,)."""
    return torch.stack([part.flatten(1).sum(1) for part in parts]).sum(0)
