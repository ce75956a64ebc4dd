"""The methods of the contest, what each may tune, and one step of each.

Every method searches the same number of settings, drawn once from its own space by a stream that knows no seed: the
learning rate for all, and what else the method has. "asam" scales the perturbation by the size of each weight and
leaves biases alone; "asam_all" scales biases, too: the two readings of the operator that the paper does not print
(HSR, Section VI). "hsr_cheap" spares products: the bound on every k-th step only (weighted k times), of the last
layers only, or in the first part of the training only, as in the paper's own protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.hsr.flat_training.names import METHODS
from runner.contract.seeding import torch_generator
from runner.training.flatness.stochastic import combine, hessian_vector_product, sharpness_aware_gradients, signs

RATES = (0.03, 2.0)
RADII = {"sam": (0.03, 3.0), "asam": (0.03, 3.0), "asam_all": (0.03, 3.0)}
WEIGHTS = {"trace": (1e-5, 1e-2), "hsr": (1e-3, 1e-1), "hsr_cheap": (1e-3, 1e-1)}
PROBES = (1, 2, 4, 8)
INTERVALS = (2, 4, 8, 16)
LAYERS = (0, 2)
"""Linear layers at the end whose Hessian is bounded; 0: all."""
PARTS = (0.5, 1.0)
"""Share of the training in which the bound acts, from its beginning."""
SCALE_CONSTANT = 0.01
"""η of adaptive SAM, the default of its authors."""


@dataclass(frozen=True)
class Settings:
    """What a run of a method is: rate and, where it has them, radius ρ, weight γ, probes, interval, layers, part."""

    method: str
    rate: float
    radius: float = 0.0
    weight: float = 0.0
    probes: int = 0
    interval: int = 1
    layers: int = 0
    part: float = 1.0

    def gradients(self, regularised: bool) -> int:
        """Price of a step in gradients of the loss: a product with a graph that is differentiated again counts four."""
        if self.method in RADII:
            return 2
        return 2 + 4 * self.probes if self.probes and regularised else 1

    @property
    def mean_price(self) -> float:
        """Gradients per step, averaged over a training."""
        share = self.part / self.interval
        return share * self.gradients(True) + (1 - share) * self.gradients(False)


def trial(method: str, number: int) -> Settings:
    """Settings number `number` of a method: the same for every seed. Raises ValueError for an unknown method."""
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, found {method!r}")
    u = torch.rand(6, dtype=torch.float64, generator=torch_generator(0, f"trial/{method}/{number}")).tolist()
    rate = _log_uniform(RATES, u[0])
    if method in RADII:
        return Settings(method, rate, radius=_log_uniform(RADII[method], u[1]))
    if method not in WEIGHTS:
        return Settings(method, rate)
    weight, probes = _log_uniform(WEIGHTS[method], u[1]), _pick(PROBES, u[2])
    if method != "hsr_cheap":
        return Settings(method, rate, weight=weight, probes=probes)
    spared = {"interval": _pick(INTERVALS, u[3]), "layers": _pick(LAYERS, u[4]), "part": _pick(PARTS, u[5])}
    return Settings(method, rate, weight=weight, probes=probes, **spared)


def _log_uniform(bounds: tuple[float, float], u: float) -> float:
    low, high = map(math.log, bounds)
    return float(f"{math.exp(low + u * (high - low)):.3g}")


def _pick(values: Sequence[Any], u: float) -> Any:
    return values[int(u * len(values))]


class Stepper:
    """Gradients of a method, step by step; keeps what the method remembers from one step to the next."""

    def __init__(self, settings: Settings, model: torch.nn.Sequential, probes: torch.Generator, memory: float) -> None:
        self.settings, self.model, self.probes, self.memory = settings, model, probes, memory
        self.parameters = list(model.parameters())
        linear = [m for m in model if isinstance(m, torch.nn.Linear)]
        kept = linear[-settings.layers :] if settings.layers else linear
        self.bounded = [p for m in kept for p in m.parameters()]
        self.biases = {id(m.bias) for m in linear}
        self.squared, self.weight = 0.0, 0.0
        self.number = 0
        self.price = 0

    def gradients(self, loss: Callable[[], Tensor], progress: float) -> Sequence[Tensor]:
        """What the parameters move against; progress: share of the training that is done."""
        s = self.settings
        acts = s.probes > 0 and self.number % s.interval == 0 and progress < s.part
        self.number += 1
        self.price += s.gradients(acts)
        if s.method == "sam":
            return sharpness_aware_gradients(loss, self.parameters, s.radius)
        if s.method in ("asam", "asam_all"):
            return self._adaptive(loss)
        value = loss()
        total = value + s.interval * s.weight * self._penalty(value) if acts else value
        return torch.autograd.grad(total, self.parameters)

    def _adaptive(self, loss: Callable[[], Tensor]) -> Sequence[Tensor]:
        """∇L at θ + ρ T² ∇L/‖T ∇L‖, T = |θ| + η (adaptive SAM), or 1 for biases that are left alone."""
        gradients = torch.autograd.grad(loss(), self.parameters)
        before = [p.detach().clone() for p in self.parameters]
        scales = [
            torch.ones_like(p) if id(p) in self.biases and self.settings.method == "asam" else p.abs() + SCALE_CONSTANT
            for p in before
        ]
        norm = torch.stack([(t * g).square().sum() for t, g in zip(scales, gradients, strict=True)]).sum().sqrt()
        with torch.no_grad():
            for p, t, g in zip(self.parameters, scales, gradients, strict=True):
                p.add_(t * t * g * (self.settings.radius / (norm + (norm == 0))))
        found = torch.autograd.grad(loss(), self.parameters)
        with torch.no_grad():
            for p, value in zip(self.parameters, before, strict=True):
                p.copy_(value)
        return found

    def _penalty(self, value: Tensor) -> Tensor:
        """tr H, or λ_sup, of the Hessian by the bounded parameters, from probes and with graph."""
        dimension = sum(p.numel() for p in self.bounded)
        gradients = torch.autograd.grad(value, self.bounded, create_graph=True)
        forms, squares = [], []
        for _ in range(self.settings.probes):
            probe = signs(self.bounded, self.probes)
            image = hessian_vector_product(gradients, self.bounded, probe, graph=True)
            forms.append(torch.stack([(z * h).sum() for z, h in zip(probe, image, strict=True)]).sum())
            squares.append(torch.stack([h.square().sum() for h in image]).sum())
        if self.settings.method == "trace":
            return torch.stack(forms).mean()
        return self._bound(torch.stack(forms), torch.stack(squares), dimension)

    def _bound(self, forms: Tensor, squares: Tensor, dimension: int) -> Tensor:
        if len(forms) == 1:  # μ² cannot be had from one probe; σ² is replaced by tr H²/D, which is never smaller
            variance = squares[0] / dimension
            spread = self._spread(float(variance.detach()))
            root = variance / (2 * max(spread, float(variance.detach()) ** 0.5, 1e-30))
            return forms[0] / dimension + math.sqrt(dimension - 1) * root
        found = combine(forms, squares, dimension, self._spread(None))
        self._spread(float(found.variance.detach()))
        return found.bound

    def _spread(self, variance: float | None) -> float:
        """Running mean of σ̂² over steps, as σ: a divisor that hardly depends on a step's own probes."""
        if variance is not None:
            self.squared = self.memory * self.squared + (1 - self.memory) * variance
            self.weight = self.memory * self.weight + (1 - self.memory)
        mean = self.squared / self.weight if self.weight else 0.0
        return math.sqrt(mean) if mean > 0 else 0.0


def columns(settings: Settings) -> Mapping[str, Any]:
    """The settings as columns of a table."""
    names = ("rate", "radius", "weight", "probes", "interval", "layers", "part")
    return {("share" if name == "part" else name): getattr(settings, name) for name in names}
