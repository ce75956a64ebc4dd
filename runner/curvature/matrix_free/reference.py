"""What a product must agree with, by first derivatives alone: differences of gradients in a float64 copy.

One example at a time, so that nothing here depends on how examples are batched, replicated or averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from runner.curvature.graph.dag import Dag
from runner.curvature.graph.state import untouched

Vectors = dict[str, Tensor]


class Widened(TorchFunctionMode):
    """Tensors of lower precision that meet float64 ones are taken for float64: weights that functions hold in
    closures, which no copy of the modules reaches."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        given = (args, kwargs or {})
        if any(t.dtype == torch.float64 for t in _tensors(given)):
            args, kwargs = widen(given)
        return func(*args, **(kwargs or {}))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)


def widen(value: Any) -> Any:
    if isinstance(value, Tensor):
        if value.is_complex():
            return value.to(torch.complex128)
        return value.double() if value.is_floating_point() and value.dtype != torch.float64 else value
    if type(value) in (list, tuple):
        return type(value)(widen(part) for part in value)
    if type(value) is dict:
        return {key: widen(part) for key, part in value.items()}
    return value


class FiniteDifferences:
    """Products of one part of the Hessian of a Dag's examples, by central differences.

    double: whether a float64 copy could be made; else the network is evaluated as it is, and differences are coarse.
    scales[v]: root mean square of the node's outputs, the natural size of a step there.
    """

    def __init__(self, dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], part: str = "total") -> None:
        self.original, self.nodes, self.part = dag, nodes, part
        self.examples = len(x)
        self.dag, self.x, self.y, self.double = dag, x, y, False
        try:
            self._use(dag.to(torch.float64), x, y)
        except Exception:  # modules that cannot be copied, or functions with a dtype of their own
            with self.quiet(), torch.no_grad():
                values = dag.forward(x)
            self._describe(values)

    def _use(self, dag: Dag, x: Tensor, y: Tensor) -> None:
        self.dag, self.double = dag, True
        self.x, self.y = widen(x), widen(y)
        try:
            with self.quiet(), torch.no_grad():
                values = dag.forward(self.x)
                dag.loss.per_example(values[dag.output], self.y)
            self._describe(values)
        except Exception:
            self.dag, self.x, self.y, self.double = self.original, x, y, False
            raise

    def _describe(self, values: Vectors) -> None:
        self.shapes = {v: values[v].shape[1:] for v in self.nodes}
        self.dtype = values[self.dag.output].dtype
        sizes = {v: float(values[v].double().square().mean().sqrt()) for v in self.nodes}
        self.scales = {v: s if s > 0 else 1.0 for v, s in sizes.items()}

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Gradients on, the user's model untouched, mixed precisions widened when a float64 copy is used."""
        with torch.inference_mode(False), torch.enable_grad(), untouched(self.original):
            if self.double:
                with Widened():
                    yield
            else:
                yield

    def output(self, shift: Mapping[str, Tensor], example: int) -> Tensor:
        """The network's output for one example with the nodes' outputs shifted."""
        shaped = {v: s.reshape(1, *self.shapes[v]) for v, s in shift.items()}
        return self.dag.forward(self.x[example : example + 1], shaped)[self.dag.output]

    def loss(self, output: Tensor, example: int) -> Tensor:
        return self.dag.loss.per_example(output, self.y[example : example + 1]).sum()

    def gradient(self, shift: Mapping[str, Tensor], example: int) -> Vectors:
        """Gradient of one example's loss by the nodes' outputs, at the shift: (d_v,) each."""
        leaves = {v: s.detach().clone().requires_grad_() for v, s in shift.items()}
        value = self.loss(self.output(leaves, example), example)
        if not value.requires_grad:
            return {v: torch.zeros_like(leaf) for v, leaf in leaves.items()}
        found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        return {v: torch.zeros_like(s) if g is None else g for (v, s), g in zip(leaves.items(), found, strict=True)}

    def difference(self, direction: Mapping[str, Tensor], example: int, step: float) -> Vectors:
        """The product of the part with the direction, for one example."""
        return self.difference_at(direction, example, step, 0.0)

    def difference_at(self, direction: Mapping[str, Tensor], example: int, step: float, centre: float) -> Vectors:
        """The same at another place on the line of the direction, in its lengths: on one side of a kink."""
        with self.quiet():
            if self.part == "gauss_newton":
                return self._gauss_newton(direction, example, step, centre)
            total = central(lambda shift: self.gradient(shift, example), direction, step, centre)
            if self.part == "total":
                return total
            curved = self._gauss_newton(direction, example, step, centre)
            return {v: total[v] - curved[v] for v in total}

    def _gauss_newton(self, direction: Mapping[str, Tensor], example: int, step: float, centre: float) -> Vectors:
        """J^T A J r: J r from outputs, A u from gradients of the loss by the output, J^T by one backward pass."""
        with torch.no_grad():
            places = (centre + step, centre - step)
            ends = [self.output({v: s * r for v, r in direction.items()}, example) for s in places]
        tangent = (ends[0] - ends[1]) / (2 * step)
        leaves = {v: (centre * r).detach().requires_grad_() for v, r in direction.items()}
        output = self.output(leaves, example)

        def slope(at: Tensor) -> Tensor:
            leaf = at.detach().requires_grad_()
            return torch.autograd.grad(self.loss(leaf, example), leaf)[0]

        curved = (slope(output + step * tangent) - slope(output - step * tangent)) / (2 * step)
        found = torch.autograd.grad(output, list(leaves.values()), curved, allow_unused=True)
        return {v: torch.zeros_like(s) if g is None else g for (v, s), g in zip(leaves.items(), found, strict=True)}

    def slope_error(self, direction: Mapping[str, Tensor], example: int, step: float) -> float:
        """|g . r - difference of the loss along r|, relative: whether the gradient is one."""
        with self.quiet():
            zero = {v: torch.zeros_like(r) for v, r in direction.items()}
            found = sum(float((g * direction[v]).sum()) for v, g in self.gradient(zero, example).items())
            with torch.no_grad():
                shifts = [{v: s * step * r for v, r in direction.items()} for s in (1, -1)]
                ends = [float(self.loss(self.output(shift, example), example)) for shift in shifts]
        expected = (ends[0] - ends[1]) / (2 * step)
        return abs(found - expected) / max(abs(found), abs(expected), 1e-300)

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
        if not parents or not values[name].is_floating_point():  # tokens, or indices: no derivative on either side
            return False
        generator = torch.Generator().manual_seed(0)
        weights = torch.randn(values[name].shape, generator=generator, dtype=torch.float64, device="cpu").to(
            values[name]
        )
        direction = {
            p: torch.randn(values[p].shape, generator=generator, dtype=torch.float64, device="cpu").to(values[p])
            for p in parents
        }

        def slope(shift: Vectors, twice: bool = False) -> tuple[Vectors, Vectors]:
            leaves = {p: (values[p] + shift[p]).detach().requires_grad_() for p in parents}
            output = node(*((leaves.get(p, values[p])).clone() for p in node.parents))
            if not output.requires_grad:
                return leaves, {p: torch.zeros_like(leaf) for p, leaf in leaves.items()}
            found = torch.autograd.grad(output, list(leaves.values()), weights, create_graph=twice, allow_unused=True)
            return leaves, {
                p: torch.zeros_like(leaf) if g is None else g
                for (p, leaf), g in zip(leaves.items(), found, strict=True)
            }

        differences = central(lambda shift: slope(shift)[1], direction, 1e-5 if self.double else 1e-2)
        try:
            leaves, first = slope({p: torch.zeros_like(r) for p, r in direction.items()}, twice=True)
            dot = sum((first[p] * direction[p]).sum() for p in parents)
            if not isinstance(dot, Tensor) or not dot.requires_grad:
                second: Any = [None] * len(parents)
            else:
                second = torch.autograd.grad(dot, list(leaves.values()), allow_unused=True)
        except Exception:
            return True
        scale = max((float(d.norm()) for d in differences.values()), default=0.0)
        scale = max(scale, max((float(f.norm()) for f in first.values()), default=0.0) * 1e-4)
        return any(
            float(((0 * differences[p] if s is None else s) - differences[p]).norm()) > max(tolerance, 1e-4) * scale
            for p, s in zip(parents, second, strict=True)
        )


class WholeBatch(FiniteDifferences):
    """The same of a network that runs on its batch alone: one piece, the mean over the batch."""

    def __init__(self, dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], part: str = "total") -> None:
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


def central(
    field: Callable[[Vectors], Vectors], direction: Mapping[str, Tensor], step: float, centre: float = 0.0
) -> Vectors:
    """(field((centre + step) r) - field((centre - step) r)) / (2 step)."""
    ahead = field({v: (centre + step) * r for v, r in direction.items()})
    behind = field({v: (centre - step) * r for v, r in direction.items()})
    return {v: (ahead[v] - behind[v]).detach() / (2 * step) for v in ahead}
