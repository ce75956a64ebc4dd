"""Inter-layer blocks without the blocks: products H z by automatic differentiation, one backward
pass for every node.

With e_v added to the outputs of node v for all examples, g_v = dL/de_v of the mean loss, directions
r_w and s = sum_w g_w . r_w, one backward pass of s gives sum_w H[v,w] r_w for every v at once. Many
directions are applied together by replicating the batch, as many at a time as the memory budget
allows. The first two passes (outputs, g) are kept and reused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from runner.curvature.function.changes import Changes
from runner.curvature.function.errors import MeasurementError, first_not_finite, second_derivatives
from runner.curvature.function.precision import full_precision
from runner.curvature.graphs.checks import MEMORY_BUDGET, check_before_measuring
from runner.curvature.graphs.dag import INPUT, Dag
from runner.curvature.graphs.derivatives import (
    differentiable_value,
    evaluate,
    naming_node,
    refuse_cut_backwards,
    require_floating,
)
from runner.curvature.graphs.losses import repeated
from runner.curvature.graphs.state import (
    differentiable,
    measuring,
    modules_of,
    untouched,
)
from runner.curvature.operators.peak import allocations
from runner.curvature.operators.symmetric import Products, SymmetricOperator

UNSEEN = 1.6
"""Memory of a product over that of its tensors: convolutions keep copies of their own, and what an
allocator keeps differs from process to process (measured: 1.2 to 1.75)."""

Part = Literal["total", "gauss_newton", "tensor"]


@dataclass
class _Graph:
    """Differentiable outputs, perturbations and gradients of `copies` replicas of the batch."""

    copies: int
    leaves: dict[str, Tensor]
    output: Tensor
    gradients: dict[str, Tensor]


class CurvatureOperator(SymmetricOperator):
    """The symmetric matrix [H[v,w]] over `nodes`, of the mean loss over (x, y), as an operator.

    nodes: default all. part: "total", "gauss_newton" or "tensor" (their difference). sizes[v] =
    d_v.
    `apply` multiplies it with directions, `block(v, w)` is one block of it. memory_budget: bytes
    that all simultaneous directions may take, what is under way included (0: one direction at a
    time). `products` counts the directions applied so far (a tensor product counts once). Works
    whatever the caller's gradient mode. Values that are not finite are told in `reason`, and make
    every estimate NaN.

    Raises ValueError as the guards of checks.py do (check=False skips them), and in `apply` when
    data or weights of modules that are nodes have changed since: what is kept here belongs to the
    old ones. What functions read from elsewhere is compared by `refuse_changes`, as by estimators.

    >>> from runner.curvature import Dag
    >>> dag = Dag.from_sequential([torch.sin, torch.tanh], loss="mse", names=["h", "out"])
    >>> operator = CurvatureOperator(dag, torch.ones(2, 3), torch.zeros(2, 3))
    >>> operator.block("h", "out").dense().shape
    torch.Size([3, 3])
    """

    def __init__(
        self,
        dag: Dag,
        x: Tensor,
        y: Tensor,
        nodes: Iterable[str] | None = None,
        *,
        part: Part = "total",
        memory_budget: int = MEMORY_BUDGET,
        check: bool = True,
    ) -> None:
        if part not in ("total", "gauss_newton", "tensor"):
            raise ValueError(f'part must be "total", "gauss_newton" or "tensor", got {part!r}')
        with measuring(dag):
            x, y = differentiable(x=x, y=y)
            self.dag = dag
            self.x = x
            self.part = part
            self.check = check
            self.nodes = dag.select(nodes)
            evaluation = (
                check_before_measuring(dag, x, y, finite=False) if check else evaluate(dag, x)
            )
            self._in_place = evaluation.in_place
            with torch.no_grad():
                self._values = dag.forward(x)
            output = self._values[dag.output]
            self.y = dag.loss.targets(output, y)
            self.reason = first_not_finite(self._values)
            require_floating(self._values, self.nodes)
            self._moving = dag.descendants(self.nodes)  # all others are evaluated once
            self.sizes = {v: self._values[v].shape[1:].numel() for v in self.nodes}
            self.dtype = output.dtype
            self.device = output.device
            self._loss_hessian = None
            if part != "total":
                self._loss_hessian = dag.loss.hessian(output, self.y)
        self._graph: _Graph | None = None
        self._writes = 0
        self._differentiable = False
        measured = memory_budget and not self.reason
        self.simultaneous = self._at_once(memory_budget) if measured else 1
        eps = torch.finfo(self.dtype).eps
        self._changes = Changes(self._displaced_loss, self._tensors, self._displaced_loss(), eps)

    def apply(self, directions: Mapping[str, Tensor]) -> Products:
        """sum_w H[v,w] r_w for every node v: directions[w] of shape (k, d_w), result (k, d_v).
        Absent nodes are zero.

        Raises ValueError for unknown nodes or shapes that do not fit, and when the network has
        changed."""
        if self.part == "tensor":
            return self.whole(directions)[0]
        return self._in_pieces(directions, (self._own,))[0]

    def apply_parts(self, directions: Mapping[str, Tensor]) -> tuple[Products, Products]:
        """The products with the total and with the Gauss-Newton part; needs part="tensor".
        Arguments as in apply."""
        if self.part != "tensor":
            raise ValueError(
                f'apply_parts needs an operator with part="tensor", this one has {self.part!r}'
            )
        total, gauss_newton = self._in_pieces(directions, (self._hessian, self._gauss_newton))
        return total, gauss_newton

    def whole(self, directions: Mapping[str, Tensor]) -> tuple[Products, Products]:
        """The products, and those of the total where this is the tensor part: a difference rounds
        as its terms do."""
        if self.part != "tensor":
            return super().whole(directions)
        total, gauss_newton = self.apply_parts(directions)
        return {v: total[v] - gauss_newton[v] for v in self.nodes}, total

    def refuse_changes(self) -> None:
        """Raises ValueError where the loss near this point is not what it was when the operator was
        built: weights, data or numbers that the network reads have changed."""
        self._changes.refuse()

    def _displaced_loss(self) -> float:
        """The loss with every node's output displaced a little."""
        generator = torch.Generator().manual_seed(1)
        with measuring(self.dag), torch.no_grad():
            shift = {}
            for v in self.dag.order:
                value = self._values[v]
                if value.is_floating_point():
                    noise = torch.randn(value.shape[1:], generator=generator, device="cpu")
                    shift[v] = 1e-3 * noise.to(value)
            return float(self.dag.mean_loss(self.x, self.y, shift))

    def _tensors(self) -> list[Tensor]:
        tables = [(m._parameters, m._buffers) for m in modules_of(self.dag).values()]
        held = [t for pair in tables for table in pair for t in table.values() if t is not None]
        return [*held, self.x, self.y]

    def _own(self, directions: Products, copies: int) -> Products:
        if self.part == "total":
            return self._hessian(directions, copies)
        return self._gauss_newton(directions, copies)

    def _in_pieces(
        self,
        directions: Mapping[str, Tensor],
        products: Sequence[Callable[[Products, int], Products]],
    ) -> list[Products]:
        """Each of `products` on the directions, as many at a time as the memory budget allows."""
        count = self.direction_count(directions)
        self._changes.refuse(always=False)
        if self._writes != self._changes.writes:
            self._graph = None
            self._writes = self._changes.writes
        found: list[list[Products]] = [[] for _ in products]
        with torch.inference_mode(False), torch.enable_grad(), full_precision():
            for start in range(0, count, self.simultaneous):
                end = start + self.simultaneous
                rows = {w: r[start:end].to(self.device, self.dtype) for w, r in directions.items()}
                piece = dict(zip(rows, differentiable(**rows), strict=True))
                for collected, product in zip(found, products, strict=True):
                    collected.append(product(piece, min(self.simultaneous, count - start)))
        self.products += count
        return [_joined(collected, self.nodes) for collected in found]

    # ------------------------------------------------------------------ automatic differentiation

    def _hessian(self, directions: Products, copies: int) -> Products:
        graph = self._graph_of(copies)
        return self._pull(_dot(graph.gradients, directions), None, graph)

    def _gauss_newton(self, directions: Products, copies: int) -> Products:
        """J^T A (J r): J r by differentiating J^T u, which is linear in u, with respect to u."""
        assert self._loss_hessian is not None
        graph = self._graph_of(copies)
        leaves = [graph.leaves[w] for w in directions]
        u = torch.zeros_like(graph.output, requires_grad=True)
        pulled = torch.autograd.grad(
            graph.output, leaves, u, create_graph=True, retain_graph=True, allow_unused=True
        )
        dot = _dot(dict(zip(directions, pulled, strict=True)), directions)
        if dot is None:
            return self._zero(graph)
        self._require_second_derivatives(pulled)
        (tangent,) = torch.autograd.grad(dot, u, retain_graph=True)
        tangent = tangent.reshape(copies, len(self.x), -1)
        curved = torch.einsum("bkl,pbl->pbk", self._loss_hessian, tangent) / len(self.x)
        return self._pull(graph.output, curved.reshape(graph.output.shape), graph)

    def _pull(self, value: Tensor | None, cotangent: Tensor | None, graph: _Graph) -> Products:
        if value is None or not value.requires_grad:
            return self._zero(graph)
        leaves = list(graph.leaves.values())
        with naming_node(self.dag, self._values), second_derivatives("a node or the loss"):
            grads = torch.autograd.grad(
                value, leaves, cotangent, retain_graph=True, materialize_grads=True
            )
        return {v: grad.flatten(1) for v, grad in zip(self.nodes, grads, strict=True)}

    def _zero(self, graph: _Graph) -> Products:
        return {v: torch.zeros_like(leaf).flatten(1) for v, leaf in graph.leaves.items()}

    def _graph_of(self, copies: int) -> _Graph:
        if self._graph is None or self._graph.copies != copies:
            self._graph = None  # free the old one first
            self._changes.refuse()
            with untouched():
                self._graph = self._build(copies)
            if self.check and not self.reason and not self._differentiable:
                self._require_second_derivatives(self._graph.gradients.values())
                self._differentiable = True
        return self._graph

    def _require_second_derivatives(self, gradients: Iterable[Tensor | None]) -> None:
        with naming_node(self.dag, self._values):
            refuse_cut_backwards(gradients, "the network")

    def _build(self, copies: int) -> _Graph:
        batch = len(self.x)
        leaves = {}
        for v in self.nodes:
            shape = self._values[v].shape[1:]
            leaves[v] = self._values[v].new_zeros(copies, 1, *shape).requires_grad_()

        def perturbed(v: str, value: Tensor) -> Tensor:
            if v not in leaves:
                return value
            return (value.view(copies, batch, *value.shape[1:]) + leaves[v]).flatten(0, 1)

        with torch.enable_grad():
            values: dict[str, Tensor] = {}
            for name in (INPUT, *self.dag.order):
                if name in self._moving:
                    value = differentiable_value(self.dag.nodes[name], values, self._in_place)
                else:
                    value = repeated(self._values[name].detach(), copies)
                values[name] = perturbed(name, value)
            output = values[self.dag.output]
            targets = repeated(self.y, copies)
            gradients: dict[str, Tensor] = {}
            if self.part != "gauss_newton":
                loss = self.dag.loss.summed(output, targets) / batch
                grads = torch.autograd.grad(
                    loss, list(leaves.values()), create_graph=True, allow_unused=True
                )
                gradients = {v: g for v, g in zip(leaves, grads, strict=True) if g is not None}
        return _Graph(copies, leaves, output, gradients)

    def _at_once(self, budget: int) -> int:
        """How many directions go through the network together: as many as the products of one fit
        the budget."""

        def product() -> None:
            first = self.nodes[0]
            size = self.sizes[first]
            one = {first: torch.ones(1, size, dtype=self.dtype, device=self.device)}
            self._graph = self._build(1)
            if self.part != "gauss_newton":
                self._hessian(one, 1)
            if self.part != "total":
                self._gauss_newton(one, 1)

        with measuring(self.dag):
            # What fails here is told at once, what cannot be differentiated twice in `apply`.
            self._build(1)
            try:
                peak = max(1, *allocations(product))
            except MeasurementError:  # also while a profiler is running
                peak = budget
        self._graph = None
        return max(1, int(budget / (UNSEEN * peak)))


def _dot(gradients: Mapping[str, Tensor | None], directions: Products) -> Tensor | None:
    """sum_w g_w . r_w over the nodes that have a gradient."""
    total = None
    for w, direction in directions.items():
        gradient = gradients.get(w)
        if gradient is not None:
            term = (gradient.flatten(1) * direction).sum()
            total = term if total is None else total + term
    return total


def _joined(pieces: Sequence[Products], nodes: Iterable[str]) -> Products:
    """The rows of all pieces, by node."""
    rows = {}
    for v in nodes:
        rows[v] = torch.cat([piece[v] for piece in pieces])
    return rows
