"""One step of each method of the contest, for several strengths of the method at once.

Networks that differ in rate and strength alone step side by side: small products of matrices take most of their time
to begin. Trials never mix: every norm and every sum below is over one trial, and one that diverges leaves the others
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from experiments.hsr.flat_training.methods import Settings
from runner.training.flatness.stochastic import combine, hessian_vector_product, signs

SCALE_CONSTANT = 0.01
"""η of adaptive SAM, the default of its authors."""

Losses = Callable[[], Tensor]
"""The loss of every trial, (T,), at the present parameters."""


class Stepper:
    """Steps of one method; keeps what the method remembers from one step to the next.

    trials: settings that differ in rate, radius and weight alone. parameters: weight and bias of every layer in turn, T
    trials in front. price: gradients of the loss that each trial has spent, as `Settings.gradients` counts them.
    Raises ValueError for trials that differ in more.
    """

    def __init__(
        self, trials: Sequence[Settings], parameters: Sequence[Tensor], probes: torch.Generator, memory: float
    ) -> None:
        if len({s.schedule for s in trials}) != 1:
            raise ValueError("expected trials that differ in rate, radius and weight alone")
        self.settings, self.parameters, self.probes, self.memory = trials[0], list(parameters), probes, memory
        self.rate, self.radius, self.weight = (
            self.parameters[0].new_tensor([getattr(s, name) for s in trials]) for name in ("rate", "radius", "weight")
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
                p.sub_(g * _beside(self.rate, p))

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
                p.add_(t * t * g * _beside(length, p))
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
        """tr H, or λ_sup, of the Hessian by the bounded parameters, (T,), from probes and with graph."""
        dimension = sum(p[0].numel() for p in self.bounded)
        gradients = torch.autograd.grad(values.sum(), self.bounded, create_graph=True)
        forms, squares = [], []
        for _ in range(self.settings.probes):  # the same probes for every trial
            drawn = signs([p[:1] for p in self.bounded], self.probes)
            probe = [z.expand_as(p) for z, p in zip(drawn, self.bounded, strict=True)]
            image = hessian_vector_product(gradients, self.bounded, probe, graph=True)
            forms.append(_total([z * h for z, h in zip(probe, image, strict=True)]))
            squares.append(_total([h.square() for h in image]))
        if self.settings.method == "trace":
            return torch.stack(forms).mean(0)
        return self._bound(torch.stack(forms, 1), torch.stack(squares, 1), dimension)

    def _bound(self, forms: Tensor, squares: Tensor, dimension: int) -> Tensor:
        """λ_sup (T,) from zᵀHz and |Hz|², (T, K), whose gradient divides by a σ that hardly depends on these probes."""
        if forms.shape[1] == 1:  # μ² cannot be had from one probe; σ² is replaced by tr H²/D, which is never smaller
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


def _beside(values: Tensor, p: Tensor) -> Tensor:
    """(T,) in a shape that multiplies (T, …)."""
    return values.view(-1, *[1] * (p.ndim - 1))


def _total(parts: Sequence[Tensor]) -> Tensor:
    """Sum over everything but the trial, (T,)."""
    return torch.stack([part.flatten(1).sum(1) for part in parts]).sum(0)
