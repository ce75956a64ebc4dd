"""What the reports on the three-layer network share: corrected tests, and what is said of points
and draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.judged import JudgedAnalysis
from experiments.three_layer.settings import ThreeLayerStudy
from runner.stats import Statistic, correct, wilcoxon

Tests = Mapping[tuple[str, str], Statistic]
"""(name, group) -> the test, with Holm's correction within its figure."""


class Study(JudgedAnalysis):
    """An analysis whose claims and figures read its tests after Holm's correction."""

    experiment: ThreeLayerStudy

    def tested(self) -> list[Statistic]:
        """Every test and fit, without Holm's correction."""
        raise NotImplementedError

    @cached_property
    def rows(self) -> list[Statistic]:
        return self.tested()

    @cached_property
    def tests(self) -> Tests:
        return {(s.name, s.group): s for s in correct(self.rows)}

    def statistics(self) -> list[Statistic]:
        return self.rows


def tests_of_data_sets(
    keys: Sequence[Mapping[str, Any]], tests: Sequence[Statistic]
) -> pd.DataFrame:
    """The corrected tests of single data sets, with the columns that tell them apart."""
    rows = zip(keys, tests, strict=True)
    return pd.DataFrame([{**vars(test), **about} for about, test in rows if "seed" in about])


def data_sets(table: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """(seed, rows) of each data set, in order."""
    by_data_set = table.groupby("seed", sort=True)
    for seed, rows in by_data_set:
        yield int(str(seed)), rows


CRITICAL = ("minimum", "saddle", "degenerate")
"""Kinds of points where the gradient is zero."""


def share_of_kinds(rows: pd.DataFrame, kinds: Sequence[str] = CRITICAL) -> float:
    """Share of the ends that lead to a point of these kinds, or have one nearest."""
    critical = rows["kind"].isin(kinds)
    led_to_critical = rows["nearest_kind"].isin(kinds)
    return float((critical | led_to_critical).mean())


def listed_kinds(kinds: pd.Series) -> str:
    """'12 infinity, 3 minimum': how many points of each kind."""
    return ", ".join(f"{n} {kind}" for kind, n in kinds.value_counts().items())


def signed_rank(rows: pd.DataFrame) -> str:
    """What the signed-rank test says of the gains of further draws of the data."""
    gains = rows["gain"]
    test = wilcoxon(gains, name="gain")
    return (
        f"{(gains > 0).sum()} draws above 0, {(gains < 0).sum()} below; Wilcoxon p {test.p:.2g}, "
        f"shift {test.shift:.3g} [{test.shift_low:.3g}, {test.shift_high:.3g}]"
    )
