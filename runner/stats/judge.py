"""Claims decided from values over training seeds.

A bound is decided when the 95 % interval of the mean over seeds (Student's t) lies wholly on one side of it, a printed
number when the mean is within three standard errors and half a unit of its last digit. Everything else is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from runner.contract.experiment import Claim, decide

NAN = float("nan")
STANDARD_ERRORS = 3.0
FEWEST_SEEDS = 3


def mean_and_error(values: Iterable[float]) -> tuple[float, float, int]:
    """Mean, standard error (NaN for one value) and number of the finite values."""
    x = [v for v in values if math.isfinite(v)]
    n = len(x)
    if n == 0:
        return NAN, NAN, 0
    mean = math.fsum(x) / n
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in x) / (n - 1) / n) if n > 1 else NAN, n


def bound(
    name: str,
    values: Iterable[float],
    low: float = -math.inf,
    high: float = math.inf,
    *,
    known: float = FEWEST_SEEDS,
    **about: Any,
) -> Claim:
    """The mean over seeds lies in [low, high]. about: statement, where, group. known: fewest seeds to decide."""
    mean, error, n = mean_and_error(values)
    sides = [f">= {low:g}"] * math.isfinite(low) + [f"<= {high:g}"] * math.isfinite(high)
    threshold = " and ".join(sides)
    if n < known:
        detail = f"{n} seeds; at least {known} needed"
        return Claim(name, verdict="undecided", statistic=mean, threshold=threshold, detail=detail, **about)
    from scipy.stats import t

    half = float(t.ppf(0.975, n - 1)) * error if n > 1 else 0.0
    below, above = mean - half, mean + half
    holds = True if low <= below and above <= high else False if above < low or below > high else None
    detail = f"n = {n}, 95 % interval of the mean [{below:.4g}, {above:.4g}]"
    if holds is None:
        detail += " holds the threshold"
    return Claim(name, verdict=decide(holds), statistic=mean, threshold=threshold, detail=detail, **about)


def number(name: str, values: Iterable[float], printed: float, resolution: float, **about: Any) -> Claim:
    """The mean over seeds is the printed number. resolution: half a unit of its last printed digit."""
    mean, error, n = mean_and_error(values)
    threshold = f"{printed:g} ± {resolution:g}"
    if n < FEWEST_SEEDS:
        detail = f"{n} seeds; at least {FEWEST_SEEDS} needed"
        return Claim(name, verdict="undecided", statistic=mean, threshold=threshold, detail=detail, **about)
    holds = abs(mean - printed) <= resolution + STANDARD_ERRORS * error
    detail = f"n = {n}, mean {mean:.4g}, standard error {error:.2g}, within {STANDARD_ERRORS:g} of them or not"
    return Claim(name, verdict=decide(holds), statistic=mean, threshold=threshold, detail=detail, **about)
