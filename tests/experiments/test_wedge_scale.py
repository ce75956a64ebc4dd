"""Fig. 3 of the scalar paper on data of several scales."""

import pytest

from experiments.scalar_spectrum import wedge_scale
from runner.run.config.jobs import build_job
from tests.experiments.tables import merged

WORDS = ["experiment.part=[wedge_scale]", "experiment.network=[relu]", "experiment.left=[1.0]"]
WORDS += ["experiment.wedge_scales=[0.05,1.0]", "experiment.wedge_starts=2"]


@pytest.fixture(scope="module")
def table():
    setup = build_job(["experiment=scalar_spectrum", *WORDS]).experiment
    return merged(setup, (42,))["wedge_scale"]


def test_small_data_turn_positive_once_and_large_ones_do_not(table):
    by = wedge_scale.shares(table).set_index("sigma")
    assert by.loc[0.05, "turns_positive"] > by.loc[1.0, "turns_positive"]
    assert by.loc[1.0, "wiggles"] > by.loc[0.05, "wiggles"]


def test_shape_of_a_run():
    found = wedge_scale.shape([-1.0, -2.0, 0.5, 0.1, 1e-9])
    expected = {"first": -1, "lowest": -2, "highest": 0.5, "changes": 1, "last": 0.1}
    assert expected.items() <= found.items()
    assert wedge_scale.shape([])["first"] != wedge_scale.shape([])["first"]


def test_the_fit_says_its_scale(table):
    found = wedge_scale.fitted(table)
    assert found.startswith("fitted: at the printed rate") and found.endswith("σ = 0.05")
