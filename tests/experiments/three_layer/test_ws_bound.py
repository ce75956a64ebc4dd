"""The WS-bound experiment on small searches: what it measures, how it decides, and that every
figure can be drawn."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from experiments.paper_audit.three_layer import loss
from experiments.printed import statements
from experiments.three_layer.ws_bound.analysis import split_low_high
from experiments.three_layer.ws_bound.claims import of_the_fit_alone
from experiments.three_layer.ws_bound.exact_claims import INEQUALITIES
from experiments.three_layer.ws_bound.portrait_claims import boundary_length, largest_rise
from experiments.three_layer.ws_bound.portraits import LOSS_GRAIN
from experiments.three_layer.ws_bound.search import run_search
from runner.contract import Claim, Context, SettingError, analyse
from runner.report.compare import scorecard
from runner.report.reference import read_reference, reference_path
from runner.run.config import arguments, build_job
from runner.stats import correct
from tests.errors import refusal
from tests.experiments.tables import claims_of, merged

SMALL = [
    "training.starts=20",
    "training.steps=400",
    "dataset.test=[10,100]",
    "experiment.fitted_ratio=0.05",
]
SMALL += [
    "experiment.printed_ratio=0.1",
    "experiment.rate=[0.05,0.1]",
    "experiment.activation=[sigmoid,tanh]",
]
SMALL += ["experiment.path_points=10", "experiment.line_points=11", "experiment.boundary_step=2.0"]
SMALL += ["experiment.draws=1", "experiment.further_steps=20", "experiment.polish_steps=60"]
SMALL += ["experiment.error_points=3"]


def build(*overrides):
    return build_job(arguments(["experiment=ws_bound", *overrides]).overrides).experiment


@pytest.fixture(scope="module")
def experiment():
    return build(*SMALL)


@pytest.fixture(scope="module")
def tables(experiment):
    return merged(experiment, (42, 43, 44))


def cell_of(experiment, **params):
    return next(c for c in experiment.cells() if params.items() <= c.params.items())


def test_grid_of_the_paper_protocol():
    cells = list(build().cells())
    assert len([c for c in cells if "part" not in c.params]) == 5 * 2 + 6 * 2
    assert [c.params["part"] for c in cells if "part" in c.params] == ["polish"] * (2 + 4 + 2) + [
        "draws"
    ]
    assert [c.label for c in build("protocol=printed", "hidden=3", "part=search").cells()] == [
        f"protocol=printed activation=sigmoid hidden=3 rate={rate:g}"
        for rate in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
    ]


@pytest.mark.parametrize("words", ["portrait_hidden=5", "portrait_rate=0.4"])
def test_portraits_of_what_is_not_measured_are_refused(words):
    name, value = words.removeprefix("portrait_").split("=")
    with refusal(rf"{words.split('=')[0]}: expected one of {name}=", SettingError):
        build(words)
    both = build(words, f"{name}=[{value}]", "part=[search]", "protocol=[printed]")
    assert any(map(both.has_portraits, both.cells()))


def test_one_row_per_start_and_nothing_unnamed(tables):
    points = tables["critical_points"]
    assert (points.groupby(["protocol", "activation", "hidden", "rate", "seed"]).size() == 20).all()
    ok = points["status"] == "ok"
    assert 0 < ok.sum() < len(points) and len(tables["certificate"])
    assert set(points.loc[~ok, "status"]) <= {"not converged", "diverged"}
    assert points.loc[ok, ["loss", "lambda_max", "lambda_sup", "f1_test10"]].notna().all(axis=None)
    assert points.loc[~ok, ["loss", "lambda_max", "lambda_sup", "f1_test10"]].isna().all(axis=None)
    assert (points["converged"] == ok).all() and not points.loc[~ok, "duplicate"].any()


def test_curvature_agrees_with_automatic_differentiation(experiment, tables):
    cell = cell_of(experiment, protocol="fitted", activation="tanh", hidden=3)
    search = run_search(experiment, cell, Context(seed=42))
    start = int(search.unique[0])

    of = (search.ends.theta[start], search.x, search.q, "tanh")
    hessian = torch.func.hessian(loss)(*of)
    spectrum = torch.linalg.eigvalsh(hessian)
    rows = tables["critical_points"]
    row = rows[
        (rows["seed"] == 42)
        & (rows["start"] == start)
        & (rows["activation"] == "tanh")
        & (rows["hidden"] == 3)
    ]
    found = row.iloc[0]
    dimension, mean = 13, float(hessian.trace()) / 13
    bound = mean + math.sqrt(
        (dimension - 1) * (float(hessian.square().sum()) / dimension - mean**2)
    )
    expected = {
        "loss": float(loss(*of)),
        "lambda_max": float(spectrum[-1]),
        "lambda_sup": bound,
        "lambda_min": float(spectrum[0]),
        "trace": 13 * mean,
        "V_norm_sq": float(search.ends.theta[start][9:] @ search.ends.theta[start][9:]),
    }
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-9), name


def test_protocols_and_activations_share_data_and_starts(experiment):
    plain = [c for c in experiment.cells() if "part" not in c.params and c.params["hidden"] == 3]
    searches = [run_search(experiment, c, Context(seed=42)) for c in plain]
    for other in searches[1:]:
        assert torch.equal(other.x, searches[0].x) and torch.equal(other.starts, searches[0].starts)
    elsewhere = run_search(experiment, next(iter(experiment.cells())), Context(seed=43))
    assert not torch.equal(elsewhere.x, searches[0].x)
    assert searches[0].starts.abs().max() <= 10 and searches[0].starts.abs().max() > 9
    assert searches[0].q.sum() == 25
    assert (
        searches[0].x[searches[0].q == 0].mean(0) > searches[0].x[searches[0].q == 1].mean(0)
    ).all()


def test_diverged_starts_are_rows_with_a_reason():
    wild = build(
        *SMALL,
        "experiment.activation=linear",
        "experiment.hidden=3",
        "experiment.protocol=fitted",
        "experiment.part=search",
        "experiment.fitted_rate=1e200",
    )
    table = merged(wild, (42,))
    lost = table["critical_points"]["status"] == "diverged"
    assert lost.any() and table["critical_points"].loc[lost, "lambda_sup"].isna().all()
    assert table["search"]["diverged"].iloc[0] == lost.sum()
    assert f"{lost.sum()} diverged" in " ".join(analyse(wild, table).notes())


def test_low_and_high_groups_have_the_published_sizes():
    rows = pd.DataFrame({"lambda_sup": np.random.default_rng(1).permutation(353).astype(float)})
    low, high = split_low_high(rows, 0.9)
    assert (len(low), len(high)) == (317, 36)
    assert low["lambda_sup"].max() < high["lambda_sup"].min()


def test_exact_claims_hold_and_data_claims_wait_for_data(experiment, tables):
    found = analyse(experiment, tables).claims()
    every = {c.name: c for c in found}
    assert sorted(c.name for c in found) == sorted(statements("ws_bound"))
    one = {name: table[table["seed"] == 42] for name, table in tables.items()}
    alone = claims_of(experiment, one)
    exact = ["Theorem 3", "Theorem 4", "Theorem 6", "Prop. 1", "Theorem 7"]
    assert {every[name].verdict for name in ("Theorem 1", "lower bound", "Prop. 8, left")} == {
        "true by construction"
    }
    for name in [*exact, "Hessian agrees with differences", "traces agree"]:
        assert every[name].verdict == alone[name].verdict == "confirmed", name
        searched = {k: v for k, v in every[name].variants.items() if not k.endswith("polished")}
        assert searched == dict.fromkeys(("fitted", "printed", "fitted tanh"), "confirmed")
        polished = {k for k in every[name].variants if k.endswith("polished")}
        ends = {"fitted polished", "printed polished", "fitted tanh polished"}
        assert polished == (ends if name in INEQUALITIES else set())
    assert every["Theorem 7 without a condition on the weights"].verdict == "refuted"
    for name in ("tightness", "width matters", "V norm", "low bound generalises better"):
        assert alone[name].verdict == "inconclusive"
    assert {"fitted", "fitted seed by seed", "fitted polished"} <= set(
        every["low bound generalises better"].variants
    )
    assert {"fitted polished", "fitted tanh polished"} <= set(every["tightness"].variants)
    assert "fitted polished" in every["width matters"].variants
    assert "fitted tanh" in every["critical points"].variants
    assert every["published counts"].verdict == "not comparable"


@pytest.mark.parametrize(
    "verdict, variants, becomes",
    [
        ("refuted", {"printed": "confirmed", "fitted tanh": "confirmed"}, "not comparable"),
        ("refuted", {"printed": "refuted", "fitted tanh": "confirmed"}, "refuted"),
        ("confirmed", {"printed": "refuted", "fitted tanh": "confirmed"}, "not comparable"),
        ("confirmed", {"printed": "confirmed", "fitted tanh": "refuted"}, "confirmed"),
        ("inconclusive", {"printed": "refuted"}, "inconclusive"),
    ],
)
def test_what_the_two_stop_rules_decide_differently_is_not_comparable(verdict, variants, becomes):
    claim = Claim(
        "a", "the loss falls without a rise of the bound", "Fig. 5", verdict, variants=variants
    )
    assert of_the_fit_alone(claim).verdict == becomes


def test_polished_points_are_where_the_ends_lead(tables):
    """One row for each unique end of a polished search, downhill of it, and the gradient of every
    start."""
    keys = ["protocol", "activation", "hidden", "rate", "seed", "start"]
    before = tables["critical_points"].merge(tables["polished"], on=keys, suffixes=("", "_after"))
    unique = before[(before["status"] == "ok") & (before["duplicate"] == 0)]
    assert len(unique) == len(tables["polished"]) > 0
    assert (before["loss_after"] <= before["loss"] * (1 + 1e-4)).all()
    still = before["kind"].isin(["minimum", "saddle", "degenerate"])
    assert still.any() and (before.loc[still, "gradient"] <= 1e-9).all()
    assert (before["lambda_min_after"] <= before["lambda_max_after"]).all()
    assert (before["nearest_distance"] < before["distance"]).sum() > before[
        "nearest_distance"
    ].count() / 2
    draws = tables["draws"]
    assert (draws["low"] == (0.9 * (draws["low"] + draws["high"])).astype(int)).all() and draws[
        "low"
    ].min() > 0
    left = tables["gradients"].merge(tables["critical_points"], on=keys)
    met = left[left["status"] == "ok"]
    limit = met["protocol"].map({"fitted": 0.05, "printed": 0.1})
    assert (met["gradient_ratio"] <= limit * (1 + 1e-4)).all()
    assert len(tables["gradients"].groupby(keys)) == len(tables["gradients"])


@pytest.mark.slow
def test_critical_points_are_claimed_by_what_they_lead_to(experiment, tables):
    for kind, verdict in (("minimum", "confirmed"), ("infinity", "refuted")):
        table = tables["polished"].assign(kind=kind, nearest_kind=kind)
        found = claims_of(experiment, {**tables, "polished": table})
        assert found["critical points"].verdict == verdict


@pytest.mark.slow
def test_medians_that_tie_on_few_test_samples_say_nothing(experiment, tables):
    points = tables["critical_points"]
    for value, verdict in (
        (0.5, "inconclusive"),
        (-points["lambda_sup"], "confirmed"),
        (points["lambda_sup"], "refuted"),
    ):
        table = points.assign(
            **{name: value for name in points.columns if name.startswith("f1_test")}
        )
        found = claims_of(experiment, {**tables, "critical_points": table})
        assert found["lower median score"].variants["fitted"] == verdict


@pytest.mark.slow
def test_a_gain_that_ten_samples_cannot_show_refutes_nothing(experiment, tables):
    shift = {
        0.004: "inconclusive",
        -0.05: "refuted",
        0.05: "confirmed",
    }  # beside draws that scatter by 0.03
    scatter = 0.03 * np.random.default_rng(0).standard_normal(30)
    scatter -= scatter.mean()
    for gain, verdict in shift.items():
        draws = pd.DataFrame(
            {"stage": "stopped", "test_samples": 10, "f1_low": gain + scatter, "f1_high": 0.0}
        )
        table = {
            **tables,
            "draws": draws.assign(spread_low=0.0, spread_high=0.0, seed=42, draw=range(30)),
        }
        found = claims_of(experiment, table)["low bound generalises better"]
        assert found.verdict == verdict


def test_a_violated_inequality_is_refuted_and_an_infinite_bound_is_no_test(experiment, tables):
    theorems = tables["theorems"].copy()
    broken = (theorems["inequality"] == "Theorem 4") & (theorems["protocol"] == "printed")
    theorems.loc[broken, "holding"] -= 1
    infinite = (theorems["inequality"] == "Theorem 3") & (theorems["activation"] == "tanh")
    theorems.loc[infinite, ["slack_min", "slack_median"]] = 1.0
    found = claims_of(experiment, {**tables, "theorems": theorems})
    assert found["Theorem 4"].verdict == "refuted"
    assert (
        found["Theorem 4"].variants["printed"] == "refuted"
        and found["Theorem 4"].variants["fitted"] == "confirmed"
    )
    assert (
        found["Theorem 3"].verdict == "confirmed"
        and found["Theorem 3"].variants["fitted tanh"] == "not run"
    )


def test_equality_is_attained_where_the_proposition_says(tables):
    table = tables["equality"]
    gap = table["lambda_sup"] / table["lambda_max"] - 1
    assert gap[table["condition"] == 1].abs().max() < 1e-12
    assert (
        gap[table["case"].isin(["spectrum (λ, random)", "network, one sample, hard label"])].min()
        > 1e-6
    )
    assert gap[table["case"] == "spectrum (λ, c, …, c)"].abs().max() < 1e-12


def test_paths_end_at_their_critical_points(tables):
    keys = ["protocol", "activation", "hidden", "rate", "seed"]
    last = tables["trajectories"].sort_values("step").groupby([*keys, "point"]).last().reset_index()
    both = last.merge(tables["portraits"], on=[*keys, "point"], suffixes=("_path", ""))
    points = both.merge(tables["critical_points"], on=[*keys, "start"], suffixes=("", "_row"))
    assert len(points) == len(last)
    assert (points["step"] == points["steps"]).all()
    for name in ("loss", "lambda_sup"):
        assert points[f"{name}_path"].tolist() == pytest.approx(
            points[f"{name}_row"].tolist(), rel=1e-12
        )


def test_loss_lines_pass_through_the_point(tables):
    centre = tables["landscapes"][tables["landscapes"]["alpha"] == 0]
    keys = ["protocol", "activation", "hidden", "rate", "seed"]
    loss = tables["portraits"][tables["portraits"]["point"] == "sharpest_1"][[*keys, "loss"]]
    both = centre.merge(loss, on=keys)
    assert len(both) == len(centre) > 0
    assert (both["sharpest_1"] - both["loss"]).abs().max() <= LOSS_GRAIN / 2


def test_values_statistics_and_figures(experiment, tables):
    analysis, path = analyse(experiment, tables), reference_path("ws_bound")
    assert path is not None
    scores = scorecard(analysis.measured(), read_reference(path))
    assert set(scores["verdict"]) == {"calibrated", "true by construction"}
    assert (scores["n"] == 3).all() and not scores["reason"].str.contains("do not").any()
    rows = correct(analysis.statistics())
    assert len({(s.name, s.group) for s in rows}) == len(rows)
    assert {s.figure for s in rows} >= {
        "fig02",
        "fig06",
        "fig07",
        "fig10",
        "fig11",
        "fig12",
        "fig07 tanh",
    }
    assert any("cannot reach" in s.note for s in rows if "over data sets" in s.name)
    figures = set(analysis.figures())
    assert {name[:5] for name in figures if name.startswith("fig")} == {
        f"fig{n:02d}" for n in range(2, 14)
    }
    assert {"critical_points", "fig07_draws"} <= figures
    one_width = replace(experiment, portrait_hidden=experiment.compared_hidden)
    assert figures - set(analyse(one_width, tables).figures()) == {"fig11_width"}


def test_a_search_with_one_point_has_no_flattest(experiment, tables):
    alone = tables["portraits"][tables["portraits"]["point"] == "sharpest_1"]
    names = set(analyse(experiment, {**tables, "portraits": alone}).figures())
    assert "fig03_sharpest_fitted" in names and "fig04_flattest_fitted" not in names


def test_views_of_sharp_and_flat_points_are_measured():
    axis = np.linspace(-1, 1, 5)
    lines = pd.DataFrame({"alpha": axis, "sharpest_1": 3 + 10 * axis**2, "flattest_1": 3 + axis**2})
    assert largest_rise(lines, "sharpest_1") == pytest.approx(10)
    x1, x2 = (g.ravel() for g in np.meshgrid(np.arange(-5, 6), np.arange(-5, 6)))
    grid = pd.DataFrame(
        {"x1": x1, "x2": x2, "straight": x1 + 0.5, "corner": np.maximum(x1, x2) + 0.5}
    )
    assert boundary_length(grid, "straight") == pytest.approx(10)
    assert boundary_length(grid, "corner") == pytest.approx(
        9, abs=0.6
    )  # two arms of 4.5, the corner cut
