"""Statements decided by tests or numbers of several data sets, each judged by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runner.contract import Claim, Statement
from runner.contract.records import Statistic
from runner.stats.claims import (
    LOST,
    DataSetRule,
    claim,
    data_sets_needed,
    finding_of,
    verdict_of_data_sets,
)
from runner.stats.intervals import joined


def median(values: Mapping[int, float]) -> float:
    """Median of the finite values; NaN without any."""
    import statistics

    finite = [value for value in values.values() if math.isfinite(value)]
    if finite:
        return float(statistics.median(finite))
    return math.nan


def signs(test: Statistic, level: float) -> tuple[int | None, int | None]:
    """The least and the largest sign of the effect that a test allows, whatever lost values are.

    0: not significant at this level; None: the test can never be significant at it, or was not
    made.
    """
    least = (test.effect, test.p)
    most = (test.effect, test.p)
    if test.lost:
        least = (test.effect_least, test.p_least)
        most = (test.effect_most, test.p_most)
    if math.isnan(least[1]) or math.isnan(most[1]) or test.p_min >= level:
        return None, None
    return _sign(*least, level), _sign(*most, level)


def _sign(effect: float, p: float, level: float) -> int:
    if p < level:
        return (effect > 0) - (effect < 0)
    return 0


def undecided(test: Statistic) -> str:
    """What a data set shows whose test does not decide."""
    return LOST if test.lost else "inconclusive"


WORST_FIRST = ("opposite", "no", "yes")
"""What a test shows, from against a statement to for it."""


Tests = Mapping[int, Statistic]
"""Seed -> the Holm-corrected test of that data set."""


@dataclass(frozen=True)
class DataSets:
    """Decides a statement by tests or numbers of several data sets.

    Each data set (seed) is judged by itself, since its points share its random draw; then data sets
    are counted (`verdict_of_data_sets`).

    Parameters
    ----------
    rule
        How data sets make a verdict.
    level
        Of a single test, uncorrected as in the papers: agreement of several data sets is required
        instead. The number of tests below it after Holm's correction is reported.
    """

    rule: DataSetRule
    level: float

    def claim(
        self,
        statement: Statement,
        findings: Mapping[int, str],
        values: Mapping[int, float],
        threshold: str,
        detail: str,
        extremes: Sequence[Mapping[int, str]] = (),
    ) -> Claim:
        """The claim from what each data set shows, with the median of the quantity over data sets.

        extremes: what they show with lost points at their worst and at their best for the
        statement; a verdict that holds in both is not open.
        """
        verdict, text = verdict_of_data_sets(findings, self.rule)
        if extremes and LOST in findings.values():
            (worst, of_worst), (best, _) = (verdict_of_data_sets(e, self.rule) for e in extremes)
            if worst == best:
                verdict = worst
                text = f"{of_worst}, whatever the missing points of data sets are"
        needed = math.nan
        if verdict == "inconclusive":
            needed = data_sets_needed(findings, self.rule)
            if math.isinf(needed):
                text += "; more data sets of the same kinds would not decide it"
        return claim(
            statement,
            verdict,
            median(values),
            joined(text, detail),
            threshold=threshold,
            seeds_needed=needed,
        )

    def tested(self, statement: Statement, tests: Tests, *, sign: int) -> Claim:
        """Claim decided by one test in every data set. sign: of the effect claimed, 0 for
        either."""

        def finding(direction: int) -> str:
            if direction == 0:
                return "no"
            return "yes" if sign in (direction, 0) else "opposite"

        threshold = f"p < {self.level:g} in a data set"
        if sign:
            threshold += ", effect > 0" if sign > 0 else ", effect < 0"
        strict = sum(test.p_holm < self.level for test in tests.values())
        detail = f"{_effects(tests)}; {strict} below {self.level:g} after Holm" if tests else ""
        return self._of_tests(statement, tests, finding, threshold, detail)

    def unrelated(self, statement: Statement, tests: Tests) -> Claim:
        """Claim that there is no relation, by the test that decides that there is one: a data set
        with a significant effect, of either sign, does not show it."""

        def finding(direction: int) -> str:
            return "no" if direction else "yes"

        threshold = f"p >= {self.level:g} in a data set"
        return self._of_tests(statement, tests, finding, threshold, _effects(tests))

    def unharmed(self, statement: Statement, tests: Tests) -> Claim:
        """Claim of no harm: a data set shows the opposite where the effect is significantly below
        zero."""

        def finding(direction: int) -> str:
            return "opposite" if direction < 0 else "yes"

        threshold = f"no effect < 0 with p < {self.level:g}"
        return self._of_tests(statement, tests, finding, threshold, _effects(tests))

    def _of_tests(
        self,
        statement: Statement,
        tests: Mapping[int, Statistic],
        finding: Callable[[int], str],
        threshold: str,
        detail: str,
    ) -> Claim:
        """The claim from what the sign of a test shows in every data set, with the median of the
        effects."""
        findings = {}
        worst = {}
        best = {}
        for seed, test in tests.items():
            worst[seed], best[seed] = self._range(test, finding)
            findings[seed] = worst[seed] if worst[seed] == best[seed] else LOST
        effects = {seed: test.effect for seed, test in tests.items()}
        return self.claim(statement, findings, effects, threshold, detail, (worst, best))

    def _range(self, test: Statistic, finding: Callable[[int], str]) -> tuple[str, str]:
        """What a test shows with its lost points at their worst and at their best."""
        least, most = signs(test, self.level)
        if least is None or most is None:
            return undecided(test), undecided(test)
        possible = {finding(sign) for sign in range(least, most + 1)}
        ordered = sorted(possible, key=WORST_FIRST.index)
        return ordered[0], ordered[-1]

    def within(self, statement: Statement, tests: Tests) -> Claim:
        """Claim decided by the 95 % interval of the Hodges–Lehmann shift in every data set,
        compared with the limits.

        A data set shows it when the interval is within them, the opposite when it is wholly
        outside; otherwise it is inconclusive.
        """
        findings = {}
        shifts = {}
        listed = []
        for seed, test in tests.items():
            low = test.shift_low
            high = test.shift_high
            listed.append(f"{test.shift:.2g} [{low:.2g}, {high:.2g}]")
            shifts[seed] = test.shift
            if test.lost:
                low = test.shift_least
                high = test.shift_most
            if statement.holds(low) and statement.holds(high):
                findings[seed] = "yes"
            elif statement.excludes(low, high):
                findings[seed] = "opposite"
            else:
                findings[seed] = undecided(test)
        detail = f"shifts {', '.join(listed)}" if listed else ""
        threshold = f"interval of the shift {statement.threshold}"
        return self.claim(statement, findings, shifts, threshold, detail)

    def compared(
        self, statement: Statement, values: Mapping[int, float], threshold: str = ""
    ) -> Claim:
        """Claim decided by one number of every data set, compared with the limits."""
        findings = {seed: finding_of(value, statement) for seed, value in values.items()}
        listed = ", ".join(f"{value:.3g}" for value in values.values())
        detail = f"values {listed}" if values else ""
        return self.claim(statement, findings, values, threshold or statement.threshold, detail)


def _effects(tests: Mapping[int, Statistic]) -> str:
    """'effects +0.50 (p 0.031), …'."""
    listed = ", ".join(f"{test.effect:+.2f} (p {test.p:.2g})" for test in tests.values())
    return f"effects {listed}"
