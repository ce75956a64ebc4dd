"""Exact inter-layer Hessian blocks H[v,w] = d2 L / de_v de_w of every pair of nodes, by curvature
routing.

`split_blocks` gives the canonical decomposition H = GN + T of each (DAG paper, Theorem 7).

With D_a the product of the Jacobians along path a (the identity for the path of one node) and
C_u;p,q the loss-weighted second derivative of node u,

    H[v,w] = sum_{a: v->out, b: w->out} D_a^T (d2 loss/df_out^2) D_b
             + sum_u sum_{p,q in Pa(u)} sum_{a: v->p, b: w->q} D_a^T C_u;p,q D_b.

This is Theorem 33 of the DAG paper with its sources counted once: the printed Eq. 11 sums the full
blocks H[c,c] of every common descendant c, which contain each other, and so counts the same
curvature again at every c."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from runner.curvature.graphs.checks import checked_evaluation
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.derivatives import Evaluation, evaluate, require_floating
from runner.curvature.graphs.memory import MEMORY_BUDGET, exact_elements, require_room
from runner.curvature.graphs.routing import Blocks, Reach, Router, add_gauss_newton, add_tensor_part
from runner.curvature.graphs.state import differentiable, undisturbed

BlockPart = Literal["total", "gauss_newton", "tensor"]
"""The parts of the blocks; the tensor part is the difference of the other two."""


@dataclass
class Parts:
    """Blocks of the pairs (w, v) with w at or after v; a pair missing from `tensor` is zero."""

    measured: tuple[str, ...]
    tensor: Blocks = field(default_factory=dict)
    gauss_newton: Blocks = field(default_factory=dict)


def exact_blocks(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Iterable[str] | None = None,
    *,
    per_example: bool = False,
    memory_budget: int = MEMORY_BUDGET,
    check: bool = True,
) -> Blocks:
    """H[v,w] for all ordered pairs of `nodes` (default: all but "input"), mean over the batch,
    shape (d_v, d_w).

    x: (B, ...) and y: (B, ...). Blocks have the dtype of the network's outputs (float32 or
    float64). Outputs with several dimensions per example are flattened row by row (see Node).
    H[w,v] is the transposed view of H[v,w]. per_example=True: blocks of each example, (B, d_v,
    d_w). The batch is cut into chunks to stay under memory_budget bytes. Raises ValueError when a
    check finds that the numbers would be wrong (check=False skips them) or when not
    even one example fits in memory. DAG paper, Definition 4, with Eq. 2 corrected (routing.py).

    >>> from runner.curvature import Node
    >>> dag = Dag([Node("h", ("input",), torch.tanh), Node("out", ("h",), torch.tanh)], loss="mse")
    >>> exact_blocks(dag, torch.ones(1, 2), torch.zeros(1, 2))["h", "out"].shape
    torch.Size([2, 2])
    """
    parts = collect(
        dag, x, y, nodes, per_example=per_example, memory_budget=memory_budget, check=check, kept=2
    )
    for pair, block in parts.gauss_newton.items():
        if pair in parts.tensor:
            block += parts.tensor.pop(pair)
    return all_pairs(parts.gauss_newton, parts.measured)


def gauss_newton_blocks(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Iterable[str] | None = None,
    *,
    per_example: bool = False,
    memory_budget: int = MEMORY_BUDGET,
    check: bool = True,
) -> Blocks:
    """GN[v,w] = mean over examples of J_out,v^T (d2 loss/df_out^2) J_out,w (DAG paper, Theorem 7).

    Arguments and shapes as in exact_blocks, and errors: ValueError when a guard finds that the
    numbers would be wrong or memory is short.

    >>> from runner.curvature import Node
    >>> dag = Dag([Node("out", ("input",), torch.square)], loss="mse")
    >>> gauss_newton_blocks(dag, torch.ones(1, 2), torch.zeros(1, 2), ["input"])["input", "input"]
    tensor([[4., 0.],
            [0., 4.]])
    """
    parts = collect(
        dag,
        x,
        y,
        nodes,
        tensor=False,
        per_example=per_example,
        memory_budget=memory_budget,
        check=check,
    )
    return all_pairs(parts.gauss_newton, parts.measured)


@undisturbed
def collect(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Iterable[str] | None,
    *,
    tensor: bool = True,
    per_example: bool = False,
    memory_budget: int = MEMORY_BUDGET,
    check: bool = True,
    kept: int = 3,
) -> Parts:
    """Gauss-Newton and (tensor=True) tensor parts over all chunks of the batch; kept: as in
    exact_elements."""
    x, y = differentiable(x=x, y=y)
    measured = dag.select(nodes)
    evaluation = checked_evaluation(dag, x, y) if check else evaluate(dag, x)
    require_floating(evaluation.values, measured)
    y = dag.loss.targets(evaluation.values[dag.output], y)
    reach = Reach(dag, measured)
    parts = Parts(measured)
    chunk = _chunk(dag, evaluation, reach, memory_budget, per_example, kept if tensor else 1)
    scale = None if per_example else 1 / len(x)
    with torch.no_grad():
        for start in range(0, len(x), chunk):
            part = slice(start, start + chunk)
            known = evaluation
            if chunk != len(x):
                known = evaluate(dag, x[part])
            known.replica_elements = evaluation.replica_elements
            router = Router(dag, known, y[part], reach, second=tensor)
            if tensor:
                add_tensor_part(router, parts.tensor, scale)
            else:
                router.derive_all()
            add_gauss_newton(router, parts.gauss_newton, scale)
    return parts


def _chunk(
    dag: Dag, evaluation: Evaluation, reach: Reach, budget: int, per_example: bool, kept: int
) -> int:
    """Examples at a time; sets the elements that replicated examples of one node may take."""
    sizes = {name: evaluation.size(name) for name in evaluation.values}
    output = evaluation.values[dag.output]
    by_autograd = dag.nodes.keys() - evaluation.structures.keys()
    reserved = 0
    if not by_autograd.isdisjoint(reach.backwards):
        reserved = budget // 4
    itemsize = output.element_size()
    room = (budget - reserved) // itemsize
    least = len(output) if per_example else 1
    need = exact_elements(dag, sizes, reach.measured, per_example, kept)
    if need.fit(room) < least:  # room for a third set, the sums, is not needed
        need = exact_elements(dag, sizes, reach.measured, per_example, min(kept, 2))
    require_room(need, least, itemsize, budget - reserved)
    chunk = min(len(output), need.fit(room))
    evaluation.replica_elements = max(0, budget // itemsize - need.results - chunk * need.each)
    return chunk


def all_pairs(blocks: Blocks, measured: tuple[str, ...]) -> Blocks:
    """Every ordered pair from the pairs (w, v) with w at or after v."""
    paired: Blocks = {}
    for i, v in enumerate(measured):
        for j, w in enumerate(measured):
            paired[v, w] = blocks[v, w] if i >= j else blocks[w, v].mT
    return paired


class SumOfParts(Mapping[tuple[str, str], Tensor]):
    """Blocks of the total, each added up when it is asked for: two sets of blocks are kept, not
    three."""

    def __init__(self, gauss_newton: Blocks, tensor: Blocks) -> None:
        self._gauss_newton = gauss_newton
        self._tensor = tensor

    def __getitem__(self, pair: tuple[str, str]) -> Tensor:
        return self._gauss_newton[pair] + self._tensor[pair]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._gauss_newton)

    def __len__(self) -> int:
        return len(self._gauss_newton)


@dataclass(frozen=True)
class BlockSplit:
    """Blocks by ordered pair (v, w), each (d_v, d_w): total = gauss_newton + tensor (added up at
    every access).

    gauss_newton[v,w] = mean over examples of J_out,v^T (d2 loss/df_out^2) J_out,w; tensor is what
    the Gauss-Newton approximation discards, exactly zero where the network is piecewise linear.
    [w,v] is a transposed view of [v,w]."""

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
    """Exact blocks of all ordered pairs of `nodes` (default: all), split into Gauss-Newton and
    tensor part, in one pass.

    Arguments, shapes and errors as in exact_blocks: ValueError when a guard finds that the numbers
    would be wrong or memory is short. H = GN + T (DAG paper, Theorem 7). A structural zero of the
    tensor part (linear head, piecewise-linear network) is exactly zero, not a difference of two
    rounded blocks.

    >>> from runner.curvature import Node
    >>> dag = Dag([Node("out", ("input",), torch.square)], loss="mse")
    >>> split = split_blocks(dag, torch.ones(1, 1), torch.zeros(1, 1), ["input"])
    >>> [float(part["input", "input"]) for part in (split.total, split.gauss_newton, split.tensor)]
    [12.0, 8.0, 4.0]
    """
    parts = collect(
        dag, x, y, nodes, per_example=per_example, memory_budget=memory_budget, check=check
    )
    for pair in parts.gauss_newton.keys() - parts.tensor.keys():
        parts.tensor[pair] = torch.zeros_like(parts.gauss_newton[pair])
    gauss_newton = all_pairs(parts.gauss_newton, parts.measured)
    bent = all_pairs(parts.tensor, parts.measured)
    return BlockSplit(parts.measured, SumOfParts(gauss_newton, bent), gauss_newton, bent)
