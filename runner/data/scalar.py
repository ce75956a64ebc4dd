"""Scalar regression data for the scalar-spectrum paper."""

from __future__ import annotations

import numpy as np


def wedge(
    count: int,
    generator: np.random.Generator,
    *,
    right: float = 1.0,
    left: float = 1.0,
    noise: float = 0.0,
    centred: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """x, y: (count,) float64 with x ~ N(0, 1) and y = right·x for x > 0, -left·x for x <= 0, plus normal noise.

    The paper names its "wedge data set" (Fig. 3) without defining it; this is the two-sided ramp that a ReLU network
    of one input fits exactly and a linear one does not: |x| at slopes 1 and 1. noise: its standard deviation.
    centred: subtract the means of x and y (Theorem 6 assumes them zero).
    Raises ValueError for a count below one or negative noise.
    """
    _check(count, noise)
    x = generator.standard_normal(count)
    y = np.where(x > 0, right * x, -left * x) + noise * generator.standard_normal(count)
    return (x - x.mean(), y - y.mean()) if centred else (x, y)


def linear(
    count: int, generator: np.random.Generator, *, slope: float = 1.0, scale: float = 1.0, noise: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """x, y: (count,) float64 with x ~ N(0, scale²), y = slope·x + normal noise of standard deviation `noise`."""
    _check(count, noise)
    x = scale * generator.standard_normal(count)
    return x, slope * x + noise * generator.standard_normal(count)


def _check(count: int, noise: float) -> None:
    if count < 1 or noise < 0:
        raise ValueError(
            f"scalar data: expected count of at least 1 and noise of at least 0, found {count} and {noise}"
        )
