"""One interface to symmetric operators: of parameters, of activations, matrices, and operators of other libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from torch import Tensor

NOT_FINITE = "a product is not finite"
"""The reason of a NaN."""


class Symmetric:
    """n, dtype, device and products of `operator`, counted in `products`. squared: whether their squares are taken as
    they are, so that a first product whose squares leave the range of floats is refused.

    operator: a ParameterOperator; a CurvatureOperator (its nodes one after the other); a symmetric tensor or array;
    an operator of scipy, curvlinops or hessian-eigenthings; anything else with `shape` (or `size`) and `matvec` (or
    `@`) of a tensor. Vectors come and go in float64; the operator is given its own dtype. nodes: those of a
    CurvatureOperator that are taken, default all. Raises ValueError for anything else, and for a shape that is not
    square.
    """

    def __init__(
        self, operator: Any, nodes: Sequence[str] | None = None, *, squared: bool = False
    ) -> None:
        self.products, self.squared = 0, squared
        self._apply, shape, self.dtype, self.device = _products(operator, nodes)
        self._drawn: Callable[[Tensor], Tensor] = getattr(operator, "drawn", lambda vector: vector)
        if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
            raise ValueError(f"expected a symmetric operator, found shape {tuple(shape)}")
        self.size = int(shape[0])

    def matvec(self, v: Tensor) -> Tensor:
        """H v in float64, v (n,)."""
        self.products += 1
        image = self._apply(v.to(self.device, self.dtype)).to(
            torch.float64, copy=True
        )  # it may use its memory again
        if self.products == 1 and self.squared:
            size = float(image.abs().max())
            if 0 < size < 1e-152 or (size < math.inf and float(image @ image) == math.inf):
                raise ValueError(
                    f"products are about {size:.0e}, whose squares are out of range: rescale the operator"
                )
        return image

    def gaussian(self, generator: torch.Generator | None) -> Tensor:
        """A standard normal vector, drawn on the CPU, so that it does not depend on the device."""
        drawn = torch.randn(self.size, generator=generator, dtype=torch.float64, device="cpu")
        return self._drawn(drawn.to(self.device))

    def signs(self, generator: torch.Generator | None) -> Tensor:
        """Independent signs."""
        bits = torch.randint(
            0, 2, (self.size,), generator=generator, dtype=torch.int8, device="cpu"
        )
        return self._drawn(bits.double().mul_(2).sub_(1).to(self.device))

    def dense(self) -> Tensor:
        """The matrix, made symmetric, from n products."""
        eye = torch.eye(self.size, dtype=torch.float64, device=self.device)
        rows = torch.stack(
            [self._apply(e.to(self.dtype)).to(torch.float64, copy=True) for e in eye]
        )
        self.products += self.size
        _refuse_skew(rows)
        return (rows + rows.mT) / 2


def as_linear_operator(operator: Any) -> LinearOperator:
    """The operator for scipy, in float64: scipy.sparse.linalg.eigsh, cg, svds and the like."""
    symmetric = operator if isinstance(operator, Symmetric) else Symmetric(operator)

    def matvec(v: np.ndarray) -> np.ndarray:
        return (
            symmetric.matvec(torch.from_numpy(np.ascontiguousarray(v).reshape(-1)).double())
            .cpu()
            .numpy()
        )

    n = symmetric.size
    return LinearOperator((n, n), matvec=matvec, rmatvec=matvec, dtype=np.float64)


def _refuse_skew(matrix: Any) -> None:
    """Of torch, numpy or scipy. Raises ValueError for one that is not symmetric up to SKEW of its largest entry."""
    if abs(matrix - matrix.T).max() > SKEW * abs(matrix).max():
        raise ValueError("expected a symmetric matrix, found one that differs from its transpose")


SKEW = 1e-3
"""Largest difference from the transpose, relative to the largest entry."""


def _products(
    operator: Any, nodes: Sequence[str] | None
) -> tuple[Callable[[Tensor], Tensor], Any, torch.dtype, torch.device]:
    if "complex" in str(getattr(operator, "dtype", "")):
        raise ValueError(
            "expected a real operator, found complex numbers: use [[Re, -Im], [Im, Re]]"
        )
    if isinstance(operator, Tensor):
        matrix = operator.detach() if operator.is_floating_point() else operator.double()
        square = matrix.dim() == 2 and matrix.shape == matrix.mT.shape and matrix.numel() > 0
        if square and matrix.layout == torch.strided:
            _refuse_skew(matrix)
        return matrix.__matmul__, matrix.shape, matrix.dtype, matrix.device
    if isinstance(operator, np.ndarray) or issparse(operator):
        if operator.ndim == 2 and operator.shape[0] == operator.shape[1] and operator.shape[0]:
            _refuse_skew(operator)
        operator = aslinearoperator(operator)
    if isinstance(operator, LinearOperator):
        numpy_matvec = operator.matvec
        dtype = torch.float32 if operator.dtype == np.float32 else torch.float64
        return (
            lambda v: torch.from_numpy(numpy_matvec(v.numpy())),
            operator.shape,
            dtype,
            torch.device("cpu"),
        )
    product = getattr(operator, "matvec", getattr(operator, "__matmul__", None))
    shape = getattr(operator, "shape", 2 * (getattr(operator, "size", None),))
    if nodes is None and product is not None and None not in shape:
        dtype = getattr(operator, "dtype", torch.float64)
        dtype = (
            dtype if isinstance(dtype, torch.dtype) and dtype.is_floating_point else torch.float64
        )
        return product, shape, dtype, getattr(operator, "device", torch.device("cpu"))
    if hasattr(operator, "apply") and hasattr(operator, "sizes"):
        sizes = {v: operator.sizes[v] for v in (operator.sizes if nodes is None else nodes)}

        def joined(v: Tensor) -> Tensor:
            pieces = {
                w: p.unsqueeze(0) for w, p in zip(sizes, v.split(list(sizes.values())), strict=True)
            }
            image = operator.apply(pieces)
            return torch.cat([image[w][0] for w in sizes])

        n = sum(sizes.values())
        return joined, (n, n), operator.dtype, operator.device
    raise ValueError(
        f"expected an operator with shape and matvec (or @), or a symmetric matrix, found {type(operator).__name__}"
    )
