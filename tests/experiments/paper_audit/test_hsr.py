"""The audit of the HSR paper: every verdict follows from numbers recomputed here."""

import pytest
import torch

from experiments.paper_audit.hsr import FORMULAS
from tests.experiments.paper_audit.three_layer_checks import assert_verdict


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.id)
def test_verdict_is_the_expected_one(formula):
    assert_verdict(formula)


def test_ids_are_unique_and_named_after_the_paper():
    ids = [formula.id for formula in FORMULAS]
    assert len(set(ids)) == len(ids) >= 60
    assert all(name.startswith("hsr.") for name in ids)
