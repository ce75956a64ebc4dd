"""Inter-layer blocks without the blocks: products H z by automatic differentiation, one backward pass for every node.

With e_v added to the outputs of node v for all examples, g_v = dL/de_v of the mean loss, directions r_w and s = sum_w
g_w . r_w, one backward pass of s gives sum_w H[v,w] r_w for every v at once. Many directions are applied together by
replicating the batch, as many at a time as the memory budget allows. The first two passes (outputs, g) are kept and
reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from runner.curvature.exact.derivatives import second_derivatives
from runner.curvature.graph.checks import MEMORY_BUDGET, check_before_measuring
from runner.curvature.graph.dag import INPUT, Dag

Part = Literal["total", "gauss_newton", "tensor"]
Products = dict[str, Tensor]


@dataclass
class _Graph:
    """Differentiable outputs, perturbations and gradients of `copies` replicas of the batch."""

    copies: int
    leaves: dict[str, Tensor]
    output: Tensor
    gradients: dict[str, Tensor]


class CurvatureOperator:
    """The symmetric matrix [H[v,w]] over `nodes`, of the mean loss over (x, y), as an operator.

    nodes: default all. part: "total", "gauss_newton" or "tensor" (their difference). sizes[v] = d_v.
    `apply` multiplies it with directions, `block(v, w)` is one block of it. memory_budget: bytes that the saved tensors
    of all simultaneous directions may take. `products` counts the directions applied so far (a tensor product counts
    once). Raises ValueError as the guards of checks.py do (check=False skips them).
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
        self.dag, self.x, self.y, self.part = dag, x, y, part
        self.nodes = dag.select(nodes)
        if check:
            check_before_measuring(dag, x, y)
        self.products = 0
        with torch.no_grad():
            self._values = dag.forward(x)
        self._moving = self._perturbed_nodes()
        self.sizes = {v: self._values[v][0].numel() for v in self.nodes}
        self.dtype, self.device = self._values[dag.output].dtype, self._values[dag.output].device
        self._loss_hessian = dag.loss.hessian(self._values[dag.output], y) if part != "total" else None
        self._graph: _Graph | None = None
        self.simultaneous = max(1, memory_budget // max(1, self._saved_bytes()))

    def apply(self, directions: Mapping[str, Tensor]) -> Products:
        """sum_w H[v,w] r_w for every node v: directions[w] of shape (k, d_w), result (k, d_v). Absent nodes are zero.

        Raises ValueError for unknown nodes or shapes that do not fit.
        """
        if self.part == "tensor":
            total, gauss_newton = self.apply_parts(directions)
            return {v: total[v] - gauss_newton[v] for v in self.nodes}
        product = self._hessian if self.part == "total" else self._gauss_newton
        return self._in_pieces(directions, (product,))[0]

    def apply_parts(self, directions: Mapping[str, Tensor]) -> tuple[Products, Products]:
        """The products with the total and with the Gauss-Newton part; needs part="tensor". Arguments as in apply."""
        if self.part != "tensor":
            raise ValueError(f'apply_parts needs an operator with part="tensor", this one has {self.part!r}')
        total, gauss_newton = self._in_pieces(directions, (self._hessian, self._gauss_newton))
        return total, gauss_newton

    def _in_pieces(
        self, directions: Mapping[str, Tensor], products: Sequence[Callable[[Products, int], Products]]
    ) -> list[Products]:
        """Each of `products` on the directions, as many at a time as the memory budget allows."""
        counts = {len(r) for r in directions.values()}
        fits = all(w in self.sizes and r.shape[1:] == (self.sizes[w],) for w, r in directions.items())
        if len(counts) != 1 or not fits:
            raise ValueError(
                f"expected directions (k, d_w), one k for all, for nodes with sizes {self.sizes}; got "
                f"{ {w: tuple(r.shape) for w, r in directions.items()} }"
            )
        (count,) = counts
        found: list[list[Products]] = [[] for _ in products]
        for start in range(0, count, self.simultaneous):
            piece = {w: r[start : start + self.simultaneous].to(self.device, self.dtype) for w, r in directions.items()}
            for collected, product in zip(found, products, strict=True):
                collected.append(product(piece, min(self.simultaneous, count - start)))
        self.products += count
        return [{v: torch.cat([f[v] for f in collected]) for v in self.nodes} for collected in found]

    def block(self, v: str, w: str) -> BlockOperator:
        """The block H[v,w]."""
        for name in (v, w):
            if name not in self.sizes:
                raise ValueError(f"node {name!r} is not one of the operator's: {list(self.nodes)}")
        return BlockOperator(self, v, w)

    # ------------------------------------------------------------------ automatic differentiation

    def _hessian(self, directions: Products, copies: int) -> Products:
        graph = self._graph_of(copies)
        dot = sum((graph.gradients[w].flatten(1) * r).sum() for w, r in directions.items() if w in graph.gradients)
        return self._pull(dot, None, graph)

    def _gauss_newton(self, directions: Products, copies: int) -> Products:
        """J^T A (J r): J r by differentiating J^T u, which is linear in u, with respect to u."""
        assert self._loss_hessian is not None
        graph = self._graph_of(copies)
        names = list(directions)
        u = torch.zeros_like(graph.output, requires_grad=True)
        pulled = torch.autograd.grad(
            graph.output, [graph.leaves[w] for w in names], u, create_graph=True, retain_graph=True, allow_unused=True
        )
        dot = sum((p.flatten(1) * directions[w]).sum() for w, p in zip(names, pulled, strict=True) if p is not None)
        if not isinstance(dot, Tensor):
            return self._zero(copies)
        (tangent,) = torch.autograd.grad(dot, u, retain_graph=True)
        curved = torch.einsum("bkl,pbl->pbk", self._loss_hessian, tangent.view(copies, len(self.x), -1)) / len(self.x)
        return self._pull(graph.output, curved.reshape(graph.output.shape), graph)

    def _pull(self, value: Tensor | int, cotangent: Tensor | None, graph: _Graph) -> dict[str, Tensor]:
        zero = self._zero(graph.copies)
        if not isinstance(value, Tensor) or not value.requires_grad:
            return zero
        leaves = [graph.leaves[v] for v in self.nodes]
        with second_derivatives("a node"):
            grads = torch.autograd.grad(value, leaves, cotangent, retain_graph=True, allow_unused=True)
        return {v: zero[v] if g is None else g.flatten(1) for v, g in zip(self.nodes, grads, strict=True)}

    def _zero(self, copies: int) -> dict[str, Tensor]:
        return {v: torch.zeros(copies, self.sizes[v], dtype=self.dtype, device=self.device) for v in self.nodes}

    def _perturbed_nodes(self) -> set[str]:
        """Nodes whose value changes with a perturbation of an ancestor; all others are evaluated once."""
        moving: set[str] = set()
        for name in self.dag.order:
            if any(p in moving or p in self.nodes for p in self.dag.nodes[name].parents):
                moving.add(name)
        return moving

    def _graph_of(self, copies: int) -> _Graph:
        if self._graph is None or self._graph.copies != copies:
            self._graph = None  # free the old one first
            self._graph = self._build(copies)
        return self._graph

    def _build(self, copies: int) -> _Graph:
        batch = len(self.x)
        leaves = {
            v: self._values[v].new_zeros(copies, 1, *self._values[v].shape[1:]).requires_grad_() for v in self.nodes
        }

        def perturbed(v: str, value: Tensor) -> Tensor:
            if v not in leaves:
                return value
            return (value.view(copies, batch, *value.shape[1:]) + leaves[v]).flatten(0, 1)

        with torch.enable_grad():
            values: dict[str, Tensor] = {}
            for name in (INPUT, *self.dag.order):
                if name in self._moving:
                    node = self.dag.nodes[name]
                    value = node(*(values[p] for p in node.parents))
                else:
                    fixed = self._values[name].detach()
                    value = fixed.repeat(copies, *(1,) * (fixed.dim() - 1))
                values[name] = perturbed(name, value)
            output = values[self.dag.output]
            targets = self.y.repeat(copies, *(1,) * (self.y.dim() - 1))
            gradients: dict[str, Tensor] = {}
            if self.part != "gauss_newton":
                loss = self.dag.loss.summed(output, targets) / batch
                grads = torch.autograd.grad(loss, list(leaves.values()), create_graph=True, allow_unused=True)
                gradients = {v: g for v, g in zip(leaves, grads, strict=True) if g is not None}
        return _Graph(copies, leaves, output, gradients)

    def _saved_bytes(self) -> int:
        """Bytes that automatic differentiation keeps for one direction."""
        total = 0

        def pack(t: Tensor) -> Tensor:
            nonlocal total
            total += t.numel() * t.element_size()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            self._build(1)
        return total


@dataclass(frozen=True)
class BlockOperator:
    """One block H[v,w], shape (d_v, d_w), as products.

    >>> # op.matvec(z) == op.dense() @ z, op.adjoint.dense() == op.dense().T
    """

    operator: CurvatureOperator
    v: str
    w: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.sizes[self.v], self.operator.sizes[self.w]

    @property
    def adjoint(self) -> BlockOperator:
        """H[v,w]^T = H[w,v]."""
        return BlockOperator(self.operator, self.w, self.v)

    def matvec(self, z: Tensor) -> Tensor:
        """H[v,w] z: z of shape (d_w,) or k columns (d_w, k)."""
        columns = z if z.dim() == 2 else z.unsqueeze(1)
        product = self.operator.apply({self.w: columns.mT})[self.v].mT
        return product if z.dim() == 2 else product.squeeze(1)

    def dense(self) -> Tensor:
        """The block, (d_v, d_w), from min(d_v, d_w) products."""
        rows, columns = self.shape
        if rows < columns:
            return self.adjoint.dense().mT
        return self.matvec(torch.eye(columns, dtype=self.operator.dtype, device=self.operator.device))
