"""Samples, intervals of differences, and equivalence tests; no verdicts (`over_seeds`).

Two means are equal by an equivalence test (TOST at 5 %): the 90 % interval of their difference is
compared with a margin (docs/criteria.md: when each was fixed). Inside: *reproduced*. Wholly
outside: *not reproduced*. Otherwise *inconclusive*, with the number of seeds that would decide it.
A difference that is not significant is never taken for agreement.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

NAN = float("nan")
MOST = 100_000
"""Number of seeds beyond which the answer to "how many" is: no number."""


EQUIVALENCE = 0.90
"""Level of the interval that has to lie inside the margin: two one-sided tests at 5 %."""
LEVEL = 0.95
SIGNIFICANT = 0.99
"""Level of the interval that a difference is significant by."""
FEWEST_SEEDS = 3
"""Below which nothing is decided."""
SHARE = 0.25
"""Default margin: a quarter of the printed value."""


@dataclass(frozen=True)
class Values:
    """The values of a quantity over what varies.

    by_unit: seed -> value, or its pseudovalue of the jackknife, whose scatter gives the error of a
    statistic of all; whole: that statistic, NaN for the mean. log: they are those of its logarithm,
    for a ratio, whose interval is then symmetric on that scale and never reaches zero. without:
    that statistic without each of them.
    """

    by_unit: Mapping[Any, float]
    whole: float = NAN
    log: bool = False
    without: Mapping[Any, float] = field(default_factory=dict)

    def __iter__(self) -> Iterator[float]:
        return iter(self.by_unit.values())

    def __len__(self) -> int:
        return len(self.by_unit)

    @property
    def mean(self) -> float:
        """The statistic of all."""
        if math.isnan(self.whole):
            return sum(self) / len(self)
        return self.whole


@dataclass(frozen=True)
class Sample:
    """Mean, sample standard deviation (ddof 1; NaN where unknown) and number of the finite values.

    lost: how many values are infinite or missing. Runs that diverged are not missing at random:
    with any of them no judge says *confirmed* or *reproduced* (`withheld`). log: a ratio, whose
    interval is that of its logarithm.
    """

    mean: float
    std: float
    n: int
    lost: int = 0
    log: bool = False

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """Mean NaN without a finite value; of pseudovalues the statistic of all of them in its
        place."""
        if isinstance(values, Values) and math.isfinite(values.whole):
            made = cls.of(list(values))
            std = made.std
            if values.log:
                std = made.std * abs(values.whole)
            return replace(made, mean=values.whole, std=std, log=values.log)
        given = [float(value) for value in values]
        finite = [value for value in given if math.isfinite(value)]
        n = len(finite)
        lost = len(given) - len(finite)
        if n == 0:
            return cls(NAN, NAN, 0, lost)
        mean = math.fsum(finite) / n
        if n == 1:
            return cls(mean, NAN, 1, lost)
        squares = math.fsum((value - mean) ** 2 for value in finite)
        return cls(mean, math.sqrt(squares / (n - 1)), n, lost)

    @classmethod
    def printed(cls, mean: float, std: float, n: int) -> Sample:
        """A printed mean ± population std (ddof 0) over n values: the sample std is std
        √(n/(n−1))."""
        return cls(mean, std * math.sqrt(n / (n - 1)) if n > 1 else NAN, n)

    @property
    def logarithm(self) -> Sample:
        """The sample of the logarithm of a ratio."""
        return replace(self, mean=math.log(self.mean), std=self.std / self.mean, log=False)

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        if self.n:
            return self.std / math.sqrt(self.n)
        return NAN

    def interval(self, level: float) -> tuple[float, float]:
        """Student's t interval of the mean; NaN below two values."""
        if self.n < 2:
            return NAN, NAN
        half = quantile(level, self.n - 1) * self.error
        if self.log and self.mean > 0:
            factor = math.exp(half / self.mean)
            return self.mean / factor, self.mean * factor
        return self.mean - half, self.mean + half

    def prediction(self, level: float, others: int) -> tuple[float, float]:
        """Where the mean of `others` further values falls with probability `level`; NaN below two
        values."""
        if self.n < 2 or others < 1:
            return NAN, NAN
        half = quantile(level, self.n - 1) * self.std * math.sqrt(1 / self.n + 1 / others)
        return self.mean - half, self.mean + half


def lost_text(lost: int, total: int, what: str = "") -> str:
    """'2 of 5 infinite or missing', '' for none. what: the values, in a word."""
    counted = " ".join(filter(None, (str(total), what)))
    return f"{lost} of {counted} infinite or missing" if lost else ""


def joined(*texts: str) -> str:
    """The texts that are not empty, separated by semicolons."""
    return "; ".join(text for text in texts if text)


Outcome = TypeVar("Outcome", bound=str)


def withheld(outcome: Outcome, lost: int) -> Outcome:
    """The outcome that a sample with `lost` infinite or missing values allows: none in either
    direction, since the finite ones are a selection."""
    decided = ("confirmed", "refuted", "exact match", "reproduced", "not reproduced")
    uncounted = ("calibrated", "true by construction")
    if lost and outcome in decided + uncounted:
        return cast(Outcome, "inconclusive")
    return outcome


@dataclass(frozen=True)
class Variance:
    """A variance that enters a difference, and the degrees of freedom it was estimated with."""

    value: float
    df: float = math.inf


@dataclass(frozen=True)
class Difference:
    """A difference of means with its standard error and degrees of freedom; error NaN where no
    spread is known.

    ratio_to: of two ratios the difference of their logarithms; its interval is that of ratio_to
    (exp(difference) − 1), so that it is compared with the same margin.
    """

    value: float
    error: float
    df: float
    how: str = ""
    ratio_to: float = NAN

    @property
    def unit(self) -> float:
        """Of `value` and `error`, on the scale of what is compared."""
        return 1.0 if math.isnan(self.ratio_to) else self.ratio_to

    def interval(self, level: float) -> tuple[float, float]:
        """Of the true difference, by Student's t with the Welch–Satterthwaite degrees of
        freedom."""
        if math.isnan(self.error):
            return NAN, NAN
        half = 0.0
        if self.error > 0:
            half = quantile(level, self.df) * self.error
        low = self.value - half
        high = self.value + half
        if math.isnan(self.ratio_to):
            return low, high
        return self.ratio_to * math.expm1(low), self.ratio_to * math.expm1(high)


def are_ratios(ours: Sample, theirs: Sample) -> bool:
    """Whether their logarithms are compared."""
    return ours.log and min(ours.mean, theirs.mean) > 0


def welch(ours: Sample, theirs: Sample, images: Variance | None = None) -> Difference:
    """ours − theirs, with the variances of both means and that of the sets of images, if the two
    differ in them.

    SE² = s²/m + σ²/n + images; df = SE⁴ / Σ v_i²/df_i (Welch–Satterthwaite). Where one of the two
    spreads is unknown the other stands in for it (`how` says so): SE² = s² (1/m + 1/n) + images.
    Of two ratios above 0 (`Sample.log`) the logarithms are compared.
    """
    if not ours.n:
        return Difference(NAN, NAN, NAN, "no finite value")
    if are_ratios(ours, theirs):
        return replace(welch(ours.logarithm, theirs.logarithm, images), ratio_to=theirs.mean)
    value = ours.mean - theirs.mean
    known = not math.isnan(ours.std)
    printed = not math.isnan(theirs.std)
    if not known and not printed:
        return Difference(value, NAN, NAN, "no spread is known on either side")
    both = 1 / ours.n + 1 / theirs.n
    parts = []
    if images is not None and images.value > 0:
        parts = [images]
    how = ""
    if known and printed:
        parts.append(Variance(ours.std**2 / ours.n, ours.n - 1))
        parts.append(Variance(theirs.std**2 / theirs.n, theirs.n - 1))
    elif known:
        parts.append(Variance(ours.std**2 * both, ours.n - 1))
        how = "the paper prints no standard deviation: ours is used"
    else:
        parts.append(Variance(theirs.std**2 * both, theirs.n - 1))
        how = "one measured seed: the paper's standard deviation is used"
    total = math.fsum(part.value for part in parts)
    scatter = math.fsum(part.value**2 / part.df for part in parts if part.value > 0)
    df = total**2 / scatter if scatter > 0 else math.inf
    return Difference(value, math.sqrt(total), df, how)


@lru_cache(maxsize=1024)
def quantile(level: float, df: float) -> float:
    """t with P(|T| <= t) = level; the normal one for infinite df."""
    from scipy.stats import norm, t

    return float(norm.ppf(0.5 + level / 2) if math.isinf(df) else t.ppf(0.5 + level / 2, df))


def two_sided(statistic: float, df: float) -> float:
    """P(|T| >= |statistic|)."""
    from scipy.stats import t

    return float(2 * t.sf(abs(statistic), df))


def one_sided(statistic: float, df: float) -> float:
    """P(T >= statistic)."""
    from scipy.stats import t

    return float(t.sf(statistic, df))


def fewest(decides: Callable[[int], bool]) -> float:
    """The smallest number n >= 2 with decides(n), which stays true from there on; inf beyond
    `MOST`."""
    high = 2
    while not decides(high):
        if high >= MOST:
            return math.inf
        high = min(2 * high, MOST)
    between = range(high // 2 + 1, high)
    return float(between.start + bisect_left(between, True, key=decides))


def seeds_to_compare(
    ours: Sample, theirs: Sample, margin: float, level: float, images: Variance | None = None
) -> float:
    """How many seeds of ours would decide, were their mean and std those seen; inf where theirs
    alone straddles."""

    def decides(m: int) -> bool:
        low, high = welch(replace(ours, n=m), theirs, images).interval(level)
        return outcome_of(low, high, margin) != "inconclusive"

    if math.isnan(ours.std):
        return NAN
    return fewest(decides)


def seeds_for_limit(sample: Sample, limit: float, level: float) -> float:
    """How many seeds would put the whole interval on one side of a limit, were mean and std those
    seen."""

    def decides(n: int) -> bool:
        low, high = replace(sample, n=n).interval(level)
        return low > limit or high < limit

    if math.isnan(sample.std) or math.isnan(limit):
        return NAN
    return math.inf if sample.mean == limit else fewest(decides)


# ------------------------------------------------------------------ equivalence


@dataclass(frozen=True)
class Comparison:
    """Two means compared: `outcome` is reproduced, not reproduced or inconclusive.

    low, high: 90 % interval of the difference; significant: zero is outside its 99 % interval.
    """

    outcome: str
    difference: Difference
    low: float
    high: float
    significant: bool
    seeds_needed: float = NAN


def margin_of(mean: float, rounding: float, margin: float = NAN) -> float:
    """The margin fixed for a value, by default a quarter of it; never finer than the print."""
    return max(SHARE * abs(mean) if math.isnan(margin) else margin, rounding)


def outcome_of(low: float, high: float, margin: float) -> str:
    """What an interval of a difference says: *reproduced* within ± margin, its ends included, *not
    reproduced* wholly beyond one of them, else *inconclusive*.

    >>> outcome_of(-1, 1, 1), outcome_of(-2, -1, 1), outcome_of(1.1, 2, 1)
    ('reproduced', 'inconclusive', 'not reproduced')
    """
    if -margin <= low and high <= margin:
        return "reproduced"
    return "not reproduced" if low > margin or high < -margin else "inconclusive"


def compared(difference: Difference, margin: float) -> Comparison:
    """Equivalence test of a difference of means."""
    low, high = difference.interval(EQUIVALENCE)
    if math.isnan(low):
        return Comparison("inconclusive", difference, low, high, False)
    least, most = difference.interval(SIGNIFICANT)
    outcome = outcome_of(low, high, margin * (1 + 1e-9))
    return Comparison(outcome, difference, low, high, not least <= 0 <= most)


def equal(
    ours: Sample, theirs: Sample, margin: float, images: Variance | None = None
) -> Comparison:
    """Equivalence test of two means. images: variance of the difference from different sets of
    images."""
    found = compared(welch(ours, theirs, images), margin)
    if ours.n < FEWEST_SEEDS:
        return replace(found, outcome="inconclusive", seeds_needed=float(FEWEST_SEEDS))
    if found.outcome == "inconclusive":
        needed = seeds_to_compare(ours, theirs, margin, EQUIVALENCE, images)
        found = replace(found, seeds_needed=needed)
    return replace(found, outcome=withheld(found.outcome, ours.lost))


def paired(ours: Sample, theirs: Sample, margin: float, rounding: Variance) -> Comparison:
    """Equivalence of two means over the same networks, data and orders: what is left between them
    is rounding.

    rounding: variance of one seed's difference between two devices, measured beforehand. More seeds
    are not to be had.
    """
    error = math.sqrt(rounding.value / max(1, ours.n))
    df = rounding.df if error else math.inf
    difference = Difference(ours.mean - theirs.mean, error, df)
    if are_ratios(ours, theirs):
        logarithm = math.log(ours.mean / theirs.mean)
        difference = Difference(logarithm, error / ours.mean, df, ratio_to=theirs.mean)
    found = compared(difference, margin)
    if found.outcome == "inconclusive":
        found = replace(found, seeds_needed=math.inf)
    return replace(found, outcome=withheld(found.outcome, ours.lost))


def below(ours: Sample, bound: float) -> tuple[str, float]:
    """(outcome, seeds needed) of a printed upper bound on a mean: one-sided at 5 % each way."""
    if ours.n < FEWEST_SEEDS:
        return "inconclusive", float(FEWEST_SEEDS)
    low, high = ours.interval(EQUIVALENCE)
    if low <= bound < high:
        return "inconclusive", seeds_for_limit(ours, bound, EQUIVALENCE)
    return withheld("reproduced" if high <= bound else "not reproduced", ours.lost), NAN


def digits_agree(value: float, printed: float, rounding: float) -> bool:
    """Whether a value rounds to the printed one, give or take one part in a million of the last
    digit's unit."""
    return abs(value - printed) <= rounding * (1 + 1e-6)
