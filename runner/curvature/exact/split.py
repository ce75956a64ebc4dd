"""The canonical decomposition H = GN + T of every inter-layer block (DAG paper, Theorem 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.exact.blocks import all_pairs, collect
from runner.curvature.exact.routing import Blocks
from runner.curvature.graph.checks import MEMORY_BUDGET
from runner.curvature.graph.dag import Dag


class SumOfParts(Mapping[tuple[str, str], Tensor]):
    """Blocks of the total, each added up when it is asked for: two sets of blocks are kept, not three."""

    def __init__(
        self, nodes: tuple[str, ...], gauss_newton: Blocks, tensor: Blocks, zero: set[tuple[str, str]]
    ) -> None:
        self._place = {v: i for i, v in enumerate(nodes)}
        self._gauss_newton, self._tensor, self._zero = gauss_newton, tensor, zero

    def __getitem__(self, pair: tuple[str, str]) -> Tensor:
        v, w = pair
        if self._place[v] < self._place[w]:
            return self[w, v].mT
        return self._gauss_newton[pair] if pair in self._zero else self._gauss_newton[pair] + self._tensor[pair]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._gauss_newton)

    def __len__(self) -> int:
        return len(self._gauss_newton)


@dataclass(frozen=True)
class BlockSplit:
    """Blocks by ordered pair (v, w), each (d_v, d_w): total = gauss_newton + tensor (added up at every access).

    gauss_newton[v,w] = mean over examples of J_out,v^T (d2 loss/df_out^2) J_out,w; tensor is what the Gauss-Newton
    approximation discards, exactly zero where the network is piecewise linear. [w,v] is a transposed view of [v,w].
    """

    nodes: tuple[str, ...]
    total: Mapping[tuple[str, str], Tensor]
    gauss_newton: Blocks
    tensor: Blocks


def split_blocks(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Iterable[str] | None = None,
    *,
    per_example: bool = False,
    memory_budget: int = MEMORY_BUDGET,
    check: bool = True,
) -> BlockSplit:
    """Exact blocks of all ordered pairs of `nodes` (default: all), split into Gauss-Newton and tensor part, in one
    pass.

    Arguments, shapes and errors as in exact_blocks: ValueError when a guard finds that the numbers would be wrong or
    memory is short. H = GN + T (DAG paper, Theorem 7). A structural zero of the tensor part (linear head,
    piecewise-linear network) is exactly zero, not a difference of two rounded blocks.

    >>> from runner.curvature import Node
    >>> dag = Dag([Node("out", ("input",), torch.square)], loss="mse")
    >>> split = split_blocks(dag, torch.ones(1, 1), torch.zeros(1, 1), ["input"])
    >>> [float(part["input", "input"]) for part in (split.total, split.gauss_newton, split.tensor)]
    [12.0, 8.0, 4.0]
    """
    parts = collect(dag, x, y, nodes, per_example=per_example, memory_budget=memory_budget, check=check)
    zero = parts.gauss_newton.keys() - parts.tensor.keys()
    for pair in zero:
        parts.tensor[pair] = torch.zeros_like(parts.gauss_newton[pair])
    gauss_newton, bent = (all_pairs(blocks, parts.measured) for blocks in (parts.gauss_newton, parts.tensor))
    return BlockSplit(parts.measured, SumOfParts(parts.measured, gauss_newton, bent, zero), gauss_newton, bent)
