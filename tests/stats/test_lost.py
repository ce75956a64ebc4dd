"""Infinite and missing values: counted by every statistic, and no judge's verdict is better for
them."""

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest

from runner import stats
from runner.stats import data_sets, judge, over_seeds
from runner.stats.claims import overall
from runner.stats.intervals import Sample, Variance, below, equal, lost_text, paired
from runner.stats.scorecard import scorecard
from tests.slow import slow
from tests.stats.test_over_seeds import says

LOST = (math.nan, math.inf, -math.inf)
RANK = {"refuted": 0, "not reproduced": 0, "minor error": 0, "inconclusive": 1, "not run": 1}
"""Every other verdict is better."""


def rank(verdict):
    return RANK.get(verdict, 2)


PRINTED = says(number=1.0, rounding=0.05, n=5)
ABOVE = says(low=0.5)


def judged(method, *arguments, **keys):
    """(verdict, text) of a judge."""
    made = method(*arguments, **keys)
    return made.verdict, made.detail


TEN_PERCENT = {"mean": "1.0", "std": "0.1"}


def as_scored(values, printed=None, **columns):
    """(verdict, text) of a row of the scorecard."""
    rows = [{"metric": "m", "seed": i, "value": v, **columns} for i, v in enumerate(values)]
    printed = {"metric": "m", "n_seeds": str(len(values)), **(printed or TEN_PERCENT)}
    reference = pd.DataFrame([printed], dtype=str)
    row = scorecard(pd.DataFrame(rows), reference).iloc[0]
    return row["verdict"], row["reason"]


def compared(method, values, *rest):
    """(outcome, text) of a sample next to a printed mean of 1.0 ± 0.1."""
    sample = Sample.of(values)
    return method(sample, Sample(1.0, 0.1, 5), *rest).outcome, lost_text(sample.lost, len(values))


def below_a_bound(values):
    sample = Sample.of(values)
    return below(sample, 1.5)[0], lost_text(sample.lost, len(values))


def by_tests(kind, values, sign, method):
    values = np.asarray(values, dtype=float)
    other = np.zeros_like(values)
    if kind == "mann_whitney":
        other = np.linspace(-0.4, 0.4, len(values))
    tests = {}
    for seed in range(5):
        group = f"seed={seed}"
        test = getattr(stats, kind)
        tests[seed] = test(values + 0.01 * seed, other, name="t", group=group)
    if method == "within":
        return judged(data_sets.within, says(low=0.5, high=1.5, level=0.05), tests)
    return judged(getattr(data_sets, method), says(level=0.05, sign=sign), tests)


def mean_of(values):
    return sum(values) / len(values)


def of_jackknife(values):
    row = says(table="t", quantity="x.start", along="d", over="jackknife", test="bound", low=0.5)
    table = pd.DataFrame({"seed": range(len(values)), "d": 1, "x": values})
    (made,) = judge([row], {"t": table})
    return made.verdict, made.detail


JUDGES = {
    "bound below": lambda v: judged(over_seeds.bound, says(high=1.5), v),
    "bound above": lambda v: judged(
        over_seeds.bound, says(low=0.5, strict=True), {"a": v, "b": [1, 1, 1]}
    ),
    "bound on own networks": lambda v: judged(
        over_seeds.bound, ABOVE, {"init": v}, same={"init": mean_of(v)}
    ),
    "number": lambda v: judged(over_seeds.number, PRINTED, v),
    "number on own networks": lambda v: judged(
        over_seeds.number, PRINTED, {"a": v}, same={"a": mean_of(v)}
    ),
    "exact": lambda v: judged(over_seeds.exact, ABOVE, {str(i): x for i, x in enumerate(v)}),
    "compared": lambda v: judged(data_sets.compared, ABOVE, dict(enumerate(v))),
    "equal": lambda v: compared(equal, v, 0.25),
    "paired": lambda v: compared(paired, v, 0.25, Variance(0.0001, 5)),
    "below": below_a_bound,
    "score": as_scored,
    "exact match": lambda v: as_scored(v, paired="true"),
    "calibrated": lambda v: as_scored(v, {**TEN_PERCENT, "calibrated": "chosen by these numbers"}),
    "by construction": lambda v: as_scored(v, {**TEN_PERCENT, "constructed": "a definition"}),
    "upper bound": lambda v: as_scored(v, {"mean": "", "upper_bound": "1.5"}),
    "jackknife": of_jackknife,
}
"""Name -> (verdict, text) of five values."""
CONFIRMED = ([0.9, 0.9, 1.0, 1.1, 1.1], [1.0] * 5)
"""Every judge confirms one of these: otherwise no lost value could improve a verdict."""


@pytest.mark.parametrize("name", JUDGES)
def test_no_lost_value_improves_a_verdict(name):
    decided = JUDGES[name]
    assert 2 in [rank(decided(values)[0]) for values in CONFIRMED]
    rng = np.random.default_rng(3)
    shapes = product((0.2, 1.0, 2.0), (0.02, 0.1, 0.6))
    samples = [[*rng.normal(centre, spread, 5)] for centre, spread in shapes]
    for values, kept, lost in product((*samples, CONFIRMED[0]), range(5), LOST):
        verdict, text = decided([*values[:kept], *[lost] * (5 - kept)])
        assert rank(verdict) <= 1, (values, kept, lost, verdict)
        assert verdict == "not run" or str(5 - kept) in text.split()[:5], text


@pytest.mark.parametrize("lost", LOST)
def test_what_is_left_refutes_no_more_than_it_confirms(lost):
    """Three runs at 0.5 say nothing of a mean with runs that blew up, in neither direction."""
    left = [0.5, 0.51, 0.49]
    for limits in (says(low=1.0), says(high=1.0)):
        made = over_seeds.bound(limits, {"a": [*left, lost]})
        assert made.verdict == "inconclusive" and made.detail.startswith("1 of 4")
        decided = over_seeds.bound(limits, {"a": [*left, lost], "b": left})
        assert decided.verdict == overall(["inconclusive", *decided.variants.values()])
    assert over_seeds.bound(says(low=1.0), left).verdict == "refuted"
    assert as_scored([5.0, 5.1, 4.9, 5.0, lost])[0] == "inconclusive"
    assert as_scored([5.0, 5.1, 4.9, 5.0, 5.0])[0] == "not reproduced"


TESTED = list(product(("wilcoxon", "mann_whitney"), ("tested", "within", "unharmed")))
LOSSES = list(product((1, 4, 12, 23), LOST, (1, -1)))
"""How many points are lost, to what, and whether the smallest (1) or the largest."""


@pytest.mark.parametrize("losses", [LOSSES[::5], slow(LOSSES)])
@pytest.mark.parametrize("kind, method", TESTED)
def test_no_lost_point_of_a_data_set_improves_a_verdict(kind, method, losses):
    """Points of a data set that are lost count as if they spoke against the statement."""
    rng, verdicts = np.random.default_rng(5), []
    for centre in (-1.0, 0.0, 0.3, 1.0):
        values = rng.normal(centre, 0.3, 24)
        verdict, _ = by_tests(kind, values, 1, method)
        verdicts.append(verdict)
        for many, lost, order in losses:
            some = values.copy()
            some[np.argsort(order * values)[:many]] = lost
            found, text = by_tests(kind, some, 1, method)
            no_better = rank(found) <= rank(verdict) or found == "inconclusive"
            assert no_better, (centre, many, lost, verdict, found, text)
    assert "confirmed" in verdicts


def at_least(test):
    """p and effect of a test, to rounding, with each lost value against the statement."""
    return pytest.approx((test.p_least, test.effect_least))


def test_a_few_lost_points_leave_a_large_effect():
    """Whatever they were: the test is made with each of them against the statement."""
    values = np.r_[np.linspace(0.5, 1.5, 40), math.nan]
    row = stats.wilcoxon(values, name="t")
    assert row.lost == 1 and row.effect == 1 and 0.8 < row.effect_least < 1 == row.effect_most
    assert row.p < row.p_least < 1e-6 and row.shift_least <= row.shift_low
    filled = stats.wilcoxon(np.r_[values[:-1], -1e9], name="t")
    assert (filled.p, filled.effect) == at_least(row)
    assert by_tests("wilcoxon", values, 1, "tested")[0] == "confirmed"


def test_a_lost_value_counts_against_the_sample_that_lost_it():
    low, high = np.linspace(0.0, 1.0, 20), np.linspace(0.5, 1.5, 20)
    for lost, worst in (
        ((np.r_[high, math.nan], low), (np.r_[high, -1e9], low)),
        ((high, np.r_[low, math.nan]), (high, np.r_[low, 1e9])),
    ):
        row, filled = (stats.mann_whitney(*samples, name="t") for samples in (lost, worst))
        assert (filled.p, filled.effect) == at_least(row)


STATISTICS = {
    "mann_whitney": lambda v: stats.mann_whitney(v, [0.0, 1.0, 2.0], name="t"),
    "wilcoxon": lambda v: stats.wilcoxon(v, name="t"),
    "spearman": lambda v: stats.spearman(range(len(v)), v, name="t"),
    "linear": lambda v: stats.linear(range(len(v)), v, name="t"),
    "log_linear": lambda v: stats.log_linear(range(len(v)), v, name="t"),
    "summary": lambda v: stats.summary(v, name="t"),
}


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("lost", LOST)
def test_every_statistic_counts_them(name, lost):
    row = STATISTICS[name]([1.0, 2.0, lost, 4.0, lost])
    assert row.lost == 2 and "2 of 5" in row.note and "infinite or missing" in row.note
    if name in ("linear", "log_linear"):
        assert math.isnan(row.slope) and math.isnan(row.r2)
    assert STATISTICS[name]([1.0, 2.0, 3.0, 4.0]).lost == 0
