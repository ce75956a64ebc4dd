"""Synthetic regression over token sequences with a fixed teacher (DAG, Exp. 5 and Appendix N.7)."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor

from runner.data.images import Split


class RegressionData(NamedTuple):
    """Training and validation split; targets standardised by the training targets' mean and standard deviation."""

    train: Split
    validation: Split
    fingerprint: str


def token_regression(
    *,
    train: int,
    validation: int,
    generator: torch.Generator,
    teacher: torch.Generator,
    tokens: int = 8,
    width: int = 16,
    noise: float = 0.1,
) -> RegressionData:
    """y = 1/S Σ_s tanh(x_sᵀ W) w + ε, with W, w ~ N(0, 1/d) from `teacher`, x ~ N(0, 1) and ε ~ N(0, noise²).

    Inputs (N, S, d) float32, targets (N,) float32. The teacher is position-wise: it has no attention in it.
    Raises ValueError for sizes below one or negative noise.
    """
    if min(train, validation, tokens, width) < 1 or noise < 0:
        raise ValueError(
            f"token_regression: expected sizes of at least 1 and noise of at least 0, found train {train}, validation "
            f"{validation}, tokens {tokens}, width {width}, noise {noise}"
        )
    matrix = torch.randn(width, width, generator=teacher) * width**-0.5
    vector = torch.randn(width, generator=teacher) * width**-0.5

    def draw(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, tokens, width, generator=generator)
        y = torch.tanh(x @ matrix).mean(1) @ vector
        return x, y + noise * torch.randn(count, generator=generator)

    (x, y), (x_val, y_val) = draw(train), draw(validation)
    mean, std = y.mean(), y.std(correction=0).clamp_min(1e-12)
    y, y_val = (y - mean) / std, (y_val - mean) / std
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in (x, y, x_val, y_val))).hexdigest()[:16]
    return RegressionData(Split(x, y), Split(x_val, y_val), digest)
