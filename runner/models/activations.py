"""The activations of the networks: one list of names, from which settings, builders and tests take them, and one table.

Names cost no torch. A new activation is a name and an entry of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    Activation = tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]

LEAKY_SLOPE = 0.01
ACTIVATIONS = ("relu", "leaky_relu", "softplus", "silu", "gelu", "tanh", "linear")
PIECEWISE_LINEAR = ("relu", "leaky_relu")


@cache
def activation(name: str) -> Activation:
    """σ(z), and its vector-Jacobian product (g, z, σ(z)) -> g σ'(z). Raises ValueError for an unknown name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation: expected one of {', '.join(ACTIVATIONS)}, found {name!r}")
    import torch
    from torch.nn import functional as F

    aten = torch.ops.aten
    leaky_backward = aten.leaky_relu_backward.default
    table: dict[str, Activation] = {
        "relu": (torch.relu, lambda g, z, a: aten.threshold_backward.default(g, a, 0)),
        "leaky_relu": (
            lambda z: F.leaky_relu(z, LEAKY_SLOPE),
            lambda g, z, a: leaky_backward(g, z, LEAKY_SLOPE, False),
        ),
        "softplus": (F.softplus, lambda g, z, a: aten.softplus_backward.default(g, z, 1, 20)),
        "silu": (F.silu, lambda g, z, a: aten.silu_backward.default(g, z)),
        "gelu": (F.gelu, lambda g, z, a: aten.gelu_backward.default(g, z)),
        "tanh": (torch.tanh, lambda g, z, a: aten.tanh_backward.default(g, a)),
        "linear": (lambda z: z, lambda g, z, a: g),
    }
    return table[name]
