"""Single-head self-attention regression and its position-wise ReLU control (DAG, Exp. 5 and Appendix N.7)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runner.models.activations import activation
from runner.models.network import INPUT, Network, Stage, default_init


class Attend(nn.Module):
    """O = softmax(Q Kᵀ/√d) V over tokens; Q, K, V: (batch, tokens, d). Explicit, so that it has second derivatives."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(scores, -1) @ v


class PositionBlock(nn.Module):
    """σ(W h + b), the same at every position."""

    def __init__(self, width: int, activation_name: str) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.act, _ = activation(activation_name)

    def forward(self, h: Tensor) -> Tensor:
        return self.act(self.linear(h))


class MeanPoolHead(nn.Module):
    """wᵀ mean over tokens + b: (batch, tokens, d) -> (batch, 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h.mean(-2))


def attention_regressor(*, width: int = 16, generator: torch.Generator | None = None) -> Network:
    """q, k, v (Linear without bias) -> attend -> head; 3 width² + width + 1 parameters; measured at q, k, v, attend."""
    if width < 1:
        raise ValueError(f"attention: expected a width of at least 1, found {width}")
    with default_init(generator):
        stages = [Stage(name, (INPUT,), nn.Linear(width, width, bias=False)) for name in "qkv"]
        stages.append(Stage("attend", ("q", "k", "v"), Attend()))
        stages.append(Stage("head", ("attend",), MeanPoolHead(width)))
    return Network(stages, ["q", "k", "v", "attend"])


def positionwise_mlp(
    *, width: int = 16, depth: int = 3, activation: str = "relu", generator: torch.Generator | None = None
) -> Network:
    """depth × [Linear, σ] shared by all positions -> mean over positions -> linear; measured at the blocks."""
    if min(width, depth) < 1:
        raise ValueError(f"positionwise_mlp: expected sizes of at least 1, found width {width}, depth {depth}")
    with default_init(generator):
        stages = []
        for i in range(depth):
            parent = INPUT if i == 0 else f"block{i - 1}"
            stages.append(Stage(f"block{i}", (parent,), PositionBlock(width, activation)))
        stages.append(Stage("head", (stages[-1].name,), MeanPoolHead(width)))
    return Network(stages, [f"block{i}" for i in range(depth)])
