"""Two-branch networks with a merge (DAG, Example 6 and Exp. 4)."""

from __future__ import annotations

import torch
from torch import nn

from runner.models.blocks import Block, SumMerge
from runner.models.network import INPUT, Network, Stage, default_init

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
    """stem -> branches a0 … a(k-1) and b0 … b(k-1) -> merge -> head; measured at both branches' outputs.

    Stem and branch blocks: σ(LayerNorm(W h + b)); norm=False drops the LayerNorm. merge "sum": (h_A + h_B)/√2; "cat":
    σ(W [h_A, h_B] + b) without LayerNorm. Raises ValueError for sizes below one, an unknown merge or activation.
    """
    if min(branch_depth, width, inputs, outputs) < 1:
        raise ValueError(
            f"diamond: expected sizes of at least 1, found branch_depth {branch_depth}, width {width}, "
            f"inputs {inputs}, outputs {outputs}"
        )
    if merge not in MERGES:
        raise ValueError(f"merge: expected one of {', '.join(MERGES)}, found {merge!r}")
    with default_init(generator):
        stages = [Stage("stem", (INPUT,), Block(inputs, width, activation, norm=norm))]
        for branch in "ab":
            for i in range(branch_depth):
                parent = "stem" if i == 0 else f"{branch}{i - 1}"
                stages.append(Stage(f"{branch}{i}", (parent,), Block(width, width, activation, norm=norm)))
        join: nn.Module = SumMerge() if merge == "sum" else Block(2 * width, width, activation)
        stages.append(Stage("merge", (f"a{branch_depth - 1}", f"b{branch_depth - 1}"), join))
        stages.append(Stage("head", ("merge",), Block(width, outputs, "linear")))
    return Network(stages, [f"{branch}{i}" for branch in "ab" for i in range(branch_depth)])


def graph_distance(branch_depth: int, i: int, j: int) -> int:
    """Distance (k-1-i) + (k-1-j) + 2 of a_i and b_j through the merge, k = branch_depth."""
    return (branch_depth - 1 - i) + (branch_depth - 1 - j) + 2
