"""Equivalence of two means, and printed bounds: what a row of a scorecard comes to.

Two means are held to be the same by an equivalence test (TOST at 5 %): the 90 % interval of their difference against a
margin that was fixed beforehand. Inside: *reproduced*. Wholly outside: *not reproduced*. Across: *inconclusive*, with
the number of seeds that would decide it. "No significant difference" is never taken for agreement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from runner.stats.intervals import NAN, Difference, Part, Sample, seeds_for_limit, seeds_to_compare, welch

EQUIVALENCE = 0.90
"""Level of the interval that has to lie inside the margin: two one-sided tests at 5 %."""
LEVEL = 0.95
FEWEST_SEEDS = 3
"""Below which nothing is decided."""
SHARE = 0.25
"""Default margin: a quarter of the printed value."""


@dataclass(frozen=True)
class Comparison:
    """Two means held against each other: `outcome` is reproduced, not reproduced or inconclusive.

    low, high: 90 % interval of the difference; shifted: inside the margin, but zero is outside the 95 % interval.
    """

    outcome: str
    difference: Difference
    low: float
    high: float
    shifted: bool
    seeds_needed: float = NAN


def margin_of(mean: float, rounding: float, margin: float = NAN) -> float:
    """The margin fixed for a value, by default a quarter of it; never finer than the print."""
    return max(SHARE * abs(mean) if math.isnan(margin) else margin, rounding)


def equal(ours: Sample, theirs: Sample, margin: float, images: Part | None = None) -> Comparison:
    """Equivalence test of two means. images: variance of the difference from different sets of images."""
    difference = welch(ours, theirs, images)
    low, high = difference.interval(EQUIVALENCE)
    margin *= 1 + 1e-9
    if math.isnan(low):
        return Comparison("inconclusive", difference, low, high, False, float(FEWEST_SEEDS))
    inside = -margin <= low and high <= margin
    outside = low > margin or high < -margin
    wide = difference.interval(LEVEL)
    shifted = inside and not wide[0] <= 0 <= wide[1]
    outcome = "reproduced" if inside else "not reproduced" if outside else "inconclusive"
    needed = NAN if inside or outside else seeds_to_compare(ours, theirs, margin, EQUIVALENCE, images)
    if math.isnan(needed) and not (inside or outside):  # one seed has no spread to reckon with
        needed = float(FEWEST_SEEDS)
    return Comparison(outcome, difference, low, high, shifted, needed)


def paired(ours: Sample, theirs: Sample, margin: float, rounding: Part) -> Comparison:
    """Equivalence of two means over the same networks, data and orders: what is left between them is rounding.

    rounding: variance of one seed's difference between two devices, measured beforehand. More seeds are not to be had.
    """
    grown = Part(rounding.variance / ours.n, rounding.df)
    return equal(replace(ours, std=0.0), replace(theirs, std=0.0), margin, grown)


def below(ours: Sample, bound: float) -> tuple[str, float]:
    """(outcome, seeds needed) of a printed upper bound on a mean: one-sided at 5 % each way."""
    if ours.n < 2:
        return "inconclusive", float(FEWEST_SEEDS)
    low, high = ours.interval(EQUIVALENCE)
    if high <= bound:
        return "reproduced", NAN
    return ("not reproduced", NAN) if low > bound else ("inconclusive", seeds_for_limit(ours, bound, EQUIVALENCE))


def none_above(largest: float, bound: float) -> str:
    """Outcome of a printed upper bound that every value has to keep."""
    return "reproduced" if largest <= bound else "not reproduced"


def digits_agree(value: float, printed: float, rounding: float) -> bool:
    """Whether a value rounds to the printed one, give or take one part in a million of the last digit's unit."""
    return abs(value - printed) <= rounding * (1 + 1e-6)
