"""The comparison of methods: search and groups, both readings of the stop rule, claims decided as
they should be."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from experiments.printed import statements
from experiments.three_layer.contours import contour_length
from experiments.three_layer.flatness import training_direction
from experiments.three_layer.hsr_regularization.analysis import wide
from experiments.three_layer.hsr_regularization.claims import open_protocol, whisker_tip
from experiments.three_layer.hsr_regularization.problem import draw
from experiments.three_layer.hsr_regularization.settings import METHODS
from experiments.three_layer.hsr_regularization.views import boundary_length, saddle_depth
from runner.contract import Claim, Context, analyse, measure
from runner.curvature.closed_form import three_layer as tl
from runner.run.config import build_job
from runner.store.tables import frame
from tests.experiments.tables import claims_of, merged

WIDE = "fitted with wide radius"


@pytest.fixture(scope="module")
def experiment():
    job = build_job(
        [
            "experiment=hsr_regularization",
            "profile=quick",
            "training.starts=50",
            "training.steps=1200",
        ]
    )
    few = {"further_steps": 20, "rounding_steps": 20, "polish_steps": 50}
    return replace(job.experiment, switch=300, record_every=100, plane_points=11, **few)


@pytest.fixture(scope="module")
def tables(experiment):
    """Both protocols of one data set, and the same as another, as the report sees them."""
    return merged(experiment, (1, 2))


def test_search_keeps_unique_converged_points_and_takes_the_tails(experiment):
    problem = draw(experiment, Context(1))
    ends = problem.search(experiment.rate)
    points = problem.critical_points(ends)
    assert set(points["start"].tolist()) <= set(ends.converged.nonzero()[:, 0].tolist())
    bound, group = np.array(points["lambda_sup"]), np.array(points["group"])
    sharp, flat = bound[group == "sharp"], bound[group == "flat"]
    share = experiment.group_share
    assert len(sharp) == (bound >= np.quantile(bound, 1 - share)).sum() > 0
    assert len(flat) == (bound <= np.quantile(bound, share)).sum() > 0
    assert sharp.min() >= bound[group != "sharp"].max()
    assert flat.max() <= bound[group != "flat"].min()


def test_plain_descent_as_a_method_is_the_search(experiment, tables):
    """gd under every_step ends exactly where the search found the point."""
    ends = tables["endpoints"]
    ends = ends[
        (ends["method"] == "gd")
        & (ends["reading"] == "every_step")
        & (ends["protocol"] == "fitted")
    ]
    points = tables["critical_points"]
    points = points[points["protocol"] == "fitted"].set_index(["seed", "start"])
    assert len(ends)
    for row in ends.itertuples():
        point = points.loc[(row.seed, row.start)]
        assert row.lambda_max == pytest.approx(point["lambda_max"], rel=1e-12)
        assert row.lambda_sup == pytest.approx(point["lambda_sup"], rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_end_points_are_those_of_the_method(experiment, tables, method):
    """Measured anew: the strength or radius of each method, its curvature, and F1 on test data."""
    from sklearn.metrics import f1_score  # takes two seconds to import

    ends = tables["endpoints"].query("seed == 1 and reading == 'every_step' and method == @method")
    problem = draw(experiment, Context(1))
    weight = {"trace": experiment.trace_weight, "hsr": experiment.bound_weight}.get(method, 0.0)
    radius = experiment.wide_radius if method == "asam_wide" else experiment.radius
    how = {"strength": weight / experiment.rate, "radius": radius, "until": experiment.switch}
    direction = training_direction(method.removesuffix("_wide"), problem.x, problem.q, **how)
    theta = problem.train(torch.tensor(ends["start"].tolist()), direction).final.theta
    spectrum = torch.linalg.eigvalsh(tl.hessian(theta, *problem.args))
    test_x, test_q = problem.test
    said = tl.predict(theta, test_x) > 0.5
    expected = {
        "lambda_max": spectrum[:, -1],
        "lambda_min": spectrum[:, 0],
        "mean": spectrum.mean(1),
        "std": spectrum.std(1, correction=0),
        "f1": [f1_score(test_q > 0.5, row, average="macro", zero_division=0) for row in said],
    }
    for name, values in expected.items():
        assert ends[name].tolist() == pytest.approx(
            list(map(float, values)), rel=1e-8, nan_ok=True
        ), name


@pytest.mark.parametrize("method", ["gd", pytest.param("hsr", marks=pytest.mark.slow)])
def test_second_half_is_a_descent_judged_from_the_switch_on(experiment, method):
    problem = draw(experiment, Context(1))
    chosen = torch.arange(12)
    direction = training_direction(method, problem.x, problem.q, until=experiment.switch)
    result = problem.train(chosen, direction)
    found = problem.end_under("second_half", chosen, direction, result)
    expected = problem.train(chosen, direction, stop_from=experiment.switch).final
    assert torch.equal(found.theta, expected.theta) and torch.equal(found.steps, expected.steps)
    assert int(found.steps.min()) >= experiment.switch
    assert problem.end_under("every_step", chosen, direction, result) is result.final


def test_saddle_depth_is_half_the_negative_curvature(experiment):
    """A network whose loss is nearly quadratic over the reach: ½ |λ_D| t²."""
    problem = draw(replace(experiment, line_half_range=1e-3), Context(1))
    theta = problem.starts[:8] / 20
    least = torch.linalg.eigvalsh(tl.hessian(theta, *problem.args))[:, 0]
    expected = (-least / 2 * 1e-6).clamp(min=0)
    torch.testing.assert_close(saddle_depth(problem, theta), expected, rtol=1e-2, atol=1e-12)
    assert bool((least < 0).any())


def test_no_direction_of_a_boundary_is_longer():
    """Circles and turned lines have their Euclidean lengths, to the square of the grid's step."""
    axis = torch.linspace(-5, 5, 41, dtype=torch.float64)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    assert float(contour_length(9 - x**2 - y**2)) * 0.25 == pytest.approx(6 * np.pi, rel=2e-3)
    for angle in np.linspace(0, np.pi / 2, 8):
        line = np.cos(angle) * x + np.sin(angle) * y - 1e-3
        length = float(contour_length(line)) * 0.25
        assert length == pytest.approx(10 / max(np.cos(angle), np.sin(angle)), rel=1e-3), angle
    assert float(contour_length(x * y - 1e-3)) * 0.25 == pytest.approx(
        20, rel=0.02
    )  # two lines through one cell


def test_polished_ends_go_downhill_from_the_stopped_ones(tables):
    ends = tables["endpoints"]
    keys = ["seed", "method", "start", "group"]
    stopped = ends[ends["reading"] == "every_step"]
    both = stopped.merge(ends[ends["reading"] == "polished"], on=keys, suffixes=("", "_after"))
    assert len(both) == len(stopped) == len(tables["nearest"]) > 0 and len(tables["certificate"])
    assert (both["loss_after"] <= both["loss"] * (1 + 1e-4)).all()
    still = tables["nearest"]["kind"].isin(["minimum", "saddle", "degenerate"])
    assert still.any() == (both["gradient_after"] <= 1e-9).any()
    met = both[both["status"] == "ok"]
    assert (met["gradient_ratio"] <= 0.005 * (1 + 1e-4)).all()
    points = tables["critical_points"]
    assert (points["gradient_ratio"] <= 0.005 * (1 + 1e-4)).all() and points[
        "led_kind"
    ].notna().all()


@pytest.mark.slow
def test_saddles_are_judged_before_and_after(experiment, tables):
    near = tables["nearest"].assign(
        nearest_kind=np.where(tables["nearest"]["method"] == "asam", "saddle", "infinity")
    )
    seeds = [near.assign(seed=s) for s in range(3)]
    ends = [tables["endpoints"][tables["endpoints"]["seed"] == 1].assign(seed=s) for s in range(3)]
    many = {
        "nearest": pd.concat(n[tables["nearest"]["seed"] == 1] for n in seeds),
        "endpoints": pd.concat(ends),
    }
    found = {c.name: c.variants for c in analyse(experiment, tables | many).claims()}
    assert "fitted polished" in found["A-SAM ends at more saddles than HSR"]
    assert found["saddle at the whisker of A-SAM"]["fitted polished"] == "confirmed"


def under_this_search(claim):
    """The verdict that a statement would have if the search were as published."""
    told = re.search("under which it is ([a-z]+)", claim.detail)
    return told.group(1) if claim.verdict == "not comparable" and told else claim.verdict


@pytest.mark.slow
def test_draws_decide_the_statements_on_f1(experiment, tables):
    first = tables["draws"].iloc[:1]
    grid = [
        (a, b, g)
        for a, b, g in tables["draws"][["a", "b", "group"]]
        .drop_duplicates()
        .itertuples(index=False)
    ]
    rows = [
        first.assign(draw=d, a=a, b=b, group=g, f1=(0.03 if a == "hsr" else -0.03) + 1e-3 * (d % 3))
        for d in range(12)
        for a, b, g in grid
    ]
    found = claims_of(experiment, {**tables, "draws": pd.concat(rows)})
    assert (
        found["HSR raises F1 from sharp seeds"].verdict == "not comparable"
    )  # the search is calibrated
    assert under_this_search(found["HSR raises F1 from sharp seeds"]) == "confirmed"
    assert under_this_search(found["A-SAM raises F1 from sharp seeds"]) == "refuted"
    assert under_this_search(found["HSR comparable to A-SAM on F1"]) == "refuted"
    assert under_this_search(found["HSR not worse than A-SAM on F1"]) == "confirmed"
    assert "fitted seed by seed" in found["HSR raises F1 from sharp seeds"].variants


def test_boundary_length_of_a_vertical_line(experiment):
    """p = s(20 (r − ½)) with r = s(x₁ − ¼) crosses 0.5 at x₁ = ¼, between two columns of the
    grid."""
    problem = draw(experiment, Context(1))
    W = torch.tensor([[[-0.25, 1.0, 0.0]]], dtype=torch.float64)
    theta = tl.join(W, torch.tensor([[-10.0, 20.0]], dtype=torch.float64))
    side = experiment.plane_points
    distance = 2 * experiment.plane_half_range / (side - 1)
    assert float(boundary_length(problem, theta)[0]) == pytest.approx(
        (side - 1) * distance, rel=1e-6
    )


def test_methods_are_paired_by_start_and_gaps_stay_gaps():
    values = {"lambda_max": [2.0, 1.0, 4.0, -1.0], "status": ["ok", "ok", "not converged", "ok"]}
    rows = pd.DataFrame({"start": [1, 1, 2, 2], "method": ["gd", "hsr", "gd", "hsr"], **values})
    table = wide(rows, "lambda_max")
    assert list(table.columns) == list(METHODS)
    assert table.loc[1, "gd"] == 2 and np.isnan(table.loc[2, "gd"])
    assert wide(rows, "log_lambda_max").loc[1, "gd"] == pytest.approx(np.log(2))
    assert np.isnan(wide(rows, "log_lambda_max").loc[2, "hsr"])


def test_whisker_tip():
    values = pd.Series([-100.0, -2.0, -1.0, -1.0, 0.0, 0.0, 0.0, 1.0])
    assert whisker_tip(values) == -2.0


def constructed(effect):
    """Endpoints of five data sets in which HSR has λ₁ times `effect` of every other method."""
    generator = np.random.default_rng(0)
    rows = []
    for seed in range(5):
        for group in ("sharp", "flat"):
            base = generator.uniform(5, 10, 30)
            for method in METHODS:
                factor = effect if method == "hsr" else 1.0
                noise = generator.uniform(0.99, 1.01, 30)
                row = {
                    "seed": seed,
                    "method": method,
                    "group": group,
                    "start": range(30),
                    "lambda_sup": base,
                }
                row |= {
                    "lambda_max": base * factor * noise,
                    "std": base * factor * noise,
                    "mean": base * factor,
                }
                row |= {"lambda_min": -1e-4 * noise, "f1": 0.8 + generator.uniform(-1e-3, 1e-3, 30)}
                rows.append(pd.DataFrame(row | {"boundary_length": base, "saddle_depth": 0.0}))
    return pd.concat(rows, ignore_index=True).assign(
        protocol="fitted", reading="every_step", status="ok"
    )


@pytest.mark.parametrize(
    "effect, verdict",
    [
        (0.5, "confirmed"),
        pytest.param(1.0, "refuted", marks=pytest.mark.slow),
        pytest.param(2.0, "refuted", marks=pytest.mark.slow),
    ],
)
def test_claims_follow_the_effect(experiment, tables, effect, verdict):
    known = {**tables, "endpoints": constructed(effect)}
    del known["draws"]  # one value a data set: see below
    claims = analyse(experiment, known).claims()
    found = {c.name: c for c in claims}
    assert sorted(c.name for c in claims) == sorted(statements("hsr_regularization"))
    assert found["HSR beats trace regularisation on λ₁"].verdict == verdict
    alike = under_this_search(found["HSR comparable to A-SAM on λ₁"])
    assert alike == ("confirmed" if effect == 1 else "refuted")
    not_worse = under_this_search(found["HSR not worse than A-SAM on λ₁"])
    assert not_worse == ("refuted" if effect == 2 else "confirmed")
    assert under_this_search(found["HSR comparable to A-SAM on F1"]) == "confirmed"
    assert found["smallest eigenvalue close to 0"].verdict == "confirmed"


def test_one_data_set_decides_nothing_about_data(experiment, tables):
    one = {**tables, "endpoints": constructed(0.5).query("seed == 0")}
    for claim in analyse(experiment, one).claims():
        expected = "inconclusive"
        if claim.name in ("published counts", "search as printed", "critical points"):
            expected = "not comparable"
        if claim.name in ("loss falls from sharp seeds", "λ₁, mean and std go together"):
            expected = "true by construction"
        assert under_this_search(claim) == expected, claim.name


def test_report_parts_can_be_made_from_the_tables(experiment, tables):
    analysis = analyse(experiment, tables)
    assert {"fig08_data", "fig09_bound", "fig10_dynamics_fitted", "fig15_boundaries_fitted"} <= set(
        analysis.figures()
    )
    names = [(s.name, s.group) for s in analysis.statistics()]
    assert len(names) == len(set(names))
    assert set(analysis.measured()["metric"]) >= {"converged", "unique", "seeds", "train_samples"}


@pytest.mark.slow
def test_tables_repeat(experiment, tables):
    cell = next(c for c in experiment.cells() if c.params.get("part") == "draws")
    again = frame(
        "draws", measure(experiment, cell, Context(1))["draws"], {**cell.params, "seed": 1}
    )
    pd.testing.assert_frame_equal(
        again, tables["draws"].query("seed == 1")[list(again)].reset_index(drop=True)
    )


@pytest.mark.slow
def test_a_method_that_is_not_the_papers_decides_nothing_about_all_methods(experiment, tables):
    ends = tables["endpoints"].query("reading == 'every_step'")

    def made(changed):
        d = tables["dynamics"]
        table = d.assign(q50=d["q50"].where(d["method"] != changed, 1e3 * d["q50"]))
        found = analyse(experiment, {**tables, "dynamics": table, "endpoints": ends}).claims()
        return {c.name: c.statistic for c in found if c.name.startswith("dynamics from flat seeds")}

    before = made("")
    assert made("asam_wide") == before and len(before) == 2
    assert all(made("hsr")[name] > 100 * before[name] for name in before)


@pytest.mark.parametrize("verdict", ["confirmed", "refuted", "inconclusive"])
def test_what_hangs_on_the_operator_of_asam_is_not_comparable(verdict):
    """For and against alike; a statement on HSR and the trace alone keeps its verdict."""
    for name in ("HSR not worse than A-SAM on λ₁", "HSR consistently flat"):
        claim = Claim(name, "HSR is flat", "Fig. 11", verdict)
        assert open_protocol(claim).verdict == "not comparable"
        assert under_this_search(open_protocol(claim)) == verdict
    kept = Claim("HSR beats trace regularisation on λ₁", "HSR is flatter", "Fig. 12A", verdict)
    assert open_protocol(kept) == kept


def test_what_hangs_on_flat_seeds_is_not_comparable():
    says = statements("hsr_regularization")
    flat = [name for name, s in says.items() if "flat seeds" in s.text]
    assert {"A-SAM: λ_D left-skewed", "no saddle at the whisker of HSR"} <= set(flat) and len(
        flat
    ) == 12
    for name in flat:
        claim = Claim(
            name, says[name].text, says[name].where, "confirmed", variants={"fitted": "confirmed"}
        )
        assert open_protocol(claim).verdict == "not comparable"
