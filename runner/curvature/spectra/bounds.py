"""Wolkowicz–Styan bounds of extreme eigenvalues from (D, tr H, tr H²) alone.

For a symmetric D × D matrix with eigenvalues λ_1 >= ... >= λ_D, mean μ = tr H / D and variance
σ² = tr H² / D − μ²,

    μ + σ / √(D−1)  <=  λ_1  <=  μ + σ √(D−1)          (WS bound, Theorem 1)
    μ − σ √(D−1)  <=  λ_D  <=  μ − σ / √(D−1)          (HSR, Eq. 61, for the left inequality)

The outer bounds are reached when the D − 1 other eigenvalues are equal (WS bound, Prop. 1: all
zero).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class SpectrumMoments(NamedTuple):
    """Mean and standard deviation (population, over the D eigenvalues) of a spectrum."""

    mean: Tensor
    std: Tensor


def spectrum_moments(dimension: int, trace: Tensor, trace_of_square: Tensor) -> SpectrumMoments:
    """μ = tr H / D and σ = √(tr H² / D − μ²) (WS bound, Eqs. 8, 9); any common shape.

    The variance is non-negative for every symmetric matrix; rounding can make it negative when all
    eigenvalues are equal, so it is clamped at zero. Raises ValueError for dimension < 1.
    """
    if dimension < 1:
        raise ValueError(f"expected a matrix dimension of at least 1, found {dimension}")
    mean = trace / dimension
    variance = torch.clamp(trace_of_square / dimension - mean * mean, min=0)
    return SpectrumMoments(mean, torch.sqrt(variance))


def wolkowicz_styan_upper(dimension: int, trace: Tensor, trace_of_square: Tensor) -> Tensor:
    """λ_sup = μ + √(D−1) σ >= λ_1 (WS bound, Eq. 7). Shapes and errors as `spectrum_moments`."""
    mean, std = spectrum_moments(dimension, trace, trace_of_square)
    return mean + math.sqrt(dimension - 1) * std


def wolkowicz_styan_lower(dimension: int, trace: Tensor, trace_of_square: Tensor) -> Tensor:
    """λ_inf = μ − √(D−1) σ <= λ_D (HSR, Eq. 61). Shapes and errors as `spectrum_moments`."""
    mean, std = spectrum_moments(dimension, trace, trace_of_square)
    return mean - math.sqrt(dimension - 1) * std
