"""Exact inter-layer Hessian blocks H[v,w] = d2 L / de_v de_w of every pair of nodes, by curvature routing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from runner.curvature.exact.derivatives import Evaluation, evaluate, not_differentiable
from runner.curvature.exact.routing import Blocks, Emit, Reach, Router, emit_gauss_newton, emit_tensor_part
from runner.curvature.graph.checks import MEMORY_BUDGET, check_before_measuring, exact_elements, plan_chunk
from runner.curvature.graph.dag import Dag
from runner.curvature.graph.state import differentiable_copy, measuring, require_tensors


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
    """H[v,w] for all ordered pairs of `nodes` (default: all but "input"), mean over the batch, shape (d_v, d_w).

    x: (B, ...) and y: (B, ...). Blocks have the dtype of the network's outputs (float32 or float64). Outputs with
    several dimensions per example are flattened row by row (see Node). H[w,v] is the transposed view of H[v,w].
    per_example=True: blocks of each example, (B, d_v, d_w). The batch is cut into chunks to stay under memory_budget
    bytes. Raises ValueError when a guard of checks.py finds that the numbers would be wrong (check=False skips them)
    or when not even one example fits in memory. DAG paper, Definition 4, with Eq. 2 corrected (routing.py).

    >>> from runner.curvature import Node
    >>> dag = Dag([Node("h", ("input",), torch.tanh), Node("out", ("h",), torch.tanh)], loss="mse")
    >>> exact_blocks(dag, torch.ones(1, 2), torch.zeros(1, 2))["h", "out"].shape
    torch.Size([2, 2])
    """
    parts = collect(dag, x, y, nodes, per_example=per_example, memory_budget=memory_budget, check=check, kept=2)
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

    Arguments and shapes as in exact_blocks, and errors: ValueError when a guard finds that the numbers would be wrong
    or memory is short.

    >>> from runner.curvature import Node
    >>> dag = Dag([Node("out", ("input",), torch.square)], loss="mse")
    >>> gauss_newton_blocks(dag, torch.ones(1, 2), torch.zeros(1, 2), ["input"])["input", "input"]
    tensor([[4., 0.],
            [0., 4.]])
    """
    parts = collect(dag, x, y, nodes, tensor=False, per_example=per_example, memory_budget=memory_budget, check=check)
    return all_pairs(parts.gauss_newton, parts.measured)


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
    """Gauss-Newton and (tensor=True) tensor parts over all chunks of the batch; kept: as in exact_elements."""
    with measuring(dag):
        require_tensors(x=x, y=y)
        x, y = differentiable_copy(x), differentiable_copy(y)
        plan = _Plan(memory_budget, per_example, kept if tensor else 1)
        return _collect(dag, x, y, dag.select(nodes), tensor, plan, check)


@dataclass(frozen=True)
class _Plan:
    """Bytes that may be used, and what for."""

    budget: int
    per_example: bool
    kept: int

    def chunk(self, dag: Dag, evaluation: Evaluation, measured: tuple[str, ...], needed: Iterable[str]) -> int:
        """Examples at a time; sets the elements that replicated examples of one node may take."""
        sizes = {name: evaluation.size(name) for name in evaluation.values}
        count = len(evaluation.values[dag.output])
        itemsize = evaluation.values[dag.output].element_size()
        differentiated = [v for v in needed if v in dag.nodes and v not in evaluation.structures]
        reserved = self.budget // 4 if differentiated else 0
        plan = dag, sizes, measured, count, itemsize, self.budget, self.per_example
        kept = self.kept
        try:
            chunk = plan_chunk(*plan, kept, reserved)
        except ValueError:  # what is kept at the least: room for a third set, the sums, is only set aside
            kept = min(kept, 2)
            chunk = plan_chunk(*plan, kept, reserved)
        working, result = exact_elements(dag, sizes, measured, self.per_example, kept)
        evaluation.replica_elements = max(0, self.budget // itemsize - result - chunk * working)
        return chunk


def _collect(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    measured: tuple[str, ...],
    tensor: bool,
    plan: _Plan,
    check: bool,
) -> Parts:
    evaluation = check_before_measuring(dag, x, y) if check else evaluate(dag, x)
    for name in measured:
        if not evaluation.values[name].is_floating_point():
            raise not_differentiable(name, evaluation.values[name])
    y = dag.loss.targets(evaluation.values[dag.output], y)
    reach, parts = Reach(dag, measured), Parts(measured)
    chunk = plan.chunk(dag, evaluation, measured, reach.backwards)
    scale = None if plan.per_example else 1 / len(x)
    with torch.no_grad():
        for start in range(0, len(x), chunk):
            part = slice(start, start + chunk)
            known = evaluation if chunk == len(x) else evaluate(dag, x[part])
            known.replica_elements = evaluation.replica_elements
            router = Router(dag, known, y[part], reach, second=tensor)
            if tensor:
                emit_tensor_part(router, _adder(parts.tensor), scale)
            else:
                router.derive_all()
            emit_gauss_newton(router, _adder(parts.gauss_newton), scale)
    return parts


def all_pairs(blocks: Blocks, measured: tuple[str, ...]) -> Blocks:
    """Every ordered pair from the pairs (w, v) with w at or after v."""
    paired: Blocks = {}
    for i, v in enumerate(measured):
        for j, w in enumerate(measured):
            paired[v, w] = blocks[v, w] if i >= j else blocks[w, v].mT
    return paired


def _adder(blocks: Blocks) -> Emit:
    def add(w: str, v: str, block: Tensor) -> None:
        if (w, v) in blocks:
            blocks[w, v] += block
        else:
            blocks[w, v] = block

    return add
