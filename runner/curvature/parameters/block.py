"""One block of a parameter operator, as products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Columns(Protocol):
    """What a block needs of its operator: sizes of the groups, and products with a vector of one group."""

    sizes: dict[str, int]
    dtype: torch.dtype
    device: torch.device

    def column(self, group: str, z: Tensor, groups: Sequence[str] | None = None) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class ParameterBlock:
    """One block H[g, h], shape (n_g, n_h), as products."""

    operator: Columns
    g: str
    h: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.sizes[self.g], self.operator.sizes[self.h]

    @property
    def dtype(self) -> torch.dtype:
        return self.operator.dtype

    @property
    def device(self) -> torch.device:
        return self.operator.device

    @property
    def adjoint(self) -> ParameterBlock:
        """H[g, h]^T = H[h, g]."""
        return ParameterBlock(self.operator, self.h, self.g)

    def matvec(self, z: Tensor) -> Tensor:
        """H[g, h] z: z (n_h,) or columns (n_h, k)."""
        columns = z.unsqueeze(1) if z.dim() == 1 else z
        found = torch.stack([self.operator.column(self.h, c, [self.g])[self.g] for c in columns.mT], 1)
        return found.squeeze(1) if z.dim() == 1 else found

    def __matmul__(self, z: Tensor) -> Tensor:
        return self.matvec(z)

    def dense(self) -> Tensor:
        """The block from min(n_g, n_h) products."""
        rows, columns = self.shape
        if rows < columns:
            return self.adjoint.dense().mT
        return self.matvec(torch.eye(columns, dtype=self.dtype, device=self.device))
