"""The scalar_spectrum experiment: its measurements against dense solvers, its claims on tables made
to break them."""

import dataclasses

import numpy as np
import pytest
import torch

from experiments.scalar_spectrum.network import Network, descend
from experiments.scalar_spectrum.training_claims import HIGH, LOW, edge_runs
from runner.contract import Context, analyse, is_extension, measure
from runner.curvature.closed_form import scalar
from runner.run.config import build_job
from tests.draws import normal, seeded
from tests.experiments.tables import claims_of, merged

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


def test_every_closed_form_agrees_with_its_dense_solver(tables):
    for name in ("scaling", "bias", "pairs"):
        assert tables[name]["dense_error"].max() < 1e-10
    cells = tables["relu_cells"]
    assert np.allclose(cells["eigenvalue"], cells["dense"], atol=1e-10)
    assert tables["edge_runs"]["residual"].max() < 1e-10


def test_cell_counts_match_the_reference(setup, tables):
    found = analyse(setup, tables).measured()
    assert found is not None
    values = found.groupby(["metric", "cell"])["value"].unique().map(list).to_dict()
    assert values == {
        ("bulk_multiplicity", "+"): [5],
        ("bulk_multiplicity", "-"): [3],
        ("outliers", "+"): [2],
        ("outliers", "-"): [2],
        ("outliers", "bias"): [5],
    }


@pytest.mark.parametrize("kind", ["linear", "relu"])
def test_descent_follows_the_automatic_gradient(kind):
    generator = seeded()
    x, y, w, v = (normal(n, generator=generator) for n in (9, 9, 4, 4))
    network = Network(kind, x, y)
    states = list(descend(network, w, v, 0.05, 0.9, 5, 1e9))
    velocity = torch.zeros(8, dtype=torch.float64)
    theta = torch.cat([v, w])
    for state in states:
        assert torch.allclose(torch.cat([state.v, state.w]), theta, atol=1e-12)
        leaf = theta.clone().requires_grad_()
        hidden = torch.outer(x, leaf[:4])
        output = (torch.relu(hidden) if kind == "relu" else hidden) @ leaf[4:]
        loss = 0.5 * ((output - y) ** 2).mean()
        assert abs(state.loss - float(loss.detach())) < 1e-12
        (gradient,) = torch.autograd.grad(loss, leaf)
        velocity = 0.9 * velocity + gradient
        theta = theta - 0.05 * velocity
    spectrum = (scalar.relu_spectrum if kind == "relu" else scalar.linear_spectrum)(w, v, x, y)
    assert states[0].sharpness == pytest.approx(float(spectrum.sharpness), rel=1e-12)


def test_claims_say_what_holds(setup, tables):
    claims = analyse(setup, tables).claims()
    found = {claim.name: claim for claim in claims}
    assert len(found) == len(claims)  # one row for each statement
    names = (
        "relu_closed_form density theorem6 theorem6_multiplicities triple_bounds bias_closed_form"
    )
    for name in (*names.split(), "settled_below_threshold", "live_meter", "phases_corrected"):
        assert found[name].verdict == "confirmed"
    assert found["proportional"].variants == {
        "targets fixed": "refuted",
        "targets scaled": "confirmed",
    }
    assert (
        found["proportional"].verdict == "not comparable"
        and "does not say" in found["proportional"].detail
    )
    assert found["phases"].verdict == "minor error"
    assert found["phases"].variants == {"θ* > 0": "confirmed", "θ* < 0": "refuted"}
    assert is_extension(found["catapult"].where) and not is_extension(found["theorem6"].where)


def test_claims_about_random_starts_need_seeds(setup, tables):
    voted = {
        "starts_negative",
        "turns_positive",
        "drops_first",
        "wiggles",
        "ends_negative",
        "damping",
        "catapult",
    }
    found = [claim for claim in analyse(setup, tables).claims() if claim.name in voted]
    assert found and all(claim.verdict == "inconclusive" for claim in found)
    enough = dataclasses.replace(setup, runs=2)
    assert any(
        claim.verdict != "inconclusive"
        for claim in analyse(enough, tables).claims()
        if claim.name in voted
    )


def test_the_figure_with_an_unprinted_scale_refutes_nothing(setup, tables):
    never = {**tables, "pairs": tables["pairs"].assign(second=1.0)}
    found = claims_of(dataclasses.replace(setup, runs=2), never)
    for name in ("starts_negative", "turns_positive", "ends_negative"):
        assert found[name].verdict == "not comparable" and "not printed" in found[name].detail


def test_wiggles_at_one_scale_confirm_nothing(setup, tables):
    waves = tables["pairs"].assign(second=-np.cos(tables["pairs"]["step"]))
    found = claims_of(dataclasses.replace(setup, runs=2), {**tables, "pairs": waves})
    assert (
        found["wiggles"].verdict == "not comparable"
        and "confirmed" in found["wiggles"].variants.values()
    )


def test_claims_can_be_refuted(setup, tables):
    broken = {name: table.copy() for name, table in tables.items()}
    broken["relu_cells"]["eigenvalue"] *= 1 + 1e-8
    broken["bias"]["gap"] += 1e-6
    broken["bias"]["zeros"] += 1
    broken["pairs"]["smallest"] = broken["pairs"]["bound"] - 1
    broken["edge_runs"]["residual"] = 1e-3
    settled = edge_runs(tables["edge"]).query("settled").iloc[0]
    keys = ["network", "width", "start", "factor", "seed"]
    rows = (broken["edge"][keys] == settled[keys]).all(axis=1)
    broken["edge"].loc[rows, "sharpness"] *= 10
    verdicts = {claim.name: claim.verdict for claim in analyse(setup, broken).claims()}
    names = "relu_closed_form theorem6 theorem6_multiplicities smallest_bound live_meter"
    for name in [*names.split(), "settled_below_threshold"]:
        assert verdicts[name] == "refuted", name


def test_tests_of_a_second_outlier():
    step = np.arange(200)
    from_above = 0.3 * np.exp(-step / 30) - 0.8 * np.exp(-step / 10)
    wiggling = -0.5 * np.exp(-step / 30) * np.cos(step / 3)
    wiggling[1] = -0.6
    assert LOW["starts_negative"](from_above) and LOW["turns_positive"](from_above)
    assert not LOW["turns_positive"](wiggling) and not LOW["turns_positive"](-from_above)
    assert HIGH["drops_first"](wiggling) and not HIGH["drops_first"](from_above)
    assert HIGH["wiggles"](wiggling) and not HIGH["wiggles"](from_above)
    assert HIGH["ends_negative"](-np.abs(from_above)) and not HIGH["ends_negative"](from_above)


def test_edge_runs_tell_settled_oscillating_and_diverged(tables):
    runs = edge_runs(tables["edge"])
    linear = runs[(runs["network"] == "linear") & (runs["start"] == "small")].groupby("factor")
    assert linear["settled"].all()[0.5] and not linear["settled"].any()[1.05]
    assert linear["diverged"].all()[2.2] and not linear["diverged"].any()[1.05]


def test_figures_and_notes_from_any_part(setup, tables):
    assert len(analyse(setup, tables).figures()) == 6 and len(tables["certificate"])
    (note,) = analyse(setup, tables).notes()
    assert "density as a principle" in note  # what the text says unchecked
    nothing = analyse(setup, {})
    assert (
        nothing.figures() == {}
        and nothing.claims() == []
        and nothing.notes() == []
        and nothing.measured() is None
    )


def test_same_seed_same_table(setup):
    for cell in (setup.cells()[0], setup.cells()[-2]):
        first, second = (measure(setup, cell, Context(seed=3)) for _ in range(2))
        assert repr(first) == repr(second)
