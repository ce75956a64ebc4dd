"""Samples known by mean, spread and number, the interval of their difference, and how many values would narrow it.

No verdicts here: `runner.stats.judge` reaches them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

NAN = float("nan")
MOST = 100_000
"""Number of seeds beyond which the answer to "how many" is: no number."""


@dataclass(frozen=True)
class Sample:
    """Mean, sample standard deviation (ddof 1; NaN where unknown) and number of values."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """The finite ones of `values`; mean NaN without any."""
        x = [float(v) for v in values if math.isfinite(v)]
        n = len(x)
        if n == 0:
            return cls(NAN, NAN, 0)
        mean = math.fsum(x) / n
        return cls(mean, math.sqrt(math.fsum((v - mean) ** 2 for v in x) / (n - 1)) if n > 1 else NAN, n)

    @classmethod
    def printed(cls, mean: float, std: float, n: int) -> Sample:
        """A printed mean ± population std (ddof 0) over n values: the sample std is std √(n/(n−1))."""
        return cls(mean, std * math.sqrt(n / (n - 1)) if n > 1 else NAN, n)

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.std / math.sqrt(self.n) if self.n else NAN

    def interval(self, level: float) -> tuple[float, float]:
        """Student's t interval of the mean; NaN below two values."""
        if self.n < 2:
            return NAN, NAN
        half = quantile(level, self.n - 1) * self.error
        return self.mean - half, self.mean + half

    def prediction(self, level: float, others: int) -> tuple[float, float]:
        """Where the mean of `others` further values falls with probability `level`; NaN below two values."""
        if self.n < 2 or others < 1:
            return NAN, NAN
        half = quantile(level, self.n - 1) * self.std * math.sqrt(1 / self.n + 1 / others)
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Part:
    """A variance that enters a difference, and the degrees of freedom it was estimated with."""

    variance: float
    df: float = math.inf


@dataclass(frozen=True)
class Difference:
    """A difference of means with its standard error and degrees of freedom; error NaN where no spread is known."""

    value: float
    error: float
    df: float
    how: str = ""

    @property
    def z(self) -> float:
        """value / error; NaN without an error above zero."""
        return self.value / self.error if self.error > 0 else NAN

    def interval(self, level: float) -> tuple[float, float]:
        """Of the true difference, by Student's t with the Welch–Satterthwaite degrees of freedom."""
        if math.isnan(self.error):
            return NAN, NAN
        half = quantile(level, self.df) * self.error if self.error > 0 else 0.0
        return self.value - half, self.value + half


def welch(ours: Sample, theirs: Sample, images: Part | None = None) -> Difference:
    """ours − theirs, with the variances of both means and that of the sets of images, if the two differ in them.

    SE² = s²/m + σ²/n + images; df = SE⁴ / Σ v_i²/df_i (Welch–Satterthwaite). Where one of the two spreads is unknown
    the other stands in for it (`how` says so): SE² = s² (1/m + 1/n) + images.
    """
    value = ours.mean - theirs.mean
    parts = [images] if images is not None and images.variance > 0 else []
    known, printed = not math.isnan(ours.std), not math.isnan(theirs.std)
    if not known and not printed:
        return Difference(value, NAN, NAN, "no spread is known on either side")
    how = ""
    if known and printed:
        parts += [Part(ours.std**2 / ours.n, ours.n - 1), Part(theirs.std**2 / theirs.n, theirs.n - 1)]
    else:
        given = ours if known else theirs
        parts.append(Part(given.std**2 * (1 / ours.n + 1 / theirs.n), given.n - 1))
        how = "the paper gives no std: ours stands in" if known else "one measured seed: the paper's std stands in"
    total = math.fsum(p.variance for p in parts)
    scatter = math.fsum(p.variance**2 / p.df for p in parts)
    return Difference(value, math.sqrt(total), total**2 / scatter if scatter > 0 else math.inf, how)


def quantile(level: float, df: float) -> float:
    """t with P(|T| <= t) = level; the normal one for infinite df."""
    from scipy.stats import norm, t

    return float(norm.ppf(0.5 + level / 2) if math.isinf(df) else t.ppf(0.5 + level / 2, df))


def fewest(decides: Callable[[int], bool], least: int = 2) -> float:
    """The smallest number n >= least with decides(n), which stays true from there on; inf beyond `MOST`."""
    if decides(least):
        return float(least)
    high = least
    while not decides(high):
        if high >= MOST:
            return math.inf
        high = min(2 * high, MOST)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return float(high)


def seeds_to_compare(ours: Sample, theirs: Sample, margin: float, level: float, images: Part | None = None) -> float:
    """How many seeds of ours would decide, were their mean and std those seen; inf where theirs alone straddles."""

    def decides(m: int) -> bool:
        low, high = welch(replace(ours, n=m), theirs, images).interval(level)
        return (-margin <= low and high <= margin) or low > margin or high < -margin

    return NAN if math.isnan(ours.std) else fewest(decides)


def seeds_for_limit(sample: Sample, limit: float, level: float) -> float:
    """How many seeds would put the whole interval on one side of a limit, were mean and std those seen."""
    distance = abs(sample.mean - limit)

    def decides(n: int) -> bool:
        low, high = replace(sample, n=n).interval(level)
        return high - low < 2 * distance

    return NAN if math.isnan(sample.std) or math.isnan(distance) else math.inf if distance == 0 else fewest(decides)
