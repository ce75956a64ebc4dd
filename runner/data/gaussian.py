"""Two classes of normal vectors, the toy problem of the WS-bound and HSR papers."""

from __future__ import annotations

import torch
from torch import Tensor


def gaussian_classes(
    count: int, inputs: int = 2, mean: float = 1.0, variance: float = 2.0, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """x: (count, inputs) float64, q: (count,) labels 1.0 and 0.0, half of each (WS bound, Appendix C).

    Class 0 is N(+mean, variance I), class 1 is N(-mean, variance I), the mean being the same in every coordinate; the
    rows of class 1 come first, one more of them for an odd count. Raises ValueError for sizes below one or a negative
    variance.
    """
    if count < 1 or inputs < 1 or variance < 0:
        raise ValueError(
            f"gaussian_classes: expected count and inputs of at least 1 and variance of at least 0, found {count}, "
            f"{inputs} and {variance}"
        )
    q = (torch.arange(count) < (count + 1) // 2).to(torch.float64)
    x = torch.randn((count, inputs), generator=generator, dtype=torch.float64) * variance**0.5
    return x + mean * (1 - 2 * q)[:, None], q
