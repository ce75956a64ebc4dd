"""What the reports on the three-layer network share: corrected tests, the case of a variant,
decisions by draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.judged import JudgedAnalysis
from experiments.three_layer.settings import ThreeLayerStudy
from runner.contract import Claim, Statement, Tables
from runner.stats import Statistic, correct, judge, wilcoxon
from runner.stats.judge import Evidence, by_seed

Tests = Mapping[tuple[str, str], Statistic]
"""(name, group) -> the test, with Holm's correction within its figure."""
Made = Iterator[tuple[str, Claim]]
"""(variant, claim)."""
Reading = Callable[[pd.DataFrame], float]
"""One number of the rows of a data set."""


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


@dataclass(frozen=True, eq=False)
class Case:
    """What the tests, claims and figures of one variant of a study read."""

    study: Study

    @property
    def experiment(self) -> Any:
        """The settings of the study."""
        return self.study.experiment

    @property
    def tables(self) -> Tables:
        """The tables of the study."""
        return self.study.tables

    @property
    def group(self) -> str:
        """Begins the group of its tests; "" where the study has no variants."""
        return ""

    def of_seed(self, seed: int) -> str:
        """The group of its tests of one data set."""
        return f"{self.group} seed={seed}".strip()

    def test(self, name: str, seed: int) -> Statistic | None:
        """A test of one data set after Holm's correction."""
        key = (name, self.of_seed(seed))
        return self.study.tests.get(key)

    @property
    def evidence(self) -> Evidence:
        """Decides its claims."""
        experiment = self.experiment
        rule = judge.DataSetRule(experiment.share, experiment.data_sets)
        return Evidence(rule, self.experiment.level, self.group, self.study.tests)

    def statement(self, name: str, **limits: Any) -> Statement:
        """A statement, with limits from the settings, which are ours."""
        statement = self.study.says[name]
        if limits:
            return replace(statement, chosen=True, **limits)
        return statement

    def compared(
        self, name: str, rows: pd.DataFrame, read: Reading, threshold: str = "", **limits: Any
    ) -> Claim:
        """Decided by one number of every data set."""
        values = by_seed(rows, read)
        statement = self.statement(name, **limits)
        return self.evidence.compared(statement, values, threshold)

    def tested(self, name: str, test: str, *, sign: int) -> Claim:
        """Decided by one test of every data set."""
        return self.evidence.tested(self.statement(name), test, sign=sign)

    def within(self, name: str, test: str, **limits: Any) -> Claim:
        """Decided by the interval of the shift of a test."""
        statement = self.statement(name, **limits)
        return self.evidence.within(statement, test)


def column(name: str, statistic: str) -> Reading:
    """Reads a statistic of a column: column("lambda_sup", "skew"); NaN where a value is missing."""
    return lambda rows: float(getattr(rows[name], statistic)(skipna=False))


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
    counts = kinds.value_counts()
    return ", ".join(f"{n} {kind}" for kind, n in counts.items())


def signed_rank(rows: pd.DataFrame) -> str:
    """What the signed-rank test says of the gains of further draws of the data."""
    gains = rows["gain"]
    test = wilcoxon(gains, name="gain")
    return (
        f"{(gains > 0).sum()} draws above 0, {(gains < 0).sum()} below; Wilcoxon p {test.p:.2g}, "
        f"shift {test.shift:.3g} [{test.shift_low:.3g}, {test.shift_high:.3g}]"
    )


def over_draws(
    statement: Statement, values: Sequence[float], unit: str, *, per_seed: int = 1
) -> Claim:
    """Whether something is larger, decided by further draws of the data: each draw is one value.

    Confirmed when the 95 % interval of the mean over draws is above 0, refuted when it is below,
    and inconclusive between the two: papers name no least gain, and the interval says what is
    excluded. per_seed: draws of each seed, in which the number of seeds that would decide is
    counted.
    """
    positive = replace(statement, low=0.0, strict=True)
    made = judge.bound(positive, values, over="draws of the data")
    test = wilcoxon(values, name=statement.name)
    above = sum(v > 0 for v in values)
    below = sum(v < 0 for v in values)
    detail = (
        f"{unit}; {above} draws above 0, {below} below; Wilcoxon p {test.p:.2g}, shift "
        f"{test.shift:.3g} [{test.shift_low:.3g}, {test.shift_high:.3g}]; {made.detail}"
    )
    seeds = made.seeds_needed
    if math.isfinite(seeds):
        seeds = math.ceil(seeds / per_seed)
    threshold = "interval > 0; refuted below 0"
    return replace(made, detail=detail, threshold=threshold, seeds_needed=seeds)


def decided_by_draws(
    found: Sequence[tuple[str, Claim]], drawn: Sequence[tuple[str, Claim]]
) -> list[tuple[str, Claim]]:
    """The claims, with those made from draws in the place of the fitted protocol's few data
    sets."""
    names = {claim.name for _, claim in drawn}
    made = []
    for variant, claim in found:
        if variant == "fitted" and claim.name in names:
            variant = "fitted seed by seed"
        made.append((variant, claim))
    return [*made, *drawn]
