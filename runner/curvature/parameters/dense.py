"""Blocks of the Hessian with respect to the parameters of nodes, from the inter-layer blocks (DAG paper, Eq. 5 and
F.1).

With D_v = df_v/dtheta_v, M_v,p = sum_i delta_v,i d2 f_v,i / df_p dtheta_v and J_pw = df_p/de_w, per example,

    H[theta_v, theta_w] = D_v^T H[v,w] D_w + (v = w) sum_i delta_v,i d2 f_v,i/dtheta_v^2
                          + sum_{p in Pa(v)} M_v,p^T J_pw D_w + sum_{p in Pa(w)} D_v^T J_pv^T M_w,p.

The mixed terms reach every ancestor w of a parent of v, not its parents alone as printed, and come in two transposed
parts. A weight shared by several nodes has the sum of the blocks of its copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from runner.curvature.exact.blocks import exact_blocks
from runner.curvature.exact.checks import MEMORY_BUDGET
from runner.curvature.exact.derivatives import evaluate, second_derivatives
from runner.curvature.exact.routing import Blocks, Reach, Router
from runner.curvature.graph.dag import Dag, Node
from runner.curvature.graph.state import undisturbed
from runner.curvature.graph.tensors import slices_of
from runner.curvature.parameters.model import call_with


@dataclass(frozen=True)
class ParametricTerms:
    """The terms of one block, (P_v, P_w) each, means over the batch; their sum is the block.

    routed: D_v^T H[v,w] D_w; own: the node's second derivative in its parameters (v = w); below: M_v^T J D_w, where w
    is an ancestor of v; above: its counterpart where v is an ancestor of w.
    """

    routed: Tensor
    own: Tensor
    below: Tensor
    above: Tensor

    @property
    def total(self) -> Tensor:
        return self.routed + self.own + self.below + self.above


@dataclass(frozen=True)
class NodeParameters:
    """Per example: d (B, d_v, P_v), mixed[p] (B, d_p, P_v); mean over the batch: own (P_v, P_v)."""

    d: Tensor
    mixed: dict[str, Tensor]
    own: Tensor


@undisturbed
def parametric_terms(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Iterable[str] | None = None,
    *,
    memory_budget: int = MEMORY_BUDGET,
    check: bool = True,
) -> dict[tuple[str, str], ParametricTerms]:
    """Terms of H[theta_v, theta_w] for all ordered pairs of nodes that have parameters (or of `nodes`).

    theta_v: the node's parameters in the order of Node.parameters, each flattened row by row. Copies of a shared weight
    count as different parameters here (see parameter_hessian). Costs one backward pass per parameter of each node.
    Raises ValueError as exact_blocks does, and for nodes without parameters.
    """
    names = _with_parameters(dag, nodes)
    blocks = exact_blocks(dag, x, y, names, per_example=True, memory_budget=memory_budget, check=check)
    with torch.no_grad():
        router = Router(dag, evaluate(dag, x), y, Reach(dag, dag.order))
        router.derive_all()
    local = {v: node_parameters(dag.nodes[v], router) for v in names}
    found = {}
    for v in names:
        for w in names:
            below = _mixed(local, router, v, w)
            found[v, w] = ParametricTerms(
                routed=torch.einsum("bvi,bvw,bwj->ij", local[v].d, blocks[v, w], local[w].d) / len(x),
                own=local[v].own if v == w else torch.zeros_like(below),
                below=below,
                above=_mixed(local, router, w, v).mT,
            )
    return found


def parametric_blocks(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: Iterable[str] | None = None,
    *,
    memory_budget: int = MEMORY_BUDGET,
    check: bool = True,
) -> Blocks:
    """H[theta_v, theta_w] for all ordered pairs of nodes with parameters, (P_v, P_w); arguments as in
    parametric_terms."""
    terms = parametric_terms(dag, x, y, nodes, memory_budget=memory_budget, check=check)
    return {pair: term.total for pair, term in terms.items()}


@dataclass(frozen=True)
class ParameterHessian:
    """matrix: the full Hessian over the distinct parameters; spans[name]: rows of each; name is "node.parameter" of its
    first use, so that a shared weight appears once."""

    matrix: Tensor
    spans: dict[str, slice]


def parameter_hessian(
    dag: Dag, x: Tensor, y: Tensor, *, memory_budget: int = MEMORY_BUDGET, check: bool = True
) -> ParameterHessian:
    """The Hessian of the mean loss in all parameters of the nodes, (P, P): d2 L / d theta d theta'.

    Blocks of the copies of a shared weight are added up (DAG paper, Remark 49), so that each parameter has one span of
    rows. Exact, from curvature routing and one backward pass per parameter; ParameterOperator takes an unmodified
    module and needs no matrix. Raises ValueError as exact_blocks does, and where no node has parameters.
    """
    names = _with_parameters(dag, None)
    blocks = parametric_blocks(dag, x, y, names, memory_budget=memory_budget, check=check)
    matrix = next(iter(blocks.values()))
    parameters = {v: dag.nodes[v].parameters() for v in names}
    first: dict[int, tuple[str, int]] = {}  # name and size of each parameter, shared ones under their first name
    for v, own in parameters.items():
        for key, p in own.items():
            first.setdefault(id(p), (f"{v}.{key}", p.numel()))
    spans = slices_of(dict(first.values()))
    index = torch.arange(sum(size for _, size in first.values()), device=matrix.device)
    places = {v: torch.cat([index[spans[first[id(p)][0]]] for p in own.values()]) for v, own in parameters.items()}
    matrix = matrix.new_zeros(len(index), len(index))
    for (v, w), block in blocks.items():
        matrix.index_put_((places[v][:, None], places[w][None, :]), block, accumulate=True)
    return ParameterHessian(matrix, spans)


def _with_parameters(dag: Dag, nodes: Iterable[str] | None) -> list[str]:
    names = [v for v in dag.select(nodes) if v in dag.nodes]
    having = [v for v in names if dag.nodes[v].parameters()]
    if nodes is not None and having != names:
        raise ValueError(
            f"nodes {[v for v in names if v not in having]} have no parameters: state them with Node(..., params=...) "
            "or make the node an nn.Module"
        )
    if not having:
        raise ValueError("no node has parameters: state them with Node(..., params=...) or make the nodes nn.Modules")
    return having


def node_parameters(node: Node, router: Router) -> NodeParameters:
    """All three derivatives from one loop over the components of theta, each pass for all examples.

    s = sum_b u_b . f_b(theta) at u = delta has ds/dtheta_k = sum_b (D_b^T u_b)_k, whose derivatives with respect to
    u, the parents and theta are column k of D, of M, and of the sum of the own terms. Plain automatic differentiation
    on purpose: mapping over examples with torch.func.vmap gives a wrong second derivative of layer_norm (torch 2.13).
    """
    parameters = {key: p.detach().requires_grad_() for key, p in node.parameters().items()}
    names = dict.fromkeys(node.parents)
    with torch.enable_grad():
        values = {p: router.evaluation.values[p].detach() for p in names}
        values = {p: t.requires_grad_() for p, t in values.items() if t.is_floating_point()}
        u = router.delta(node.name).detach().requires_grad_()
        arguments = tuple(values[p].clone() if p in values else router.evaluation.values[p] for p in node.parents)
        if isinstance(node.fn, nn.Module):
            output = call_with(node.fn, parameters, arguments)
        else:
            output = node.fn(*arguments, **parameters)
        # A parameter that the node does not use has gradient zero, kept differentiable for the loop below.
        s = (output.flatten(1) * u).sum() + sum((0 * p).sum() for p in parameters.values())
        grads = torch.autograd.grad(s, list(parameters.values()), create_graph=True)
        by_theta = torch.cat([(g + 0 * u.sum()).flatten() for g in grads])
    wrt = [u, *values.values(), *parameters.values()]
    columns: list[tuple[Tensor, ...]] = []
    with second_derivatives(f"node {node.name!r}"):
        for component in by_theta:
            columns.append(torch.autograd.grad(component, wrt, retain_graph=True, materialize_grads=True))
    stacked = [torch.stack(pieces) for pieces in zip(*columns, strict=True)]
    d = stacked[0].permute(1, 2, 0)
    mixed = {p: m.flatten(2).permute(1, 2, 0) for p, m in zip(values, stacked[1:], strict=False)}
    own = torch.cat([m.flatten(1) for m in stacked[1 + len(values) :]], 1) / len(u)
    return NodeParameters(d, mixed, own)


def _mixed(local: dict[str, NodeParameters], router: Router, v: str, w: str) -> Tensor:
    """Mean over the batch of sum_{p in Pa(v)} M_v,p^T J_pw D_w, (P_v, P_w)."""
    m, d = local[v].mixed, local[w].d
    total = d.new_zeros(local[v].d.shape[2], d.shape[2])
    for p, mixed in m.items():
        if p == w:
            total += torch.einsum("bpi,bpj->ij", mixed, d) / len(d)
        elif (j := router.jacobian(p, w)) is not None:
            total += torch.einsum("bpi,bpw,bwj->ij", mixed, j, d) / len(d)
    return total
