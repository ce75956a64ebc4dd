"""Curvature products of one batch with respect to the parameters, by automatic differentiation.

In gradients (one forward and one backward pass, 3 F for F operations of the forward pass): a Hessian product from the
kept graph of the gradient costs 6 F, two gradients; without it, 9 F. A Gauss-Newton product from the kept graphs of
the outputs f and of J^T u is a tangent pass, J v = d(J^T u . v)/du (2 F), and a backward pass (2 F); without them, the
outputs (F) and their tangents by forward differentiation (3 F) come before the backward pass.

A Gauss-Newton or Fisher matrix is J^T A J, J the Jacobian of the tensor that the loss reads of the output:

gauss_newton        A = d2 L / df2, L the mean loss of the batch
fisher              A = E_y[g g^T] over targets y of the model's own distribution (likelihood.py)
empirical_fisher    g g^T / B with the given targets
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import jvp

from runner.curvature.exact.derivatives import refuse_cut_backwards
from runner.curvature.graph.errors import COMPLEX, LOSS, MeasurementError, second_derivatives
from runner.curvature.graph.modes import Convolutions
from runner.curvature.graph.tensors import tree_flatten, tree_leaves, tree_unflatten
from runner.curvature.parameters.model import Model, Named

Take = Callable[[str, Tensor], object]
"""Takes the part of a product that belongs to the parameter of that name."""


def _pull(
    outputs: Sequence[Any], cotangents: Sequence[Tensor], parameters: Named, keep: bool, take: Take
) -> None:
    """Gives sum_i J_i^T cotangent_i at each parameter to `take` as soon as it is known, J_i the Jacobian of output i:
    the parts of a product, together as many numbers as there are parameters, are not all held at once."""
    absent = dict(parameters)

    def arrived(name: str, image: Tensor | None) -> Tensor | None:
        if image is None:  # of a function whose backward gives none
            return None
        take(name, image.detach())
        del absent[name]
        return image.new_empty(()).expand_as(image)

    with torch.inference_mode(False), ExitStack() as hooks:
        for name, p in parameters.items():
            hooks.callback(p.register_hook(partial(arrived, name)).remove)
        if outputs and parameters:
            torch.autograd.grad(
                outputs, list(parameters.values()), cotangents, retain_graph=keep, allow_unused=True
            )
        for name, p in absent.items():
            take(name, torch.zeros_like(p))


class BatchHessian:
    """Products with the Hessian of the mean loss of one batch. `keep`: whether the gradient's graph is kept."""

    def __init__(self, model: Model, batch: tuple[Any, Any], parameters: Named, keep: bool) -> None:
        self.model, self.batch, self.keep = model, batch, keep
        self.parameters = parameters
        self._gradients: dict[str, GradientEdge] | None = None

    def graph(self) -> dict[str, GradientEdge]:
        """Where the gradient leaves the graph that makes it, for the parameters it depends on: its numbers, as many as
        there are parameters, are not kept. Raises MeasurementError for a backward that has no second derivative."""
        if self._gradients is not None:
            return self._gradients
        with (
            self.model.differentiable(),
            Convolutions("all"),
            second_derivatives("the module or the loss"),
        ):
            value = self.model.value(self.parameters, self.batch)
            grads = torch.autograd.grad(
                value, list(self.parameters.values()), create_graph=True, allow_unused=True
            )
        refuse_cut_backwards(grads, "the module")
        pairs = zip(self.parameters, grads, strict=True)
        found = {k: get_gradient_edge(g) for k, g in pairs if g is not None and g.requires_grad}
        if self.keep:
            self._gradients = found
        return found

    def product(self, directions: Named, wanted: Sequence[str], take: Take) -> None:
        """Gives H v at the parameters `wanted` to `take`; directions that are absent are zero."""
        gradients = self.graph()
        names = [k for k in directions if k in gradients]
        parameters = {k: self.parameters[k] for k in wanted}
        with second_derivatives("the module or the loss"):
            _pull(
                [gradients[k] for k in names],
                [directions[k] for k in names],
                parameters,
                self.keep,
                take,
            )


class BatchFactored:
    """Products J^T A J v of one batch: A of Gauss-Newton or Fisher kind, J the outputs' Jacobian.

    forward: whether J v is computed by forward differentiation, which is cheaper where no graph is kept, or by
    differentiating J^T u in u. Where one has no rule for an operation, it is the other.
    """

    def __init__(
        self,
        model: Model,
        batch: tuple[Any, Any],
        parameters: Named,
        keep: bool,
        read: Callable[[Any], Output],
        curvature: Callable[[Output, Tensor], OutputCurvature],
    ) -> None:
        self.model, self.batch, self.parameters, self.keep = model, batch, parameters, keep
        self.read, self.curvature = read, curvature
        self.forward = not keep
        self._kept: tuple[Output, Tensor, OutputCurvature] | None = None
        self._pulled: tuple[Tensor, dict[str, GradientEdge]] | None = None

    def graph(self) -> tuple[Output, Tensor, OutputCurvature]:
        """What the loss reads of the output, as a function of the parameters, and A there."""
        if self._kept is not None:
            return self._kept
        with self.model.differentiable(), Convolutions("tangents"):
            whole = self.model.call(self.parameters, self.batch[0])
            output = self.read(whole)
            tensor = output.tensor(whole)
            found = (output, tensor, self.curvature(output, tensor.detach()))
        if self.keep:
            self._kept = found
            if not self.forward:
                try:
                    self._pulled = self._pullback(tensor)
                except (RuntimeError, MeasurementError):  # no second derivative of some operation
                    self.forward = True
        return found

    def product(self, directions: Named, wanted: Sequence[str], take: Take) -> None:
        """Gives J^T A J v at the parameters `wanted` to `take`; directions that are absent are zero."""
        output, tensor, curvature = self.graph()
        curved = curvature.apply(self._tangent(output, tensor, directions))
        parameters = {k: self.parameters[k] for k in wanted}
        _pull([tensor] if tensor.requires_grad else [], [curved], parameters, self.keep, take)

    def _pullback(self, tensor: Tensor) -> tuple[Tensor, dict[str, GradientEdge]]:
        """u, and where J^T u leaves the graph that makes it, for the parameters that the output depends on."""
        u = torch.ones_like(tensor, requires_grad=True)
        if not tensor.requires_grad:
            return u, {}
        pulled = torch.autograd.grad(
            tensor,
            list(self.parameters.values()),
            u,
            create_graph=True,
            retain_graph=True,
            allow_unused=True,
        )
        refuse_cut_backwards(pulled, "the module")
        pairs = zip(self.parameters, pulled, strict=True)
        return u, {k: get_gradient_edge(g) for k, g in pairs if g is not None and g.requires_grad}

    def _tangent(self, output: Output, tensor: Tensor, directions: Named) -> Tensor:
        """J v."""
        if self.forward:
            fixed = {k: p.detach() for k, p in self.parameters.items() if k not in directions}
            values = {k: self.parameters[k].detach() for k in directions}

            def outputs(p: Named) -> Tensor:
                return output.tensor(self.model.call({**fixed, **p}, self.batch[0]))

            try:
                with self.model.differentiable(graph=False):
                    tangent: Tensor = jvp(outputs, (values,), (dict(directions),))[1]
                return tangent
            except (RuntimeError, NotImplementedError):
                self.forward = False
        with self.model.differentiable(), second_derivatives("the module"):
            u, pulled = self._pulled or self._pullback(tensor)
            names = [k for k in directions if k in pulled]
            if not names:
                return torch.zeros_like(tensor)
            (tangent,) = torch.autograd.grad(
                [pulled[k] for k in names],
                u,
                [directions[k] for k in names],
                retain_graph=self.keep,
            )
        return tangent


INSTEAD = "give loss=lambda output, target: ... of the tensors of the output (the logits), or ask for part='hessian'"


class OutputCurvature(Protocol):
    """A as an operator on tensors of the output's shape."""

    def apply(self, u: Tensor) -> Tensor: ...


class Output:
    """The tensors of an output that the loss depends on, as one tensor, and back. Of a single tensor: itself.

    Several are written next to each other, one row for each example. Raises MeasurementError when the loss depends on
    none, on several that have no row for each example, on a scalar, or on parameters by another way.
    """

    def __init__(
        self, model: Model, parameters: Named, whole: Any, target: Any, examples: int
    ) -> None:
        leaves, self.spec = tree_flatten(whole)
        self.leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.model, self.parameters, self.target, self.examples = (
            model,
            parameters,
            target,
            examples,
        )
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
        tensors = [(i, t) for i, t in enumerate(self.leaves) if isinstance(t, Tensor)]
        floating = [i for i, t in tensors if t.is_floating_point() or t.is_complex()]
        reached = {k: p for k, p in self.parameters.items() if p.requires_grad}
        with torch.enable_grad():
            wanted = {i: self.leaves[i].clone().requires_grad_() for i in floating}
            value = self._loss([wanted.get(i, t) for i, t in enumerate(self.leaves)], self.target)
            sources = [*wanted.values(), *reached.values()]
            grads: Any = [None] * len(sources)
            if value.requires_grad:
                grads = torch.autograd.grad(value, sources, allow_unused=True)
        others = [k for k, g in zip(reached, grads[len(wanted) :], strict=True) if g is not None]
        if others:
            kinds = {
                type(t).__name__
                for t in self.leaves
                if not isinstance(t, Tensor) and hasattr(t, "__dict__")
            }
            raise MeasurementError(
                f"the loss depends on parameter {others[0]!r} by another way than a tensor of the output "
                f"({'an object of class ' + ', '.join(sorted(kinds)) if kinds else 'a penalty in the loss'}), which "
                f"Gauss-Newton and Fisher matrices would take for a constant: {INSTEAD}"
            )
        used = [i for i, g in zip(wanted, grads, strict=False) if g is not None]
        if not used:
            raise MeasurementError("the loss depends on no tensor of the module's output")
        if any(self.leaves[i].is_complex() for i in used):
            raise MeasurementError(COMPLEX)
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
            leaves[i] = (
                tensor
                if self.alone
                else tensor[:, start : start + size].reshape(self.leaves[i].shape)
            )
            start += size
        return self._loss(leaves, target)


class LossHessian:
    """d2 L / df2, from the graph of the loss alone. Raises MeasurementError for a loss that is linear in f."""

    def __init__(self, loss: Callable[[Tensor, Any], Tensor], output: Tensor, target: Any) -> None:
        with torch.enable_grad(), second_derivatives(LOSS):
            self.leaf = output.detach().requires_grad_()
            (self.gradient,) = torch.autograd.grad(
                loss(self.leaf, target), self.leaf, create_graph=True
            )
        if not self.gradient.requires_grad:
            raise MeasurementError(
                "the loss is linear in what it reads of the output (losses that the module computes itself?), so that "
                f"the Gauss-Newton matrix is zero: {INSTEAD}"
            )

    def apply(self, u: Tensor) -> Tensor:
        with second_derivatives(LOSS):
            return torch.autograd.grad(
                self.gradient, self.leaf, u, retain_graph=True, materialize_grads=True
            )[0]


class OuterProducts:
    """sum over examples b of g_b g_b^T / B; gradients: (B, d), of each example's loss."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients

    def apply(self, u: Tensor) -> Tensor:
        rows = u.reshape(len(self.gradients), -1)
        inner = (self.gradients * rows).sum(1, keepdim=True)
        return (inner * self.gradients).div(len(rows)).reshape(u.shape)


def example_gradients(
    loss: Callable[[Tensor, Any], Tensor], output: Tensor, target: Any, examples: int
) -> Tensor:
    """d loss_b / df_b of every example of a mean loss, (B, d): an example may have several consecutive rows."""
    with torch.enable_grad():
        leaf = output.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf, target), leaf)
    return gradient.reshape(examples, -1) * examples
