"""The activations of the networks: one table, from which settings, builders and tests take their
names.

A maker takes the module torch and returns (σ(z), (g, z, σ(z)) -> g σ'(z)): names cost no torch. A
new activation is one entry of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    Activation = tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]

LEAKY_SLOPE = 0.01


def _leaky_relu(torch: Any) -> Activation:
    backward = torch.ops.aten.leaky_relu_backward.default
    forward = torch.nn.functional.leaky_relu
    return lambda z: forward(z, LEAKY_SLOPE), lambda g, z, a: backward(g, z, LEAKY_SLOPE, False)


ACTIVATIONS: dict[str, Callable[[Any], Activation]] = {
    "relu": lambda t: (t.relu, lambda g, z, a: t.ops.aten.threshold_backward.default(g, a, 0)),
    "leaky_relu": _leaky_relu,
    "softplus": lambda t: (
        t.nn.functional.softplus,
        lambda g, z, a: t.ops.aten.softplus_backward.default(g, z, 1, 20),
    ),
    "silu": lambda t: (
        t.nn.functional.silu,
        lambda g, z, a: t.ops.aten.silu_backward.default(g, z),
    ),
    "gelu": lambda t: (
        t.nn.functional.gelu,
        lambda g, z, a: t.ops.aten.gelu_backward.default(g, z),
    ),
    "tanh": lambda t: (t.tanh, lambda g, z, a: t.ops.aten.tanh_backward.default(g, a)),
    "linear": lambda t: (lambda z: z, lambda g, z, a: g),
}
"""Name -> maker."""

PIECEWISE_LINEAR = ("relu", "leaky_relu")


@cache
def activation(name: str) -> Activation:
    """σ and its vector-Jacobian product. Raises ValueError for an unknown name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation: expected one of {', '.join(ACTIVATIONS)}, found {name!r}")
    import torch

    return ACTIVATIONS[name](torch)
