"""References for the DAG paper: automatic differentiation of the perturbed network, one example at
a time.

Nothing here uses the recursions of the engine: blocks are second derivatives of the loss with
shifts e_v added to the nodes' outputs, total Jacobians are first derivatives of the output with
such shifts, and local derivatives are those of one node's function.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor
from torch.func import grad, jacrev

from experiments.paper_audit.dag.instances import Instance
from experiments.paper_audit.tensors import ones, zeros
from runner.curvature import Dag, Node

Blocks = dict[tuple[str, str], Tensor]
Named = Mapping[str, Tensor]
Jacobian = torch.autograd.functional.jacobian
Hessian = torch.autograd.functional.hessian


@dataclass(frozen=True, eq=False)
class Example:
    """Derivatives of one example of a network.

    jacobian[u, v]: local D_uv of an edge v → u; curvature[u][v, p] = Σ_i δ_u,i T_u;v,p[i]; delta[u]
    = ∂L/∂f_u; total[w, v]: Jacobian of f_w with respect to e_v over all paths (identity for v = w,
    absent without a path); base = ∇²ℓ; value[u]: f_u; blocks[v, w] = ∂²L/∂e_v∂e_w.
    """

    case: Instance
    jacobian: Blocks
    curvature: Mapping[str, Blocks]
    delta: Named
    total: Blocks
    base: Tensor
    value: Named
    blocks: Blocks

    @property
    def dag(self) -> Dag:
        return self.case.dag

    @cached_property
    def gauss_newton(self) -> Blocks:
        """J_out,vᵀ ∇²ℓ J_out,w for all pairs."""
        jacobians = {v: j for (w, v), j in self.total.items() if w == self.dag.output}
        blocks = {}
        for v, w in itertools.product(jacobians, repeat=2):
            blocks[v, w] = jacobians[v].T @ self.base @ jacobians[w]
        return blocks

    @cached_property
    def tensor(self) -> Blocks:
        """H − H^GN."""
        return {pair: self.blocks[pair] - block for pair, block in self.gauss_newton.items()}


@cache
def examples(case: Instance) -> tuple[Example, ...]:
    """Every example of the instance by itself."""
    return tuple(_example(case, b) for b in range(len(case.x)))


def first_example(case: Instance) -> Example:
    return examples(case)[0]


Layer = Callable[[Tensor], Tensor]


def end_block(layers: Iterable[Layer], start: Tensor) -> Tensor:
    """H[vL,v0] of layers one after the other, v0 = start and loss |vL|²/2, from the loss alone."""

    def loss(last: Tensor, first: Tensor) -> Tensor:
        h = start + first
        for layer in layers:
            h = layer(h)
        return (h + last).square().sum() / 2

    zero = torch.zeros_like(start)
    return jacrev(grad(loss), argnums=1)(zero, zero)


def transmitted(layers: Iterable[Layer]) -> float:
    """R(v0,vL) / ‖∇²ℓ‖_F of scalar layers."""
    return float(end_block(layers, ones(1)).norm())


def exact(case: Instance) -> Blocks:
    """Blocks per example, (B, d_v, d_w)."""
    return stacked([e.blocks for e in examples(case)])


def gauss_newton(case: Instance) -> Blocks:
    """Gauss–Newton blocks per example, (B, d_v, d_w)."""
    return stacked([e.gauss_newton for e in examples(case)])


def stacked(parts: list[Blocks]) -> Blocks:
    blocks = {}
    for pair in parts[0]:
        blocks[pair] = torch.stack([part[pair] for part in parts])
    return blocks


def mean(blocks: Blocks) -> Blocks:
    """Batch means of per-example blocks."""
    return {pair: block.mean(0) for pair, block in blocks.items()}


def assembled(blocks: Blocks, order: Sequence[str]) -> Tensor:
    """One matrix of the blocks of the nodes in `order`; of a batch of blocks, one for each."""
    rows = []
    for v in order:
        rows.append(torch.cat([blocks[v, w] for w in order], -1))
    return torch.cat(rows, -2)


def reaches(dag: Dag, v: str, w: str) -> bool:
    """Is there a directed path from v to w (of any length, zero included)?"""
    return v == w or any(reaches(dag, u, w) for u in dag.children[v])


class Flat:
    """Named tensors laid out one after the other in a vector."""

    def __init__(self, tensors: Named) -> None:
        self.shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self.sizes = [tensor.numel() for tensor in tensors.values()]
        self.point = torch.cat([tensor.flatten() for tensor in tensors.values()])

    def vectors(self, flat: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.shapes, flat.split(self.sizes), strict=True))

    def tensors(self, flat: Tensor) -> dict[str, Tensor]:
        return {name: v.view(self.shapes[name]) for name, v in self.vectors(flat).items()}

    def columns(self, matrix: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.shapes, matrix.detach().split(self.sizes, 1), strict=True))

    def blocks(self, matrix: Tensor) -> Blocks:
        blocks = {}
        rows = matrix.split(self.sizes, 0)
        for v, row in zip(self.shapes, rows, strict=True):
            for w, block in self.columns(row).items():
                blocks[v, w] = block
        return blocks


def _example(case: Instance, b: int) -> Example:
    dag = case.dag
    x = case.x[b : b + 1]
    y = case.y[b : b + 1]
    with torch.no_grad():
        value = {name: f.detach() for name, f in dag.forward(x).items()}
    nodes = Flat({v: value[v] for v in dag.order})

    def loss(shifts: Tensor) -> Tensor:
        return dag.mean_loss(x, y, nodes.tensors(shifts))

    def values(shifts: Tensor) -> Tensor:
        outputs = dag.forward(x, nodes.tensors(shifts))
        return torch.cat([outputs[v].flatten() for v in dag.order])

    def loss_of_output(flat: Tensor) -> Tensor:
        return dag.loss.per_example(flat.view_as(value[dag.output]), y).sum()

    zero = zeros(len(nodes.point))
    delta = nodes.vectors(torch.func.grad(loss)(zero).detach())
    total = nodes.blocks(Jacobian(values, zero))
    jacobian: Blocks = {}
    curvature: dict[str, Blocks] = {}
    for u in dag.order:
        local, curvature[u] = _local(dag.nodes[u], value, delta[u])
        jacobian |= {(u, v): d for v, d in local.items()}
    output = value[dag.output].flatten()
    connected = {(w, v): d for (w, v), d in total.items() if reaches(dag, v, w)}
    base = Hessian(loss_of_output, output)
    return Example(
        case=case,
        jacobian=jacobian,
        curvature=curvature,
        delta=delta,
        total=connected,
        base=base.detach(),
        value=value,
        blocks=nodes.blocks(Hessian(loss, zero)),
    )


def _parents(node: Node, value: Named) -> Flat:
    """The values of a node's parents; a repeated parent counts once."""
    return Flat({p: value[p] for p in dict.fromkeys(node.parents)})


def _local(node: Node, value: Named, delta: Tensor) -> tuple[dict[str, Tensor], Blocks]:
    """(D_u,p by parent, Σ_i δ_i T_u;p,q[i] by pair of parents) of one node."""
    parents = _parents(node, value)

    def function(flat: Tensor) -> Tensor:
        arguments = parents.tensors(flat)
        return node(*(arguments[p] for p in node.parents)).flatten()

    first = parents.columns(Jacobian(function, parents.point))
    second = Hessian(lambda flat: delta @ function(flat), parents.point)
    return first, parents.blocks(second)
