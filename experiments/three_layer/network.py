"""A three-layer network on its training data."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from runner.closed_form import three_layer as tl
from runner.training.descent.descent import Endpoints, LossGradient, descend, duplicates


@dataclass(frozen=True)
class Network:
    """Training data x (I, M) and q (I,), and what depends on the parameters theta (..., D)."""

    x: Tensor
    q: Tensor
    activation: str = field(kw_only=True)

    @property
    def args(self) -> tuple[Tensor, Tensor, str]:
        """What every closed form takes after theta."""
        return self.x, self.q, self.activation

    @property
    def direction(self) -> LossGradient:
        """Plain gradient descent."""
        return LossGradient(*self.args)

    def descended(self, starts: Tensor, rate: float, steps: int, ratio: float) -> Endpoints:
        """Where gradient descent from starts (S, D) stops: ||∇L|| below its first value times
        `ratio`, or after `steps`."""
        stop = (ratio,)
        return descend(starts, self.direction, rate=rate, max_steps=steps, stop_ratios=stop).final

    def loss(self, theta: Tensor) -> Tensor:
        """L, (...,)."""
        return tl.loss(theta, *self.args)

    def gradient(self, theta: Tensor) -> Tensor:
        """∇L, (..., D)."""
        return tl.gradient(theta, *self.args)

    def gradient_norm(self, theta: Tensor) -> Tensor:
        """||∇L||, (...,)."""
        return self.gradient(theta).norm(dim=-1)

    def hessian(self, theta: Tensor) -> Tensor:
        """H, (..., D, D)."""
        return tl.hessian(theta, *self.args)

    def spectrum(self, theta: Tensor) -> Tensor:
        """Eigenvalues of H, rising, (..., D); entries that are not finite count as numbers."""
        return torch.linalg.eigvalsh(self.hessian(theta).nan_to_num())

    def bound(self, theta: Tensor) -> Tensor:
        """λ_sup, (...,)."""
        return tl.upper_bound(theta, *self.args)

    def curvature(self, theta: Tensor) -> dict[str, Tensor]:
        """L, λ₁, λ_D and λ_sup, (...,) each, by their names in tables."""
        spectrum = self.spectrum(theta)
        return {
            "loss": self.loss(theta),
            "lambda_max": spectrum[..., -1],
            "lambda_min": spectrum[..., 0],
            "lambda_sup": self.bound(theta),
        }

    def f1(self, theta: Tensor, x: Tensor, q: Tensor) -> Tensor:
        """Macro F1 on other data, (...,)."""
        return macro_f1(tl.predict(theta, x, self.activation) > 0.5, q > 0.5)


def distinct(ends: Endpoints) -> Tensor:
    """Indices of the converged ends that repeat no earlier one: the papers' critical points."""
    converged = ends.converged.nonzero()[:, 0]
    return converged[~duplicates(ends.theta[converged])]


def macro_f1(predicted: Tensor, actual: Tensor) -> Tensor:
    """Mean over both classes of F1 = 2 TP / (2 TP + FP + FN), 0 for an empty class; predicted (...,
    I), actual (I,).
    """
    scores = []
    for positive in (True, False):
        named = predicted == positive
        true = actual == positive
        hits = 2.0 * (named & true).sum(-1, dtype=torch.float64)
        total = named.sum(-1) + true.sum(-1)
        scores.append(hits / total.clamp(min=1))
    return (scores[0] + scores[1]) / 2
