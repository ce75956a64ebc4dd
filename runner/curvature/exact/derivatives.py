"""First and contracted second derivatives of one node with respect to its parents, per example.

D_up = df_u/df_p, shape (B, d_u, d_p), and C_u;p,q = sum_i delta_u,i T_u;p,q[i], shape (B, d_p, d_q), with delta_u the
gradient of the example's loss at f_u. Recognised nodes use closed forms (structure.py), all others automatic
differentiation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from runner.curvature.exact.recognise import single_stage, structure_of, traceable
from runner.curvature.exact.replicate import replicated_jacobian
from runner.curvature.exact.structure import Structure
from runner.curvature.exact.trace import forget, structure_from_trace
from runner.curvature.graph.dag import INPUT, Dag, Node

NO_SECOND_DERIVATIVE = ("not implemented", "differentiate twice", "double backward", "doesn't have a gradient")


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

    def size(self, name: str) -> int:
        """d_v: components of one example's output."""
        return self.values[name][0].numel()


@contextmanager
def second_derivatives(where: str) -> Iterator[None]:
    """Turns torch's error about an operation without a second derivative into a ValueError that says what to do."""
    try:
        yield
    except RuntimeError as error:
        if any(text in str(error) for text in NO_SECOND_DERIVATIVE):
            raise ValueError(
                f"{where} uses an operation without a second derivative ({str(error).splitlines()[0]}). For fused "
                "attention, run under torch.nn.attention.sdpa_kernel(SDPBackend.MATH) or write softmax(QK^T)V out"
            ) from error
        raise


def evaluate(dag: Dag, x: Tensor) -> Evaluation:
    """Forward pass that keeps what derivatives need. Raises ValueError when a node's output is not batched over
    examples."""
    values, structures = {INPUT: x}, {}
    with torch.no_grad():
        for name in dag.order:
            node = dag.nodes[name]
            inputs = [values[p] for p in node.parents]
            values[name], structure = _evaluate_node(node, inputs)
            if structure is not None:
                structures[name] = structure
            if values[name].dim() < 2 or values[name].shape[0] != x.shape[0]:
                raise ValueError(
                    f"node {name!r} returned shape {tuple(values[name].shape)}: expected ({x.shape[0]}, d, ...), "
                    "one row per example"
                )
    return Evaluation(values, structures)


def _evaluate_node(node: Node, inputs: Sequence[Tensor]) -> tuple[Tensor, tuple[Structure, Any] | None]:
    """Output of a node, and its closed form with what that keeps, where there is one."""
    if node.params or len(set(node.parents)) < len(inputs):
        return node(*inputs).detach(), None
    structure = structure_of(node.fn, inputs)
    if structure is not None:
        value, saved = structure.forward(inputs)
        return value, (structure, saved)
    if not traceable(inputs):
        return node(*inputs).detach(), None
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in inputs]
        value = node(*leaves)
    for _ in range(2):  # a function that has changed since it was traced is traced once more
        structure = structure_from_trace(node.fn, len(inputs), single_stage)
        if structure is None:
            break
        try:
            found, saved = structure.forward(inputs)
            if _agrees(structure, saved, found, value, leaves):
                return value.detach(), (structure, saved)
        except RuntimeError:  # sizes of layers that have been replaced since
            pass
        forget(node.fn)
    return value.detach(), None


def _agrees(structure: Structure, saved: Any, found: Tensor, value: Tensor, leaves: list[Tensor]) -> bool:
    """Whether a traced structure has the outputs and, along one random direction, the gradients of the function itself.

    The gradient tells apart what a trace does not see, such as a part that runs without gradients.
    """
    if found.shape != value.shape or not value.requires_grad or not _alike(found, value.detach()):
        return False
    g = torch.randn(value.shape, generator=torch.Generator().manual_seed(0)).to(value)
    grads = torch.autograd.grad(value, leaves, g, allow_unused=True, retain_graph=True)
    pulled = structure.pullback(saved, g, [leaf.shape[1] for leaf in leaves])
    return all(exact is not None and _alike(mine, exact) for mine, exact in zip(pulled, grads, strict=True))


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(
        (a - b).abs().max() <= 1e4 * torch.finfo(b.dtype).eps * b.abs().max().clamp_min(1e-12)
    )


def node_derivatives(
    node: Node, evaluation: Evaluation, delta: Tensor, wanted: Sequence[str], second: bool = True
) -> Derivatives:
    """Derivatives of `node` with respect to the parents in `wanted`. delta: (B, d_u). second=False: Jacobians alone.

    Raises ValueError when the node has no second derivative (fused kernels).
    """
    if node.name in evaluation.structures:
        return _closed_form(node, evaluation, delta, wanted)
    return _autodiff(node, evaluation, delta, wanted, second)


def _closed_form(node: Node, evaluation: Evaluation, delta: Tensor, wanted: Sequence[str]) -> Derivatives:
    structure, saved = evaluation.structures[node.name]
    jacobian, curvature = structure.derivatives(saved, delta, evaluation.values[node.name])
    found = Derivatives()
    if structure.weights == (1.0,):
        parent = node.parents[0]
        found.jacobians[parent] = jacobian
        if curvature is not None:
            found.curvature[parent, parent] = curvature
        return found
    if structure.weights is not None:
        weights = {p: weight for p, weight in zip(node.parents, structure.weights, strict=True) if p in wanted}
        for p, weight in weights.items():
            found.jacobians[p] = weight * jacobian
            if curvature is not None:
                found.curvature |= {(p, q): weight * other * curvature for q, other in weights.items()}
        return found
    start, spans = 0, {}
    for parent in node.parents:
        spans[parent] = slice(start, start + evaluation.size(parent))
        start += evaluation.size(parent)
    for p in wanted:
        found.jacobians[p] = jacobian[:, :, spans[p]].contiguous()
        if curvature is not None:
            for q in wanted:
                found.curvature[p, q] = curvature[:, spans[p], spans[q]].contiguous()
    return found


def _autodiff(node: Node, evaluation: Evaluation, delta: Tensor, wanted: Sequence[str], second: bool) -> Derivatives:
    wanted = tuple(dict.fromkeys(wanted))
    values = evaluation.values
    inputs = tuple(values[p] for p in wanted)
    sizes = [evaluation.size(p) for p in wanted]

    def outputs(copies: tuple[Tensor, ...], repeats: int) -> Tensor:
        given = dict(zip(wanted, copies, strict=True))
        arguments = [given[p] if p in given else _repeat(values[p], repeats) for p in node.parents]
        return node(*arguments).flatten(1)

    def gradient(copies: tuple[Tensor, ...], repeats: int) -> Tensor | None:
        flat = outputs(copies, repeats)
        if not flat.requires_grad:
            return None
        grads = torch.autograd.grad(flat, copies, _repeat(delta, repeats), create_graph=True, allow_unused=True)
        filled = [torch.zeros_like(c) if g is None else g for g, c in zip(grads, copies, strict=True)]
        return torch.cat([g.flatten(1) for g in filled], 1)

    found = Derivatives()
    for p, jacobian in zip(wanted, replicated_jacobian(outputs, inputs, delta.shape[1]), strict=True):
        found.jacobians[p] = (
            inputs[0].new_zeros(len(delta), delta.shape[1], evaluation.size(p)) if jacobian is None else jacobian
        )
    if not second:
        return found
    with second_derivatives(f"node {node.name!r}"):
        columns = replicated_jacobian(gradient, inputs, sum(sizes))
    for q, column in zip(wanted, columns, strict=True):
        # An all-zero block (linear or piecewise-linear nodes) is dropped: the tensor part then stays exactly zero.
        if column is None or not column.any():
            continue
        for p, block in zip(wanted, column.split(sizes, 1), strict=True):
            found.curvature[p, q] = block.contiguous()
    return found


def _repeat(t: Tensor, repeats: int) -> Tensor:
    return t.repeat(repeats, *(1,) * (t.dim() - 1))
