"""What products of an operator are taken from: a graph for each piece of a batch, kept where all fit the memory."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from runner.curvature.graph.errors import MeasurementError, batch_failure, is_out_of_memory
from runner.curvature.graph.state import refuse_draws
from runner.curvature.graph.tree import tree_leaves
from runner.curvature.parameters.batches import Batch, Batches, Place, Rows
from runner.curvature.parameters.checks import first_look
from runner.curvature.parameters.likelihood import ExactFisher, Likelihood, SampledFisher, natural
from runner.curvature.parameters.model import Model, Named
from runner.curvature.parameters.output import (
    LossHessian,
    OuterProducts,
    Output,
    OutputCurvature,
    example_gradients,
)
from runner.curvature.parameters.plan import VECTORS, Course, Need, Plan, course, few_examples, plan
from runner.curvature.parameters.products import BatchFactored, BatchHessian, Mode

Part = Literal["hessian", "gauss_newton", "fisher", "empirical_fisher"]
Graph = BatchHessian | BatchFactored


class Graphs:
    """Graphs of `part` over the parameters `leaves`, by their place in the data.

    keep: whether they stay for the next product. samples, seed: of a Fisher matrix whose targets are drawn.
    likelihood: the distribution of the targets, where the user names it.
    """

    def __init__(
        self,
        model: Model,
        leaves: Named,
        rows: Rows,
        part: Part,
        samples: int | None = None,
        seed: int = 0,
        likelihood: Likelihood | None = None,
    ) -> None:
        self.model, self.leaves, self.rows = model, leaves, rows
        self.part, self.samples, self.seed, self.likelihood = part, samples, seed, likelihood
        self.keep = False
        self._found_mode: Mode | None = None
        self._kept: dict[Place, Graph] = {}

    def split(self, v: Tensor) -> Named:
        """A flat vector (n,) as one tensor for each parameter."""
        pieces = v.split([p.numel() for p in self.leaves.values()])
        return {k: piece.view_as(p).to(p.dtype) for (k, p), piece in zip(self.leaves.items(), pieces, strict=True)}

    def loss_of(self, batch: Batch) -> Tensor:
        """The loss of a batch, without a graph."""
        with self.model.differentiable(), torch.no_grad():
            return self.model.value(self.leaves, batch)

    def of(self, place: Place, batch: Batch) -> Graph:
        """The graph of the piece `batch` at that place, made when it is asked for the first time."""
        if place in self._kept:
            return self._kept[place]
        graph = self.new(place, batch, self.keep)
        graph.mode = self._mode(batch, self.keep)
        if self.keep:
            self._kept[place] = graph
        return graph

    def _mode(self, batch: Batch, keep: bool) -> Mode:
        """How products are taken, found with few examples of this batch when it is asked for the first time."""
        if keep and self.part == "hessian":
            return "kept graph"
        if self._found_mode is None:
            self._found_mode = self._agreeing_mode(few_examples(self.rows, batch, self.loss_of))
        return self._found_mode

    def _agreeing_mode(self, batch: Batch) -> Mode:
        """Forward differentiation where there is one and it sees the same function: it does not stop where
        torch.no_grad does."""
        ones = self._ones()
        v = torch.randn(len(ones), generator=torch.Generator().manual_seed(0), device="cpu").to(ones)
        modes: tuple[Mode, Mode] = ("forward over reverse", "double backward")
        found = []
        for mode in modes:
            graph = self.new((0, 0), batch, False)
            graph.mode = mode
            try:
                images = graph.product(self.split(v), list(self.leaves))
            except (RuntimeError, MeasurementError):  # no second derivative: forward mode is the only way
                return modes[0]
            found.append(torch.cat([images[k].flatten() for k in self.leaves]).double())
            if graph.mode != mode:  # no forward rule: nothing to choose
                return graph.mode
        return modes[float((found[0] - found[1]).norm()) > 1e-2 * float(found[1].norm())]

    def new(self, place: Place, batch: Batch, keep: bool) -> Graph:
        """A graph of its own."""
        if self.part == "hessian":
            return BatchHessian(self.model, batch, self.leaves, keep)

        def curvature(output: Any, tensor: Tensor) -> OutputCurvature:
            if self.part == "empirical_fisher":
                return OuterProducts(example_gradients(output.value, tensor, batch[1], self.rows.count(batch)))
            if self.part == "gauss_newton":
                return LossHessian(output.value, tensor, batch[1])
            if self.samples is None:
                return ExactFisher(output, tensor)
            generator = torch.Generator().manual_seed(hash((self.seed, *place)) % 2**63)
            return SampledFisher(output, tensor, self.samples, generator)

        def read(whole: Any) -> Output:
            return self.output(self.model, self.leaves, whole, batch)

        return BatchFactored(self.model, batch, self.leaves, keep, read, curvature)

    def output(self, model: Model, parameters: Named, whole: Any, batch: Batch) -> Output:
        """The tensor of the module's output that a factored matrix is taken of."""
        if self.part == "fisher":
            return natural(model, parameters, whole, batch[1], self.rows.count(batch), self.likelihood)
        return Output(model, parameters, whole, batch[1], self.rows.count(batch))

    def planned(self, batches: Batches, budget: int) -> Plan:
        """What goes through the network at once, from products with few examples of the first batch."""
        first = next(iter(batches.data))
        rows, counts = self.rows, batches.counts
        with refuse_draws("the module or the loss"):
            few = few_examples(rows, first, self.loss_of)
        try:
            first_look(self.model, self.leaves, few)
        except (RuntimeError, IndexError, TypeError, AttributeError, KeyError) as error:
            if is_out_of_memory(error):
                raise
            raise batch_failure(tree_leaves(few[0]), tree_leaves(few[1]), error) from error
        v = self._ones()

        def needs(keep: bool, room: float) -> Need:
            def measure(piece: Batch) -> Course:
                graph = self.new((0, 0), piece, keep)
                graph.mode = self._mode(few, keep)
                make = graph.graph if keep else lambda: None
                return course(make, lambda: graph.product(self.split(v), list(self.leaves)))

            if rows.count(few) == counts[0]:  # it cannot be cut
                return Need(lambda size: few, measure, counts[0], room)
            return Need(lambda size: rows.cut(first, size)[0], measure, counts[0], room)

        vectors = VECTORS * len(v) * v.dtype.itemsize
        return plan(needs, counts, vectors, budget)

    def _ones(self) -> Tensor:
        """A flat vector of the first parameter's dtype and device."""
        return next(iter(self.leaves.values())).new_ones(sum(p.numel() for p in self.leaves.values()))
