"""scikit-learn's handwritten digits, which come with the library: real data without a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.kinds.dataset import DigitsData

if TYPE_CHECKING:
    from torch import Tensor

    from runner.contract import Context


def load(settings: DigitsData, ctx: Context | None = None) -> tuple[Tensor, Tensor]:
    """x (1797, 64) float32 in [0, 1] and y (1797,) int64. The seed changes nothing here."""
    import torch
    from sklearn.datasets import load_digits

    raw = load_digits()
    return torch.tensor(raw.data, dtype=torch.float32) / 16, torch.tensor(raw.target, dtype=torch.int64)
