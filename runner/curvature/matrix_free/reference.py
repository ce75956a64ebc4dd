"""What a product must agree with, by first derivatives alone: differences of gradients in a float64 copy.

One example at a time, so that nothing here depends on how examples are batched, replicated or averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from runner.curvature.graph.dag import Dag
from runner.curvature.graph.state import untouched

Vectors = dict[str, Tensor]


class Widened(TorchFunctionMode):
    """Tensors of lower precision that meet float64 ones are taken for float64: weights that functions hold in
    closures, which no copy of the modules reaches."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        leaves, spec = tree_flatten((args, kwargs or {}))
        if any(isinstance(t, Tensor) and t.dtype == torch.float64 for t in leaves):
            args, kwargs = tree_unflatten([widen(t) for t in leaves], spec)
        return func(*args, **(kwargs or {}))


def widen(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_complex():
        return value.to(torch.complex128)
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


class Reference:
    """First derivatives that products must agree with: the gradients of `examples` pieces. `gradient` alone is needed.

    double: whether they are in float64. weights: shares of the pieces, None for equal ones. scales[v]: natural size of
    a step at a node.
    """

    examples = 1
    double = True
    weights: Sequence[float] | None = None
    scales: Mapping[str, Any] = {}

    @classmethod
    def of(cls, target: Any) -> Reference:
        """The target itself, or what it states of a reference."""
        if isinstance(target, Reference):
            return target
        stated = cls()
        for name in ("examples", "double", "weights", "scales", "gradient", "difference"):
            if hasattr(target, name):
                setattr(stated, name, getattr(target, name))
        return stated

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Gradients on, the user's model untouched, mixed precisions widened when a float64 copy is used."""
        yield

    def value(self, shift: Mapping[str, Tensor], example: int) -> float:
        """The loss of a piece at the displaced point; NaN where it is not known."""
        return math.nan

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Vectors:
        """Gradient of a piece's loss at the displaced point, (d_v,) each."""
        raise NotImplementedError

    def difference(self, direction: Mapping[str, Tensor], example: int, step: float) -> Vectors:
        """The product with the direction, for one piece."""
        return central(lambda shift: self.gradient(shift, example), direction, step)

    def sides(
        self, direction: Mapping[str, Tensor], example: int, step: float, distance: float
    ) -> tuple[Vectors, ...]:
        """The same at this distance behind and ahead on the line of the direction, in its lengths: next to a kink."""
        return ()

    def slope_error(self, direction: Mapping[str, Tensor], example: int, step: float) -> float:
        """|g . r - difference of the loss along r|, relative: whether the gradient is one."""
        at, ahead, behind = ({v: s * r for v, r in direction.items()} for s in (0.0, step, -step))
        with self.quiet():
            slope = sum(
                float((g * direction[v]).sum()) for v, g in self.gradient(at, example).items()
            )
        expected = (self.value(ahead, example) - self.value(behind, example)) / (2 * step)
        return abs(slope - expected) / max(abs(slope), abs(expected), 1e-300)

    def wrong_node(self, example: int, tolerance: float) -> str:
        """The first node, from the output back, whose own second derivative is not that of its gradient; "" if none."""
        return ""


class FiniteDifferences(Reference):
    """Products of one part of the Hessian of a Dag's examples, by central differences.

    double: whether a float64 copy could be made; else the network is evaluated as it is, and differences are coarse.
    scales[v]: root mean square of the node's outputs, the natural size of a step there.
    """

    def __init__(
        self, dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], part: str = "total"
    ) -> None:
        self.original, self.nodes, self.part = dag, nodes, part
        self.examples = len(x)
        try:
            values = self._values(dag.to(torch.float64), widen(x), widen(y), True)
        except Exception:  # modules that cannot be copied, or functions with a dtype of their own
            values = self._values(dag, x, y, False)
        self.shapes = {v: values[v].shape[1:] for v in nodes}
        sizes = {v: float(values[v].double().square().mean().sqrt()) for v in nodes}
        self.scales = {v: s if s > 0 else 1.0 for v, s in sizes.items()}

    def _values(self, dag: Dag, x: Tensor, y: Tensor, double: bool) -> Vectors:
        """The values of all nodes of the graph that is used from now on."""
        self.dag, self.x, self.y, self.double = dag, x, y, double
        with self.quiet(), torch.no_grad():
            values = dag.forward(x)
            dag.loss.per_example(values[dag.output], y)
        return values

    @contextmanager
    def quiet(self) -> Iterator[None]:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            untouched(self.original),
            widened(self.double),
        ):
            yield

    def output(self, shift: Mapping[str, Tensor], example: int) -> Tensor:
        """The network's output for one example with the nodes' outputs shifted."""
        shaped = {v: s.reshape(1, *self.shapes[v]) for v, s in shift.items()}
        return self.dag.forward(self.x[example : example + 1], shaped)[self.dag.output]

    def loss(self, output: Tensor, example: int) -> Tensor:
        return self.dag.loss.per_example(output, self.y[example : example + 1]).sum()

    def value(self, shift: Mapping[str, Tensor], example: int) -> float:
        with self.quiet(), torch.no_grad():
            return float(self.loss(self.output(shift, example), example))

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Vectors:
        leaves = {v: s.detach().clone().requires_grad_() for v, s in shift.items()}
        return gradients(self.loss(self.output(leaves, example), example), leaves)

    def difference(self, direction: Mapping[str, Tensor], example: int, step: float) -> Vectors:
        return self._difference(direction, example, step, 0.0)

    def sides(
        self, direction: Mapping[str, Tensor], example: int, step: float, distance: float
    ) -> tuple[Vectors, ...]:
        return tuple(
            self._difference(direction, example, step, centre) for centre in (-distance, distance)
        )

    def _difference(
        self, direction: Mapping[str, Tensor], example: int, step: float, centre: float
    ) -> Vectors:
        with self.quiet():
            if self.part == "gauss_newton":
                return self._gauss_newton(direction, example, step, centre)
            total = central(lambda shift: self.gradient(shift, example), direction, step, centre)
            if self.part == "total":
                return total
            curved = self._gauss_newton(direction, example, step, centre)
            return {v: total[v] - curved[v] for v in total}

    def _gauss_newton(
        self, direction: Mapping[str, Tensor], example: int, step: float, centre: float
    ) -> Vectors:
        """J^T A J r: J r from outputs, A u from gradients of the loss by the output, J^T by one backward pass."""
        with torch.no_grad():
            places = (centre + step, centre - step)
            ends = [self.output({v: s * r for v, r in direction.items()}, example) for s in places]
        leaves = {v: (centre * r).detach().requires_grad_() for v, r in direction.items()}
        output = self.output(leaves, example)
        tangent = (ends[0] - ends[1]) / (2 * step)
        return gradients(
            output, leaves, bent(lambda at: self.loss(at, example), output, tangent, step)
        )

    def wrong_node(self, example: int, tolerance: float) -> str:
        """The first node, from the output back, whose own second derivative is not that of its gradient; "" if none."""
        with self.quiet():
            with torch.no_grad():
                values = self.dag.forward(self.x[example : example + 1])
            for name in reversed(self.dag.order):
                if self._bends_wrongly(name, values, tolerance):
                    return name
        return ""

    def _bends_wrongly(self, name: str, values: Vectors, tolerance: float) -> bool:
        node = self.dag.nodes[name]
        parents = [p for p in dict.fromkeys(node.parents) if values[p].is_floating_point()]
        if (
            not parents or not values[name].is_floating_point()
        ):  # tokens, or indices: no derivative on either side
            return False
        generator = torch.Generator().manual_seed(0)
        weights, *drawn = (
            torch.randn(values[v].shape, generator=generator, dtype=torch.float64, device="cpu").to(
                values[v]
            )
            for v in (name, *parents)
        )
        direction = dict(zip(parents, drawn, strict=True))

        def slope(shift: Vectors, twice: bool = False) -> tuple[Vectors, Vectors]:
            leaves = {p: (values[p] + shift[p]).detach().requires_grad_() for p in parents}
            output = node(*((leaves.get(p, values[p])).clone() for p in node.parents))
            return leaves, gradients(output, leaves, weights, create_graph=twice)

        differences = central(
            lambda shift: slope(shift)[1], direction, 1e-5 if self.double else 1e-2
        )
        try:
            leaves, first = slope(
                {p: torch.zeros_like(r) for p, r in direction.items()}, twice=True
            )
            second = gradients(
                torch.stack([(first[p] * direction[p]).sum() for p in parents]).sum(), leaves
            )
        except Exception:
            return True
        scale = max(float(d.norm()) for d in differences.values())
        scale = max(scale, max(float(f.norm()) for f in first.values()) * 1e-4)
        return any(
            float((second[p] - differences[p]).norm()) > max(tolerance, 1e-4) * scale
            for p in parents
        )


class WholeBatch(FiniteDifferences):
    """The same of a network that runs on its batch alone: one piece, the mean over the batch."""

    def __init__(
        self, dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], part: str = "total"
    ) -> None:
        super().__init__(dag, x, y, nodes, part)
        self.examples = 1

    def output(self, shift: Mapping[str, Tensor], example: int) -> Tensor:
        shaped = {v: s.reshape(1, *self.shapes[v]) for v, s in shift.items()}
        return self.dag.forward(self.x, shaped)[self.dag.output]

    def loss(self, output: Tensor, example: int) -> Tensor:
        return self.dag.loss.per_example(output, self.y).mean()

    def wrong_node(self, example: int, tolerance: float) -> str:
        """None: the nodes have no functions of their own."""
        return ""


def widened(double: bool) -> AbstractContextManager[Any]:
    """`Widened` where gradients are those of a float64 copy."""
    return Widened() if double else nullcontext()


def gradients(
    value: Tensor, leaves: Vectors, cotangent: Tensor | None = None, *, create_graph: bool = False
) -> Vectors:
    """The gradient by each leaf, zeros where there is none."""
    if not value.requires_grad:
        return {v: torch.zeros_like(leaf) for v, leaf in leaves.items()}
    found = torch.autograd.grad(
        value, list(leaves.values()), cotangent, create_graph=create_graph, materialize_grads=True
    )
    return dict(zip(leaves, found, strict=True))


def bent(loss: Callable[[Tensor], Tensor], at: Tensor, tangent: Tensor, step: float) -> Tensor:
    """The second derivative of the loss at a point times the tangent, by central differences of its gradient."""

    def slope(point: Tensor) -> Tensor:
        leaf = point.detach().requires_grad_()
        return torch.autograd.grad(loss(leaf), leaf)[0]

    return (slope(at + step * tangent) - slope(at - step * tangent)) / (2 * step)


def central(
    field: Callable[[Vectors], Vectors],
    direction: Mapping[str, Tensor],
    step: float,
    centre: float = 0.0,
) -> Vectors:
    """(field((centre + step) r) - field((centre - step) r)) / (2 step)."""
    ahead = field({v: (centre + step) * r for v, r in direction.items()})
    behind = field({v: (centre - step) * r for v, r in direction.items()})
    return {v: (ahead[v] - behind[v]).detach() / (2 * step) for v in ahead}
