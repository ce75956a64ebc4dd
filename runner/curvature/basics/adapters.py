"""One interface to symmetric operators: of parameters, of activations, matrices, other
libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from torch import Tensor

from runner.curvature.basics.errors import MeasurementError
from runner.curvature.basics.estimate import ldexp, on_sphere

NOT_FINITE = "a product is not finite"
"""The reason of a NaN."""
SKEW = 1e-3
"""Largest difference from the transpose, relative to the largest entry."""
SKEW_ROUNDINGS = 16
"""The same in roundings, of operators in half precision."""
TOGETHER = 8
"""Vectors that are multiplied at once."""
ORDINARY = 60
"""Products below 2**60 and above 2**-60 are taken as they are; others are scaled by a power of
two."""


class Operator(Protocol):
    """A real symmetric matrix, known by its products: what every estimator takes.

    shape: (n, n). dtype, device: of vectors and products; without them float64 on the CPU. `@`: the
    product with a vector (n,). An operator that has `sizes`, of its groups, takes k columns (n, k)
    as well, and estimators then multiply several vectors at once.

    `ParameterOperator`, `LayerOperator`, tensors and operators of curvlinops are such operators;
    so is a class of a few lines around another one.

    Examples
    --------
    >>> import torch
    >>> from runner.curvature import trace_estimate
    >>> class Shifted:
    ...     dtype, device = torch.float64, torch.device("cpu")
    ...     def __init__(self, operator, shift):
    ...         self.operator, self.shape, self.shift = operator, operator.shape, shift
    ...     def __matmul__(self, vector):
    ...         return self.operator @ vector + self.shift * vector
    >>> trace_estimate(Shifted(torch.zeros(3, 3).double(), 2.0)).value
    6.0
    """

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def __matmul__(self, other: Tensor, /) -> Tensor: ...


Matrix: TypeAlias = Operator | np.ndarray | LinearOperator
"""What estimators take: an operator, or a matrix or an operator of numpy and scipy, for which there
are adapters."""


class NotFiniteError(ArithmeticError):
    """A product with NaN or infinity."""


class Symmetric:
    """n, dtype, device and products of `operator`, counted in `products`.

    operator: an `Operator`, or what `as_operator` makes one of. What `rows` returns times
    2**exponent is the product, so that squares stay in range whatever the scale of the operator.
    Raises ValueError for anything else, and for a shape that is not square.
    """

    def __init__(self, operator: Matrix) -> None:
        self.products = 0
        self.exponent = 0
        self._scaled = False
        self._first_size = 0.0
        self._compared = False
        self._operator = as_operator(operator)
        refuse_changes = getattr(operator, "refuse_changes", None)
        if refuse_changes is not None:  # weights, data or numbers that a network reads
            refuse_changes()
        self.reason = str(getattr(operator, "reason", ""))
        shape = tuple(self._operator.shape)
        if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
            raise ValueError(f"expected a symmetric operator, found shape {shape}")
        self.size = int(shape[0])
        self.dtype = self._operator.dtype
        self.device = self._operator.device
        self.wide = torch.promote_types(self.dtype, torch.float32)  # of bases: half is not enough
        self.allowed_skew = max(SKEW, SKEW_ROUNDINGS * torch.finfo(self.dtype).eps)

    def matvec(self, v: Tensor) -> Tensor:
        """H v in float64, v (n,); neither scaled nor refused."""
        return self._raw(v.unsqueeze(0))[0].to(torch.float64)

    def rows(self, vectors: Tensor) -> Tensor:
        """Products with the rows (k, n), in their dtype, times 2**-exponent.

        Raises NotFiniteError.
        """
        images = self._raw(vectors)
        if self._scaled:  # a sum is quicker than the largest entry, and may be too large
            if not (math.isfinite(float(images.sum())) or bool(images.isfinite().all())):
                raise NotFiniteError(NOT_FINITE)
        else:
            self._scale(float(images.abs().max()))
        if self.exponent:
            images = _times_power(images.double(), -self.exponent)
        images = images.to(vectors.dtype)
        if not self._compared and len(vectors) > 1:
            self._compare(vectors, images)
        return images

    def _compare(self, vectors: Tensor, images: Tensor) -> None:
        """z · H w next to w · H z, relative to the first product where these are its rounding, as
        of vectors in the null space."""
        self._compared = True
        products = vectors @ images.mT
        size = max(float(images.norm(dim=1).max()), self._first_size)
        largest = float(vectors.norm(dim=1).max()) * size
        self.refuse_skew(float((products - products.mT).abs().max()), largest)

    def refuse_skew(self, skew: float, largest: float) -> None:
        """Raises MeasurementError for products that differ from those of the transpose."""
        if skew > self.allowed_skew * largest:
            raise MeasurementError(
                "expected a symmetric operator, found products that differ from those of the "
                f"transpose by {skew / largest:.0e} of the largest"
            )

    def _scale(self, largest: float) -> None:
        """Takes the exponent from the first product that is not zero."""
        if not math.isfinite(largest):
            raise NotFiniteError(NOT_FINITE)
        exponent = math.frexp(largest)[1]
        self.exponent = exponent if abs(exponent) > ORDINARY else 0
        self._first_size = ldexp(largest, -self.exponent)
        self._scaled = largest > 0

    def restored(self, values: Tensor) -> Tensor:
        """values * 2**exponent."""
        return _times_power(values, self.exponent)

    def unscaled(self, value: float, power: int = 1) -> float:
        """value * 2**(power * exponent); infinite where it leaves the range."""
        return ldexp(value, power * self.exponent)

    def _raw(self, vectors: Tensor) -> Tensor:
        self.products += len(vectors)
        given = vectors.to(self.device, self.dtype)
        if self._operator.several and len(given) > 1:
            return self._operator.product(given.mT).mT.to(self.device, copy=True)
        images = torch.empty_like(given)
        for image, v in zip(images.unbind(), given.unbind(), strict=True):
            # copied: an operator may use the memory of its result again
            image.copy_(self._operator.product(v))
        return images

    def gaussian(self, count: int, generator: torch.Generator) -> Tensor:
        """Standard normal rows, drawn on the CPU, so that they do not depend on the device."""
        rows = torch.empty(count, self.size, dtype=torch.float64, device="cpu")
        for row in rows:
            row.normal_(generator=generator)
        return rows.to(self.device)

    def on_sphere(self, count: int, generator: torch.Generator) -> Tensor:
        """Rows of length sqrt(n), uniform on the sphere: E[z zᵀ] = I."""
        drawn = self.gaussian(count, generator)
        return drawn.mul_(math.sqrt(self.size) / drawn.norm(dim=1, keepdim=True))

    def on_sphere_of(self, span: slice, count: int, generator: torch.Generator) -> Tensor:
        """The same on a part of the components; the others are zero."""
        length = len(range(*span.indices(self.size)))
        drawn = on_sphere((count, length), torch.float64, generator)
        rows = torch.zeros(count, self.size, dtype=torch.float64, device=self.device)
        rows[:, span] = drawn.to(self.device)
        return rows

    def dense(self) -> Tensor:
        """The matrix times 2**-exponent, made symmetric, from n products. Raises NotFiniteError."""
        eye = torch.eye(self.size, dtype=torch.float64, device=self.device)
        rows = self._raw(eye).to(torch.float64)
        self._scale(float(rows.abs().max()))
        rows = _times_power(rows, -self.exponent)
        _refuse_skew(rows, self.allowed_skew)
        return (rows + rows.mT) / 2


def _times_power(values: Tensor, exponent: int) -> Tensor:
    """values * 2**exponent, in two steps: 2**exponent itself may leave the range."""
    half = exponent // 2
    return values * 2.0**half * 2.0 ** (exponent - half)


def as_linear_operator(operator: Matrix | Symmetric) -> LinearOperator:
    """The operator for scipy, in float64: scipy.sparse.linalg.eigsh, cg, svds and the like."""
    symmetric = operator if isinstance(operator, Symmetric) else Symmetric(operator)

    def matvec(v: np.ndarray) -> np.ndarray:
        if np.iscomplexobj(v):
            return matvec(v.real) + 1j * matvec(v.imag)
        row = torch.from_numpy(np.ascontiguousarray(v).reshape(-1)).double()
        return symmetric.matvec(row).cpu().numpy()

    n = symmetric.size
    return LinearOperator((n, n), matvec=matvec, rmatvec=matvec, dtype=np.float64)


def even_steps(count: int) -> Iterator[int]:
    """Vectors of each product: steps of about one size, not full ones and one without pairs."""
    while count > 0:
        size = math.ceil(count / math.ceil(count / TOGETHER))
        yield size
        count -= size


def own_generator(generator: torch.Generator | None) -> torch.Generator:
    """The generator, or one with seed 0: an estimator never moves torch's global random stream."""
    if generator is None:
        return torch.Generator().manual_seed(0)
    return generator


def _refuse_skew(matrix: Any, allowed: float = SKEW) -> None:
    """Of torch, numpy or scipy. Raises ValueError where the transpose differs by more."""
    if abs(matrix - matrix.T).max() > allowed * abs(matrix).max():
        raise ValueError("expected a symmetric matrix, found one that differs from its transpose")


class Adapted(NamedTuple):
    """An `Operator` made of its parts. several: whether the product takes columns (n, k)."""

    product: Callable[[Tensor], Tensor]
    shape: Sequence[int]
    dtype: torch.dtype
    device: torch.device
    several: bool


def as_operator(operator: Any) -> Adapted:
    """Of an `Operator`; a symmetric matrix of torch, numpy or scipy; an operator of scipy or
    hessian-eigenthings; anything else with `shape` (or `size`) and `@` or `matvec` of a tensor
    (n,)."""
    if "complex" in str(getattr(operator, "dtype", "")):
        raise ValueError(
            "expected a real operator, found complex numbers: use [[Re, -Im], [Im, Re]]"
        )
    if isinstance(operator, Tensor):
        return _of_tensor(operator)
    if isinstance(operator, np.ndarray) or issparse(operator):
        if operator.ndim == 2 and operator.shape[0] == operator.shape[1] and operator.shape[0]:
            _refuse_skew(operator)
        operator = aslinearoperator(operator)
    if isinstance(operator, LinearOperator):
        return _of_scipy(operator)
    product = getattr(operator, "__matmul__", getattr(operator, "matvec", None))
    shape: Any = getattr(operator, "shape", 2 * (getattr(operator, "size", None),))
    if product is None or None in shape:
        raise ValueError(
            "expected an operator with shape and @ (or matvec), or a symmetric matrix, found "
            f"{type(operator).__name__}"
        )
    dtype = getattr(operator, "dtype", torch.float64)
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        dtype = torch.float64
    several = hasattr(operator, "__matmul__") and hasattr(operator, "sizes")
    return Adapted(product, shape, dtype, getattr(operator, "device", torch.device("cpu")), several)


def _of_tensor(operator: Tensor) -> Adapted:
    matrix = operator.detach() if operator.is_floating_point() else operator.double()
    square = matrix.dim() == 2 and matrix.shape == matrix.mT.shape and matrix.numel() > 0
    if square and matrix.layout == torch.strided:
        _refuse_skew(matrix)
    return Adapted(matrix.__matmul__, matrix.shape, matrix.dtype, matrix.device, True)


def _of_scipy(operator: LinearOperator) -> Adapted:
    dtype = torch.float64
    if operator.dtype == np.float32:
        dtype = torch.float32

    def product(v: Tensor) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(operator @ v.numpy()))

    return Adapted(product, operator.shape, dtype, torch.device("cpu"), True)
