"""The bound estimated from probes: its mean and its rate against the closed form."""

import pandas as pd
import pytest

from runner.contract import Context, analyse, measure
from runner.run.config import build_job


@pytest.fixture(scope="module")
def experiment():
    return build_job(["experiment=hsr_stochastic", "profile=quick"]).experiment


@pytest.fixture(scope="module")
def tables(experiment):
    (cell,) = experiment.cells()
    every = [measure(experiment, cell, Context(s)) for s in range(5)]
    assert all(tables["certificate"] for tables in every)
    found = [pd.DataFrame(tables["estimate"]).assign(seed=s) for s, tables in enumerate(every)]
    return {"estimate": pd.concat(found, ignore_index=True)}


def test_error_falls_at_the_monte_carlo_rate(experiment, tables):
    (claim,) = analyse(experiment, tables).claims()
    assert claim.verdict == "confirmed" and claim.statistic == pytest.approx(-0.5, abs=0.1)
    flat = tables["estimate"].assign(rms_error=1.0)
    assert analyse(experiment, {"estimate": flat}).claims()[0].verdict == "refuted"


def test_estimate_has_no_bias_beyond_its_error(tables):
    rows = tables["estimate"][tables["estimate"]["probes"] == 32]
    assert (
        (rows["mean"] - rows["exact"]).abs() < 5 * rows["standard_error"] + 0.02 * rows["exact"]
    ).all()
