"""float64 tensors of the audit: numbers, random draws of a seed, norms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def real(values: Any) -> Tensor:
    """Numbers as a float64 tensor."""
    return torch.tensor(values, dtype=torch.float64)


def zeros(*shape: Any) -> Tensor:
    return torch.zeros(*shape, dtype=torch.float64)


def ones(*shape: Any) -> Tensor:
    return torch.ones(*shape, dtype=torch.float64)


def unit(size: int) -> Tensor:
    """The identity matrix."""
    return torch.eye(size, dtype=torch.float64)


def diagonal(*values: float) -> Tensor:
    """The diagonal matrix of these numbers."""
    return torch.diag(real(values))


def matrix(*rows: Sequence[Tensor]) -> Tensor:
    """A matrix of its entries, row by row."""
    return torch.stack([torch.stack(list(row)) for row in rows])


def block_matrix(*rows: Sequence[Tensor]) -> Tensor:
    """A matrix of its blocks, row by row."""
    return torch.cat([torch.cat(list(row), dim=1) for row in rows])


def kron(left: Tensor, right: Tensor) -> Tensor:
    """left ⊗ right."""
    return torch.kron(left.contiguous(), right.contiguous())


def total(terms: Iterable[Tensor]) -> Tensor:
    """Sum of tensors of one shape."""
    return torch.stack(list(terms)).sum(0)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gauss(generator: torch.Generator, *shape: Any) -> Tensor:
    """N(0, 1) from a generator, which goes on."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def uniform(generator: torch.Generator, *shape: int) -> Tensor:
    """Uniform in [0, 1) from a generator, which goes on."""
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def random_matrices(sizes: Iterable[tuple[int, int]], seed: int = 0) -> list[Tensor]:
    """N(0, 1) matrices of these sizes."""
    generator = seeded(seed)
    return [gauss(generator, *size) for size in sizes]


def grid(low: float, high: float, count: int) -> Tensor:
    """Equidistant numbers, both ends included."""
    return torch.linspace(low, high, count, dtype=torch.float64)


def norm_of(values: Tensor) -> float:
    """The Euclidean norm of a vector, the Frobenius norm of a matrix."""
    return float(values.norm())


def spectral_norm(matrix: Tensor) -> Tensor:
    """Largest singular value."""
    return torch.linalg.matrix_norm(matrix, 2)
