"""Synthetic regression over token sequences with a fixed teacher (DAG, Exp. 5 and Appendix N.7)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from runner.data.images import Split


class RegressionData(NamedTuple):
    """Training and validation split; targets standardised by the training targets' mean and standard deviation."""

    train: Split
    validation: Split
    fingerprint: str

    @property
    def test(self) -> Split:
        """The validation split, under the name that image data have for theirs."""
        return self.validation


RESPONSES: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "tanh_squared": lambda z: torch.tanh(z) ** 2}
"""Name -> elementwise response of the teacher."""


def token_regression(
    *,
    train: int,
    validation: int,
    generator: torch.Generator,
    teacher: torch.Generator,
    tokens: int = 8,
    width: int = 16,
    noise: float = 0.1,
    response: str = "tanh",
    spread: float = 1.0,
    offset: float = 0.0,
) -> RegressionData:
    """y = 1/S Σ_s φ(x_sᵀ W) w + ε, with W, w ~ N(0, 1/d) from `teacher`, x ~ N(0, 1) and ε ~ N(0, noise²).

    Inputs (N, S, d) float32, targets (N,) float32. φ is `response`, the paper's tanh or another of RESPONSES. The
    teacher is position-wise: it has no attention in it. Targets are standardised by the mean and standard deviation of
    the training targets, then multiplied by `spread` and shifted by `offset`.
    Raises ValueError for sizes below one, negative noise or an unknown response.
    """
    if min(train, validation, tokens, width) < 1 or noise < 0:
        raise ValueError(
            f"token_regression: expected sizes of at least 1 and noise of at least 0, found train {train}, validation "
            f"{validation}, tokens {tokens}, width {width}, noise {noise}"
        )
    if response not in RESPONSES:
        raise ValueError(f"response: expected one of {', '.join(RESPONSES)}, found {response!r}")
    matrix = torch.randn(width, width, generator=teacher) * width**-0.5
    vector = torch.randn(width, generator=teacher) * width**-0.5

    def draw(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, tokens, width, generator=generator)
        y = RESPONSES[response](x @ matrix).mean(1) @ vector
        return x, y + noise * torch.randn(count, generator=generator)

    (x, y), (x_val, y_val) = draw(train), draw(validation)
    mean, std = y.mean(), y.std(correction=0).clamp_min(1e-12)
    y, y_val = ((t - mean) / std * spread + offset for t in (y, y_val))
    digest = hashlib.sha256(b"".join(t.numpy().tobytes() for t in (x, y, x_val, y_val))).hexdigest()[:16]
    return RegressionData(Split(x, y), Split(x_val, y_val), digest)
