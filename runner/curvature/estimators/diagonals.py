"""The diagonals of H and H² from the same products."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from runner.curvature.estimators.estimate import full
from runner.curvature.estimators.operator import TOGETHER, Symmetric, own_generator
from runner.curvature.estimators.samples import gamma_interval, student
from runner.curvature.estimators.work import Method
from runner.curvature.function.errors import require_counts
from runner.curvature.result import TensorResult, short

LEAST = 5
"""Products below which the signs of two components are too often the same, up to one sign of all:
the entry of a row with two components would have the error 0."""


@dataclass(frozen=True, repr=False, eq=False)
class DiagonalEstimate(TensorResult):
    """The diagonal of a matrix, (n,).

    Attributes
    ----------
    value, error, low, high
        Estimates of the entries, their standard errors, and their 95 % intervals.
    products, reason
        Products used; why the values are NaN, else "".
    square
        The diagonal of H² = the squared norms of the rows of H, in the same form; None in that form
        itself.
    """

    value: Tensor
    error: Tensor
    low: Tensor
    high: Tensor
    products: int
    reason: str = ""
    square: DiagonalEstimate | None = None

    def summary(self) -> str:
        if self.reason:
            return f"nan: {self.reason}"
        return f"{short(self.value)}, {self.products} products"


def diagonal_estimate(
    operator: Any,
    products: int = 60,
    *,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
    budget: int | str | None = None,
) -> DiagonalEstimate:
    """Estimate the diagonals of H and of H² from products with random signs z.

    Parameters
    ----------
    operator, generator, progress, budget
        As for `trace_estimate`.
    products
        Number of products, at least 5. With n or more of them the diagonals are exact.

    Returns
    -------
    DiagonalEstimate

    Raises
    ------
    ValueError
        For fewer than 5 products.

    Notes
    -----
    H_ii = E[z_i (Hz)_i] and (H²)_ii = E[(Hz)_i²] (Bekas, Kokiopoulou and Saad, 2007). The error of
    an entry is √((Σ_{j≠i} H_ij²) / products), whatever H_ii is. Two vectors of length n are kept.

    Examples
    --------
    >>> import torch
    >>> from runner.curvature import diagonal_estimate
    >>> estimate = diagonal_estimate(torch.diag(torch.arange(100.0)), 5)
    >>> estimate.value[7], estimate.square.value[7]
    (tensor(7., dtype=torch.float64), tensor(49., dtype=torch.float64))
    """
    require_counts(1, products=products)
    symmetric = Symmetric(operator)
    if products < min(LEAST, symmetric.size):
        raise ValueError(f"expected at least {LEAST} products for an interval, got {products}")
    return _Diagonal(symmetric, products, own_generator(generator)).run(budget, progress)


class _Diagonal(Method[DiagonalEstimate]):
    """Sums over products with signs."""

    title = "diagonal"

    def __init__(self, symmetric: Symmetric, products: int, generator: torch.Generator) -> None:
        super().__init__(symmetric, products)
        self.generator = generator
        self.first = torch.zeros(symmetric.size, dtype=torch.float64, device=symmetric.device)
        self.second = torch.zeros_like(self.first)
        self.count = 0

    def of_matrix(self, matrix: Tensor) -> DiagonalEstimate:
        restored = self.symmetric.restored
        products = self.symmetric.products
        first = restored(matrix.diagonal())
        second = restored(restored(matrix.square().sum(0)))
        nothing = torch.zeros_like(first)
        square = DiagonalEstimate(second, nothing, second, second, products)
        return DiagonalEstimate(first, nothing, first, first, products, "", square)

    def ahead(self) -> int:
        return min(TOGETHER, self.planned - self.count)

    def step(self) -> None:
        count = self.ahead()
        z = self.symmetric.gaussian(count, self.generator).sign()
        images = self.symmetric.rows(z)
        self.first += (z * images).sum(0)
        self.second += images.square().sum(0)
        self.count += count

    def result(self) -> DiagonalEstimate | None:
        count = self.count
        restored = self.symmetric.restored
        products = self.symmetric.products
        if count < 2:
            return None
        mean = self.first / count
        squares = self.second / count
        # (z_i (Hz)_i)² = (Hz)_i²: the sample variance comes from the two sums
        error = restored(((squares - mean.square()).clamp(min=0) / (count - 1)).sqrt())
        mean = restored(mean)
        squares = restored(restored(squares))
        width = student(count - 1) * error
        low, high = gamma_interval(1.0, count)
        square = DiagonalEstimate(
            squares, squares * math.sqrt(2 / count), squares * low, squares * high, products
        )
        return DiagonalEstimate(mean, error, mean - width, mean + width, products, "", square)

    def undefined(self, reason: str) -> DiagonalEstimate:
        nothing = full(math.nan, self.symmetric.size)
        products = self.symmetric.products
        square = DiagonalEstimate(nothing, nothing, nothing, nothing, products, reason)
        return replace(square, square=square)
