"""Infinite and missing values: counted by every statistic, and no judge's verdict is better for
them."""

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest

from experiments.dag.protocol.scores import jackknife
from runner import stats
from runner.contract import Statement
from runner.report.compare import scorecard
from runner.stats import judge
from runner.stats.intervals import Part, Sample
from runner.stats.judge import Evidence

LOST = (math.nan, math.inf, -math.inf)
RANK = {"refuted": 0, "not reproduced": 0, "minor error": 0, "inconclusive": 1, "not run": 1}
"""Every other verdict is better."""
RULE = judge.DataSetRule(share=0.8, least=3)


def says(**limits):
    return Statement(name="s", text="a statement", where="Section 1", **limits)


def as_scored(values, **columns):
    rows = [{"metric": "m", "seed": i, "value": v, **columns} for i, v in enumerate(values)]
    reference = pd.DataFrame(
        [{"metric": "m", "mean": "1.0", "std": "0.1", "n_seeds": str(len(values))}], dtype=str
    )
    row = scorecard(pd.DataFrame(rows), reference).iloc[0]
    return row["verdict"], row["reason"]


def as_bounded(values):
    rows = [{"metric": "m", "seed": i, "value": v} for i, v in enumerate(values)]
    reference = pd.DataFrame([{"metric": "m", "mean": "", "upper_bound": "1.5"}], dtype=str)
    row = scorecard(pd.DataFrame(rows), reference).iloc[0]
    return row["verdict"], row["reason"]


def claimed(made):
    return made.verdict, made.detail


def by_tests(kind, values, sign, method):
    values = np.asarray(values, dtype=float)
    tests = {}
    for seed in range(5):
        shifted = values + 0.01 * seed
        row = stats.wilcoxon(shifted, np.zeros_like(shifted), name="t", group=f"seed={seed}")
        if kind == "mann_whitney":
            other = np.linspace(-0.4, 0.4, len(values))
            row = stats.mann_whitney(shifted, other, name="t", group=f"seed={seed}")
        tests["t", f"seed={seed}"] = row
    evidence = Evidence(RULE, 0.05, tests=tests)
    if method == "within":
        return claimed(evidence.within(says(low=0.5, high=1.5), "t"))
    if method == "unharmed":
        return claimed(evidence.unharmed(says(), "t"))
    return claimed(evidence.tested(says(), "t", sign=sign))


JUDGES = {
    "bound below": lambda v: claimed(judge.bound(says(high=1.5), v)),
    "bound above": lambda v: claimed(
        judge.bound(says(low=0.5, strict=True), {"a": v, "b": [1, 1, 1]})
    ),
    "bound on own networks": lambda v: claimed(
        judge.bound(says(low=0.5), {"init": v}, same={"init": sum(v) / len(v)})
    ),
    "number": lambda v: claimed(judge.number(says(number=1.0, rounding=0.05, n=5), v)),
    "number on own networks": lambda v: claimed(
        judge.number(says(number=1.0, rounding=0.05, n=5), {"a": v}, same={"a": sum(v) / len(v)})
    ),
    "exact": lambda v: claimed(judge.exact(says(low=0.5), {str(i): x for i, x in enumerate(v)})),
    "compared": lambda v: claimed(Evidence(RULE, 0.05).compared(says(low=0.5), dict(enumerate(v)))),
    "equal": lambda v: (
        judge.equal(Sample.of(v), Sample(1.0, 0.1, 5), 0.25).outcome,
        Sample.of(v).lost_text,
    ),
    "paired": lambda v: (
        judge.paired(Sample.of(v), Sample(1.0, 0.1, 5), 0.25, Part(0.0001, 5)).outcome,
        Sample.of(v).lost_text,
    ),
    "below": lambda v: (judge.below(Sample.of(v), 1.5)[0], Sample.of(v).lost_text),
    "score": as_scored,
    "exact match": lambda v: as_scored(v, paired="true"),
    "calibrated": lambda v: as_scored(v, calibrated="chosen by these numbers"),
    "by construction": lambda v: as_scored(v, constructed="a definition"),
    "upper bound": as_bounded,
    "jackknife": lambda v: claimed(
        judge.bound(
            says(low=0.5), jackknife(pd.DataFrame({"x": v}), lambda t: float(t["x"].mean()))
        )
    ),
}
"""Name -> (verdict, text) of five values."""


@pytest.mark.parametrize("name", JUDGES)
def test_no_lost_value_improves_a_verdict(name):
    rng = np.random.default_rng(3)
    samples = [
        rng.normal(centre, spread, 5) for centre in (0.2, 1.0, 2.0) for spread in (0.02, 0.1, 0.6)
    ]
    samples.append(np.array([0.9, 0.9, 1.0, 1.1, 1.1]))
    for values in samples:
        full = RANK.get(JUDGES[name](list(values))[0], 2)
        for kept in (0, 1, 2, 3, 4):
            for lost in LOST:
                verdict, text = JUDGES[name]([*values[:kept], *[lost] * (5 - kept)])
                assert RANK.get(verdict, 2) <= max(1, full), (values, kept, lost, verdict)
                assert RANK.get(verdict, 2) <= 1, (values, kept, lost, verdict)
                assert verdict == "not run" or str(5 - kept) in text.split()[:5], text


@pytest.mark.parametrize("lost", LOST)
def test_what_is_left_refutes_no_more_than_it_confirms(lost):
    """Three runs at 0.5 say nothing of a mean with runs that blew up, in neither direction."""
    left = [0.5, 0.51, 0.49]
    for limits in ({"low": 1.0}, {"high": 1.0}):
        made = judge.bound(says(**limits), {"a": [*left, lost]})
        assert made.verdict == "inconclusive" and made.detail.startswith("1 of 4")
        decided = judge.bound(says(**limits), {"a": [*left, lost], "b": left})
        assert decided.verdict == judge.overall(["inconclusive", *decided.variants.values()])
    assert judge.bound(says(low=1.0), left).verdict == "refuted"
    assert as_scored([5.0, 5.1, 4.9, 5.0, lost])[0] == "inconclusive"
    assert as_scored([5.0, 5.1, 4.9, 5.0, 5.0])[0] == "not reproduced"


def test_every_judge_confirms_something():
    """Otherwise the test above could not fail."""
    for name, decided in JUDGES.items():
        verdicts = [decided(values)[0] for values in ([0.9, 0.9, 1.0, 1.1, 1.1], [1.0] * 5)]
        assert 2 in [RANK.get(verdict, 2) for verdict in verdicts], name


TESTED = [
    (kind, method)
    for kind in ("wilcoxon", "mann_whitney")
    for method in ("tested", "within", "unharmed")
]


LOSSES = list(product((1, 4, 12, 23), LOST, (1, -1)))
"""How many points are lost, to what, and whether the smallest (1) or the largest."""


@pytest.mark.parametrize("losses", [LOSSES[::5], pytest.param(LOSSES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind, method", TESTED)
def test_no_lost_point_of_a_data_set_improves_a_verdict(kind, method, losses):
    """Points of a data set that are lost count as if they spoke against the statement."""
    rng = np.random.default_rng(5)
    confirmed = 0
    for centre in (-1.0, 0.0, 0.3, 1.0):
        values = rng.normal(centre, 0.3, 24)
        verdict, _ = by_tests(kind, values, 1, method)
        confirmed += verdict == "confirmed"
        for many, lost, order in losses:
            some = values.copy()
            some[np.argsort(order * values)[:many]] = lost
            found, text = by_tests(kind, some, 1, method)
            no_better = RANK.get(found, 2) <= RANK.get(verdict, 2) or found == "inconclusive"
            assert no_better, (centre, many, lost, verdict, found, text)
    assert confirmed


def test_a_few_lost_points_leave_a_large_effect():
    """Whatever they were: the test is made with each of them against the statement."""
    values = np.r_[np.linspace(0.5, 1.5, 40), math.nan]
    row = stats.wilcoxon(values, name="t")
    assert row.lost == 1 and row.effect == 1 and 0.8 < row.effect_least < 1 == row.effect_most
    assert row.p < row.p_least < 1e-6 and row.shift_least <= row.shift_low
    filled = stats.wilcoxon(np.r_[values[:-1], -1e9], name="t")
    assert (row.p_least, row.effect_least) == pytest.approx((filled.p, filled.effect))
    assert by_tests("wilcoxon", values, 1, "tested")[0] == "confirmed"


def test_a_lost_value_counts_against_the_sample_that_lost_it():
    low, high = np.linspace(0.0, 1.0, 20), np.linspace(0.5, 1.5, 20)
    first = stats.mann_whitney(np.r_[high, math.nan], low, name="t")
    second = stats.mann_whitney(high, np.r_[low, math.nan], name="t")
    worst = stats.mann_whitney(np.r_[high, -1e9], low, name="t")
    assert (first.p_least, first.effect_least) == pytest.approx((worst.p, worst.effect))
    worst = stats.mann_whitney(high, np.r_[low, 1e9], name="t")
    assert (second.p_least, second.effect_least) == pytest.approx((worst.p, worst.effect))


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


def test_a_value_without_a_logarithm_is_lost():
    assert stats.log_linear([0, 1, 2], [1.0, 0.0, 0.1], name="t").lost == 1
