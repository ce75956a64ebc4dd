"""The study of the gradient: contributions of samples add up, limits are limits, claims follow constructed tables."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from experiments.hsr.gradient.measure import PARTS, _with_error, sample_gradients, three_point
from experiments.printed import statements
from runner.contract.experiment import Context
from runner.contract.schema import SettingError
from runner.curvature.closed_form import three_layer as tl
from runner.run.config import build_job


@pytest.fixture(scope="module")
def experiment():
    torch.set_num_threads(1)
    job = build_job(["experiment=hsr_gradient", "profile=quick", "training.steps=1200"])
    return replace(job.experiment, timed_units=[1, 2], timed_sizes=[20, 40], timed_samples=20, timed_hidden=1)


@pytest.fixture(scope="module")
def tables(experiment):
    found: dict[str, list[pd.DataFrame]] = {}
    for seed in (1, 2, 3):
        for part, measure in PARTS.items():
            for name, columns in measure(experiment, Context(seed)).items():
                found.setdefault(name, []).append(pd.DataFrame(columns).assign(part=part, seed=seed))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in found.items()}


def instance():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    theta = torch.randn(13, generator=generator, dtype=torch.float64)
    return theta, x, (torch.arange(12) % 2).double()


def test_contributions_of_samples_add_up():
    theta, x, q = instance()
    found = sample_gradients(theta, x, q, 3)
    torch.testing.assert_close(found["trace"].sum(0), tl.trace_gradient(theta, x, q), rtol=1e-10, atol=1e-11)
    torch.testing.assert_close(found["bound"].sum(0), tl.upper_bound_gradient(theta, x, q), rtol=1e-10, atol=1e-11)
    pairs = sum(sample_gradients(theta, x, q, j)["pair"].sum(0) for j in range(12))
    torch.testing.assert_close(pairs, tl.trace_of_square_gradient(theta, x, q), rtol=1e-10, atol=1e-10)


def test_the_output_bias_sets_the_error():
    theta, x, q = instance()
    for error in (0.3, 1e-3, 1e-9):
        moved = _with_error(theta, x, q, 9, error)
        assert float((tl.predict(moved, x[:1]) - q[:1]).abs()) == pytest.approx(error, rel=1e-5)
        assert int((moved != theta).sum()) == 1


def test_three_point_differences():
    theta, x, q = instance()
    found = three_point(tl.trace, theta, x, q, step=1e-5)
    torch.testing.assert_close(found, tl.trace_gradient(theta, x, q), rtol=1e-6, atol=1e-6)


OPEN = ("analytic time", "difference of about 1e-9")
"""Statements that cannot be held against this project's form or step."""


def test_exact_statements_hold_and_few_data_decide_little(experiment, tables):
    found = {c.name: c for c in experiment.analyse(tables).claims()}
    assert len(found) == len(experiment.analyse(tables).claims())
    assert sorted(found) == sorted(statements("hsr_gradient"))
    for name in ("Proposition 1", "analytic gradient agrees", "std term dominates", "bound falls"):
        assert found[name].verdict == "confirmed", found[name]
    assert found["Proposition 2"].verdict == "by construction"
    one = {name: table[table["seed"] == 1] for name, table in tables.items()}
    for claim in experiment.analyse(one).claims():
        settled = "by construction" if claim.name == "Proposition 2" else "no power"
        assert claim.verdict == ("not comparable" if claim.name.startswith(OPEN) else settled), claim.name


def test_claims_follow_the_tables(experiment, tables):
    slow = tables["timing"].copy()
    slow.loc[slow["form"] == "analytic", "seconds"] *= 1e6
    wrong = tables["difference_norms"].assign(difference_norm=1.0)
    rising = tables["bound_descent"].copy()
    rising["lambda_sup"] = rising["step"]
    found = {
        c.name: c.verdict
        for c in experiment.analyse({"timing": slow, "difference_norms": wrong, "bound_descent": rising}).claims()
    }
    for name in ("analytic faster", "analytic gradient agrees", "bound falls"):
        assert found[name] == "refuted"
    assert found["difference of about 1e-9, tr H"] == "not comparable"


def test_fitted_exponents_are_the_slopes(experiment):
    rows = [
        {"varied": "samples", "samples": n, "dimension": 21, "form": form, "seconds": 1e-6 * n**power, "seed": 1}
        for form, power in (("analytic", 1), ("numerical", 2))
        for n in (100, 200, 400)
    ]
    found = {s.name: s.slope for s in experiment.analyse({"timing": pd.DataFrame(rows)}).statistics()}
    assert found["exponent in I, analytic"] == pytest.approx(1)
    assert found["exponent in I, numerical"] == pytest.approx(2)


def test_report_parts_can_be_made_from_the_tables(experiment, tables):
    drawn = experiment.analyse(tables).figures()
    assert len(drawn) == 6
    for make in drawn.values():
        make()
    names = [(s.name, s.group) for s in experiment.analyse(tables).statistics()]
    assert len(names) == len(set(names))
    assert set(experiment.analyse(tables).measured()["metric"]) == {"difference_norm"}
    assert any("exponents" in line for line in experiment.analyse(tables).notes())
    for name, table in tables.items():  # any part alone
        experiment.analyse({name: table}).figures()
        experiment.analyse({name: table}).claims()


def test_what_cannot_be_used_is_refused(experiment):
    with pytest.raises(SettingError, match="fixed_sample"):
        replace(experiment, fixed_sample=50)
    with pytest.raises(SettingError, match="covariance"):
        replace(experiment, covariance=[1.0])


def test_all_but_the_timings_repeat(experiment):
    for part in ("agreement", "influence", "covariance", "terms"):
        first, second = (PARTS[part](experiment, Context(5)) for _ in range(2))
        for name, columns in first.items():
            pd.testing.assert_frame_equal(pd.DataFrame(columns), pd.DataFrame(second[name]))
