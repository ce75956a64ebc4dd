"""Confidence intervals of a trace from few products: quantiles that follow the spectrum.

For z uniform on the sphere of radius sqrt(n), zᵀHz has mean tr H and variance about 2 |H₀|_F², H₀ =
H − (tr H / n) I. The images y = Hz − (zᵀHz / n) z of the same products estimate |H₀|_F² = (1 + 2/n)
E|y|², and pairs of them tr H₀³ = E (zᵢᵀyⱼ)(yᵢᵀyⱼ) and tr H₀⁴ = E (yᵢᵀyⱼ)². They tell how many
eigenvalues share the variance, r = (tr H₀²)² / tr H₀⁴, and how skewed it is, γ = tr H₀³ / sqrt(tr
H₀² tr H₀⁴), from −1 to 1. For r equal eigenvalues and m samples the mean is a multiple of χ²(m r),
and the ratio of the error to its estimated standard error is sqrt(m r / 2) (sqrt(a) − 1 / sqrt(a)),
a = χ²(m r) / (m r): normal for large r, heavy on one side for small. For γ between, the quantiles
are interpolated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from scipy.special import chdtri, stdtrit
from torch import Tensor


@dataclass
class Samples:
    """zᵀHz of vectors on the sphere, and what their images tell of the spectrum; in scaled
    units."""

    size: int
    values: list[float] = field(default_factory=list)
    squares: list[float] = field(default_factory=list)
    cubes: list[float] = field(default_factory=list)
    fourths: list[float] = field(default_factory=list)
    products: list[float] = field(default_factory=list)

    def add(self, z: Tensor, images: Tensor) -> None:
        """Vectors (k, n) on the sphere and their products; pairs are those within one call."""
        z = z.double()
        images = images.double()
        values = (z * images).sum(1)
        rest = images - values[:, None] / self.size * z
        mixed = z @ rest.mT
        gram = rest @ rest.mT
        self.values += values.tolist()
        self.squares += gram.diagonal().tolist()
        above = torch.ones_like(gram, dtype=torch.bool).triu(1)
        lengths = gram.diagonal()
        self.cubes += ((mixed + mixed.mT) / 2 * gram)[above].tolist()
        self.fourths += gram.square()[above].tolist()
        self.products += (lengths[:, None] * lengths)[above].tolist()

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    @property
    def deviation(self) -> float:
        """Estimated standard error of the mean."""
        return math.sqrt(2 * self.square / len(self.values))

    @property
    def square(self) -> float:
        """Mean of |y|²."""
        return math.fsum(self.squares) / len(self.squares)

    @property
    def share(self) -> float:
        """1 / r = tr H₀⁴ / (tr H₀²)²."""
        product = math.fsum(self.products)
        if not product > 0:
            return 1 / self.size
        return min(1.0, max(math.fsum(self.fourths) / product, 1 / self.size))

    @property
    def freedom(self) -> float:
        """m r: degrees of freedom of the mean of |y|²."""
        return len(self.values) / self.share

    @property
    def noise(self) -> float:
        """How uncertain r is: its eigenvalues and the samples both count."""
        return math.sqrt(self.share / len(self.values))

    @property
    def widening(self) -> float:
        """For the noise of r and γ, which matters where few eigenvalues share the variance."""
        return 1 + 0.3 * self.noise

    def quantiles(self) -> tuple[float, float]:
        """2.5 and 97.5 % points of (mean − tr H) / deviation."""
        cube = math.fsum(self.cubes) / max(len(self.cubes), 1)
        fourth = math.fsum(self.fourths) / max(len(self.fourths), 1)
        scale = math.sqrt(self.square * fourth)
        skew = 0.0
        if scale > 0:
            skew = min(1.0, max(-1.0, cube / scale))
        return skewed_quantiles(self.freedom, skew, self.widening)

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of tr H."""
        low, high = self.quantiles()
        return self.mean - high * self.deviation, self.mean - low * self.deviation


def equal_quantiles(freedom: float) -> tuple[float, float]:
    """2.5 and 97.5 % points of sqrt(f / 2) (sqrt(a) − 1 / sqrt(a)), a = χ²(f) / f."""
    ends = []
    for above in (0.975, 0.025):
        a = float(chdtri(freedom, above)) / freedom
        ends.append(math.sqrt(freedom / 2) * (math.sqrt(a) - 1 / math.sqrt(a)))
    return ends[0], ends[1]


def skewed_quantiles(freedom: float, skew: float, widening: float) -> tuple[float, float]:
    """2.5 and 97.5 % points between those of equal eigenvalues and of their negatives."""
    low, high = (widening * end for end in equal_quantiles(freedom))
    up = (1 + skew) / 2
    return up * low - (1 - up) * high, up * high - (1 - up) * low


def gamma_interval(value: float, freedom: float, widening: float = 1.0) -> tuple[float, float]:
    """The 95 % interval of a positive mean: value f / χ²(f)."""
    ends = [freedom / float(chdtri(freedom, above)) for above in (0.025, 0.975)]
    return value * ends[0] ** widening, value * ends[1] ** widening


def student_quantile(freedom: float) -> float:
    """The 97.5 % point of Student's t."""
    return float(stdtrit(freedom, 0.975))
