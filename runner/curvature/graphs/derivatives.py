"""First and contracted second derivatives of one node with respect to its parents, per example.

D_up = df_u/df_p, shape (B, d_u, d_p), and C_u;p,q = sum_i delta_u,i T_u;p,q[i], shape (B, d_p,
d_q), with delta_u the gradient of the example's loss at f_u. Recognised nodes use closed forms
(structure.py), all others automatic differentiation."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runner.curvature.basics.errors import (
    MeasurementError,
    describe,
    second_derivatives,
)
from runner.curvature.basics.trees import slices_of
from runner.curvature.function.context import counted, steps_behind
from runner.curvature.function.modes import Convolutions
from runner.curvature.graphs.dag import INPUT, Dag, Node
from runner.curvature.graphs.losses import repeated, replicated_jacobian
from runner.curvature.graphs.recognise import structure_of
from runner.curvature.graphs.structure import Structure


@dataclass
class Derivatives:
    """jacobians[p] is D_up; curvature[p, q] is C_u;p,q. A pair that is absent is zero."""

    jacobians: dict[str, Tensor] = field(default_factory=dict)
    curvature: dict[tuple[str, str], Tensor] = field(default_factory=dict)


@dataclass
class Evaluation:
    """Outputs of every node, and what closed forms keep for their derivatives."""

    values: dict[str, Tensor]
    structures: dict[str, tuple[Structure, Any]]
    replica_elements: int | None = None
    """Numbers that the replicated examples of one node may take in all; None: no limit but
    losses.py's own."""

    def size(self, name: str) -> int:
        """d_v: components of one example's output."""
        return self.values[name][0].numel()


def refuse_cut_backwards(gradients: Iterable[Tensor | None], where: str) -> None:
    """Raises ValueError when a gradient went through a backward that cannot be differentiated
    (once_differentiable).

    torch marks it with an error node that no path joins to the variables, so that autograd would
    take its second derivative for zero."""
    for step in steps_behind(gradients):
        if type(step).__name__ in ("Error", "DelayedError"):
            raise MeasurementError(
                f"{where} has a backward without a second derivative (a torch.autograd.Function "
                "marked once_differentiable): write its backward in differentiable operations, "
                "without the mark"
            )


@contextmanager
def naming_node(dag: Dag, values: dict[str, Tensor], known: Container[str]) -> Iterator[None]:
    """Names the first node that has no second derivative, found by differentiating each alone,
    except the `known` ones, in place of a MeasurementError that cannot tell it."""
    try:
        yield
    except MeasurementError:
        for name in (v for v in dag.order if v not in known):
            require_second_derivative(dag.nodes[name], [values[p] for p in dag.nodes[name].parents])
        raise


def require_second_derivative(node: Node, inputs: Sequence[Tensor]) -> None:
    """Raises ValueError when the node's own backward cannot be differentiated, tried on the first
    example.

    The cotangent requires a gradient, as it does inside a network: torch marks a cut backward only
    then."""
    with torch.enable_grad():
        floating, output = _of_first_example(node, inputs)
        if not floating or not output.requires_grad:
            return
        cotangent = torch.ones_like(output, requires_grad=True)
        first = torch.autograd.grad(
            output, floating, cotangent, create_graph=True, allow_unused=True
        )
        refuse_cut_backwards(first, f"node {node.name!r}")
        bent = [g.square().sum() for g in first if g is not None and g.requires_grad]
        with second_derivatives(f"node {node.name!r}"):
            if bent:
                torch.autograd.grad(sum(bent[1:], bent[0]), floating, allow_unused=True)


def _of_first_example(node: Node, inputs: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Copies of its floating inputs that require a gradient, and the output."""
    leaves = [t[:1].detach().clone() for t in inputs]
    floating = [t.requires_grad_() for t in leaves if t.is_floating_point()]
    return floating, node(*leaves)


def differentiable_value(node: Node, values: Mapping[str, Tensor]) -> Tensor:
    """Output of a node as a function of its parents' outputs."""
    with Convolutions("inputs"):
        return node(*(values[p] for p in node.parents))


def evaluate(dag: Dag, x: Tensor) -> Evaluation:
    """Forward pass that keeps what derivatives need. Raises ValueError when a node's output is not
    batched over examples."""
    values = {INPUT: x}
    structures = {}
    with torch.no_grad():
        for name in dag.order:
            node = dag.nodes[name]
            node.forget()
            values[name], structure = _evaluate_node(node, [values[p] for p in node.parents])
            if structure is not None:
                structures[name] = structure
            if values[name].dim() < 2 or values[name].shape[0] != x.shape[0]:
                raise MeasurementError(
                    f"node {name!r} returned shape {tuple(values[name].shape)}: expected "
                    f"({x.shape[0]}, d, ...), one row per example"
                )
    return Evaluation(values, structures)


def _evaluate_node(
    node: Node, inputs: Sequence[Tensor]
) -> tuple[Tensor, tuple[Structure, Any] | None]:
    """Output of a node, and its closed form with what that keeps, where there is one."""
    structure = None
    if len(set(node.parents)) == len(inputs):
        structure = structure_of(node.fn, inputs)
    if structure is None:
        return node(*inputs).detach(), None
    try:
        value, saved = structure.forward(inputs)
    except RuntimeError:
        node(*inputs)  # names the node, and says what does not fit
        raise
    return value, (structure, saved)


def node_derivatives(
    node: Node, evaluation: Evaluation, delta: Tensor, wanted: Sequence[str], second: bool = True
) -> Derivatives:
    """Derivatives of `node` with respect to the parents in `wanted`. delta: (B, d_u). second=False:
    Jacobians alone.

    Raises ValueError when the node has no second derivative (fused kernels).
    """
    if node.name in evaluation.structures:
        return _closed_form(node, evaluation, delta, wanted)
    return _autodiff(node, evaluation, delta, wanted, second)


def _closed_form(
    node: Node, evaluation: Evaluation, delta: Tensor, wanted: Sequence[str]
) -> Derivatives:
    structure, saved = evaluation.structures[node.name]
    jacobian, curvature = structure.derivatives(saved, delta, evaluation.values[node.name])
    found = Derivatives()
    if structure.weights is not None:
        weights = {
            p: weight
            for p, weight in zip(node.parents, structure.weights, strict=True)
            if p in wanted
        }
        for p, weight in weights.items():
            found.jacobians[p] = _scaled(jacobian, weight)
            if curvature is not None:
                found.curvature |= {
                    (p, q): _scaled(curvature, weight * other) for q, other in weights.items()
                }
        return found
    spans = slices_of({parent: evaluation.size(parent) for parent in node.parents})
    for p in wanted:
        found.jacobians[p] = jacobian[:, :, spans[p]].contiguous()
        if curvature is not None:
            for q in wanted:
                found.curvature[p, q] = curvature[:, spans[p], spans[q]].contiguous()
    return found


def require_floating(values: Mapping[str, Tensor], nodes: Iterable[str]) -> None:
    """Raises MeasurementError for nodes with indices as outputs."""
    for name in nodes:
        if not values[name].is_floating_point():
            advice = "Measure the nodes after it (the embedding's output instead of the tokens)"
            if values[name].is_complex():
                advice = "Make it a part of the node that comes back to real numbers"
            raise MeasurementError(
                f"node {name!r} holds {describe(values[name])}: derivatives exist for "
                f"floating-point values only. {advice}"
            )


def _scaled(t: Tensor, factor: float) -> Tensor:
    return t if factor == 1 else factor * t


def _autodiff(
    node: Node, evaluation: Evaluation, delta: Tensor, wanted: Sequence[str], second: bool
) -> Derivatives:
    wanted = tuple(dict.fromkeys(wanted))
    values = evaluation.values
    require_floating(values, wanted)
    inputs = tuple(values[p] for p in wanted)
    sizes = [evaluation.size(p) for p in wanted]

    def outputs(copies: tuple[Tensor, ...], repeats: int) -> Tensor:
        given = dict(zip(wanted, copies, strict=True))
        arguments = [given[p] if p in given else repeated(values[p], repeats) for p in node.parents]
        return node(*arguments).flatten(1)

    def gradient(copies: tuple[Tensor, ...], repeats: int) -> Tensor | None:
        flat = outputs(copies, repeats)
        if not flat.requires_grad:
            return None
        grads = torch.autograd.grad(
            flat, copies, repeated(delta, repeats), create_graph=True, materialize_grads=True
        )
        return torch.cat([g.flatten(1) for g in grads], 1)

    limit = evaluation.replica_elements
    if limit is not None:
        limit //= _elements_of_one(node, evaluation, sum(sizes), second)
    jacobians = replicated_jacobian(outputs, inputs, delta.shape[1], limit)
    found = Derivatives(dict(zip(wanted, jacobians, strict=True)))
    if not second:
        return found
    require_second_derivative(node, [values[p] for p in node.parents])
    with second_derivatives(f"node {node.name!r}"):
        columns = replicated_jacobian(gradient, inputs, sum(sizes), limit)
    for q, column in zip(wanted, columns, strict=True):
        # An all-zero block (linear or piecewise-linear nodes) is dropped: the tensor part then
        # stays exactly zero.
        if column.any():
            for p, block in zip(wanted, column.split(sizes, 1), strict=True):
                found.curvature[p, q] = block.contiguous()
    return found


def _elements_of_one(node: Node, evaluation: Evaluation, inputs: int, second: bool) -> int:
    """Numbers that automatic differentiation of the node holds for one replica of one example: what
    it saves, and the gradients that are under way at the same time."""

    def run() -> None:
        floating, output = _of_first_example(node, [evaluation.values[p] for p in node.parents])
        if second and floating and output.requires_grad:
            torch.autograd.grad(output.sum(), floating, create_graph=True, allow_unused=True)

    outputs = evaluation.size(node.name)
    with torch.enable_grad():
        _, kept = counted(run, [])
    saved = kept / evaluation.values[node.name].element_size()
    if math.isnan(saved):
        saved = 8 * (inputs + outputs)
    return max(1, int(2 * saved) + 6 * inputs + 6 * outputs)
