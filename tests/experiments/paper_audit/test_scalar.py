"""The audit of the scalar-spectrum paper: every verdict follows from numbers recomputed here."""

import pytest
import torch

from experiments.paper_audit.formula import TOLERANCE
from experiments.paper_audit.scalar import FORMULAS, oracle


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.id)
def test_verdict_is_the_expected_one(formula):
    outcome = formula.check()
    assert outcome.verdict == formula.expected, f"printed off by {outcome.printed:.3g}, corrected {outcome.corrected}"
    if formula.expected == "holds":
        assert not formula.difference and not formula.correction and not outcome.counterexample
    else:
        assert formula.difference and formula.correction and outcome.counterexample
        # a wrong formula is wrong by far more than rounding, a right one by far less than the tolerance
        assert outcome.printed > 1e-4 and outcome.corrected is not None and outcome.corrected < TOLERANCE / 10


def test_ids_are_unique_and_named_after_the_paper():
    ids = [formula.id for formula in FORMULAS]
    assert len(set(ids)) == len(ids) >= 60
    assert all(name.startswith("scalar.") for name in ids)


def test_oracle_agrees_with_finite_differences():
    (w, v), x, y = oracle.random_instance(0, 3, 4)
    loss = oracle.autodiff_loss(oracle.relu_network, [v, w], x, y)
    theta, step = torch.cat([v, w]), 1e-4
    eye = step * torch.eye(6, dtype=torch.float64)
    differences = torch.stack(
        [
            torch.stack(
                [
                    (loss(theta + a + b) - loss(theta + a - b) - loss(theta - a + b) + loss(theta - a - b))
                    / 4
                    / step**2
                    for a in eye
                ]
            )
            for b in eye
        ]
    )
    torch.testing.assert_close(
        oracle.autodiff_hessian(oracle.relu_network, [v, w], x, y), differences, rtol=0, atol=1e-6
    )


def test_relative_error_of_nan_is_infinite():
    assert oracle.relative_error(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")
    with pytest.raises(ValueError, match="expected shape"):
        oracle.relative_error(torch.ones(2), torch.ones(3))
