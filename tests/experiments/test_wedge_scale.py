"""Fig. 3 of the scalar paper on data of several scales."""

import pandas as pd
import pytest

from experiments.scalar_spectrum import wedge_scale
from runner.contract import Claim, Context
from runner.run.config import build_job


@pytest.fixture(scope="module")
def table():
    words = [
        "experiment.part=[wedge_scale]",
        "experiment.wedge_scales=[0.05,1.0]",
        "experiment.wedge_starts=2",
        "experiment.network=[relu]",
        "experiment.left=[1.0]",
    ]
    setup = build_job(["experiment=scalar_spectrum", *words]).experiment
    (cell,) = setup.cells()
    found = pd.DataFrame(wedge_scale.measure(setup, cell, Context(seed=42))["wedge_scale"])
    return found.assign(network="relu", left=1.0, seed=42)


def test_small_data_turn_positive_once_and_large_ones_do_not(table):
    by = wedge_scale.shares(table).set_index("sigma")
    assert by.loc[0.05, "turns_positive"] > by.loc[1.0, "turns_positive"]
    assert by.loc[1.0, "wiggles"] > by.loc[0.05, "wiggles"]


def test_shape_of_a_run():
    found = wedge_scale.shape([-1.0, -2.0, 0.5, 0.1, 1e-9])
    assert (found["first"], found["lowest"], found["highest"], found["changes"], found["last"]) == (
        -1,
        -2,
        0.5,
        1,
        0.1,
    )
    assert wedge_scale.shape([])["first"] != wedge_scale.shape([])["first"]


def test_the_fit_is_a_mark_and_no_verdict(table):
    claim = Claim("turns_positive", "…", wedge_scale.FIG3, "not comparable")
    other = Claim("else", "…", "Section 1", "confirmed")
    one, two = wedge_scale.with_fit([claim, other], table)
    assert (
        one.verdict == "not comparable"
        and one.detail.startswith("fitted: at the printed rate")
        and two is other
    )
    assert wedge_scale.with_fit([claim], None) == [claim]
