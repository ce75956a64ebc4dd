"""The activations of the networks: one table, from which settings, builders and tests take their names.

A maker returns (σ(z), (g, z, σ(z)) -> g σ'(z)); it loads torch only when it is called, so names cost nothing. A new
activation is one maker and one line of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    Activation = tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor, Tensor], Tensor]]

LEAKY_SLOPE = 0.01


def _relu() -> Activation:
    import torch

    return torch.relu, lambda g, z, a: torch.ops.aten.threshold_backward.default(g, a, 0)


def _leaky_relu() -> Activation:
    import torch
    from torch.nn import functional as F

    backward = torch.ops.aten.leaky_relu_backward.default
    return lambda z: F.leaky_relu(z, LEAKY_SLOPE), lambda g, z, a: backward(g, z, LEAKY_SLOPE, False)


def _softplus() -> Activation:
    import torch
    from torch.nn import functional as F

    return F.softplus, lambda g, z, a: torch.ops.aten.softplus_backward.default(g, z, 1, 20)


def _silu() -> Activation:
    import torch
    from torch.nn import functional as F

    return F.silu, lambda g, z, a: torch.ops.aten.silu_backward.default(g, z)


def _gelu() -> Activation:
    import torch
    from torch.nn import functional as F

    return F.gelu, lambda g, z, a: torch.ops.aten.gelu_backward.default(g, z)


def _tanh() -> Activation:
    import torch

    return torch.tanh, lambda g, z, a: torch.ops.aten.tanh_backward.default(g, a)


def _linear() -> Activation:
    return lambda z: z, lambda g, z, a: g


ACTIVATIONS: dict[str, Callable[[], Activation]] = {
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "softplus": _softplus,
    "silu": _silu,
    "gelu": _gelu,
    "tanh": _tanh,
    "linear": _linear,
}
"""Name -> maker."""

PIECEWISE_LINEAR = ("relu", "leaky_relu")


@cache
def activation(name: str) -> Activation:
    """σ and its vector-Jacobian product. Raises ValueError for an unknown name."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation: expected one of {', '.join(ACTIVATIONS)}, found {name!r}")
    return ACTIVATIONS[name]()
