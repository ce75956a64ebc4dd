"""What products over parameters must agree with, by first derivatives alone: gradients in float64, displaced."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.tensors import tree_leaves, tree_map
from runner.curvature.matrix_free.reference import (
    Reference,
    Vectors,
    bent,
    gradients,
    widen,
    widened,
)
from runner.curvature.parameters.model import Named
from runner.curvature.parameters.products import BatchFactored


class _Padding(TorchFunctionMode):
    """Sees the weights of embeddings, and the row of each that stands for padding."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[Tensor, int]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func is F.embedding:
            bound = inspect.signature(func).bind(*args, **(kwargs or {})).arguments
            if bound.get("padding_idx") is not None:
                self.rows.append((bound["weight"], bound["padding_idx"]))
        return func(*args, **(kwargs or {}))


class ParameterDifferences(Reference):
    """Products of an operator's part, one batch at a time, from outputs and gradients at displaced weights.

    Hessian: central differences of the gradient. Gauss-Newton and Fisher: J v from differences of the outputs, A u from
    differences of the loss's gradient (for drawn targets from the drawn gradients), J^T by one backward pass. Empirical
    Fisher: g (g . v) of every example's gradient, taken alone. double: whether the module runs in float64.
    """

    weights: Sequence[float]

    def __init__(self, operator: Any) -> None:  # a ParameterOperator, which imports this module
        self.operator = operator
        data = operator.batches.data
        readings = (
            ()
            if isinstance(data, Sequence) or len(operator.batches) == 1
            else zip(data, data, strict=False)
        )
        if not all(_same(one, again) for one, again in readings):
            raise MeasurementError(
                "verify reads every batch several times, and this loader gives others each time: let it keep its order "
                "(shuffle=False, no augmentation), or raise memory_budget, so that its batches are kept"
            )
        self.weights = [operator.batches.share(i) for i in range(len(operator.batches.counts))]
        self.examples = len(self.weights)
        self.names = list(operator.layout.parameters)
        self.point = {name: widen(p.detach()) for name, p in operator.layout.parameters.items()}
        self.model, self.double = operator.model.double(), True
        try:
            self.value({}, 0)
        except Exception:  # a module that has a dtype of its own
            self.point = {name: p.detach() for name, p in operator.layout.parameters.items()}
            self.model, self.double = operator.model, False
        flat = self._flat({})
        rms = {
            g: float(flat[s].double().square().mean().sqrt()) for g, s in operator.groups.items()
        }
        moving = self._moving()
        self.scales = {
            g: (r if r > 0 else 1.0) * moving[operator.groups[g]] for g, r in rms.items()
        }

    def _moving(self) -> Tensor:
        """1 where a difference may move a parameter, 0 in rows of an embedding whose gradient torch leaves out."""
        moving, placed = torch.ones_like(self._flat({})), self._placed(self._flat({}))
        with self.quiet(graph=False), _Padding() as seen:
            for example in range(self.examples):
                self.model.value(placed, self._batch(example))
        for name, part in self._placed(moving).items():
            for weight, row in seen.rows:
                if weight is placed[name]:
                    part[row] = 0
        return moving

    @contextmanager
    def quiet(self, graph: bool = True) -> Iterator[None]:
        with self.model.differentiable(graph), widened(self.double):
            yield

    def value(self, shift: Mapping[str, Tensor], example: int) -> float:
        with self.quiet():
            return float(
                self.model.loss_alone(self._placed(self._flat(shift)), self._batch(example))
            )

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Vectors:
        with self.quiet():
            return self._groups(self._slope(self._flat(shift), self._batch(example)))

    def difference(
        self, direction: Mapping[str, Tensor], example: int, step: float
    ) -> Vectors | None:
        part = self.operator.part
        if part == "hessian":
            return super().difference(direction, example, step)
        moved = torch.zeros_like(self._flat({}))
        for g, r in direction.items():
            moved[self.operator.groups[g]] = r.to(moved)
        total = torch.zeros_like(moved)
        batches = self.operator.batches
        with self.quiet():
            for place, piece, share in batches.pieces_of(example, batches.batch(example)):
                share /= self.weights[example]
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
        placed = self._placed(leaf)
        whole = self.model.call(placed, wide[0])
        output = self.operator.graphs.output(self.model, placed, whole, wide)
        tensor = output.tensor(whole)
        with self.model.differentiable(graph=False):
            ends = [
                output.tensor(self.model.call(self._placed(base + s * step * moved), wide[0]))
                for s in (1, -1)
            ]
        tangent = (ends[0] - ends[1]) / (2 * step)
        if self.operator.samples is not None or self.operator.likelihood is not None:
            graph = self.operator.graphs.new(place, piece, False)
            assert isinstance(graph, BatchFactored)
            curved = graph.graph()[2].apply(tangent.to(self.operator.dtype)).to(tangent)
        else:
            curved = bent(lambda at: output.value(at, wide[1]), tensor, tangent, step)
        return gradients(tensor, {"": leaf}, curved)[""]

    # ------------------------------------------------------------------ weights and batches

    def _flat(self, shift: Mapping[str, Tensor]) -> Tensor:
        flat = torch.cat([self.point[name].flatten() for name in self.names])
        for g, e in shift.items():
            flat[self.operator.groups[g]] += e.to(flat)
        return flat

    def _placed(self, flat: Tensor) -> Named:
        pieces = flat.split([self.point[name].numel() for name in self.names])
        return {
            name: piece.view_as(self.point[name])
            for name, piece in zip(self.names, pieces, strict=True)
        }

    def _slope(self, flat: Tensor, batch: Any) -> Tensor:
        leaf = flat.clone().requires_grad_()
        return gradients(self.model.value(self._placed(leaf), batch), {"": leaf})[""]

    def _groups(self, flat: Tensor) -> Vectors:
        return {g: flat[s] for g, s in self.operator.groups.items()}

    def _batch(self, example: int) -> Any:
        return self._widen(self.operator.batches.batch(example))

    def _widen(self, batch: Any) -> Any:
        return widen_tree((batch[0], batch[1])) if self.double else batch


def widen_tree(batch: Any) -> Any:
    """The tensors of a batch in float64."""
    return tree_map(widen, batch)


def _same(one: Any, other: Any) -> bool:
    """Whether two readings of a batch have the same tensors."""
    pairs = zip(tree_leaves(one), tree_leaves(other), strict=False)
    return all(
        a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
        for a, b in pairs
        if isinstance(a, Tensor) and a.layout == torch.strided and a is not b
    )
