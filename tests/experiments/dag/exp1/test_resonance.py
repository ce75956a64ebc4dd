import math
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest

from experiments.dag.exp1.report import norms_note
from experiments.dag.exp1.settings import DESCRIBED, DESCRIBED_TRAINED
from experiments.dag.protocol.inter_layer import DEEPER
from experiments.dag.protocol.summary import FIRST
from runner.contract import analyse
from runner.run.config.experiment import preview
from runner.run.config.jobs import build_job
from runner.store.identity import Identity
from tests.experiments.dag.inter_layer_tables import (
    apart,
    complete,
    decay,
    end_to_end,
    origin,
    quick,
    scores,
)
from tests.experiments.tables import changed, check, claims_of, grid, verdicts
from tests.slow import slow

PAPER = preview("exp1_resonance")
BOTH_DESCRIBED = (DESCRIBED, DESCRIBED_TRAINED)


def test_the_grid_is_the_papers():
    grid = [tuple(c.params.values()) for c in PAPER.cells()]
    assert grid == list(product((8, 10, 12), ("plain", "residual")))
    assert (PAPER.training.epochs, PAPER.metric.examples) == (50, 32)


def every(tables, name):
    """The one verdict of all parts of a claim."""
    (found,) = set(verdicts(PAPER, tables, name).values())
    return found


def test_claims_that_hold_are_confirmed_and_others_are_not():
    tables = decay(plain_rate=2.0, residual_rate=0.02)
    for name in ("plain R² of log R", "residual slope", "residual slower than plain"):
        assert every(tables, name) == "confirmed"
    # e^(−0.14) = 0.87; e^22 is more than 9 orders
    check(PAPER, tables, refuted="residual C | L=8 init; norms at L=12 | L=12 init")
    flat = decay(residual_rate=0.002)
    assert every(flat, "residual slope") == "refuted"
    assert every(flat, "residual C") == "confirmed"
    sizes = ("scale of R at init", "scale of R at the end")
    check(PAPER, flat, confirmed=f"{sizes[0]} | L=8 init; {sizes[1]} | L=8 final")
    large = decay(scale={"init": 4.0, "mid": 1.0, "final": 40.0})
    assert every(large, sizes[0]) == every(large, sizes[1]) == "refuted"


def trained_as(tables, trained):
    """Tables whose distances at the end are others."""
    before = tables["distances"].query("checkpoint != 'final'")
    return tables | {"distances": pd.concat([before, trained.query("checkpoint == 'final'")])}


@pytest.mark.slow
def test_a_rate_that_the_curves_have_in_the_mean_alone_is_of_no_curve():
    tables, name = decay(residual_rate=0.001), "residual slope"
    mixed = trained_as(tables, decay(residual_rate=0.039)["distances"])
    check(PAPER, mixed, not_comparable=name)
    assert "their mean 0.02, init and final" in claims_of(PAPER, mixed)[name].detail
    check(PAPER, tables, refuted=name)  # neither any curve nor their mean
    rates = {42: 0.01, 43: 0.03, 44: 0.05, 45: 0.07, 46: 0.09}
    wild = pd.concat([decay(residual_rate=r, seeds=(s,))["distances"] for s, r in rates.items()])
    # 0.0255 rounds to 0.03, whatever its interval
    check(PAPER, trained_as(tables, wild), refuted=name)


def test_both_readings_of_the_lyapunov_exponent_are_judged():
    tables = decay()
    assert verdicts(PAPER, tables, "Lyapunov exponent") == {"QR": "confirmed", "Eq. 8": "refuted"}
    assert verdicts(PAPER, tables, "norm of the chain") == {"": "confirmed"}  # e^(8·0.2) = 4.95


@pytest.mark.slow
def test_a_number_of_the_published_networks_is_judged_by_its_digits():
    name, tables = "plain C at the largest distance", decay(plain_rate=math.log(0.24) / -11)
    d = tables["distances"]
    scattered = d["C"] * apart(d, 0.5).where(d["distance"] > 0, 1)  # the mean as before
    tables["distances"] = d.assign(C=scattered)
    own = origin(depth=(8, 10, 12), arch=("plain", "residual"))
    check(PAPER, tables, inconclusive=name)
    check(PAPER, tables | {"origin": own}, confirmed=name)
    named = changed(own, {"seed": 42}, initial="named")
    check(PAPER, tables | {"origin": named}, inconclusive=name)
    off = {"distances": d.assign(C=1.1 * scattered), "origin": own}
    check(PAPER, tables | off, inconclusive=name)


@pytest.mark.slow
def test_what_was_measured_on_the_published_networks_is_a_fact():
    name, tables = "negative exponent at init", decay()
    n = tables["networks"]
    moved = n["lyapunov_1"] + apart(n, 0.02) - 1  # the mean as before, −0.02
    tables["networks"] = n.assign(lyapunov_1=moved)
    own = origin(depth=(8, 10, 12), arch=("plain", "residual"))
    check(PAPER, tables, inconclusive=name)
    check(PAPER, tables | {"origin": own}, confirmed=name)
    tables["networks"] = n.assign(lyapunov_1=moved + 0.03)
    check(PAPER, tables | {"origin": own}, refuted=name)
    check(PAPER, tables | {"origin": own.query("seed != 42")}, inconclusive=name)


def test_one_seed_decides_nothing():
    found = claims_of(PAPER, decay(seeds=(42,))).values()
    assert {(c.verdict, c.seeds_needed) for c in found} == {("inconclusive", 3)}


def test_every_statement_and_published_value_is_found():
    complete(PAPER, "exp1_resonance", decay(), 84, BOTH_DESCRIBED)
    check(PAPER, decay(depths=(8,)), not_run="norms at L=12")


@pytest.mark.slow
def test_what_training_and_averaging_do():
    tables = decay(plain_rate=0.3)
    # cancellation: the images' own norms stay 1
    held = "plain C monotone; decay after training; rho of residual networks; cancellation"
    failed = "positive exponent after training"  # −0.02 throughout
    check(PAPER, tables, confirmed=held, refuted=failed)
    check(PAPER, decay(plain_rate=-0.1), refuted="plain C monotone; decay after training")
    d = tables["distances"]
    up = d["checkpoint"].map({"init": 1.0, "mid": 1.1, "final": 1.2})
    alike = d.assign(R_examples=d["R"] ** 1.5, C=d["C"] * up)
    check(PAPER, tables | {"distances": alike}, refuted="cancellation", confirmed="C shifts upward")
    down = changed(d, {"checkpoint": "init"}, R_examples=d["R"] ** 1.5).assign(C=d["C"] * (2 - up))
    failed = "C shifts upward; cancellation | init"  # the remark is of after training
    check(PAPER, tables | {"distances": down}, confirmed="cancellation", refuted=failed)
    exponents = {"QR": "confirmed", "Eq. 8": "refuted"}
    assert verdicts(PAPER, tables, "negative exponent at init") == exponents


@pytest.mark.slow
def test_statistics_cover_every_distance():
    rows = [s for s in analyse(PAPER, decay()).statistics() if s.name.startswith("R")]
    between = [s for s in rows if s.kind == "mann_whitney"]
    paired = [s for s in rows if s.kind == "wilcoxon"]
    assert len(between) == len(paired) == 2 * (8 + 10 + 12)
    largest = [s.p for s in between if "distance=7" in s.group]
    assert largest == pytest.approx([2 / math.comb(10, 5)] * len(largest))


@pytest.mark.parametrize("name", ["exp1_resonance", slow("exp1b_spectral_norm")])
def test_end_to_end_without_a_store(name):
    tables = end_to_end(quick(name, "experiment.depth=[3]", "metric.examples=4"))
    assert len(tables["pairs"]) == 2 * 2 * 3 * 6


def test_spectral_norm_claims():
    experiment = preview("exp1b_spectral_norm")
    tables = decay(depths=(8, 12, 16), plain="plain_sn", plain_rate=5.5 * math.log(10) / 15)
    networks = changed(tables["networks"], {"arch": "plain_sn"}, rho=0.91)
    held = "decay in orders; rho below 1; contracting; rho after training"
    failed = "flatness of R; accuracy drops"
    check(experiment, tables | {"networks": networks}, confirmed=held, refuted=failed)
    low = {"arch": "plain_sn", "depth": [12, 16]}
    tables["networks"] = changed(networks, low, test_accuracy=0.1)
    check(experiment, tables, confirmed="accuracy drops; accuracy of residual networks")  # 49.8
    complete(experiment, "exp1b_spectral_norm", tables, 45, BOTH_DESCRIBED)


def falling(depth, orders, arch="plain_sn"):
    """Norms at init that fall by so many orders from the first distance to the last."""
    keys = {"depth": [depth], "arch": [arch], "checkpoint": ["init"], "images": [FIRST]}
    table = grid(**keys, seed=(42, 43), distance=(0, depth - 1))
    return table.assign(R=10.0 ** (-2 - orders * (table["distance"] > 0)))


def test_the_fall_of_norms_of_section_5_is_that_of_spectral_normalisation_at_both_depths():
    distances = pd.concat([falling(12, 3.9), falling(12, 0.5, "residual"), falling(16, 5.5)])
    (told,) = norms_note(distances, falling(32, 12.0))
    assert "L = 12 init: 3.90 orders, to 10^-5.9" in told
    assert "L = 32 init: 12.00 orders, to 10^-14.0" in told
    assert not [word for word in ("0.50", "L = 16", "final") if word in told]
    assert "L = 32 init" not in norms_note(distances, None)[0]
    assert norms_note(falling(16, 5.5), None) == []


def test_networks_as_described_start_from_he_initialisation_and_have_cells_of_their_own():
    job = build_job(["experiment=exp1_resonance"])
    beside = job.experiment.companions()
    untrained, trained = (beside[name].experiment for name in BOTH_DESCRIBED)
    assert untrained.untrained and not trained.untrained
    assert {cell.params["arch"] for cell in untrained.cells()} == {"plain", "residual"}
    (settings,) = {untrained.network_settings(cell)["initial"] for cell in untrained.cells()}
    assert settings == "he" and DESCRIBED not in untrained.companions()
    ids = [Identity.of(job.name, e, 1, "cpu").key for e in (job.experiment, untrained, trained)]
    assert len(set(ids)) == 3
    control = preview("exp1b_spectral_norm").companions()[DESCRIBED].experiment
    assert {cell.params["arch"] for cell in control.cells()} == {"residual"}
    assert (
        DESCRIBED
        not in build_job(
            ["experiment=exp1_resonance", "model.initial=named"]
        ).experiment.companions()
    )


def test_networks_as_described_are_judged_apart_and_the_trained_ones_where_they_are_stored():
    made, other = decay(), decay()
    other["networks"] = other["networks"].assign(rho=9.0)
    before = {name: table.query("checkpoint == 'init'") for name, table in other.items()}
    untrained = scores(replace(analyse(PAPER, made), beside={DESCRIBED: before}), "exp1_resonance")
    rho = untrained.query("metric == 'rho_max' and way == 'as described'").set_index("checkpoint")
    assert (
        set(rho.loc["init"].measured_mean) == {9.0} and rho.loc["final"].verdict.eq("not run").all()
    )
    own = untrained.query("way != 'as described'")
    assert not (own.measured_mean == 9.0).any() and "not run" not in set(own.verdict)
    both = dict.fromkeys(BOTH_DESCRIBED, other)
    trained = scores(replace(analyse(PAPER, made), beside=both), "exp1_resonance")
    rho = trained.query("metric == 'rho_max' and way == 'as described'")
    assert set(rho.measured_mean) == {9.0} and set(rho.n) == {5}
    lost = {name: table.query("seed != 46") for name, table in before.items()}
    lacking = scores(replace(analyse(PAPER, made), beside={DESCRIBED: lost}), "exp1_resonance")
    rows = lacking.query("way == 'as described' and checkpoint == 'init'")
    assert set(rows.verdict) == {"inconclusive"}


def test_cells_of_the_deeper_companion_of_spectral_normalisation_are_not_its_own():
    job = build_job(["experiment=exp1b_spectral_norm"])
    deeper = job.experiment.companions()[DEEPER].experiment
    assert [c.params for c in deeper.cells()] == [{"depth": 32, "arch": "plain_sn"}]
    keys = {Identity.of(job.name, e, 1, "cpu").key for e in (job.experiment, deeper)}
    assert len(keys) == 2
    one_set = build_job(["experiment=exp1b_spectral_norm", "metric.subsamples=0"]).experiment
    assert DEEPER not in one_set.companions()
