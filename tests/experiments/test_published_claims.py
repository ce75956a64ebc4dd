"""Statements decided again from published cells have their published verdicts."""

import pytest

from runner.run.config.files import experiment_names
from tests.experiments.published_claims import differences
from tests.slow import daily

NAMES = [name for name in experiment_names() if name != "paper_audit"]
"""Clauses of the audit are measured, not decided from tables."""
QUICK = ("exp1_deep", "exp1b_spectral_norm", "exp3b_layernorm", "exp5_attention")


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("name", daily(NAMES, QUICK))
def test_published_verdicts_are_those_of_the_rows(name, tmp_path):
    assert not list(differences(name, tmp_path))
