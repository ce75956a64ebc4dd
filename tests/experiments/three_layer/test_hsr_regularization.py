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
from experiments.three_layer.hsr_regularization.analysis import missed, wide
from experiments.three_layer.hsr_regularization.problem import draw
from experiments.three_layer.hsr_regularization.settings import ABLATION, METHODS
from experiments.three_layer.hsr_regularization.values import whisker_tip
from experiments.three_layer.hsr_regularization.views import boundary_length, saddle_depth
from runner.closed_form import three_layer as tl
from runner.contract import Context, analyse
from runner.run.config.jobs import build_job
from runner.stats.tables import chosen
from tests.experiments.tables import (
    changed,
    check,
    claims_of,
    grid,
    measured_again,
    merged,
    rows_with,
)
from tests.slow import slow

WORDS = ["profile=quick", "training.starts=40", "training.steps=400"]
WORDS += ["experiment.rate=0.03", "experiment.draw_starts=40"]


@pytest.fixture(scope="module")
def experiment():
    made = build_job(["experiment=hsr_regularization", *WORDS]).experiment
    few = {"further_steps": 10, "rounding_steps": 10, "polish_steps": 25}
    return replace(made, switch=100, record_every=50, plane_points=11, **few)


@pytest.fixture(scope="module")
def problem(experiment):
    return draw(experiment, Context(1))


@pytest.fixture(scope="module")
def tables(experiment):
    """Both protocols of one data set, and the same as another, as the report sees them."""
    return merged(experiment, (1, 2))


def test_search_keeps_unique_converged_points_and_takes_the_tails(experiment, problem):
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


def test_plain_descent_as_a_method_is_the_search(tables):
    """gd under every_step ends exactly where the search found the point."""
    ends = chosen(tables["endpoints"], method="gd", reading="every_step", protocol="fitted")
    points = chosen(tables["critical_points"], protocol="fitted")
    both = ends.merge(points, on=["seed", "start"], suffixes=("", "_found"))
    assert len(both) == len(ends) > 0
    for name in ("lambda_max", "lambda_sup"):
        assert both[name].tolist() == pytest.approx(both[f"{name}_found"].tolist(), rel=1e-12)


def macro_f1(said, truth):
    """Twice the hits over the members that are said and true, as a mean over both classes."""
    scores = []
    for found, there in ((said, truth), (~said, ~truth)):
        scores.append(2 * int((found & there).sum()) / int(found.sum() + there.sum()))
    return sum(scores) / 2


@pytest.mark.parametrize("method", METHODS)
def test_end_points_are_those_of_the_method(experiment, problem, tables, method):
    """Measured anew: the strength or radius of each method, its curvature, and F1 on test data."""
    ends = chosen(tables["endpoints"], seed=1, reading="every_step", method=method)
    weight = {"trace": experiment.trace_weight, "hsr": experiment.bound_weight}.get(method, 0.0)
    radius = experiment.wide_radius if method == "asam_wide" else experiment.radius
    how = {"strength": weight / experiment.rate, "radius": radius, "until": experiment.switch}
    direction = training_direction(method.removesuffix("_wide"), problem.x, problem.q, **how)
    theta = problem.train(torch.tensor(ends["start"].tolist()), direction).final.theta
    spectrum = torch.linalg.eigvalsh(tl.hessian(theta, *problem.args))
    test_x, test_q = problem.test
    said, truth = tl.predict(theta, test_x) > 0.5, test_q > 0.5
    expected = {
        "lambda_max": spectrum[:, -1],
        "lambda_min": spectrum[:, 0],
        "mean": spectrum.mean(1),
        "std": spectrum.std(1, correction=0),
        "f1": [macro_f1(row, truth) for row in said],
    }
    for name, values in expected.items():
        near = pytest.approx([float(value) for value in values], rel=1e-8, nan_ok=True)
        assert ends[name].tolist() == near, name


@pytest.mark.parametrize("method", ["gd", slow("hsr")])
def test_second_half_is_a_descent_judged_from_the_switch_on(experiment, problem, method):
    chosen, switch = torch.arange(12), experiment.switch
    direction = training_direction(method, problem.x, problem.q, until=switch)
    result = problem.train(chosen, direction)
    found = problem.end_under("second_half", chosen, direction, result)
    expected = problem.train(chosen, direction, stop_from=switch).final
    assert torch.equal(found.theta, expected.theta) and torch.equal(found.steps, expected.steps)
    assert int(found.steps.min()) >= switch
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

    def length(values):
        return float(contour_length(values)) * 0.25

    assert length(9 - x**2 - y**2) == pytest.approx(6 * np.pi, rel=2e-3)
    for angle in np.linspace(0, np.pi / 2, 8):
        cos, sin = np.cos(angle), np.sin(angle)
        line = length(cos * x + sin * y - 1e-3)
        assert line == pytest.approx(10 / max(cos, sin), rel=1e-3), angle
    assert length(x * y - 1e-3) == pytest.approx(20, rel=0.02)  # two lines through one cell


def test_polished_ends_go_downhill_from_the_stopped_ones(tables):
    ends, points, nearest = (tables[n] for n in ("endpoints", "critical_points", "nearest"))
    keys = ["seed", "method", "start", "group"]
    stopped, polished = (chosen(ends, reading=name) for name in ("every_step", "polished"))
    both = stopped.merge(polished, on=keys, suffixes=("", "_after"))
    assert len(both) == len(stopped) == len(nearest) > 0 and len(tables["certificate"])
    assert (both["loss_after"] <= both["loss"] * (1 + 1e-4)).all()
    still = rows_with(nearest, kind=["minimum", "saddle", "degenerate"])
    assert still.any() == (both["gradient_after"] <= 1e-9).any()
    for met in (chosen(both, status="ok"), points):
        assert (met["gradient_ratio"] <= 0.005 * (1 + 1e-4)).all()
    assert points["led_kind"].notna().all()


@pytest.mark.slow
def test_saddles_are_judged_before_and_after(experiment, tables):
    near = chosen(tables["nearest"].assign(nearest_kind="infinity"), seed=1)
    parts = {
        "nearest": changed(near, {"method": "asam"}, nearest_kind="saddle"),
        "endpoints": chosen(tables["endpoints"], seed=1),
    }
    many = {}
    for name, table in parts.items():
        many[name] = pd.concat([table.assign(seed=seed) for seed in range(3)])
    whisker = "saddle at the whisker of A-SAM | fitted polished"
    check(experiment, tables | many, confirmed=whisker)
    more = claims_of(experiment, tables | many)["A-SAM ends at more saddles than HSR"]
    assert "fitted polished" in more.variants


def under_this_search(claim):
    """The verdict that a statement would have if the search were as published."""
    told = re.search("under which it is ([a-z]+)", claim.detail)
    return told.group(1) if claim.verdict == "not comparable" and told else claim.verdict


@pytest.mark.slow
def test_draws_decide_the_statements_on_f1(experiment, tables):
    draws = tables["draws"]
    pairs = draws[["a", "b", "group"]].drop_duplicates().merge(grid(draw=range(12)), how="cross")
    rest = draws.iloc[:1].drop(columns=list(pairs))
    gain = pairs["a"].map({"hsr": 0.03}).fillna(-0.03) + 1e-3 * (pairs["draw"] % 3)
    rows = pairs.merge(rest, how="cross").assign(f1=gain)
    found = claims_of(experiment, tables | {"draws": rows})
    raises = found["HSR raises F1 from sharp seeds"]
    assert raises.verdict == "not comparable"  # the search is calibrated
    assert "fitted seed by seed" in raises.variants
    for name, verdict in {
        "HSR raises F1 from sharp seeds": "confirmed",
        "A-SAM raises F1 from sharp seeds": "refuted",
        "HSR comparable to A-SAM on F1": "refuted",
        "HSR not worse than A-SAM on F1": "confirmed",
    }.items():
        assert under_this_search(found[name]) == verdict


def test_the_ablation_trains_the_methods_from_the_sharp_starts(experiment, problem, tables):
    """Three methods end where they end elsewhere; F1 on training data, measured anew."""
    found = chosen(tables["ablation"], seed=1)
    known = chosen(tables["endpoints"], seed=1, reading="every_step", group="sharp")
    both = found.merge(known, on=["method", "start"], suffixes=("", "_known"))
    assert len(both) == 3 * found["start"].nunique() > 0 and set(found["method"]) == {*ABLATION}
    for name, other in {"lambda_max": "lambda_max_known", "f1_test": "f1"}.items():
        assert both[name].tolist() == pytest.approx(both[other].tolist(), rel=1e-8, nan_ok=True)
    square = chosen(found, method="square")
    how = {"strength": experiment.bound_weight / experiment.rate, "until": experiment.switch}
    direction = training_direction("square", problem.x, problem.q, **how)
    theta = problem.train(torch.tensor(square["start"].tolist()), direction).final.theta
    predicted, truth = tl.predict(theta, problem.x) > 0.5, problem.q > 0.5
    scores = [macro_f1(row, truth) for row in predicted]
    assert square["f1_train"].tolist() == pytest.approx(scores)
    loss = tl.loss(theta, problem.x, problem.q) / len(problem.q)
    assert square["mean_loss_train"].tolist() == pytest.approx(loss.tolist())


def ablated(fit=0.9, **factors):
    """Five data sets in which methods have λ₁ times these factors; fit: F1 of HSR on training
    data, where plain descent has 0.9 and all have 0.8 on test data."""
    generator = np.random.default_rng(0)
    rows = grid(seed=range(5), start=range(30), method=ABLATION)
    noise = generator.uniform(0.99, 1.01, len(rows))
    factor = rows["method"].map({"trace": 0.8, **factors}).fillna(1.0)
    f1 = rows["method"].map({"hsr": fit}).fillna(0.9) + 1e-3 * (noise - 1)
    same = {"status": "ok", "steps": 1, "mean_loss_train": 0.1, "mean_loss_test": 0.2}
    return rows.assign(lambda_max=factor * noise, f1_train=f1, f1_test=0.8, **same)


@pytest.mark.parametrize(
    "factors, verdict",
    [
        ({"square": 0.3}, "confirmed"),
        ({"square": 0.8}, "refuted"),  # no better than the trace
        ({"square": 0.3, "mean": 0.3}, "refuted"),  # as good without tr H²
    ],
)
def test_the_squared_trace_is_the_cause_where_it_alone_beats_the_trace(
    experiment, tables, factors, verdict
):
    known = tables | {"ablation": ablated(**factors), "endpoints": constructed(0.5)}
    check(experiment, known, **{verdict: "tr H² makes HSR better than the trace"})


@pytest.mark.parametrize("fit, verdict", [(0.85, "confirmed"), (0.95, "refuted")])
def test_overfitting_is_the_difference_of_training_and_test_score(experiment, tables, fit, verdict):
    known = tables | {"ablation": ablated(fit), "endpoints": constructed(0.5)}
    found = claims_of(experiment, known)["HSR suppresses overfitting"]
    assert found.verdict == "not comparable" and under_this_search(found) == verdict


def test_boundary_length_of_a_vertical_line(experiment, problem):
    """p = s(20 (r − ½)) with r = s(x₁ − ¼) crosses 0.5 at x₁ = ¼, between two columns of the
    grid."""
    W = torch.tensor([[[-0.25, 1.0, 0.0]]], dtype=torch.float64)
    theta = tl.join(W, torch.tensor([[-10.0, 20.0]], dtype=torch.float64))
    side = 2 * experiment.plane_half_range
    assert float(boundary_length(problem, theta)[0]) == pytest.approx(side, rel=1e-6)


def test_methods_are_paired_by_start_and_an_end_that_missed_the_stop_rule_has_its_value():
    values = {"lambda_max": [2.0, 1.0, 4.0, -1.0], "status": ["ok", "ok", "not converged", "ok"]}
    rows = pd.DataFrame({"start": [1, 1, 2, 2], "method": ["gd", "hsr", "gd", "hsr"], **values})
    table, logs = (wide(rows, name) for name in ("lambda_max", "log_lambda_max"))
    assert list(table.columns) == list(METHODS)
    assert table.loc[1, "gd"] == 2 and table.loc[2, "gd"] == 4
    assert list(missed(rows)["gd"]) == [False, True]
    assert logs.loc[1, "gd"] == pytest.approx(np.log(2)) and np.isnan(logs.loc[2, "hsr"])


def test_whisker_tip():
    values = pd.Series([-100.0, -2.0, -1.0, -1.0, 0.0, 0.0, 0.0, 1.0])
    assert whisker_tip(values) == -2.0


def constructed(effect):
    """Endpoints of five data sets in which HSR has λ₁ times `effect` of every other method."""
    generator = np.random.default_rng(0)
    starts = grid(seed=range(5), group=("sharp", "flat"), start=range(30))
    starts = starts.assign(lambda_sup=generator.uniform(5, 10, len(starts)))
    rows = starts.merge(grid(method=METHODS), how="cross")
    base = rows["lambda_sup"]
    noise = generator.uniform(0.99, 1.01, len(rows))
    f1 = 0.8 + generator.uniform(-1e-3, 1e-3, len(rows))
    mean = base * rows["method"].map({"hsr": effect}).fillna(1.0)
    rows = rows.assign(mean=mean, std=mean * noise, lambda_max=mean * noise, f1=f1)
    rows = rows.assign(lambda_min=-1e-4 * noise, boundary_length=base, saddle_depth=0.0)
    return rows.assign(protocol="fitted", reading="every_step", status="ok")


@pytest.mark.parametrize(
    "effect, verdict",
    [
        (0.5, "confirmed"),
        slow(1.0, "refuted"),
        slow(2.0, "refuted"),
    ],
)
def test_claims_follow_the_effect(experiment, tables, effect, verdict):
    known = tables | {"endpoints": constructed(effect)}
    del known["draws"]  # one value a data set: see below
    found = claims_of(experiment, known)
    assert set(found) == set(statements("hsr_regularization"))
    for name, expected in {
        "HSR beats trace regularisation on λ₁": verdict,
        "HSR comparable to A-SAM on λ₁": "confirmed" if effect == 1 else "refuted",
        "HSR not worse than A-SAM on λ₁": "refuted" if effect == 2 else "confirmed",
        "HSR comparable to A-SAM on F1": "confirmed",
        "smallest eigenvalue close to 0": "confirmed",
    }.items():
        assert under_this_search(found[name]) == expected, name


WITHOUT_DATA = {
    "published counts": "not comparable",
    "search as printed": "not comparable",
    "loss falls from sharp seeds": "true by construction",
    "λ₁, mean and std go together": "true by construction",
}


def test_one_data_set_decides_nothing_about_data(experiment, tables):
    one = tables | {"endpoints": constructed(0.5).query("seed == 0")}
    for name, claim in claims_of(experiment, one).items():
        assert under_this_search(claim) == WITHOUT_DATA.get(name, "inconclusive"), name


def test_report_parts_can_be_made_from_the_tables(experiment, tables):
    analysis = analyse(experiment, tables)
    figures = {"fig08_data", "fig09_bound", "fig10_dynamics_fitted", "fig15_boundaries_fitted"}
    assert figures <= set(analysis.figures())
    names = [(s.name, s.group) for s in analysis.statistics()]
    assert len(names) == len(set(names))
    assert set(analysis.measured()["metric"]) >= {"converged", "unique", "seeds", "train_samples"}


@pytest.mark.slow
def test_tables_repeat(experiment, tables):
    cell = next(c for c in experiment.cells() if c.params.get("part") == "draws")
    again = measured_again(experiment, cell, 1, "draws")
    first = chosen(tables["draws"], seed=1)[list(again)].reset_index(drop=True)
    pd.testing.assert_frame_equal(again, first)


@pytest.mark.slow
def test_a_method_that_is_not_the_papers_decides_nothing_about_all_methods(experiment, tables):
    ends, dynamics = chosen(tables["endpoints"], reading="every_step"), tables["dynamics"]

    def made(method):
        larger = changed(dynamics, {"method": method}, q50=1e3 * dynamics["q50"])
        found = claims_of(experiment, tables | {"dynamics": larger, "endpoints": ends})
        names = [name for name in found if name.startswith("dynamics from flat seeds")]
        return np.array([found[name].statistic for name in names])

    before = made("none")
    assert len(before) == 2 and (made("asam_wide") == before).all()
    assert (made("hsr") > 100 * before).all()


def test_what_hangs_on_the_operator_of_asam_or_on_the_search_is_not_comparable():
    """For and against alike; a statement on HSR and the trace alone keeps its verdict."""
    says = statements("hsr_regularization")
    why = {name: s.not_comparable for name, s in says.items()}
    for name in ("HSR not worse than A-SAM on λ₁", "HSR consistently flat"):
        assert "A-SAM's normalisation" in why[name]
    assert "depend on the points" in why["HSR raises F1 from sharp seeds"]
    assert not why["HSR beats trace regularisation on λ₁"]
    flat = {name for name, s in says.items() if "flat seeds" in s.text}
    assert {"A-SAM: λ_D left-skewed", "no saddle at the whisker of HSR"} <= flat
    assert len(flat) == 12
    assert all("depend on the points" in why[name] for name in flat)
