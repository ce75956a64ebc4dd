"""Fully connected networks of the DAG paper (Exp. 1, 1b, 2, 3, 3b): plain, residual, spectral norm, bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from runner.models.blocks import Block
from runner.models.network import INPUT, Network, Stage, default_init


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
    """Projection (inputs -> width), `depth` blocks "block0" … , linear head "head"; measured at the blocks' outputs.

    Plain block: σ(LayerNorm(W h + b)). Residual block: h + α σ(W h + b) with α = depth^-1/2 and no LayerNorm, which
    the projection keeps. norm=False drops every LayerNorm (Exp. 3, 1b); spectral=True divides the weights of
    projection and blocks, not of the head, by their spectral norm (Exp. 1b). width: one for all, or that of the
    projection followed by one per block. Default torch initialisation from `generator`.
    Raises ValueError for sizes below one, an unknown activation, or a wrong number of widths.
    """
    widths = [width] * (depth + 1) if isinstance(width, int) else list(width)
    if depth < 1 or min(inputs, outputs, *widths) < 1:
        raise ValueError(f"mlp: expected depth and widths of at least 1, found depth {depth}, widths {widths}")
    if len(widths) != depth + 1:
        raise ValueError(f"mlp: expected {depth + 1} widths (projection and {depth} blocks), found {len(widths)}")
    with default_init(generator):
        stages = [Stage("projection", (INPUT,), Block(inputs, widths[0], activation, norm=norm, spectral=spectral))]
        for i, (a, b) in enumerate(pairwise(widths)):
            block = Block(
                a,
                b,
                activation,
                norm=norm and not residual,
                skip=depth**-0.5 if residual else None,
                spectral=spectral,
            )
            stages.append(Stage(f"block{i}", (stages[-1].name,), block))
        stages.append(Stage("head", (stages[-1].name,), Block(widths[-1], outputs, "linear")))
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
    """Plain network whose block number depth//2 has `narrow` outputs, all others `width` (Exp. 2)."""
    widths = [width] * (depth + 1)
    widths[depth // 2 + 1] = narrow
    return mlp(inputs=inputs, outputs=outputs, depth=depth, width=widths, activation=activation, generator=generator)
