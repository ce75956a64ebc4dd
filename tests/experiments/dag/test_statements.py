"""No statement of Section 5 and Appendix N has a limit of its own making: limits are printed, or
stand in the experiment's YAML with their reason. That every statement has its row is held by
tests/experiments/test_texts.py."""

import math

import pytest

from experiments.printed import judged, statements
from runner.contract import SettingError, Statement
from runner.run.config import build_job, experiment_names
from runner.stats import judge
from tests.errors import refusal

NAMES = [name for name in experiment_names() if name.startswith("exp")]


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_has_a_printed_criterion_or_ours_with_its_reason(name):
    experiment = build_job([f"experiment={name}"]).experiment
    printed, says = statements(name), experiment.says
    assert list(says) == list(printed)
    for which, statement in says.items():
        assert statement.decidable, which
        assert statement.reason or statement.threshold == printed[which].threshold, which
        assert not printed[which].reason, f"{which}: a criterion is a line of YAML"


def test_our_criteria_replace_what_is_printed():
    def with_criterion(name, **limits):
        return judged("exp4_diamond", {name: limits | {"reason": "because"}})[name]

    printed = statements("exp4_diamond")["H4.2a ratio"]
    assert (printed.low, printed.high) == (0.28, 0.39)
    says = with_criterion("H4.2a ratio", low=0.1)
    assert (says.low, says.high, says.reason, says.chosen) == (0.1, 0.39, "because", True)
    assert not with_criterion("H4.2a ratio").chosen
    number = with_criterion("accuracy", high=60)
    assert math.isnan(number.number) and number.holds(50) and not number.holds(61)
    assert with_criterion("accuracy", margin=1).number == 50


@pytest.mark.parametrize(
    "criteria, text",
    [
        ({"acuracy": {"margin": 1, "reason": "x"}}, "did you mean accuracy"),
        ({"accuracy": {"margin": 1}}, "expected limits and a reason"),
        ({"accuracy": {"margin": 1, "reason": " "}}, "expected limits and a reason"),
        ({"accuracy": {"lower": 1, "reason": "x"}}, "expected one of low, high, margin, reason"),
        ({"accuracy": {"low": "1", "reason": "x"}}, "expected a number, found '1'"),
        ({"accuracy": 3}, "expected limits and a reason"),
    ],
)
def test_a_criterion_that_says_nothing_is_refused(criteria, text):
    with refusal(text, SettingError):
        judged("exp4_diamond", criteria)


def test_what_could_not_fail_is_not_run():
    bare = Statement(name="x", text="x", where="x")
    assert not bare.decidable
    assert judge.bound(bare, [1.0, 2.0, 3.0]).verdict == "not run"
    assert judge.number(bare, [1.0, 2.0, 3.0]).verdict == "not run"
    assert judge.exact(bare, {"": 1.0}).verdict == "not run"
