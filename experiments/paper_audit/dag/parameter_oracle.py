"""References for blocks in the parameters of a DAG: derivatives of the loss, and of single nodes,
in flattened parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from torch import Tensor, nn
from torch.func import functional_call

from experiments.paper_audit.dag.instances import Instance
from experiments.paper_audit.dag.oracle import (
    Blocks,
    Example,
    Flat,
    Hessian,
    Jacobian,
    Named,
    _parents,
)
from runner.curvature import Node


@dataclass(frozen=True, eq=False)
class Parametric:
    """Derivatives of one node of one example with respect to its own parameters.

    d = ∂f_v/∂θ_v; own = Σ_i δ_i ∂²f_v,i/∂θ_v²; mixed[p] = Σ_i δ_i ∂²f_v,i/∂f_p∂θ_v, (d_p, p_v).
    """

    d: Tensor
    own: Tensor
    mixed: Named


@cache
def parametric(e: Example) -> Mapping[str, Parametric]:
    """By node with a module."""
    found = {}
    for v in e.dag.order:
        node = e.dag.nodes[v]
        if node.parameters():
            found[v] = of_node(node, e.value, e.delta[v])
    return found


def of_node(node: Node, value: Named, delta: Tensor) -> Parametric:
    """Of one node, with the gradient delta of its output."""
    function, theta = flat_function(node)
    parents = _parents(node, value)

    def at(flat: Tensor, own: Tensor) -> Tensor:
        arguments = parents.tensors(flat)
        return function(own, tuple(arguments[p] for p in node.parents)).flatten()

    def weighted_gradient(flat: Tensor) -> Tensor:
        return Jacobian(lambda own: delta @ at(flat, own), theta, create_graph=True)

    d = Jacobian(lambda own: at(parents.point, own), theta)
    own = Hessian(lambda own: delta @ at(parents.point, own), theta)
    cross = Jacobian(weighted_gradient, parents.point)  # (p_v, d)
    mixed = {p: block.T for p, block in parents.columns(cross).items()}
    return Parametric(d.detach(), own.detach(), mixed)


def flat_function(node: Node) -> tuple[Callable[[Tensor, tuple[Tensor, ...]], Tensor], Tensor]:
    """(node's function of its flattened parameters and arguments, the parameters flattened)."""
    parameters = Flat({name: p.detach() for name, p in node.parameters().items()})

    def function(flat: Tensor, arguments: tuple[Tensor, ...]) -> Tensor:
        named = parameters.tensors(flat)
        if isinstance(node.fn, nn.Module):
            result = functional_call(node.fn, named, arguments)
        else:
            result = node.fn(*arguments, **named)
        assert isinstance(result, Tensor)
        return result

    return function, parameters.point


@cache
def parameter_blocks(case: Instance) -> Blocks:
    """∂²L/∂θ_v∂θ_w of the mean loss for every pair of nodes with parameters, by differentiating it
    twice."""
    nodes = {v: case.dag.nodes[v] for v in case.dag.order}
    functions = {v: flat_function(node) for v, node in nodes.items() if node.parameters()}
    parameters = Flat({v: theta for v, (_, theta) in functions.items()})

    def loss(flat: Tensor) -> Tensor:
        theta = parameters.vectors(flat)
        values = {"input": case.x}
        for v, node in nodes.items():
            arguments = tuple(values[p] for p in node.parents)
            if v in theta:
                values[v] = functions[v][0](theta[v], arguments)
            else:
                values[v] = node(*arguments)
        return case.dag.loss.per_example(values[case.dag.output], case.y).mean()

    return parameters.blocks(Hessian(loss, parameters.point))
