"""The tensor that the loss reads of an output, and the matrix A between its Jacobians: J^T A J is a Gauss-Newton or
Fisher matrix of one batch.

gauss_newton        A = d2 L / df2, L the mean loss of the batch
fisher              A = E_y[g g^T] over targets y of the model's own distribution (likelihood.py)
empirical_fisher    g g^T / B with the given targets
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.tree import tree_flatten, tree_leaves, tree_unflatten
from runner.curvature.parameters.model import Model, Named

INSTEAD = "give loss=lambda output, target: ... of the tensors of the output (the logits), or ask for part='hessian'"


class OutputCurvature(Protocol):
    """A as an operator on tensors of the output's shape."""

    def apply(self, u: Tensor) -> Tensor: ...


class Output:
    """The tensors of an output that the loss depends on, as one tensor, and back. Of a single tensor: itself.

    Several are written next to each other, one row for each example. Raises MeasurementError when the loss depends on
    none, on several that have no row for each example, on a scalar, or on parameters by another way.
    """

    def __init__(self, model: Model, parameters: Named, whole: Any, target: Any, examples: int) -> None:
        leaves, self.spec = tree_flatten(whole)
        self.leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.model, self.parameters, self.target, self.examples = model, parameters, target, examples
        self.used = self._used()
        self.alone = len(self.used) == 1
        shapes = [tuple(self.leaves[i].shape) for i in self.used]
        if () in shapes:
            raise MeasurementError(
                f"the loss reads a scalar of the output (the module's own loss?), of which {INSTEAD}: Gauss-Newton and "
                "Fisher matrices need the outputs themselves"
            )
        if not self.alone and any(shape[0] % examples for shape in shapes):
            raise MeasurementError(
                f"the loss reads {len(shapes)} tensors of the output, {shapes}, which have no row for each of the "
                f"{examples} examples: let the module return one tensor, or pick one with output=..."
            )

    def _used(self) -> list[int]:
        """Which leaves the loss reads."""
        floating = [i for i, t in enumerate(self.leaves) if isinstance(t, Tensor) and t.is_floating_point()]
        reached = {k: p for k, p in self.parameters.items() if p.requires_grad}
        with torch.enable_grad():
            wanted = {i: self.leaves[i].clone().requires_grad_() for i in floating}
            value = self._loss([wanted.get(i, t) for i, t in enumerate(self.leaves)], self.target)
            tensors = [*wanted.values(), *reached.values()]
            grads: Any = [None] * len(tensors)
            if value.requires_grad:
                grads = torch.autograd.grad(value, tensors, allow_unused=True)
        others = [k for k, g in zip(reached, grads[len(wanted) :], strict=True) if g is not None]
        if others:
            kinds = {type(t).__name__ for t in self.leaves if not isinstance(t, Tensor) and hasattr(t, "__dict__")}
            raise MeasurementError(
                f"the loss depends on parameter {others[0]!r} by another way than a tensor of the output "
                f"({'an object of class ' + ', '.join(sorted(kinds)) if kinds else 'a penalty in the loss'}), which "
                f"Gauss-Newton and Fisher matrices would take for a constant: {INSTEAD}"
            )
        used = [i for i, g in zip(wanted, grads, strict=False) if g is not None]
        if not used:
            raise MeasurementError("the loss depends on no tensor of the module's output")
        return used

    def _loss(self, leaves: list[Any], target: Any) -> Tensor:
        whole = tree_unflatten(leaves, self.spec)
        return self.model.within(self.parameters, lambda: self.model.loss_of(whole, target))

    def tensor(self, whole: Any) -> Tensor:
        """The tensor of an output of this structure."""
        leaves = tree_leaves(whole)
        if self.alone:
            return leaves[self.used[0]]
        return torch.cat([leaves[i].reshape(self.examples, -1) for i in self.used], 1)

    def value(self, tensor: Tensor, target: Any) -> Tensor:
        """The loss as a function of the tensor."""
        leaves, start = list(self.leaves), 0
        for i in self.used:
            size = self.leaves[i].numel() // self.examples
            leaves[i] = tensor if self.alone else tensor[:, start : start + size].reshape(self.leaves[i].shape)
            start += size
        return self._loss(leaves, target)


class LossHessian:
    """d2 L / df2, from the graph of the loss alone. Raises MeasurementError for a loss that is linear in f."""

    def __init__(self, loss: Callable[[Tensor, Any], Tensor], output: Tensor, target: Any) -> None:
        with torch.enable_grad():
            self.leaf = output.detach().requires_grad_()
            (self.gradient,) = torch.autograd.grad(loss(self.leaf, target), self.leaf, create_graph=True)
        if not self.gradient.requires_grad:
            raise MeasurementError(
                "the loss is linear in what it reads of the output (losses that the module computes itself?), so that "
                f"the Gauss-Newton matrix is zero: {INSTEAD}"
            )

    def apply(self, u: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(self.gradient, self.leaf, u, retain_graph=True, allow_unused=True)
        return torch.zeros_like(u) if found is None else found


class OuterProducts:
    """sum over examples b of g_b g_b^T / B; gradients: (B, d), of each example's loss."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients

    def apply(self, u: Tensor) -> Tensor:
        rows = u.reshape(len(self.gradients), -1)
        inner = (self.gradients * rows).sum(1, keepdim=True)
        return (inner * self.gradients).div(len(rows)).reshape(u.shape)


def example_gradients(loss: Callable[[Tensor, Any], Tensor], output: Tensor, target: Any, examples: int) -> Tensor:
    """d loss_b / df_b of every example of a mean loss, (B, d): an example may have several consecutive rows."""
    with torch.enable_grad():
        leaf = output.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf, target), leaf)
    return gradient.reshape(examples, -1) * examples
