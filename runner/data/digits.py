"""scikit-learn's handwritten digits, which come with the library: real data without a download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from runner.contract import kind

if TYPE_CHECKING:
    from torch import Tensor

    from runner.contract import Context


@dataclass(frozen=True)
class DigitsData:
    """1,797 digits of 8 × 8 pixels in ten classes, in the order of the library."""

    kind: str = kind("digits")
    size: ClassVar[int] = 1797
    inputs: ClassVar[int] = 64
    classes: ClassVar[int] = 10


def load(settings: DigitsData, ctx: Context | None = None) -> tuple[Tensor, Tensor]:
    """x (1797, 64) float32 in [0, 1] and y (1797,) int64. The seed changes nothing here."""
    import torch
    from sklearn.datasets import load_digits

    raw = load_digits()
    return torch.tensor(raw.data, dtype=torch.float32) / 16, torch.tensor(raw.target, dtype=torch.int64)
