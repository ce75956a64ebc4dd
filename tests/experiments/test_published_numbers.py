"""Printed numbers compared again with published cells have their published scores."""

import pytest

from runner.report.answers.reference import numbers_of
from runner.run.config.files import experiment_names
from tests.experiments.published_numbers import differences
from tests.slow import daily

NAMES = [name for name in experiment_names() if numbers_of(name)]
QUICK = ("exp1b_spectral_norm", "exp3_stochastic", "exp5_attention", "hsr_gradient")


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("name", daily(NAMES, QUICK))
def test_published_scores_are_those_of_the_rows(name, tmp_path):
    assert not list(differences(name, tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_every_number_says_how_it_is_read(name):
    rows = numbers_of(name).read()
    assert (rows[["table", "quantity"]] != "").all(axis=None)
