"""The interface of every curvature operator: a symmetric matrix of named blocks, known by its
products.

A new operator states `nodes`, `sizes`, `dtype`, `device` and `apply`; blocks, dense matrices, flat
vectors and the estimators come with it. `tests/curvature/contract.py` holds the laws that every
operator is tested for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.basics.errors import MeasurementError, describe

Pair = tuple[str, str]
Products = dict[str, Tensor]


class SymmetricOperator(ABC):
    """The symmetric matrix [H[v,w]] over `nodes` (of a graph, or groups of parameters), as
    products.

    nodes: names in order. sizes[v] = d_v. dtype, device: of directions and products. products:
    directions applied so far. reason: why every number of this operator is NaN, else ""."""

    noun = "node"
    nodes: tuple[str, ...]
    sizes: dict[str, int]
    dtype: torch.dtype
    device: torch.device
    products: int = 0
    reason: str = ""

    @abstractmethod
    def apply(self, directions: Mapping[str, Tensor]) -> Products:
        """sum_w H[v,w] r_w for every node v: directions[w] (k, d_w), result (k, d_v). Absent nodes
        are zero."""

    @property
    def shape(self) -> tuple[int, int]:
        n = sum(self.sizes[v] for v in self.nodes)
        return n, n

    def block(self, v: str, w: str) -> BlockOperator:
        """The block H[v,w]. Raises ValueError for an unknown node."""
        self.require([v, w])
        return BlockOperator(self, v, w)

    def matvec(self, z: Tensor) -> Tensor:
        """H z over all nodes, stacked in their order: z of shape (n,) or k columns (n, k)."""
        sizes = [self.sizes[v] for v in self.nodes]

        def product(rows: Tensor) -> Tensor:
            found = self.apply(dict(zip(self.nodes, rows.split(sizes, 1), strict=True)))
            return torch.cat([found[v] for v in self.nodes], 1)

        return by_rows(product, z, self.shape[0])

    def __matmul__(self, z: Tensor) -> Tensor:
        return self.matvec(z)

    def dense(self) -> Tensor:
        """The matrix, (n, n), from n products."""
        return self.matvec(torch.eye(self.shape[0], dtype=self.dtype, device=self.device))

    def require(self, names: Sequence[str]) -> None:
        """Raises ValueError unless every name is one of the operator's nodes."""
        for name in names:
            if name not in self.sizes:
                raise MeasurementError(
                    f"{self.noun} {name!r} is not one of the operator's: {list(self.nodes)}"
                )

    def checked(self, pairs: Iterable[Pair]) -> list[Pair]:
        """The pairs as a list. Raises ValueError for anything but pairs of the operator's nodes."""
        asked = list(pairs)
        for pair in asked:
            if isinstance(pair, str) or len(pair) != 2 or any(v not in self.sizes for v in pair):
                raise MeasurementError(
                    f"expected pairs (v, w) of the operator's nodes {list(self.nodes)}, found "
                    f"{pair!r}"
                )
        return [(v, w) for v, w in asked]

    def direction_count(self, directions: Mapping[str, Tensor]) -> int:
        """k of the directions. Raises ValueError for unknown nodes, shapes that do not fit, or
        different k."""
        counts = {len(r) for r in directions.values()}
        fits = all(r.shape[1:] == (self.sizes.get(w),) for w, r in directions.items())
        if len(counts) != 1 or 0 in counts or not fits:
            raise MeasurementError(
                "expected directions (k, d_w), one k of at least 1 for all, for nodes with "
                f"sizes {self.sizes}; got "
                f"{ {w: tuple(r.shape) for w, r in directions.items()} }"
            )
        return counts.pop()


def columns_of(z: Tensor, size: int) -> Tensor:
    """z (n,) or (n, k) as columns. Raises MeasurementError for another shape and for what is no
    tensor."""
    shaped = isinstance(z, Tensor) and z.dim() in (1, 2) and len(z) == size and z.numel() > 0
    if not shaped or z.is_complex():
        raise MeasurementError(
            f"expected a real tensor ({size},) or ({size}, k) with k columns, at least one, found "
            f"{describe(z)}"
        )
    if z.dim() == 2:
        return z
    return z.unsqueeze(1)


def by_rows(product: Callable[[Tensor], Tensor], z: Tensor, size: int) -> Tensor:
    """The product with z (size,) or columns (size, k), by one with rows (k, size)."""
    image = product(columns_of(z, size).mT).mT
    if z.dim() == 2:
        return image
    return image.squeeze(1)


@dataclass(frozen=True)
class BlockOperator:
    """One block H[v,w], shape (d_v, d_w), as products: matvec(z) is dense() @ z, adjoint.dense() is
    dense().T.

    Raises ValueError for a z of another size, and as the operator's `apply` does.
    """

    operator: SymmetricOperator
    v: str
    w: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.sizes[self.v], self.operator.sizes[self.w]

    @property
    def dtype(self) -> torch.dtype:
        return self.operator.dtype

    @property
    def device(self) -> torch.device:
        return self.operator.device

    @property
    def adjoint(self) -> BlockOperator:
        """H[v,w]^T = H[w,v]."""
        return BlockOperator(self.operator, self.w, self.v)

    def matvec(self, z: Tensor) -> Tensor:
        """H[v,w] z: z of shape (d_w,) or k columns (d_w, k)."""
        return by_rows(lambda rows: self.operator.apply({self.w: rows})[self.v], z, self.shape[1])

    def __matmul__(self, z: Tensor) -> Tensor:
        return self.matvec(z)

    def dense(self) -> Tensor:
        """The block, (d_v, d_w), from min(d_v, d_w) products."""
        rows, columns = self.shape
        if rows < columns:
            return self.adjoint.dense().mT
        return self.matvec(
            torch.eye(columns, dtype=self.operator.dtype, device=self.operator.device)
        )
