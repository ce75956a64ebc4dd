"""The fully connected, two-branch and attention networks of the DAG paper (Exps. 1 to 5 and
Appendix N.7).

`mlp` and `bottleneck_mlp` (Exps. 1, 1b, 2, 3, 3b): plain, residual, spectral norm, bottleneck.
`diamond` (Example 6 and Exp. 4): two branches with a merge. `attention_regressor` and its ReLU
controls, `positionwise_mlp` as described and `flat_mlp` as used (Exp. 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from runner.models.network import INPUT, Block, Network, Stage, SumMerge, default_init, follow


def mlp(
    *,
    inputs: int = 3072,
    outputs: int = 10,
    depth: int = 8,
    width: int | Sequence[int] = 64,
    activation: str = "relu",
    residual: bool = False,
    norm: bool = True,
    spectral: bool = False,
    generator: torch.Generator | None = None,
) -> Network:
    """Projection (inputs -> width), `depth` blocks "block0" … , linear head "head"; measured at the
    blocks' outputs.

    Plain block: σ(LayerNorm(W h + b)). Residual block: h + α σ(W h + b) with α = depth^-1/2 and no
    LayerNorm, which the projection keeps. norm=False drops every LayerNorm (Exp. 3, 1b);
    spectral=True divides the weights of projection and blocks, not of the head, by their spectral
    norm (Exp. 1b). width: one for all, or that of the projection followed by one per block. Default
    torch initialisation from `generator`.
    Raises ValueError for an unknown activation, or a wrong number of widths.
    """
    widths = [width] * (depth + 1) if isinstance(width, int) else list(width)
    if len(widths) != depth + 1:
        raise ValueError(
            f"mlp: expected {depth + 1} widths (projection and {depth} blocks), found {len(widths)}"
        )
    with default_init(generator):
        stages: list[Stage] = []
        projection = Block(inputs, widths[0], activation, norm=norm, spectral=spectral)
        follow(stages, "projection", projection)
        for i, (a, b) in enumerate(pairwise(widths)):
            skip = depth**-0.5 if residual else None
            normed = norm and not residual
            block = Block(a, b, activation, norm=normed, skip=skip, spectral=spectral)
            follow(stages, f"block{i}", block)
        follow(stages, "head", Block(widths[-1], outputs, "linear"))
    return Network(stages, [f"block{i}" for i in range(depth)])


def bottleneck_mlp(
    *,
    narrow: int,
    width: int = 512,
    depth: int = 6,
    inputs: int = 3072,
    outputs: int = 100,
    activation: str = "relu",
    generator: torch.Generator | None = None,
) -> Network:
    """Plain network whose block number depth//2 has `narrow` outputs, all others `width` (Exp.
    2)."""
    widths = [width] * (depth + 1)
    widths[depth // 2 + 1] = narrow
    return mlp(
        inputs=inputs,
        outputs=outputs,
        depth=depth,
        width=widths,
        activation=activation,
        generator=generator,
    )


MERGES = ("sum", "cat")


def diamond(
    *,
    branch_depth: int = 2,
    merge: str = "sum",
    activation: str = "relu",
    width: int = 32,
    norm: bool = True,
    inputs: int = 3072,
    outputs: int = 10,
    generator: torch.Generator | None = None,
) -> Network:
    """stem -> branches a0 … a(k-1) and b0 … b(k-1) -> merge -> head; measured at both branches'
    outputs.

    Stem and branch blocks: σ(LayerNorm(W h + b)); norm=False drops the LayerNorm. merge "sum": (h_A
    + h_B)/√2; "cat": σ(W [h_A, h_B] + b) without LayerNorm. Raises ValueError for an unknown merge
    or activation.
    """
    if merge not in MERGES:
        raise ValueError(f"merge: expected one of {', '.join(MERGES)}, found {merge!r}")
    with default_init(generator):
        stages = [Stage("stem", (INPUT,), Block(inputs, width, activation, norm=norm))]
        for branch in "ab":
            for i in range(branch_depth):
                parent = "stem" if i == 0 else f"{branch}{i - 1}"
                block = Block(width, width, activation, norm=norm)
                stages.append(Stage(f"{branch}{i}", (parent,), block))
        join: nn.Module = SumMerge() if merge == "sum" else Block(2 * width, width, activation)
        stages.append(Stage("merge", (f"a{branch_depth - 1}", f"b{branch_depth - 1}"), join))
        follow(stages, "head", Block(width, outputs, "linear"))
    return Network(stages, [f"{branch}{i}" for branch in "ab" for i in range(branch_depth)])


def graph_distance(branch_depth: int, i: int, j: int) -> int:
    """Distance (k-1-i) + (k-1-j) + 2 of a_i and b_j through the merge, k = branch_depth."""
    return (branch_depth - 1 - i) + (branch_depth - 1 - j) + 2


class Attend(nn.Module):
    """O = softmax(Q Kᵀ/√d) V over tokens; Q, K, V: (batch, tokens, d). Explicit, so that it has
    second derivatives."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(scores, -1) @ v


class MeanPoolHead(nn.Module):
    """wᵀ mean over tokens + b: (batch, tokens, d) -> (batch, 1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h.mean(-2))


def attention_regressor(*, width: int = 16, generator: torch.Generator | None = None) -> Network:
    """q, k, v (Linear without bias) -> attend -> head; 3 width² + width + 1 parameters; measured at
    q, k, v, attend."""
    with default_init(generator):
        stages = [Stage(name, (INPUT,), nn.Linear(width, width, bias=False)) for name in "qkv"]
        stages.append(Stage("attend", ("q", "k", "v"), Attend()))
        follow(stages, "head", MeanPoolHead(width))
    return Network(stages, ["q", "k", "v", "attend"])


def positionwise_mlp(
    *,
    width: int = 16,
    depth: int = 3,
    activation: str = "relu",
    generator: torch.Generator | None = None,
) -> Network:
    """depth × [Linear, σ] shared by all positions -> mean over positions -> linear; measured at the
    blocks."""
    with default_init(generator):
        stages: list[Stage] = []
        for i in range(depth):
            follow(stages, f"block{i}", Block(width, width, activation))
        follow(stages, "head", MeanPoolHead(width))
    return Network(stages, [f"block{i}" for i in range(depth)])


def flat_mlp(
    *, inputs: int = 128, width: int = 6, depth: int = 3, generator: torch.Generator | None = None
) -> Network:
    """All tokens of a sequence side by side -> depth × [Linear, ReLU] -> linear; measured at the
    blocks."""
    with default_init(generator):
        stages = [Stage("tokens", (INPUT,), nn.Flatten())]
        for i in range(depth):
            follow(stages, f"block{i}", Block(width if i else inputs, width, "relu"))
        follow(stages, "head", Block(width, 1, "linear"))
    return Network(stages, [f"block{i}" for i in range(depth)])
