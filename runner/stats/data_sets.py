"""Statements decided by tests or numbers of several data sets.

Each data set (seed) is judged by itself, since its points share its random draw; then data sets are
counted (`verdict_of`): `share` of those with power must show the effect, and `fewest` are needed.
`level` is that of a single test, uncorrected as in the papers: agreement of several data sets is
required instead. The number of tests below it after Holm's correction is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from runner.contract import Claim, Statement, Verdict
from runner.contract.records import Statistic
from runner.stats.claims import claim
from runner.stats.intervals import joined, withheld

WITH_POWER = ("yes", "no", "opposite")
LOST = "infinite or missing"
"""What a data set shows whose value is infinite or missing."""


def verdict_of(row: Statement, found: Mapping[int, str]) -> tuple[Verdict, str]:
    """One verdict from what each data set shows: "yes", "no", "opposite", "inconclusive" (a test
    without power), or `LOST` (an infinite or missing value, with which nothing is confirmed).

    confirmed: at least `share` of the data sets with power show it, none the opposite; refuted: at
    most half show it, or more than 1 − share show the opposite; inconclusive: between the two, or
    fewer than `fewest` with power; not run: no data set at all. An effect of exactly zero shows
    neither and counts as "no".
    """
    if not found:
        return "not run", "no data set"
    count = Counter(found.values())
    lost = count[LOST]
    with_power = sum(count[finding] for finding in WITH_POWER)
    known = with_power + lost
    text = f"{lost} of {len(found)} data sets rest on infinite or missing values; " if lost else ""
    text += f"{count['yes']} of {with_power} data sets show it"
    if count["opposite"]:
        text += f", {count['opposite']} the opposite"
    if known < len(found):
        text += f"; {len(found) - known} inconclusive"
    if with_power < row.fewest:
        return "inconclusive", f"{text}; at least {row.fewest} are needed"
    shown = count["yes"] / known
    against = count["opposite"] / known
    open_share = lost / known
    if shown >= row.share and not count["opposite"]:
        return withheld("confirmed", lost), text
    # 1 of 5 is no more than 1 − 0.8, whatever floats say
    if shown + open_share <= 0.5 or against > 1 - row.share + 1e-9:
        return "refuted", text
    return "inconclusive", text


def needed(row: Statement, found: Mapping[int, str]) -> float:
    """Number of data sets that would decide, if the shares of what they show stayed the same.

    inf where no number does: no data set has power (each needs more values), too many rest on lost
    values, or the share that shows it is between a half and `share`.
    """
    if not found:
        return float(row.fewest)
    repeated = dict(enumerate([*found.values()] * row.fewest))
    if verdict_of(row, repeated)[0] == "inconclusive":
        return math.inf
    with_power = sum(finding in WITH_POWER for finding in found.values())
    return float(math.ceil(row.fewest * len(found) / with_power))


def finding_of(row: Statement, value: float) -> str:
    """What a data set shows whose quantity is `value`."""
    if not math.isfinite(value):
        return LOST
    if value == row.tie:
        return "inconclusive"
    if row.holds(value):
        return "yes"
    return "opposite" if row.reversed(value) else "no"


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


def of_findings(
    row: Statement,
    findings: Mapping[int, str],
    values: Mapping[int, float],
    threshold: str,
    detail: str,
    extremes: Sequence[Mapping[int, str]] = (),
) -> Claim:
    """The claim from what each data set shows, with the median of the quantity over data sets.

    extremes: what they show with lost points at their worst and at their best for the statement; a
    verdict that holds in both is not open.
    """
    verdict, text = verdict_of(row, findings)
    if extremes and LOST in findings.values():
        (worst, of_worst), (best, _) = (verdict_of(row, extreme) for extreme in extremes)
        if worst == best:
            verdict = worst
            text = f"{of_worst}, whatever the missing points of data sets are"
    data_sets = math.nan
    if verdict == "inconclusive":
        data_sets = needed(row, findings)
        if math.isinf(data_sets):
            text += "; more data sets of the same kinds would not decide it"
    detail = joined(text, detail)
    return claim(row, verdict, median(values), detail, threshold=threshold, seeds_needed=data_sets)


def tested(row: Statement, tests: Tests) -> Claim:
    """Claim decided by one test in every data set, with the sign of the effect claimed, 0 for
    either."""

    def finding(direction: int) -> str:
        if direction == 0:
            return "no"
        return "yes" if row.sign in (direction, 0) else "opposite"

    threshold = f"p < {row.level:g} in a data set"
    if row.sign:
        threshold += ", effect > 0" if row.sign > 0 else ", effect < 0"
    strict = sum(test.p_holm < row.level for test in tests.values())
    detail = f"{_effects(tests)}; {strict} below {row.level:g} after Holm" if tests else ""
    return _of_tests(row, tests, finding, threshold, detail)


def unrelated(row: Statement, tests: Tests) -> Claim:
    """Claim that there is no relation, by the test that decides that there is one: a data set with
    a significant effect, of either sign, does not show it."""

    def finding(direction: int) -> str:
        return "no" if direction else "yes"

    return _of_tests(row, tests, finding, f"p >= {row.level:g} in a data set", _effects(tests))


def unharmed(row: Statement, tests: Tests) -> Claim:
    """Claim of no harm: a data set shows the opposite where the effect is significantly below
    zero."""

    def finding(direction: int) -> str:
        return "opposite" if direction < 0 else "yes"

    return _of_tests(row, tests, finding, f"no effect < 0 with p < {row.level:g}", _effects(tests))


def _of_tests(
    row: Statement, tests: Tests, finding: Callable[[int], str], threshold: str, detail: str
) -> Claim:
    """The claim from what the sign of a test shows in every data set, with the median of the
    effects."""
    findings = {}
    worst = {}
    best = {}
    for seed, test in tests.items():
        worst[seed], best[seed] = _range(test, finding, row.level)
        findings[seed] = worst[seed] if worst[seed] == best[seed] else LOST
    effects = {seed: test.effect for seed, test in tests.items()}
    return of_findings(row, findings, effects, threshold, detail, (worst, best))


def _range(test: Statistic, finding: Callable[[int], str], level: float) -> tuple[str, str]:
    """What a test shows with its lost points at their worst and at their best."""
    least, most = signs(test, level)
    if least is None or most is None:
        return undecided(test), undecided(test)
    possible = {finding(sign) for sign in range(least, most + 1)}
    ordered = sorted(possible, key=WORST_FIRST.index)
    return ordered[0], ordered[-1]


def within(row: Statement, tests: Tests) -> Claim:
    """Claim decided by the 95 % interval of the Hodges–Lehmann shift in every data set, compared
    with the limits.

    A data set shows it when the interval is within them, the opposite when it is wholly outside;
    otherwise it is inconclusive.
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
        if row.holds(low) and row.holds(high):
            findings[seed] = "yes"
        elif row.excludes(low, high):
            findings[seed] = "opposite"
        else:
            findings[seed] = undecided(test)
    detail = f"shifts {', '.join(listed)}" if listed else ""
    return of_findings(row, findings, shifts, f"interval of the shift {row.threshold}", detail)


def compared(row: Statement, values: Mapping[int, float]) -> Claim:
    """Claim decided by one number of every data set, compared with the limits."""
    findings = {seed: finding_of(row, value) for seed, value in values.items()}
    listed = ", ".join(f"{value:.3g}" for value in values.values())
    detail = f"values {listed}" if values else ""
    return of_findings(row, findings, values, row.threshold, detail)


def _effects(tests: Mapping[int, Statistic]) -> str:
    """'effects +0.50 (p 0.031), …'."""
    listed = ", ".join(f"{test.effect:+.2f} (p {test.p:.2g})" for test in tests.values())
    return f"effects {listed}"
