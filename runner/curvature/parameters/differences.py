"""What products over parameters must agree with, by first derivatives alone: gradients of a float64 copy, displaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from runner.curvature.graph.copies import deep_copy
from runner.curvature.matrix_free.reference import Vectors, Widened, central, widen
from runner.curvature.parameters.batches import Batches
from runner.curvature.parameters.graphs import Graphs, Part
from runner.curvature.parameters.groups import Layout
from runner.curvature.parameters.model import Model, Named, Output
from runner.curvature.parameters.products import BatchFactored


class Differentiated(Protocol):
    """What differences need of the operator that they check."""

    module: nn.Module
    loss: Any
    part: Part
    samples: int | None
    examples: int
    dtype: torch.dtype
    groups: dict[str, slice]
    model: Model
    batches: Batches
    graphs: Graphs
    layout: Layout


class ParameterDifferences:
    """Products of an operator's part, one batch at a time, from outputs and gradients at displaced weights.

    Hessian: central differences of the gradient. Gauss-Newton and Fisher: J v from differences of the outputs, A u from
    differences of the loss's gradient (for drawn targets from the drawn gradients), J^T by one backward pass. Empirical
    Fisher: g (g . v) of every example's gradient, taken alone. double: whether a float64 copy could be made.
    """

    noun = "group"

    def __init__(self, operator: Differentiated) -> None:
        self.operator = operator
        self.weights = [count / operator.examples for count in operator.batches.counts]
        self.examples = len(self.weights)
        self.names = list(operator.layout.parameters)
        module, loss = operator.module, operator.loss
        try:
            self.model = Model(deep_copy(module).double(), _doubled(loss), operator.model.pick)
            self.double = True
            self._start()
            self.value({}, 0)
        except Exception:  # a module that cannot be copied, or that has a dtype of its own
            self.model, self.double = Model(module, loss, operator.model.pick), False
            self._start()
        flat = self._flat({})
        rms = {g: float(flat[s].double().square().mean().sqrt()) for g, s in operator.groups.items()}
        self.scales = {g: r if r > 0 else 1.0 for g, r in rms.items()}

    def _start(self) -> None:
        known = dict(self.model.module.named_parameters())
        self.point = {name: known[name].detach() for name in self.names}

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Gradients on, the module differentiable, and tensors that no copy reaches widened."""
        with self.model.differentiable():
            if self.double:
                with Widened():
                    yield
            else:
                yield

    def value(self, shift: Mapping[str, Tensor], example: int) -> float:
        """The loss of a batch at the displaced weights."""
        with self.quiet(), torch.no_grad():
            return float(self.model.value(self._placed(self._flat(shift)), self._batch(example)))

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Vectors:
        """The gradient of a batch's loss at the displaced weights, (n_g,) each."""
        with self.quiet():
            return self._groups(self._slope(self._flat(shift), self._batch(example)))

    def difference(self, direction: Mapping[str, Tensor], example: int, step: float) -> Vectors:
        """The product of the operator's part with the direction, for one batch."""
        part = self.operator.part
        if part == "hessian":
            return central(lambda shift: self.gradient(shift, example), direction, step)
        moved = torch.zeros_like(self._flat({}))
        for g, r in direction.items():
            moved[self.operator.groups[g]] = r.to(moved)
        total = torch.zeros_like(moved)
        batches, count = self.operator.batches, self.operator.batches.counts[example]
        with self.quiet():
            for place, piece, share in batches.pieces_of(example, batches.batch(example)):
                share *= batches.examples / count  # of this batch
                if part == "empirical_fisher":
                    total += share * self._outer_products(moved, piece)
                else:
                    total += share * self._factored(moved, place, piece, step)
        return self._groups(total)

    def _outer_products(self, moved: Tensor, piece: Any) -> Tensor:
        singles = self.operator.batches.rows.cut(piece, 1)
        gradients = (self._slope(self._flat({}), self._widen(one)) for one in singles)
        return torch.stack([g * (g @ moved) for g in gradients]).mean(0)

    def _factored(self, moved: Tensor, place: Any, piece: Any, step: float) -> Tensor:
        base, wide = self._flat({}), self._widen(piece)
        leaf = base.clone().requires_grad_()
        whole = self.model.call(self._placed(leaf), wide[0])
        output = Output(whole, self.model.loss, wide[1], self.operator.batches.rows.count(piece))
        tensor = output.tensor(whole)
        with torch.no_grad():
            ends = [output.tensor(self.model.call(self._placed(base + s * step * moved), wide[0])) for s in (1, -1)]
        tangent = (ends[0] - ends[1]) / (2 * step)
        if self.operator.samples is not None:
            graph = self.operator.graphs.new(place, piece, False)
            assert isinstance(graph, BatchFactored)  # only Fisher parts draw samples
            curved = graph.graph()[2].apply(tangent.to(self.operator.dtype)).to(tangent)
        else:

            def slope(at: Tensor) -> Tensor:
                point = at.detach().requires_grad_()
                return torch.autograd.grad(output.value(point, wide[1]), point)[0]

            curved = (slope(tensor + step * tangent) - slope(tensor - step * tangent)) / (2 * step)
        (found,) = torch.autograd.grad(tensor, leaf, curved, allow_unused=True)
        return torch.zeros_like(base) if found is None else found

    def slope_error(self, direction: Mapping[str, Tensor], example: int, step: float) -> float:
        """|g . r - difference of the loss along r|, relative: whether the gradient is one."""
        found = sum(float((g * direction[v]).sum()) for v, g in self.gradient({}, example).items())
        ends = [self.value({v: s * step * r for v, r in direction.items()}, example) for s in (1, -1)]
        expected = (ends[0] - ends[1]) / (2 * step)
        return abs(found - expected) / max(abs(found), abs(expected), 1e-300)

    # ------------------------------------------------------------------ weights and batches

    def _flat(self, shift: Mapping[str, Tensor]) -> Tensor:
        flat = torch.cat([self.point[name].flatten() for name in self.names])
        for g, e in shift.items():
            flat[self.operator.groups[g]] += e.to(flat)
        return flat

    def _placed(self, flat: Tensor) -> Named:
        pieces = flat.split([self.point[name].numel() for name in self.names])
        return {name: piece.view_as(self.point[name]) for name, piece in zip(self.names, pieces, strict=True)}

    def _slope(self, flat: Tensor, batch: Any) -> Tensor:
        leaf = flat.clone().requires_grad_()
        value = self.model.value(self._placed(leaf), batch)
        if not value.requires_grad:
            return torch.zeros_like(flat)
        (found,) = torch.autograd.grad(value, leaf, allow_unused=True)
        return torch.zeros_like(flat) if found is None else found

    def _groups(self, flat: Tensor) -> Vectors:
        return {g: flat[s] for g, s in self.operator.groups.items()}

    def _batch(self, example: int) -> Any:
        return self._widen(self.operator.batches.batch(example))

    def _widen(self, batch: Any) -> Any:
        return tree_map(widen, (batch[0], batch[1])) if self.double else batch


def _doubled(loss: Any) -> Any:
    return deep_copy(loss).double() if isinstance(loss, nn.Module) else loss
