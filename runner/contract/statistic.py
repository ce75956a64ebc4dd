"""One row of stats.csv, and what the functions that make one take besides their samples."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Required, TypedDict

NAN = float("nan")
TESTS = ("mann_whitney", "wilcoxon", "spearman")
"""Kinds whose p-values enter Holm's correction; the p of a fit describes its slope and stays as it is."""


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One row of stats.csv.

    name: unique together with group; kind: mann_whitney, wilcoxon, spearman, linear, log_linear or summary; figure:
    where it is drawn; where: place in the paper; group: variant, e.g. "protocol=fitted seed=42".
    family: figure, kind and number of the tests that Holm's correction takes together; "" for a test that cannot reach
    0.05 and is left out.
    label_a, label_b, n_a, n_b: the samples, and how many values of each entered.
    statistic: U of `a`, W⁺, Spearman's ρ, or the mean. p, p_holm, p_min: two-sided, adjusted within the family,
    smallest attainable. effect: rank-biserial correlation. shift, shift_low, shift_high: Hodges–Lehmann shift and
    its confidence interval. slope, intercept, slope_error, r2: fits. mean, std (ddof 1), std_population (ddof 0),
    median: summaries, of `a`.
    """

    name: str
    kind: str
    figure: str = ""
    where: str = ""
    group: str = ""
    label_a: str = ""
    label_b: str = ""
    n_a: int = 0
    n_b: int = 0
    statistic: float = NAN
    p: float = NAN
    p_holm: float = NAN
    p_min: float = NAN
    family: str = ""
    effect: float = NAN
    shift: float = NAN
    shift_low: float = NAN
    shift_high: float = NAN
    slope: float = NAN
    intercept: float = NAN
    slope_error: float = NAN
    r2: float = NAN
    mean: float = NAN
    std: float = NAN
    std_population: float = NAN
    median: float = NAN
    method: str = ""
    note: str = ""

    @property
    def decay(self) -> float:
        """b of log y = a − b x: the negative slope."""
        return -self.slope

    @property
    def has_power(self) -> bool:
        """Whether the test can reach p < 0.05 at all."""
        return self.p_min < 0.05

    def row(self) -> dict[str, Any]:
        """Column name -> value, in the order of the fields."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


class About(TypedDict, total=False):
    """What every function of `runner.stats` takes besides its samples: see the fields of `Statistic`."""

    name: Required[str]
    figure: str
    where: str
    group: str
    label_a: str
    label_b: str
