"""The study of the gradient: contributions of samples add up, limits are limits, claims follow
constructed tables."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from experiments.printed import statements
from experiments.three_layer.hsr_gradient.cost import FORMS, forms
from experiments.three_layer.hsr_gradient.measure import PARTS, _with_error, sample_gradients
from runner.contract import Cell, Context, analyse, measure
from runner.curvature.closed_form import three_layer as tl
from runner.run.config import build_job
from tests.experiments.tables import claims_of
from tests.experiments.three_layer.problem import problem


@pytest.fixture(scope="module")
def experiment():
    job = build_job(["experiment=hsr_gradient", "profile=quick", "training.steps=1200"])
    small = {
        "cost_units": [1, 2, 4],
        "cost_sizes": [20, 40, 80],
        "pairwise_samples": 40,
        "numerical_samples": 20,
    }
    return replace(job.experiment, timed_samples=20, timed_hidden=1, cost_repeats=1, **small)


@pytest.fixture(scope="module")
def tables(experiment):
    found = {}
    for part, make in PARTS.items():
        for name, columns in make(experiment, Context(1)).items():
            table = pd.DataFrame(columns).assign(part=part)
            found.setdefault(name, []).extend(table.assign(seed=seed) for seed in (1, 2, 3))
    return {name: pd.concat(parts, ignore_index=True) for name, parts in found.items()}


def test_contributions_of_samples_add_up():
    theta, x, q = problem(samples=12, starts=None)
    found = sample_gradients(theta, x, q, 3)
    assert_close(found["trace"].sum(0), tl.trace_gradient(theta, x, q), rtol=1e-10, atol=1e-11)
    assert_close(
        found["bound"].sum(0), tl.upper_bound_gradient(theta, x, q), rtol=1e-10, atol=1e-11
    )
    pairs = sum(sample_gradients(theta, x, q, j)["pair"].sum(0) for j in range(12))
    assert_close(pairs, tl.trace_of_square_gradient(theta, x, q), rtol=1e-10, atol=1e-10)


def test_the_output_bias_sets_the_error():
    theta, x, q = problem(samples=12, starts=None)
    for error in (0.3, 1e-3, 1e-9):
        moved = _with_error(theta, x, q, 9, error)
        assert float((tl.predict(moved, x[:1]) - q[:1]).abs()) == pytest.approx(error, rel=1e-5)
        assert int((moved != theta).sum()) == 1


def test_all_forms_of_the_gradient_agree_with_automatic_differentiation():
    theta, x, q = problem(samples=12, starts=None)
    exact = torch.autograd.functional.jacobian(lambda t: tl.upper_bound(t, x, q), theta)
    found = forms(1e-5)
    assert set(found) == set(FORMS)
    for name, function in found.items():
        tolerance = 1e-6 if name == "numerical" else 1e-10
        assert_close(function(theta, x, q), exact, rtol=tolerance, atol=tolerance)


def test_a_size_beyond_a_form_says_so(tables):
    rows = tables["cost"]
    left_out = rows[rows["status"] != "ok"]
    assert (
        set(left_out["form"]) == {"double sum", "matrix", "numerical"}
        and left_out["seconds"].isna().all()
    )
    assert (left_out["samples"] > 20).all() and left_out["status"].str.contains("pairs").all()
    measured = rows[rows["status"] == "ok"]
    assert (measured["seconds"] > 0).all() and measured["error"].max() < 1e-6


CONSTRUCTED = ("Proposition 1", "Proposition 2", "largest eigenvalue counts most", "bound falls")
COUNTED = ("size of VGG16", "size of ResNet18")
WITHOUT_DATA = dict.fromkeys((*CONSTRUCTED, *COUNTED), "true by construction")
"""Statements that one data set decides as well as five."""
OPEN = ("difference of about 1e-9", "analytic time")
"""Statements that depend on a step or on sizes that are not printed."""


def test_confident_samples_are_weighed_by_their_share(experiment, tables):
    rows = [
        {
            "seed": seed,
            "start": 0,
            "sample": i,
            "error": error,
            "of": "bound",
            "block": block,
            "norm": norm,
        }
        for seed in range(5)
        for i, (error, norm) in enumerate([(0.001, 3.0), (0.5, 4.0), (0.6, 4.0)])
        for block in ("w", "v")
    ]
    name = "confident samples can be left out"
    for factor, verdict in ((1.0, "refuted"), (0.01, "confirmed")):
        table = pd.DataFrame(rows)
        table["norm"] *= table["error"].map(lambda e, factor=factor: factor if e < 0.01 else 1.0)
        found = claims_of(experiment, {"influence": table})[name]
        assert found.verdict == verdict
        assert found.statistic == pytest.approx(3 * factor / (3 * factor + 8))


def test_exact_statements_hold_and_few_data_decide_little(experiment, tables):
    claims = analyse(experiment, tables).claims()
    found = {c.name: c for c in claims}
    assert sorted(c.name for c in claims) == sorted(statements("hsr_gradient"))
    for name in ("analytic gradient agrees", "std term dominates"):
        assert found[name].verdict == "confirmed", found[name]
    assert all(found[name].verdict == "true by construction" for name in CONSTRUCTED)
    assert found["Proposition 1"].statistic >= 0.9 and found["bound falls"].statistic == 1
    one = {name: table[table["seed"] == 1] for name, table in tables.items()}
    for claim in analyse(experiment, one).claims():
        settled = WITHOUT_DATA.get(claim.name, "inconclusive")
        assert claim.verdict == ("not comparable" if claim.name.startswith(OPEN) else settled), (
            claim.name
        )


def test_claims_follow_the_tables(experiment, tables):
    slow = tables["cost"].copy()
    slow.loc[slow["form"] == "matrix", "seconds"] *= 1e6
    wrong = tables["difference_norms"].assign(difference_norm=1.0)
    rising = tables["bound_descent"].copy()
    rising["lambda_1"] = rising["step"]
    changed = {"cost": slow, "difference_norms": wrong, "bound_descent": rising}
    found = {c.name: c.verdict for c in analyse(experiment, changed).claims()}
    for name in ("analytic faster", "analytic gradient agrees", "largest eigenvalue falls"):
        assert found[name] == "refuted"
    assert found["difference of about 1e-9, tr H"] == "not comparable"
    quick = tables["cost"].copy()
    quick.loc[quick["form"] == "double sum", "seconds"] *= 1e-6
    found = {c.name: c.verdict for c in analyse(experiment, {"cost": quick}).claims()}
    assert found["row by row is never fastest"] == "refuted"


def power_laws(powers):
    """Times size^power, with the cost of a call at small sizes that the last doublings do not
    see."""
    sizes = [100 * 2**k for k in range(8)]
    rows = []
    for seed in range(5):
        for varied, other in (("samples", "dimension"), ("dimension", "samples")):
            for form, power in powers.items():
                for k, n in enumerate(sizes):
                    seconds = 1e-6 * max(n, sizes[3]) ** power * (1 + 1e-3 * ((seed + k) % 3))
                    row = {
                        "varied": varied,
                        varied: n,
                        other: 21,
                        "form": form,
                        "seconds": seconds,
                        "seed": seed,
                    }
                    rows.append(row | {"status": "ok"})
    return pd.DataFrame(rows)


def test_exponents_are_those_of_the_last_doublings(experiment):
    table = power_laws({"double sum": 2, "matrix": 2, "own": 1, "autodiff": 1, "numerical": 3})
    analysis = analyse(experiment, {"cost": table})
    found = {s.name: s.slope for s in analysis.statistics()}
    assert found["exponent in I, own"] == pytest.approx(1, abs=0.01)
    assert found["exponent in D, double sum"] == pytest.approx(2, abs=0.01)
    claims = {c.name: c for c in analysis.claims()}
    assert claims["own form linear in I"].verdict == "confirmed"
    for name in ("analytic time quadratic in I", "analytic time linear in D"):
        assert claims[name].verdict == "not comparable"
    for name, verdict in (
        ("analytic time quadratic in I", "confirmed"),
        ("analytic time linear in D", "refuted"),
    ):
        variants = claims[name].variants
        assert {variants["double sum"], variants["matrix"]} == {verdict}
    steep = analyse(
        experiment, {"cost": power_laws({"double sum": 2, "matrix": 2.6, "own": 1, "numerical": 3})}
    )
    (quadratic,) = [c for c in steep.claims() if c.name == "analytic time quadratic in I"]
    assert quadratic.verdict == "not comparable" and quadratic.variants["matrix"] == "refuted"


def test_report_parts_can_be_made_from_the_tables(experiment, tables):
    analysis = analyse(experiment, tables)
    assert len(analysis.figures()) == 6
    names = [(s.name, s.group) for s in analysis.statistics()]
    assert len(names) == len(set(names))
    assert set(analysis.measured()["metric"]) == {"difference_norm"}


def test_all_but_the_timings_repeat(experiment, tables):
    for part in ("agreement", "influence", "covariance", "terms"):
        found = measure(experiment, Cell({"part": part}), Context(1))
        assert found.pop("certificate")
        for name, columns in found.items():
            first = (
                tables[name]
                .query("part == @part and seed == 1")[list(columns)]
                .reset_index(drop=True)
            )
            pd.testing.assert_frame_equal(pd.DataFrame(columns), first)
