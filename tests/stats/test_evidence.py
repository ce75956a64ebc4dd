"""Data sets counted: each test's vote, and the tie rule."""

import math

import pandas as pd

from runner.contract import Statement
from runner.stats import Statistic, judge
from runner.stats.evidence import Evidence, by_seed, median

SAYS = Statement(name="s", text="t", where="Fig. 1")


def evidence(*tests: tuple[float, float], p_min: float = 0.001, **kept) -> Evidence:
    """One test a data set: (p, effect)."""
    rows = {
        ("t", f"protocol=fitted seed={i}"): Statistic(
            name="t", kind="mann_whitney", p=p, p_holm=p, effect=effect, p_min=p_min, **kept
        )
        for i, (p, effect) in enumerate(tests)
    }
    rows["t", "protocol=fitted activation=tanh seed=0"] = Statistic(name="t", kind="mann_whitney", p=0.9, p_min=0.001)
    return Evidence(judge.DataSetRule(0.8, 3), 0.01, "protocol=fitted", rows)


def test_only_tests_of_the_variant_are_counted():
    assert list(evidence((0.001, 0.5), (0.2, 0.1)).of_seeds("t")) == [0, 1]


def test_tests_vote_with_their_sign():
    assert evidence(*[(0.001, 0.5)] * 4, (0.5, 0.1)).tested(SAYS, "t", sign=1).verdict == "confirmed"
    assert evidence(*[(0.001, 0.5)] * 3, *[(0.001, -0.5)] * 2).tested(SAYS, "t", sign=1).verdict == "refuted"
    assert evidence(*[(0.001, -0.5)] * 4).tested(SAYS, "t", sign=0).verdict == "confirmed"
    assert evidence(*[(0.001, 0.0)] * 4).tested(SAYS, "t", sign=1).verdict == "refuted"  # a tie shows neither side


def test_tests_that_cannot_reach_the_level_are_mute():
    found = evidence(*[(0.0625, 1.0)] * 5, p_min=0.0625).tested(SAYS, "t", sign=1)
    assert found.verdict == "inconclusive" and "5 without power" in found.detail
    assert Evidence(judge.DataSetRule(), 0.01).tested(SAYS, "t", sign=1).verdict == "not run"


def test_shifts_against_limits():
    def within(low, high):
        rows = evidence(*[(0.5, 0.0)] * 3, shift=0.0, shift_low=low, shift_high=high)
        limits = Statement(name="s", text="t", where="w", low=-0.1, high=0.1)
        return rows.within(limits, "t").verdict

    assert (within(-0.05, 0.05), within(0.2, 0.3), within(-0.05, 0.3)) == ("confirmed", "refuted", "inconclusive")


def test_absence_is_refuted_by_significance_alone():
    assert evidence(*[(0.5, -0.2)] * 5).unharmed(SAYS, "t").verdict == "confirmed"
    assert evidence(*[(0.001, -0.9)] * 5).unharmed(SAYS, "t").verdict == "refuted"


def test_numbers_of_data_sets():
    table = pd.DataFrame({"seed": [1, 1, 2, 3], "x": [1.0, 3.0, 2.0, math.nan]})
    values = by_seed(table, lambda rows: float(rows["x"].mean()))
    assert values[1] == values[2] == 2.0 and median(values) == 2.0
    limits = Statement(name="s", text="t", where="w", high=2.5)
    assert evidence().compared(limits, values).verdict == "inconclusive"
    assert evidence().compared(limits, {**values, 3: 1.0}).verdict == "confirmed"
