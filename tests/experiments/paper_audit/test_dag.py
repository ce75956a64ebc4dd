"""Every formula of the DAG paper that was checked gets the verdict that is recorded for it."""

import pytest
import torch

from experiments.paper_audit.dag import FORMULAS
from experiments.paper_audit.dag.networks import (
    autodiff_blocks,
    chain,
    piecewise_linear,
    relative_error,
    smooth,
)
from runner.curvature import exact_blocks


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.id)
def test_verdict_follows_from_the_numbers(formula):
    torch.set_num_threads(1)
    outcome = formula.check()
    assert outcome.verdict == formula.expected, f"printed {outcome.printed:.2e}, corrected {outcome.corrected}"
    assert outcome.instances >= 1
    if formula.expected == "holds":
        assert formula.difference == ""
    else:
        assert formula.difference and formula.correction and outcome.counterexample
        assert outcome.printed > 1e3 * outcome.tolerance, "far from rounding"


def test_formulas_are_named_once_and_stated():
    assert len({formula.id for formula in FORMULAS}) == len(FORMULAS)
    assert all(formula.id.startswith("dag.") and formula.place and formula.statement for formula in FORMULAS)


def test_checks_recompute(monkeypatch):
    """A check is not a constant: with a wrong engine the corrected form stops agreeing."""
    from experiments.paper_audit.dag import blocks as dag_blocks

    monkeypatch.setattr(
        dag_blocks, "exact_blocks", lambda *a, **k: {p: b + 1 for p, b in exact_blocks(*a, **k).items()}
    )
    assert dag_blocks.equation_2().verdict == "fails"


@pytest.mark.parametrize("case", [*smooth(), *piecewise_linear()], ids=lambda case: case.name)
def test_instances_of_the_audit_agree_with_the_engine(case):
    assert relative_error(exact_blocks(case.dag, case.x, case.y), autodiff_blocks(case)) < 1e-9


def test_relative_error_sees_a_wrong_block():
    case = chain(0)
    exact = autodiff_blocks(case)
    wrong = dict(exact) | {("h1", "h1"): 1.001 * exact["h1", "h1"]}
    assert relative_error(wrong, exact) == pytest.approx(1e-3, rel=1e-6)
