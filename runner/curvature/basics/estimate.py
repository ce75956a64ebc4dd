"""What estimators are made of: the Estimate, random directions, and norms at every scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.special import stdtrit
from torch import Tensor

from runner.curvature.basics.result import NORMAL, Estimated


class _Estimate(NamedTuple):
    value: float
    error: float
    products: int
    reason: str = ""


class Estimate(Estimated, _Estimate):
    """value; error: standard error (Hutchinson) or residual bound (power iteration, Lanczos); low,
    high: the 95 % interval value ± 1.96 error; products used. reason says why value is NaN, else
    ""."""

    __slots__ = ()

    @classmethod
    def undefined(cls, products: int, reason: str) -> Estimate:
        """NaN, with the reason."""
        return cls(math.nan, math.nan, products, reason)


def full(value: float, *shape: int) -> Tensor:
    """In float64 and on the processor, whatever the default device is."""
    return torch.full(shape, value, dtype=torch.float64, device="cpu")


def numbers(values: Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
    """The same of different numbers."""
    return torch.as_tensor(values, dtype=torch.float64, device="cpu")


def on_sphere(
    shape: tuple[int, int], dtype: torch.dtype, generator: torch.Generator | None
) -> Tensor:
    """Rows (k, d), each uniform on the sphere of radius sqrt(d): E[z z^T] = I, as of signs, and
    about their variance.

    Few signs can agree up to a factor on the two components that carry a block (of twelve, once in
    2,048 times): all samples are then equal, and wrong. These never agree."""
    z = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    return (z * (shape[1] ** 0.5 / z.norm(dim=1, keepdim=True))).to(dtype)


class Squares(NamedTuple):
    """|H z_k|^2 of every probe as values * 4**exponent, float64: squares of 1e±160 have no other
    form."""

    values: Tensor
    exponent: int

    @property
    def root_mean(self) -> float:
        return ldexp(math.sqrt(float(self.values.mean())), self.exponent)


def squares_of(images: Tensor) -> Squares:
    """Squared norms of the rows. Scaling by a power of two changes no digit."""
    wide = images.double()
    exponent = exponent_of(wide)
    return Squares((wide * 2.0**-exponent).square().sum(1), exponent)


def exponent_of(values: Tensor) -> int:
    """e with max |values| about 2**e; 0 for zeros and values that are not finite."""
    largest = 0.0
    if values.numel():
        largest = float(values.abs().max())
    if math.isfinite(largest):
        return max(-1000, min(1000, math.frexp(largest)[1]))
    return 0


def norm_of(vector: Tensor) -> float:
    """Euclidean norm in float64 at every scale."""
    return squares_of(vector.reshape(1, -1)).root_mean


def ldexp(value: float, exponent: int) -> float:
    """value * 2**exponent; infinite where it leaves the range."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def student_factor(freedom: int) -> float:
    """The 97.5 % point of Student's t over that of the normal distribution.

    From 3 degrees of freedom on by Fisher's expansion, 0.7 % too small there and less above: errors
    that are stored were made with it."""
    z = 1.959964
    n = freedom
    if n < 3:
        return float(stdtrit(n, 0.975)) / z
    first = (z**2 + 1) / 4
    second = (5 * z**4 + 16 * z**2 + 3) / 96
    third = (3 * z**6 + 19 * z**4 + 17 * z**2 - 15) / 384
    return 1 + first / n + second / n**2 + third / n**3


def skewed(relative: float) -> float:
    """A relative error, widened until value + 1.96 error is the upper end of the interval of the
    logarithm: means of few squares are skewed."""
    return math.expm1(NORMAL * relative) / NORMAL
