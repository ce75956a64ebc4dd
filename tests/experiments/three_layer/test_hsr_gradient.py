"""The study of the gradient: contributions of samples add up, limits are limits, claims follow
constructed tables."""

from collections import defaultdict
from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from experiments.printed import statements
from experiments.three_layer.hsr_gradient.cost import FORMS, forms
from experiments.three_layer.hsr_gradient.measure import PARTS, _with_error, sample_gradients
from runner.closed_form import three_layer as tl
from runner.contract import Cell, Context, analyse, measure
from runner.run.config.jobs import build_job
from runner.stats.tables import chosen
from tests.experiments.tables import changed, check, claims_of, grid, joined
from tests.experiments.three_layer.problem import problem


@pytest.fixture(scope="module")
def experiment():
    short = ["training.steps=500", "experiment.rate=0.03"]
    job = build_job(["experiment=hsr_gradient", "profile=quick", *short])
    small = {"cost_units": [1, 2, 4], "cost_sizes": [20, 40, 80], "cost_repeats": 1}
    small |= {"pairwise_samples": 40, "numerical_samples": 20, "timed_samples": 20}
    return replace(job.experiment, timed_hidden=1, **small)


@pytest.fixture(scope="module")
def tables(experiment):
    found = defaultdict(list)
    for part, make in PARTS.items():
        for name, columns in make(experiment, Context(1)).items():
            table = pd.DataFrame(columns).assign(part=part)
            found[name] += [table.assign(seed=seed) for seed in (1, 2, 3)]
    return joined(found)


@pytest.fixture
def start():
    return problem(samples=12, starts=None)


def test_contributions_of_samples_add_up(start):
    found = sample_gradients(*start, 3)
    sums = {name: values.sum(0) for name, values in found.items()}
    assert_close(sums["trace"], tl.trace_gradient(*start), rtol=1e-10, atol=1e-11)
    assert_close(sums["bound"], tl.upper_bound_gradient(*start), rtol=1e-10, atol=1e-11)
    pairs = sum(sample_gradients(*start, j)["pair"].sum(0) for j in range(12))
    assert_close(pairs, tl.trace_of_square_gradient(*start), rtol=1e-10, atol=1e-10)


def test_the_output_bias_sets_the_error(start):
    theta, x, q = start
    for error in (0.3, 1e-3, 1e-9):
        moved = _with_error(theta, x, q, 9, error)
        assert float((tl.predict(moved, x[:1]) - q[:1]).abs()) == pytest.approx(error, rel=1e-5)
        assert int((moved != theta).sum()) == 1


def test_all_forms_of_the_gradient_agree_with_automatic_differentiation(start):
    theta, x, q = start
    exact = torch.autograd.functional.jacobian(lambda t: tl.upper_bound(t, x, q), theta)
    found = forms(1e-5)
    assert set(found) == set(FORMS)
    for name, function in found.items():
        tolerance = 1e-6 if name == "numerical" else 1e-10
        assert_close(function(theta, x, q), exact, rtol=tolerance, atol=tolerance)


def test_a_size_beyond_a_form_says_so(tables):
    ok = tables["cost"]["status"] == "ok"
    measured, left_out = tables["cost"][ok], tables["cost"][~ok]
    assert set(left_out["form"]) == {"double sum", "matrix", "numerical"}
    assert left_out["seconds"].isna().all()
    assert (left_out["samples"] > 20).all() and left_out["status"].str.contains("pairs").all()
    assert (measured["seconds"] > 0).all() and measured["error"].max() < 1e-6


CONSTRUCTED = ("Proposition 1", "Proposition 2", "largest eigenvalue counts most", "bound falls")
WITHOUT_DATA = dict.fromkeys(
    (*CONSTRUCTED, "size of VGG16", "size of ResNet18"), "true by construction"
)
"""Statements that one data set decides as well as five."""
OPEN = ("difference of about 1e-9", "analytic time", "numerical time")
"""Statements that depend on a step or on sizes that are not printed."""


@pytest.mark.parametrize("factor, verdict", [(1.0, "refuted"), (0.01, "confirmed")])
def test_confident_samples_are_weighed_by_their_share(experiment, factor, verdict):
    table = grid(seed=range(5), start=[0], sample=range(3), of=["bound"], block=("w", "v"))
    error, norm = (0.001, 0.5, 0.6), (3.0 * factor, 4.0, 4.0)
    sample = table["sample"]
    table = table.assign(error=sample.map(error.__getitem__), norm=sample.map(norm.__getitem__))
    found = claims_of(experiment, {"influence": table})["confident samples can be left out"]
    assert found.verdict == verdict
    assert found.statistic == pytest.approx(3 * factor / (3 * factor + 8))


def test_exact_statements_hold_and_few_data_decide_little(experiment, tables):
    found = claims_of(experiment, tables)
    assert set(found) == set(statements("hsr_gradient"))
    held, by_construction = "analytic gradient agrees; std term dominates", "; ".join(CONSTRUCTED)
    check(experiment, tables, confirmed=held, true_by_construction=by_construction)
    assert found["Proposition 1"].statistic >= 0.9 and found["bound falls"].statistic == 1
    one = {name: chosen(table, seed=1) for name, table in tables.items()}
    for name, claim in claims_of(experiment, one).items():
        settled = WITHOUT_DATA.get(name, "inconclusive")
        assert claim.verdict == ("not comparable" if name.startswith(OPEN) else settled), name


def test_claims_follow_the_tables(experiment, tables):
    cost, descent = tables["cost"], tables["bound_descent"]
    tables = {
        "cost": changed(cost, {"form": "matrix"}, seconds=1e6 * cost["seconds"]),
        "difference_norms": tables["difference_norms"].assign(difference_norm=1.0),
        "bound_descent": descent.assign(lambda_1=descent["step"]),
    }
    failed = "analytic faster; analytic gradient agrees; largest eigenvalue falls"
    check(experiment, tables, refuted=failed, not_comparable="difference of about 1e-9, tr H")
    quick = changed(cost, {"form": "double sum"}, seconds=1e-6 * cost["seconds"])
    check(experiment, {"cost": quick}, refuted="row by row is never fastest")


def power_laws(powers):
    """Times size^power, with the cost of a call at small sizes that the last doublings do not
    see."""
    table = grid(seed=range(5), varied=("samples", "dimension"), form=powers, doubling=range(8))
    doubling = table["doubling"]
    size = 100 * 2**doubling
    noise = 1 + 1e-3 * ((table["seed"] + doubling) % 3)
    seconds = 1e-6 * size.clip(lower=800) ** table["form"].map(powers) * noise
    by_samples = table["varied"] == "samples"
    sizes = {"samples": size.where(by_samples, 21), "dimension": size.where(~by_samples, 21)}
    return {"cost": table.assign(**sizes, seconds=seconds, status="ok")}


def test_exponents_are_those_of_the_last_doublings(experiment):
    powers = {"double sum": 2.0, "matrix": 2.0, "own": 1.0, "autodiff": 1.0, "numerical": 3.0}
    tables = power_laws(powers)
    slopes = {s.name: s.slope for s in analyse(experiment, tables).statistics()}
    assert slopes["exponent in I, own"] == pytest.approx(1, abs=0.01)
    assert slopes["exponent in D, double sum"] == pytest.approx(2, abs=0.01)
    quadratic, linear = "analytic time quadratic in I", "analytic time linear in D"
    check(
        experiment,
        tables,
        confirmed=f"own form linear in I; {quadratic} | double sum; {quadratic} | matrix",
        refuted=f"{linear} | double sum; {linear} | matrix",
        not_comparable=f"{quadratic}; {linear}; numerical time linear in D",
    )
    detail = claims_of(experiment, tables)["numerical time linear in D"].detail
    assert "between consecutive sizes" in detail and "the paper does not print" in detail
    steep = power_laws(powers | {"matrix": 2.6})
    check(experiment, steep, not_comparable=quadratic, refuted=f"{quadratic} | matrix")


def test_report_parts_can_be_made_from_the_tables(experiment, tables):
    analysis = analyse(experiment, tables)
    assert len(analysis.figures()) == 6
    names = [(s.name, s.group) for s in analysis.statistics()]
    assert len(names) == len(set(names))
    assert set(analysis.measured()["metric"]) == {"difference_norm"}


@pytest.mark.parametrize("part", ["agreement", "influence", "covariance", "terms"])
def test_all_but_the_timings_repeat(experiment, tables, part):
    found = measure(experiment, Cell({"part": part}), Context(1))
    assert found.pop("certificate")
    for name, columns in found.items():
        again = pd.DataFrame(columns)
        first = chosen(tables[name], part=part, seed=1)[list(again)].reset_index(drop=True)
        pd.testing.assert_frame_equal(again, first)
