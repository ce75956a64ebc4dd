"""What the reports on the three-layer network share: corrected tests, the case of a variant,
decisions by draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from experiments.three_layer.settings import ThreeLayerStudy
from runner.contract import Analysis, Claim, Statement, Tables
from runner.stats import Statistic, correct, judge, wilcoxon
from runner.stats.judge import Evidence, by_seed

Tests = Mapping[tuple[str, str], Statistic]
"""(name, group) -> the test, with Holm's correction within its figure."""
Made = Iterator[tuple[str, Claim]]
"""(variant, claim)."""
Reading = Callable[[pd.DataFrame], float]
"""One number of the rows of a data set."""


class Study(Analysis):
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


@dataclass(frozen=True)
class Case:
    """What the claims of one variant read. variant: as the experiment has it, None where it has
    none.
    """

    experiment: Any
    variant: Any
    tables: Tables
    tests: Tests
    says: Mapping[str, Statement]

    @property
    def evidence(self) -> Evidence:
        rule = judge.DataSetRule(self.experiment.share, self.experiment.data_sets)
        group = ""
        if self.variant:
            group = self.variant.group
        return Evidence(rule, self.experiment.level, group, self.tests)

    def statement(self, name: str, **limits: Any) -> Statement:
        """A statement, with limits from the settings."""
        return replace(self.says[name], **limits)

    def compared(
        self, name: str, rows: pd.DataFrame, read: Reading, threshold: str = "", **limits: Any
    ) -> Claim:
        """Decided by one number of every data set."""
        values = by_seed(rows, read)
        return self.evidence.compared(self.statement(name, **limits), values, threshold)

    def tested(self, name: str, test: str, *, sign: int) -> Claim:
        """Decided by one test of every data set."""
        return self.evidence.tested(self.says[name], test, sign=sign)

    def within(self, name: str, test: str, **limits: Any) -> Claim:
        """Decided by the interval of the shift of a test."""
        return self.evidence.within(self.statement(name, **limits), test)


def column(name: str, statistic: str) -> Reading:
    """Reads a statistic of a column: column("lambda_sup", "skew")."""
    return lambda rows: float(rows[name].agg(statistic))


def data_sets(table: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """(seed, rows) of each data set, in order."""
    for seed, rows in table.groupby("seed", sort=True):
        yield int(str(seed)), rows


def listed_kinds(kinds: pd.Series) -> str:
    """'12 infinity, 3 minimum': how many points of each kind."""
    return ", ".join(f"{n} {kind}" for kind, n in kinds.value_counts().items())


def over_draws(
    statement: Statement, values: Sequence[float], unit: str, *, per_seed: int = 1
) -> Claim:
    """Whether something is larger, decided by further draws of the data: each draw is one value.

    Confirmed when the 95 % interval of the mean over draws is above 0, refuted when it is below,
    and inconclusive between the two: papers name no least gain, and the interval says what is
    excluded. per_seed: draws of each seed, in which the number of seeds that would decide is
    counted.
    """
    made = judge.bound(replace(statement, low=0.0, strict=True), values, over="draws of the data")
    test = wilcoxon(values, name=statement.name)
    above = sum(v > 0 for v in values)
    below = sum(v < 0 for v in values)
    detail = (
        f"{unit}; {above} draws above 0, {below} below; Wilcoxon p {test.p:.2g}, shift "
        f"{test.shift:.3g} "
        f"[{test.shift_low:.3g}, {test.shift_high:.3g}]; {made.detail}"
    )
    needed = made.seeds_needed
    seeds = math.ceil(needed / per_seed) if math.isfinite(needed) else needed
    threshold = "interval > 0; refuted below 0"
    return replace(made, detail=detail, threshold=threshold, seeds_needed=seeds)


def decided_by_draws(
    found: Sequence[tuple[str, Claim]], drawn: Sequence[tuple[str, Claim]]
) -> list[tuple[str, Claim]]:
    """The claims, with those made from draws in the place of the fitted protocol's few data
    sets."""
    names = {claim.name for _, claim in drawn}
    return [
        ("fitted seed by seed" if m == "fitted" and c.name in names else m, c) for m, c in found
    ] + list(drawn)
