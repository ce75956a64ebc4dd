"""What each data set shows of a statement: the tests of one variant, and numbers of one data set each.

Data sets (seeds) are judged one by one and then counted (`judge.verdict_of_data_sets`), since points of one data set
share its draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.contract import Claim, Statement
from runner.contract.statistic import Statistic
from runner.stats import judge

if TYPE_CHECKING:
    import pandas as pd


def by_seed(table: pd.DataFrame, of: Callable[[pd.DataFrame], float]) -> dict[int, float]:
    """seed -> of(rows of that seed), in the order of the seeds."""
    return {int(str(seed)): of(rows) for seed, rows in table.groupby("seed", sort=True)}


def median(values: Mapping[int, float]) -> float:
    """Of the finite ones; NaN without any."""
    from statistics import median as middle

    finite = [v for v in values.values() if math.isfinite(v)]
    return float(middle(finite)) if finite else math.nan


@dataclass(frozen=True)
class Evidence:
    """What the claims of one variant look at.

    rule: how data sets make a verdict; level: of a single test, unadjusted as in the papers (chance is kept out by
    asking for agreement of data sets; how many stay below it after Holm's correction is added); group: the variant,
    as the groups of its tests begin; tests: (name, group) -> Holm-corrected test.
    """

    rule: judge.DataSetRule
    level: float
    group: str = ""
    tests: Mapping[tuple[str, str], Statistic] = field(default_factory=dict)

    def of_seeds(self, test: str) -> dict[int, Statistic]:
        """seed -> the test of that name in that data set."""
        prefix = f"{self.group} seed=" if self.group else "seed="
        return {
            int(group.removeprefix(prefix)): row
            for (name, group), row in self.tests.items()
            if name == test and group.startswith(prefix) and group.removeprefix(prefix).isdigit()
        }

    def claim(
        self, statement: Statement, found: Mapping[int, str], values: Mapping[int, float], threshold: str, detail: str
    ) -> Claim:
        """The verdict of the votes `found`, with the median over data sets of the quantity looked at."""
        verdict, text = judge.verdict_of_data_sets(found, self.rule)
        detail = "; ".join(t for t in (text, detail) if t)
        needed = judge.data_sets_needed(found, self.rule) if verdict == "inconclusive" else math.nan
        return judge.claim(statement, verdict, median(values), detail, threshold=threshold, seeds_needed=needed)

    def tested(self, statement: Statement, test: str, *, sign: int) -> Claim:
        """Decided by one test in every data set; sign of the effect claimed, 0 for either."""
        found, rows = {}, self.of_seeds(test)
        for seed, row in rows.items():
            if math.isnan(row.p) or row.p_min >= self.level:
                found[seed] = "inconclusive"
            elif row.p >= self.level or (sign and row.effect == 0):
                found[seed] = "no"
            else:
                found[seed] = "yes" if not sign or sign * row.effect > 0 else "opposite"
        strict = sum(row.p_holm < self.level for row in rows.values())
        listed = ", ".join(f"{r.effect:+.2f} (p {r.p:.2g})" for r in rows.values())
        threshold = f"p < {self.level:g} in a data set" + (f", effect {'> 0' if sign > 0 else '< 0'}" if sign else "")
        detail = f"effects {listed}; {strict} below {self.level:g} after Holm" if rows else ""
        return self.claim(statement, found, {s: r.effect for s, r in rows.items()}, threshold, detail)

    def within(self, statement: Statement, test: str) -> Claim:
        """Decided by the 95 % interval of the Hodges–Lehmann shift in every data set, against the limits.

        Shown when it lies within them, the opposite when wholly outside, mute when it straddles one.
        """
        found, rows = {}, self.of_seeds(test)
        for seed, row in rows.items():
            if not (math.isfinite(row.shift_low) and math.isfinite(row.shift_high)):
                found[seed] = "inconclusive"
            elif statement.holds(row.shift_low) and statement.holds(row.shift_high):
                found[seed] = "yes"
            else:
                outside = row.shift_high < statement.low or row.shift_low > statement.high
                found[seed] = "opposite" if outside else "inconclusive"
        listed = ", ".join(f"{r.shift:.2g} [{r.shift_low:.2g}, {r.shift_high:.2g}]" for r in rows.values())
        threshold = f"interval of the shift {statement.threshold}"
        detail = f"shifts {listed}" if rows else ""
        return self.claim(statement, found, {s: r.shift for s, r in rows.items()}, threshold, detail)

    def unharmed(self, statement: Statement, test: str) -> Claim:
        """A statement of absence: the opposite in a data set where the effect is significantly below zero."""
        found, rows = {}, self.of_seeds(test)
        for seed, row in rows.items():
            mute = math.isnan(row.p) or row.p_min >= self.level
            found[seed] = "inconclusive" if mute else "opposite" if row.p < self.level and row.effect < 0 else "yes"
        listed = ", ".join(f"{r.effect:+.2f} (p {r.p:.2g})" for r in rows.values())
        threshold = f"no effect < 0 with p < {self.level:g}"
        return self.claim(statement, found, {s: r.effect for s, r in rows.items()}, threshold, f"effects {listed}")

    def compared(self, statement: Statement, values: Mapping[int, float], threshold: str = "") -> Claim:
        """Decided by one number of every data set, against the limits."""
        found = {seed: judge.finding_of(v, statement) for seed, v in values.items()}
        listed = "values " + ", ".join(f"{v:.3g}" for v in values.values()) if values else ""
        return self.claim(statement, found, values, threshold or statement.threshold, listed)
