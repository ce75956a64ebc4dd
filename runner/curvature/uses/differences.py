"""Differences of first derivatives, which `verify` compares curvature with: of a stated graph
example by example, of a user's function over all its data, of a plain gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from runner.curvature.basics.errors import MeasurementError
from runner.curvature.basics.estimate import on_sphere
from runner.curvature.basics.vectors import Flat, divided, joined, norm
from runner.curvature.function.batch import Batch
from runner.curvature.function.double import Record, double_precision, narrowing, widen
from runner.curvature.function.function import Point, leaves_of, moved
from runner.curvature.graphs.blocks import BlockPart
from runner.curvature.graphs.dag import Dag
from runner.curvature.graphs.state import model_as_before
from runner.curvature.identities.comparison import (
    Difference,
    Differences,
    Rows,
    Vectors,
    bent,
    fitted,
    of_quotients,
)
from runner.curvature.identities.derivatives import in_double, noise
from runner.curvature.identities.verdicts import rounding
from runner.curvature.operators.operator import FunctionOperator
from runner.curvature.products.of_batch import FactoredGraph, outputs_at

INSIDE = "output"


def _direction(like: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """A random direction of so many numbers, whose root mean square is that of a tensor."""
    size = float(like.double().square().mean().sqrt()) or 1.0
    return size * on_sphere((1, count), torch.float64, generator)[0].to(like)


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
        part: BlockPart,
        generator: torch.Generator | None,
    ) -> None:
        self.part: BlockPart = part
        self.record = Record()
        self.narrowed = self.record.narrowed
        values = self._evaluated(dag, x, y)
        self.shapes = {v: values[v].shape[1:] for v in nodes}
        sizes = {v: shape.numel() for v, shape in self.shapes.items()}
        self.direction = {v: _direction(values[v], sizes[v], generator) for v in nodes}

    def _evaluated(self, dag: Dag, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Values of the graph that is used from now on: of a float64 copy, or else of the graph
        itself."""
        try:
            return self._values((dag.to(torch.float64), widen(x), widen(y)), True)
        except torch.OutOfMemoryError:
            raise
        except (ValueError, RuntimeError):  # no copies of modules, or a dtype of their own
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
            raise MeasurementError("the output is not in float64")
        return values

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        wide = double_precision(self.record) if self.wide else nullcontext()
        with torch.inference_mode(False), torch.enable_grad(), model_as_before(), wide:
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
            slope = self._slope(self.dag.forward(self.x)[self.dag.output])
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
        turn = through_loss({v: found.turn(v) for v in found.value})
        return Difference(value, turn.__getitem__, dict.fromkeys(value, rounding))


class FunctionDifferences(Differences):
    """Of any part. copied: whether a float64 copy is looked at; bar: counts gradients."""

    piece = "batch"

    def __init__(self, operator: FunctionOperator, copied: bool, seed: int, bar: Any) -> None:
        self.operator = operator
        self.function = operator.function
        self.bar = bar
        self.copied = copied
        self.wide = copied or operator.dtype == torch.float64
        self.function.record.clear()
        self.narrowed = self.function.record.narrowed
        self.noun = operator.noun
        self.cost = 3.0
        self.start = operator.values
        if copied:
            self.start = in_double(operator.values)
        self.steps_along = noise(self.function, self.start, seed)
        self.drawn = joined([*self.steps_along.values()])
        self.direction = self._rows(self.drawn)

    def product(self) -> Rows:
        """The operator's own, (d,) by group."""
        return self._rows(self.operator @ self.drawn.to(self.operator.dtype))

    def at(self, step: float, centre: float = 0.0) -> Difference:
        if self.operator.part == "hessian":
            return Difference.of(self._gradient, step, centre)
        value, turn = self._over_data(lambda batch: self._of_outputs(batch, step, centre))
        found = self._row(value)
        return Difference(found, self._row(turn).__getitem__, dict.fromkeys(found, 0.0))

    def allowance(self) -> float:
        """Of a batch whose examples are fitted: its loss has few digits."""
        eps = 2.2e-16 if self.double else 1.2e-7
        at = Point(self.start, self.copied, 1)
        found = rounding(self.function, at, self.operator.data.first, eps)
        return of_quotients(found, self.steps)

    def _rows(self, vector: Tensor) -> Rows:
        return {group: vector[..., place] for group, place in self.operator.groups.items()}

    def _row(self, vector: Tensor) -> Rows:
        return self._rows(vector.unsqueeze(0))

    def _over_data(self, of_batch: Callable[[Batch], Tensor]) -> Tensor:
        """The weighted sum over batches."""
        total = torch.zeros((), dtype=self.drawn.dtype, device=self.drawn.device)
        for batch, share in self.operator.data.weighed():
            if share > 0:
                total = total + share * of_batch(batch)
                self.bar.update(share)
        return total

    def _point(self, place: float) -> Point:
        return Point(moved(self.start, self.steps_along, place), self.copied, 1)

    def _gradient(self, place: float) -> Rows:
        point = self._point(place)
        return self._row(
            self._over_data(lambda batch: self.function.gradient(point, batch).gradient)
        )

    def _of_outputs(self, batch: Batch, step: float, centre: float) -> Tensor:
        """J^T (A J d), (2, n): outputs and slopes by differences, and one backward pass; then the
        turn, which is as large relative to it as that of the outputs is to J d."""
        point = self._point(centre)
        leaves = leaves_of(point.values)
        with self.function.at(point._replace(values=leaves)):
            graph = FactoredGraph(self.function, leaves, batch, 1.0, self.copied)
        shapes = dict(enumerate(graph.outputs))

        def outputs(place: float) -> Tensor:
            tensors = outputs_at(self.function, self._point(place), batch, graph.places)
            return joined(tensors).detach()

        base = joined(graph.outputs).detach()
        ahead = outputs(centre + step)
        behind = outputs(centre - step)
        apart = ahead - behind
        with self.function.at(point._replace(values=leaves)):
            change = graph.slope_at(base + apart / 2) - graph.slope_at(base - apart / 2)
            curved = change / (2 * step)
            images = graph.pull([*divided(curved, shapes).values()], False)
        value = Flat(self.start).join(images).detach()
        turn = 2 * norm(ahead + behind - 2 * base) / max(norm(apart), 1e-300)
        return torch.stack([value, turn * value])


class PlainDifferences(Differences):
    """Of a gradient theta -> g (n,), in float64 where theta is."""

    noun = "group"
    piece = "batch"

    def __init__(
        self,
        at: Tensor,
        gradient: Callable[[Tensor], Tensor],
        groups: Mapping[str, slice] | None,
        generator: torch.Generator | None,
    ) -> None:
        if not isinstance(at, Tensor) or at.dim() != 1 or not at.is_floating_point():
            raise MeasurementError(
                "verify(product, at=theta, gradient=...): expected theta as a floating vector (n,)"
            )
        n = len(at)
        self.spans = dict(groups or {"all": slice(0, n)})
        covered = [i for span in self.spans.values() for i in range(n)[span]]
        if sorted(covered) != list(range(n)):
            raise MeasurementError(
                f"expected groups as slices that cover the {n} numbers of the point once: {groups}"
            )
        self.theta = at.detach()
        self.gradient = gradient
        self.wide = at.dtype == torch.float64
        self.narrowed = set()
        self.whole_direction = torch.zeros_like(self.theta)
        for span in self.spans.values():
            part = self.theta[span]
            self.whole_direction[span] = _direction(part, len(part), generator)
        self.direction = self.cut(self.whole_direction)

    def cut(self, vector: Tensor) -> Vectors:
        """By group, (n,) or (k, n)."""
        return {group: vector[..., span] for group, span in self.spans.items()}

    def at(self, step: float, centre: float = 0.0) -> Difference:
        def moved(place: float) -> Rows:
            found = self.gradient(self.theta + place * self.whole_direction).detach()
            return self.cut(found.unsqueeze(0))

        return Difference.of(moved, step, centre)
