"""When two evaluations count as the same: relative to the largest value, a few roundings in half precision."""

from __future__ import annotations

import torch
from torch import Tensor


def tolerance(dtype: torch.dtype) -> float:
    """Relative; 2e-12 in float64, 1e-4 in float32 (roundings grow through deep networks), 8 roundings in half."""
    eps = torch.finfo(dtype).eps
    return min(1e4 * eps, max(8 * eps, 1e-4))


def alike(a: Tensor, b: Tensor) -> bool:
    """Equal shapes, and values that differ by at most `tolerance` of the largest; integers must be equal."""
    if a.shape != b.shape:
        return False
    if not b.is_floating_point() or not a.numel():
        return torch.equal(a, b)
    return bool((a - b).abs().max() <= tolerance(b.dtype) * b.abs().max())
