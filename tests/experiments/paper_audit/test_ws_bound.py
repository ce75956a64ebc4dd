"""The audit of the WS-bound paper: every verdict follows from numbers recomputed here."""

import pytest
import torch

from experiments.paper_audit import three_layer_oracle as oracle
from experiments.paper_audit.ws_bound import FORMULAS
from runner.curvature.closed_form import three_layer as tl
from tests.experiments.paper_audit.three_layer_checks import assert_verdict


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.id)
def test_verdict_is_the_expected_one(formula):
    assert_verdict(formula)


def test_ids_are_unique_and_named_after_the_paper():
    ids = [formula.id for formula in FORMULAS]
    assert len(set(ids)) == len(ids) >= 45
    assert all(name.startswith("ws.") for name in ids)


def test_oracle_agrees_with_the_closed_forms():
    """Two independent programs, one of them differentiated by hand."""
    for instance in oracle.instances():
        arguments = (instance.theta, instance.x, instance.q, instance.name)
        torch.testing.assert_close(instance.gradient, tl.gradient(*arguments), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(instance.hessian, tl.hessian(*arguments), rtol=1e-10, atol=1e-12)


def test_relative_error_does_not_hide_shapes_or_nan():
    assert oracle.relative_error(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")
    with pytest.raises(ValueError, match="expected shape"):
        oracle.relative_error(torch.ones(2), torch.ones(3))
