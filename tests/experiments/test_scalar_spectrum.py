"""The scalar_spectrum experiment: its measurements against dense solvers, its claims on tables made
to break them."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from experiments.scalar_spectrum.network import Network, descend
from experiments.scalar_spectrum.values import edge_runs, runs_of
from runner.closed_form import scalar
from runner.contract import Context, analyse, measure
from runner.run.config.jobs import build_job
from runner.stats.tables import chosen
from tests.draws import normal, seeded
from tests.experiments.tables import changed, check, claims_of, joined, merged, verdicts

SHORT = ["experiment.width=[4]", "experiment.factor=[0.5,1.05,1.5,2.2]", "experiment.edge_steps=60"]
SHORT += ["experiment.pair_steps=60", "experiment.mix_points=3", "experiment.dense_every=20"]
SHORT += ["experiment.wedge_scales=[1.0]", "experiment.wedge_starts=1"]


@pytest.fixture(scope="module")
def setup():
    return build_job(["experiment=scalar_spectrum", *SHORT]).experiment


@pytest.fixture(scope="module")
def tables(setup):
    """All cells of one seed, and the same as another, merged as the runner does."""
    return merged(setup, (1, 2))


@pytest.fixture(scope="module")
def three(tables):
    """The same with a third seed, which is enough to decide."""
    return joined({name: [t, t[t["seed"] == 1].assign(seed=3)] for name, t in tables.items()})


def test_every_closed_form_agrees_with_its_dense_solver(tables):
    for name in ("scaling", "bias", "pairs"):
        assert tables[name]["dense_error"].max() < 1e-10
    cells = tables["relu_cells"]
    assert np.allclose(cells["eigenvalue"], cells["dense"], atol=1e-10)
    assert tables["edge_runs"]["residual"].max() < 1e-10


def test_cell_counts_match_the_reference(setup, tables):
    found = analyse(setup, tables).measured()
    values = found.groupby(["metric", "cell"])["value"].unique().map(list).to_dict()
    assert values == {
        ("bulk_multiplicity", "+"): [5],
        ("bulk_multiplicity", "-"): [3],
        ("outliers", "+"): [2],
        ("outliers", "-"): [2],
        ("outliers", "bias"): [5],
    }


@pytest.mark.parametrize(
    "kind, activation, spectrum",
    [("linear", nn.Identity(), scalar.linear_spectrum), ("relu", torch.relu, scalar.relu_spectrum)],
)
def test_descent_follows_the_automatic_gradient(kind, activation, spectrum):
    generator = seeded()
    x, y, w, v = (normal(n, generator=generator) for n in (9, 9, 4, 4))
    states = list(descend(Network(kind, x, y), w, v, 0.05, 0.9, 5, 1e9))
    theta, velocity = torch.cat([v, w]), torch.zeros(8, dtype=torch.float64)
    for state in states:
        assert torch.allclose(torch.cat([state.v, state.w]), theta, atol=1e-12)
        leaf = theta.clone().requires_grad_()
        output = activation(torch.outer(x, leaf[:4])) @ leaf[4:]
        loss = 0.5 * ((output - y) ** 2).mean()
        assert abs(state.loss - float(loss.detach())) < 1e-12
        (gradient,) = torch.autograd.grad(loss, leaf)
        velocity = 0.9 * velocity + gradient
        theta = theta - 0.05 * velocity
    sharpness = float(spectrum(w, v, x, y).sharpness)
    assert states[0].sharpness == pytest.approx(sharpness, rel=1e-12)


HELD = "relu_closed_form; theorem6; theorem6_multiplicities; live_meter; settled_below_threshold"


def test_claims_say_what_holds(setup, tables):
    more = "density; triple_bounds; bias_closed_form; phases_corrected"
    check(
        setup,
        tables,
        confirmed=f"{HELD}; {more}",
        not_comparable="proportional",
        minor_error="phases",
    )
    targets = {"targets fixed": "refuted", "targets scaled": "confirmed"}
    assert verdicts(setup, tables, "proportional") == targets
    assert verdicts(setup, tables, "phases") == {"θ* > 0": "confirmed", "θ* < 0": "refuted"}
    found = claims_of(setup, tables)
    assert "does not say" in found["proportional"].detail
    assert found["catapult"].extension and not found["theorem6"].extension


def test_claims_about_random_starts_need_seeds(setup, tables, three):
    counted = ["turns_positive", "drops_first", "wiggles", "ends_negative"]
    check(setup, tables, inconclusive="starts_negative; damping; catapult")
    for name in counted:
        assert "inconclusive" in verdicts(setup, tables, name).values()
    found = claims_of(setup, three)
    for name in [*counted, "starts_negative"]:
        assert not {"inconclusive"} >= {*found[name].variants.values()}


def test_the_figure_with_an_unprinted_scale_refutes_nothing(setup, three):
    never = three | {"pairs": three["pairs"].assign(second=1.0)}
    for name in ("turns_positive", "ends_negative"):
        check(setup, never, not_comparable=name)
        assert "not printed" in claims_of(setup, never)[name].detail
    check(setup, never, refuted="starts_negative")  # no eigenvalue changes its sign with the scale


def test_wiggles_at_one_scale_confirm_nothing(setup, three):
    waves = three["pairs"].assign(second=-np.cos(three["pairs"]["step"]))
    waving = three | {"pairs": waves}
    check(setup, waving, not_comparable="wiggles")
    assert "confirmed" in verdicts(setup, waving, "wiggles").values()


def test_the_fitted_scale_is_a_remark_and_no_verdict(setup, three):
    without = {name: table for name, table in three.items() if name != "wedge_scale"}
    one, other = (claims_of(setup, t)["turns_positive"] for t in (three, without))
    assert "fitted: at the printed rate" in one.detail and "fitted" not in other.detail
    assert (one.verdict, one.variants) == (other.verdict, other.variants)


def test_claims_can_be_refuted(setup, tables):
    bias, cells, edge = (tables[name] for name in ("bias", "relu_cells", "edge"))
    settled = edge_runs(edge).query("settled").iloc[0]
    run = settled[["network", "width", "start", "factor", "seed"]].to_dict()
    broken = {
        "relu_cells": cells.assign(eigenvalue=cells["eigenvalue"] * (1 + 1e-8)),
        "bias": bias.assign(gap=bias["gap"] + 1e-6, zeros=bias["zeros"] + 1),
        "pairs": tables["pairs"].assign(smallest=tables["pairs"]["bound"] - 1),
        "edge_runs": tables["edge_runs"].assign(residual=1e-3),
        "edge": changed(edge, run, sharpness=10 * edge["sharpness"]),
    }
    check(setup, tables | broken, refuted=f"{HELD}; smallest_bound")


def test_patterns_of_a_second_outlier(setup):
    step = np.arange(200)
    from_above = 0.3 * np.exp(-step / 30) - 0.8 * np.exp(-step / 10)
    wiggling = -0.5 * np.exp(-step / 30) * np.cos(step / 3)
    wiggling[1] = -0.6
    patterns = (from_above, wiggling, -from_above, -np.abs(from_above))
    keys = {"network": "linear", "left": 1.0, "rate": 0.1, "cell": "", "phase": "early", "trace": 1}
    steps = pd.concat(
        pd.DataFrame({"seed": seed, "step": step, "second": second, **keys})
        for seed, second in enumerate(patterns)
    )
    runs = runs_of(setup, steps).set_index("seed")
    assert list(runs["first"] < 0) == [True, True, False, True]
    assert list(runs["turns"]) == [True, False, False, False]
    assert list(runs["drops"])[:2] == [False, True]
    assert list(runs["changes"] >= 3)[:2] == [False, True]
    assert runs["end"][0] > 0 > runs["end"][3]


def test_edge_runs_tell_settled_oscillating_and_diverged(tables):
    runs = edge_runs(tables["edge"])
    linear = chosen(runs, network="linear", start="small").groupby("factor")
    assert linear["settled"].all()[0.5] and not linear["settled"].any()[1.05]
    assert linear["diverged"].all()[2.2] and not linear["diverged"].any()[1.05]


def test_figures_and_notes_from_any_part(setup, tables):
    analysis, nothing = analyse(setup, tables), analyse(setup, {})
    assert len(analysis.figures()) == 6 and len(tables["certificate"])
    assert analysis.notes() == []  # every sentence of the text is checked
    assert {claim.verdict for claim in nothing.claims()} == {"not run"}
    assert nothing.figures() == {} and nothing.measured().empty


def test_same_seed_same_table(setup):
    cells = setup.cells()
    for cell in (cells[0], cells[-2]):
        first, second = (measure(setup, cell, Context(seed=3)) for _ in range(2))
        assert repr(first) == repr(second)
