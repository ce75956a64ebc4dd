"""The bound estimated from probes: its mean and its rate against the closed form."""

from dataclasses import replace

import pandas as pd
import pytest

from runner.contract import Context, SettingError, analyse, measure
from runner.run.config import build_job


@pytest.fixture(scope="module")
def experiment():
    return build_job(["experiment=hsr_stochastic", "profile=quick"]).experiment


@pytest.fixture(scope="module")
def tables(experiment):
    (cell,) = experiment.cells()
    found = [pd.DataFrame(measure(experiment, cell, Context(s))["estimate"]).assign(seed=s) for s in range(5)]
    return {"estimate": pd.concat(found, ignore_index=True)}


def test_error_falls_at_the_monte_carlo_rate(experiment, tables):
    (claim,) = analyse(experiment, tables).claims()
    assert claim.verdict == "confirmed" and claim.statistic == pytest.approx(-0.5, abs=0.1)
    flat = tables["estimate"].assign(rms_error=1.0)
    assert analyse(experiment, {"estimate": flat}).claims()[0].verdict == "refuted"
    assert analyse(experiment, tables).figures()["estimate"]().axes


def test_estimate_has_no_bias_beyond_its_error(tables):
    rows = tables["estimate"][tables["estimate"]["probes"] == 32]
    assert ((rows["mean"] - rows["exact"]).abs() < 5 * rows["standard_error"] + 0.02 * rows["exact"]).all()


def test_a_single_probe_is_refused(experiment):
    with pytest.raises(SettingError, match="at least 2"):
        replace(experiment, probe_counts=[1])
