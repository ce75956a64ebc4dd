"""The three networks of the scalar-spectrum paper with their data, and references by automatic
differentiation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, dot

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


def autodiff_loss(
    network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor
) -> Callable[[Tensor], Tensor]:
    """½ mean (network(x, *layers) − y)² as a function of the concatenated layers."""
    sizes = [layer.numel() for layer in layers]

    def loss(theta: Tensor) -> Tensor:
        outputs = network(x, *torch.split(theta, sizes))
        return 0.5 * ((outputs - y) ** 2).mean()

    return loss


def autodiff_hessian(network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Dense (D, D) Hessian at the given layers, in their order."""
    loss = autodiff_loss(network, layers, x, y)
    return torch.func.hessian(loss)(torch.cat(list(layers)))


def autodiff_gradient(network: Predictor, layers: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
    """(D,) gradient at the given layers, in their order."""
    loss = autodiff_loss(network, layers, x, y)
    return torch.func.grad(loss)(torch.cat(list(layers)))


@dataclass(frozen=True, eq=False)
class Linear:
    """One linear network with its data; the paper's shorthands as properties, a = σ². Parameters
    ordered (v, w)."""

    network: ClassVar[Predictor] = staticmethod(linear_network)
    w: Tensor
    v: Tensor
    x: Tensor
    y: Tensor

    a = property(lambda c: (c.x**2).mean())
    yx = property(lambda c: (c.y * c.x).mean())
    ww = property(lambda c: dot(c.w, c.w))
    vv = property(lambda c: dot(c.v, c.v))
    wv = property(lambda c: dot(c.w, c.v))

    @property
    def m(self) -> int:
        return len(self.w)

    @property
    def residual(self) -> Tensor:
        return self.wv * self.x - self.y

    @property
    def d(self) -> Tensor:
        """mean xδ."""
        return (self.x * self.residual).mean()

    @property
    def loss(self) -> Tensor:
        return 0.5 * (self.residual**2).mean()

    @property
    def layers(self) -> list[Tensor]:
        return [self.v, self.w]

    @cached_property
    def gradient(self) -> Tensor:
        return autodiff_gradient(self.network, self.layers, self.x, self.y)

    @cached_property
    def hessian(self) -> Tensor:
        return autodiff_hessian(self.network, self.layers, self.x, self.y)

    @cached_property
    def eigenvalues(self) -> Tensor:
        """Ascending, from the automatic Hessian."""
        return torch.linalg.eigvalsh(self.hessian)

    def __str__(self) -> str:
        entries = numbers(w=self.w, v=self.v, x=self.x, y=self.y)
        return f"m={self.m}, n={len(self.x)}, {entries}"


class Relu(Linear):
    """One ReLU network with its data."""

    network = staticmethod(relu_network)

    def cell(self, sign: int) -> tuple[Linear, Tensor]:
        """(linear network of the cell, share of the samples n±/n); neurons with v_j = 0 belong to
        −."""
        neurons = self.v > 0
        samples = self.x > 0
        if sign < 0:
            neurons = ~neurons
            samples = ~samples
        cell = Linear(self.w[neurons], self.v[neurons], self.x[samples], self.y[samples])
        return cell, samples.double().mean()


@dataclass(frozen=True, eq=False)
class Bias(Linear):
    """One linear network with bias and its data. Parameters ordered (w, v, b)."""

    network: ClassVar[Predictor] = staticmethod(bias_network)
    b: Tensor

    bb = property(lambda c: dot(c.b, c.b))
    wb = property(lambda c: dot(c.w, c.b))
    vb = property(lambda c: dot(c.v, c.b))
    dx = property(lambda c: c.d)

    @property
    def residual(self) -> Tensor:
        return self.wv * self.x + self.wb - self.y

    @property
    def d0(self) -> Tensor:
        """mean δ."""
        return self.residual.mean()

    @property
    def r2(self) -> Tensor:
        """r² = (mean xδ)² + (mean δ)²."""
        return self.dx**2 + self.d0**2

    @property
    def s(self) -> Tensor:
        """‖v‖² + ‖w‖²."""
        return self.vv + self.ww

    @property
    def layers(self) -> list[Tensor]:
        return [self.w, self.v, self.b]

    def __str__(self) -> str:
        entries = numbers(w=self.w, v=self.v, b=self.b, x=self.x, y=self.y)
        return f"m={self.m}, n={len(self.x)}, {entries}"


def numbers(**vectors: Tensor) -> str:
    """Vectors of up to three entries with four digits; longer ones are left to their seed."""
    shown = []
    for name, entries in vectors.items():
        if len(entries) <= 3:
            digits = ", ".join(f"{entry:.4g}" for entry in entries.tolist())
            shown.append(f"{name}=({digits})")
    return ", ".join(shown)
