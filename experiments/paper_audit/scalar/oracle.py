"""Float64 automatic differentiation and random instances of one-hidden-layer scalar networks: the reference side.

Nothing here uses the closed forms: a loss is written down, `torch.func.hessian` differentiates it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Predictor = Callable[..., Tensor]


def linear_network(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """⟨w, v⟩ x, (n,)."""
    return torch.dot(w, v) * x


def relu_network(x: Tensor, v: Tensor, w: Tensor) -> Tensor:
    """wᵀ(v x)₊, (n,)."""
    return torch.relu(torch.outer(x, v)) @ w


def bias_network(x: Tensor, w: Tensor, v: Tensor, b: Tensor) -> Tensor:
    """wᵀ(v x + b), (n,)."""
    return (torch.outer(x, v) + b) @ w


def multi_input_network(x: Tensor, w: Tensor, *columns: Tensor) -> Tensor:
    """wᵀ A x with A = [columns], x (n, d)."""
    return x @ (torch.stack(columns, dim=1).T @ w)


def autodiff_loss(network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
    """½ mean (network(x, *layers) − y)² as a function of the concatenated layers."""
    sizes = [layer.numel() for layer in layers]

    def loss(theta: Tensor) -> Tensor:
        return 0.5 * ((network(x, *torch.split(theta, sizes)) - y) ** 2).mean()

    return loss


def autodiff_hessian(network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Dense (D, D) Hessian at the given layers, in their order."""
    return torch.func.hessian(autodiff_loss(network, layers, x, y))(torch.cat(list(layers)))


def autodiff_gradient(network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """(D,) gradient at the given layers, in their order."""
    return torch.func.grad(autodiff_loss(network, layers, x, y))(torch.cat(list(layers)))


def random_instance(seed: int, m: int, n: int, layers: int = 2) -> tuple[list[Tensor], Tensor, Tensor]:
    """(layers of shape (m,), x (n,), y (n,)), standard normal in float64; x has a mean and a variance of its own."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(m, generator=generator, dtype=torch.float64) for _ in range(layers)]
    x = 1.3 * torch.randn(n, generator=generator, dtype=torch.float64) + 0.4
    y = 2.0 * torch.randn(n, generator=generator, dtype=torch.float64) - 0.3
    return weights, x, y
