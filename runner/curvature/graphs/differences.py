"""Differences of the gradients of a stated graph, in a float64 copy, example by example."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from runner.curvature.estimators.estimate import on_sphere
from runner.curvature.function.differences import Difference, Differences, Rows, bent
from runner.curvature.function.double import double_precision, widen
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.state import untouched

INSIDE = "output"


class GraphDifferences(Differences):
    """Of one part of the Hessian between nodes. The batch is displaced as a whole.

    double: whether a float64 copy could be made; else the network is evaluated as it is. A unit of
    the direction at a node is the root mean square of its outputs.
    """

    def __init__(
        self,
        dag: Dag,
        x: Tensor,
        y: Tensor,
        nodes: tuple[str, ...],
        part: str,
        generator: torch.Generator | None,
    ) -> None:
        self.part = part
        self.narrowed = set[str]()
        values = self._evaluated(dag, x, y)
        self.shapes = {v: values[v].shape[1:] for v in nodes}
        self.direction = {}
        for v in nodes:
            size = float(values[v].double().square().mean().sqrt()) or 1.0
            drawn = on_sphere((1, values[v][0].numel()), torch.float64, generator)[0]
            self.direction[v] = size * drawn.to(values[v])

    def _evaluated(self, dag: Dag, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Values of the graph that is used from now on: of a float64 copy, or else of the graph
        itself."""
        try:
            return self._values((dag.to(torch.float64), widen(x), widen(y)), True)
        except Exception:  # modules that cannot be copied, functions with a dtype of their own
            return self._values((dag, x, y), False)

    def _values(self, network: tuple[Dag, Tensor, Tensor], double: bool) -> dict[str, Tensor]:
        self.dag, self.x, self.y = network
        self.double = double
        with self._quiet(), torch.no_grad():
            values = self.dag.forward(self.x)
            output = values[self.dag.output]
            self.dag.loss.per_example(output[:1], self.y[:1])
        if double and output.dtype != torch.float64:
            raise TypeError("the output is not in float64")
        return values

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        wide = double_precision(self.narrowed) if self.double else nullcontext()
        with torch.inference_mode(False), torch.enable_grad(), untouched(), wide:
            yield

    def at(self, step: float, centre: float = 0.0) -> Difference:
        with self._quiet():
            if self.part == "gauss_newton":
                return self._gauss_newton(step, centre)
            total = Difference.of(self._gradient, step, centre)
            if self.part == "total":
                return total
            return total.minus(self._gauss_newton(step, centre))

    def allowance(self) -> float:
        """Where all examples are fitted, the slope of the loss is the rest of a difference of
        numbers near 1: eps / slope, over the largest step."""
        with self._quiet():
            output = self.dag.forward(self.x)[self.dag.output]
            slope = self._slope(output) * len(output)
        return 1e5 * torch.finfo(slope.dtype).eps / max(float(slope.abs().max()), 1e-300)

    def _slope(self, output: Tensor) -> Tensor:
        """Gradient of the loss by the outputs."""
        leaf = output.detach().requires_grad_()
        return torch.autograd.grad(self._loss(leaf), leaf)[0]

    def _moved(self, place: float) -> tuple[dict[str, Tensor], Tensor]:
        """Perturbations of each example, and the outputs there."""
        leaves = {}
        for v, r in self.direction.items():
            shape = self.shapes[v]
            shift = (place * r).view(1, *shape)
            leaves[v] = shift.repeat(len(self.x), *[1] * len(shape)).requires_grad_()
        return leaves, self.dag.forward(self.x, leaves)[self.dag.output]

    def _pulled(
        self, value: Tensor, leaves: dict[str, Tensor], cotangent: Tensor | None = None
    ) -> Rows:
        if not value.requires_grad:
            return {v: torch.zeros_like(leaf).flatten(1) for v, leaf in leaves.items()}
        slopes = torch.autograd.grad(
            value, list(leaves.values()), cotangent, materialize_grads=True
        )
        return {v: slope.flatten(1) for v, slope in zip(leaves, slopes, strict=True)}

    def _loss(self, output: Tensor) -> Tensor:
        return self.dag.loss.per_example(output, self.y).mean()

    def _gradient(self, place: float) -> Rows:
        leaves, output = self._moved(place)
        return self._pulled(self._loss(output), leaves)

    def _output(self, place: float) -> Rows:
        with torch.no_grad():
            return {INSIDE: self._moved(place)[1]}

    def _gauss_newton(self, step: float, centre: float) -> Difference:
        """J^T A J r: J r from outputs, A u from gradients of the loss by the output, J^T by one
        backward pass."""
        with torch.no_grad():
            here = self._moved(centre)[1]

        def through_loss(rows: Rows) -> Rows:
            tangent = rows[INSIDE]
            curved = bent(self._slope, here, tangent, 1e-5 if self.double else 1e-2)
            fresh, again = self._moved(centre)
            return self._pulled(again, fresh, curved)

        found = Difference.of(self._output, step, centre).mapped(through_loss)
        largest = max(float(rows.norm()) for rows in found.value.values())
        return Difference(found.value, found.turn, largest * torch.finfo(here.dtype).eps / step)
