"""No statement of Section 5 and Appendix N has a limit of its own making: limits are printed, or
their row has our reason. That every statement has its row is held by
tests/experiments/test_texts.py."""

import pytest

from experiments.printed import statements
from runner.contract import Statement
from runner.run.config.files import experiment_names
from runner.run.config.jobs import build_job
from runner.stats import over_seeds

NAMES = [name for name in experiment_names() if name.startswith("exp")]


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_has_a_printed_criterion_or_ours_with_its_reason(name):
    says = build_job([f"experiment={name}"]).experiment.says
    assert says == statements(name)
    for which, statement in says.items():
        assert statement.decidable, which
        assert statement.reason or not statement.chosen, which
        assert bool(statement.fixed) <= bool(statement.reason), which


def test_what_could_not_fail_is_not_run():
    bare = Statement(name="x", text="x", place="x")
    assert not bare.decidable
    assert over_seeds.bound(bare, [1.0, 2.0, 3.0]).verdict == "not run"
    assert over_seeds.number(bare, [1.0, 2.0, 3.0]).verdict == "not run"
    assert over_seeds.exact(bare, {"": 1.0}).verdict == "not run"
