"""Differences of the gradients of a stated graph, in a float64 copy, example by example."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from runner.curvature.estimators.estimate import on_sphere
from runner.curvature.function.comparison import (
    Difference,
    Differences,
    Rows,
    bent,
    fitted,
    of_quotients,
)
from runner.curvature.function.double import Record, double_precision, narrowing, widen
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.state import untouched

INSIDE = "output"


class GraphDifferences(Differences):
    """Of one part of the Hessian between nodes. The batch is displaced as a whole.

    wide: whether a float64 copy could be made; else the network is evaluated as it is. A unit of
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
        self.record = Record()
        self.narrowed = self.record.narrowed
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

    def _values(self, network: tuple[Dag, Tensor, Tensor], wide: bool) -> dict[str, Tensor]:
        self.dag, self.x, self.y = network
        self.wide = wide
        self.record.clear()
        with self._quiet(), torch.no_grad():
            values = self.dag.forward(self.x)
            output = values[self.dag.output]
            self.dag.loss.per_example(output[:1], self.y[:1])
        if wide and output.dtype != torch.float64:
            raise TypeError("the output is not in float64")
        return values

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        wide = double_precision(self.record) if self.wide else nullcontext()
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
        with self._quiet():
            output = self.dag.forward(self.x)[self.dag.output]
            slope = self._slope(output)
        return of_quotients(fitted([slope], torch.finfo(slope.dtype).eps), self.steps)

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
        loss = self._loss(output)
        if self.wide:
            self.narrowed.update(narrowing([loss]))
        return self._pulled(loss, leaves)

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

        found = Difference.of(self._output, step, centre)
        value = through_loss(found.value)
        largest = max(float(rows.norm()) for rows in value.values())
        rounding = largest * torch.finfo(here.dtype).eps / step
        return Difference(value, through_loss(found.turn), dict.fromkeys(value, rounding))
