"""A three-layer network on its training data."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from runner.curvature.closed_form import three_layer as tl


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
