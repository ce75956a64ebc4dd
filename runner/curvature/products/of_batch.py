"""Products of one batch, from the graph of its gradient or of its outputs.

hessian         H v = d(g . v)/du, g = dL/du with its graph
gauss_newton    J^T A J v, A = d2 loss/df2 at the outputs f; J v = d(J^T w . v)/dw, linear in w

Both take one direction, or k in a batch (`is_grads_batched`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch._vmap_internals import _vmap
from torch.autograd.graph import GradientEdge, get_gradient_edge

from runner.curvature.basics.errors import COMPLEX, MeasurementError
from runner.curvature.basics.trees import tree_flatten, tree_unflatten
from runner.curvature.basics.vectors import Images, Values, divided, joined
from runner.curvature.function.batch import Batch
from runner.curvature.function.context import runs_python, steps_behind
from runner.curvature.function.function import (
    Function,
    Point,
    Tensors,
    backward,
    gradients,
    leaves_of,
)
from runner.curvature.function.modes import Convolutions

Part = Literal["hessian", "gauss_newton"]
PARTS = ("hessian", "gauss_newton")


NO_OUTPUT = (
    "the loss does not depend on tensors of the module's output that autograd can see: a "
    "Gauss-Newton matrix needs loss(output, target) of an output made of tensors; a module that "
    "returns its loss has part='hessian' alone"
)


def grad(values: Any, wrt: Tensors, weights: Tensors, batched: bool = False) -> Images:
    """Derivatives of sum_i weights_i . values_i, tensors or their places in the graph, which is
    kept; None where there is no dependence."""
    if not batched:
        return backward(values, wrt, weights)
    pulled: Images = _vmap(partial(backward, values, wrt), 0, 0, allow_none_pass_through=True)(
        tuple(weights)
    )
    return pulled


def linked(values: Images) -> list[int]:
    """Positions of the tensors that have a graph."""
    return [i for i, t in enumerate(values) if t is not None and t.requires_grad]


FEW_NUMBERS = 1 << 14


def kept(value: Tensor) -> Tensor | GradientEdge:
    """What derivatives of a value are taken of: its place in the graph, without its numbers where
    they are many; where they are few, finding the place takes longer than they are worth."""
    return value if value.numel() < FEW_NUMBERS else get_gradient_edge(value)


class HessianGraph:
    """The gradient of one batch's loss, times its weight, with its graph. Made inside of
    `function.at`. loss: without its weight, as of `FactoredGraph`."""

    def __init__(self, function: Function, leaves: Values, batch: Batch, weight: float) -> None:
        self.wrt = list(leaves.values())
        with function.curved():
            loss = function.evaluate(batch)[1]
        self.loss = loss.detach()
        slopes: Images = [None] * len(self.wrt)
        if loss.requires_grad:
            weighted = loss if weight == 1 else loss * weight
            slopes = torch.autograd.grad(weighted, self.wrt, create_graph=True, allow_unused=True)
        steps = [*steps_behind(slopes)]
        self.python = runs_python(steps)
        self.steps = len(steps)
        self.used = linked(slopes)
        self.slopes = [kept(g) for g in slopes if g is not None and g.requires_grad]

    def apply(self, directions: Tensors, batched: bool) -> Images:
        """H v; with batched, of k directions along a first dimension."""
        if not self.slopes:
            return [None] * len(self.wrt)
        return grad(self.slopes, self.wrt, [directions[i] for i in self.used], batched)


class FactoredGraph:
    """The outputs of one batch with their graph, and the slope of its loss there."""

    def __init__(
        self,
        function: Function,
        leaves: Values,
        batch: Batch,
        weight: float,
        wide: bool = False,
    ) -> None:
        self.wrt = list(leaves.values())
        self.weight = weight
        with Convolutions("tangents"):
            tensors, spec = tree_flatten(function.output(batch.input, wide))
        copies = {}
        for t in tensors:
            if isinstance(t, Tensor) and t.requires_grad and t.dim():
                if t.is_complex():
                    raise MeasurementError(COMPLEX)
                copies[id(t)] = t.detach().requires_grad_()

        def loss_at(known: dict[int, Tensor]) -> Tensor:
            given = [known[id(t)].clone() if id(t) in known else t for t in tensors]
            return function.loss_of(tree_unflatten(given, spec), batch.target, wide)

        loss = loss_at(copies)
        self.loss = loss.detach()
        if not copies or not loss.requires_grad:
            raise MeasurementError(NO_OUTPUT)
        slopes = torch.autograd.grad(
            loss, list(copies.values()), create_graph=True, allow_unused=True
        )
        read = [key for key, s in zip(copies, slopes, strict=True) if s is not None]
        if not read:
            raise MeasurementError(NO_OUTPUT)
        places = {id(t): i for i, t in enumerate(tensors) if id(t) in copies}
        self.places = [places[key] for key in read]
        self.outputs = [tensors[i] for i in self.places]
        self.copies = [copies[key] for key in read]
        self._loss_at = loss_at
        self._read = read
        self._all_copies = copies
        self.slopes: Tensors = [s for s in slopes if s is not None]
        self.bent = linked(self.slopes)
        # J^T w is linear in w; at zero logcumsumexp has no derivative in torch.
        self.weights = [torch.ones_like(t, requires_grad=True) for t in self.outputs]
        pulled = torch.autograd.grad(
            self.outputs, self.wrt, self.weights, create_graph=True, allow_unused=True
        )
        steps = [*steps_behind([*self.outputs, *self.slopes, *pulled])]
        self.python = runs_python(steps)
        self.steps = len(steps)
        self.used = linked(pulled)
        self.pulled = [kept(t) for t in pulled if t is not None and t.requires_grad]

    def jacobian(self, directions: Tensors, batched: bool) -> Tensors:
        """J v, of k directions along a first dimension with batched."""
        weights = [directions[i] for i in self.used]
        found = grad(self.pulled, self.weights, weights, batched)
        return self._filled(found, self.outputs, len(weights[0]) if batched else None)

    def _filled(self, found: Images, like: Sequence[Tensor], count: int | None) -> Tensors:
        """Zeros where there is no dependence: a batched call gives none for each direction
        there."""
        shape = () if count is None else (count,)
        return [
            t.new_zeros(*shape, *t.shape) if g is None else g
            for t, g in zip(like, found, strict=True)
        ]

    def curved(self, tangents: Tensors, batched: bool) -> Tensors:
        """A t."""
        count = len(tangents[0]) if batched else None
        if not self.bent:
            return self._filled([None] * len(self.copies), self.copies, count)
        weights = [tangents[i] for i in self.bent]
        found = grad([self.slopes[i] for i in self.bent], self.copies, weights, batched)
        return self._filled(found, self.copies, count)

    def slope_at(self, outputs: Tensor) -> Tensor:
        """The slope of the loss where the outputs that it reads are these, one vector as they are;
        inside of `function.at`."""
        pieces = divided(outputs, dict(zip(self._read, self.outputs, strict=True)))
        leaves = {key: piece.detach().requires_grad_() for key, piece in pieces.items()}
        loss = self._loss_at(self._all_copies | leaves)
        return joined(gradients([loss], [*leaves.values()])).detach()

    def pull(self, cotangents: Tensors, batched: bool) -> Images:
        """J^T w, times the weight."""
        scaled = cotangents
        if self.weight != 1:
            scaled = [self.weight * w for w in cotangents]
        return grad(self.outputs, self.wrt, scaled, batched)

    def apply(self, directions: Tensors, batched: bool) -> Images:
        """The product; with batched, of k directions along a first dimension."""
        return self.pull(self.curved(self.jacobian(directions, batched), batched), batched)


def outputs_at(function: Function, point: Point, batch: Batch, places: Sequence[int]) -> Tensors:
    """The outputs that the loss reads, of a graph's `places`, at another point; as leaves where the
    network takes derivatives by its own variables."""

    def outputs(values: Values) -> Tensors:
        with function.at(point._replace(values=values)):
            found, _ = tree_flatten(function.output(batch.input, point.wide))
        return [found[i] for i in places]

    try:
        return outputs(point.values)
    except RuntimeError:
        return outputs(leaves_of(point.values))
