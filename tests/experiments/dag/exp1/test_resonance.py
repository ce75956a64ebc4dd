import math
from itertools import product

import pandas as pd
import pytest

from experiments.dag.exp1.report import norms_note
from experiments.dag.protocol.inter_layer import DEEPER
from experiments.dag.protocol.summary import FIRST
from runner.contract import analyse
from runner.report.departures import scope_of
from runner.run.config import build_job, preview
from runner.store.identity import Identity
from tests.experiments.dag.inter_layer_tables import (
    SEEDS,
    check,
    complete,
    decay,
    end_to_end,
    quick,
    verdict,
    verdicts,
)
from tests.experiments.tables import claims_of

PAPER = preview("exp1_resonance")


def test_the_grid_is_the_papers():
    assert [tuple(c.params.values()) for c in PAPER.cells()] == list(
        product((8, 10, 12), ("plain", "residual"))
    )
    assert (PAPER.training.epochs, PAPER.metric.examples) == (50, 32)


def test_claims_that_hold_are_confirmed_and_others_are_not():
    tables = decay(plain_rate=2.0, residual_rate=0.02)
    assert set(verdicts(PAPER, tables, "plain R² of log R").values()) == {"confirmed"}
    assert set(verdicts(PAPER, tables, "residual slope").values()) == {"confirmed"}
    assert set(verdicts(PAPER, tables, "residual slower than plain").values()) == {"confirmed"}
    assert verdicts(PAPER, tables, "residual C")["L=8 init"] == "refuted"  # e^(−0.14) = 0.87
    assert (
        verdicts(PAPER, tables, "norms at L=12")["L=12 init"] == "refuted"
    )  # e^22: more than 9 orders
    flat = decay(residual_rate=0.002)
    assert set(verdicts(PAPER, flat, "residual slope").values()) == {"refuted"}
    assert set(verdicts(PAPER, flat, "residual C").values()) == {"confirmed"}
    assert verdicts(PAPER, flat, "scale of R at init")["L=8 init"] == "confirmed"
    assert verdicts(PAPER, flat, "scale of R at the end")["L=8 final"] == "confirmed"
    large = decay(scale={"init": 4.0, "mid": 1.0, "final": 40.0})
    assert set(verdicts(PAPER, large, "scale of R at init").values()) == {"refuted"}
    assert set(verdicts(PAPER, large, "scale of R at the end").values()) == {"refuted"}


@pytest.mark.slow
def test_a_rate_that_the_curves_have_in_the_mean_alone_is_of_no_curve():
    tables = decay(residual_rate=0.001)
    steep = decay(residual_rate=0.039)["distances"]
    d = tables["distances"]
    mixed = {
        **tables,
        "distances": pd.concat(
            [d[d["checkpoint"] != "final"], steep[steep["checkpoint"] == "final"]]
        ),
    }
    claim = claims_of(PAPER, mixed)["residual slope"]
    assert claim.verdict == "not comparable" and "their mean 0.02, init and final" in claim.detail
    assert verdict(PAPER, tables, "residual slope") == "refuted"  # neither any curve nor their mean
    rates = {42: 0.01, 43: 0.03, 44: 0.05, 45: 0.07, 46: 0.09}
    wild = pd.concat([decay(residual_rate=r, seeds=(s,))["distances"] for s, r in rates.items()])
    noisy = {
        **tables,
        "distances": pd.concat(
            [d[d["checkpoint"] != "final"], wild[wild["checkpoint"] == "final"]]
        ),
    }
    assert (
        verdict(PAPER, noisy, "residual slope") == "refuted"
    )  # 0.0255 rounds to 0.03, whatever its interval


def test_both_readings_of_the_lyapunov_exponent_are_judged():
    tables = decay()
    assert verdicts(PAPER, tables, "Lyapunov exponent") == {"QR": "confirmed", "Eq. 8": "refuted"}
    assert verdicts(PAPER, tables, "norm of the chain") == {"": "confirmed"}  # e^(8·0.2) = 4.95


def published_origin():
    """Table `origin` of the authors' own networks and images."""
    columns = dict.fromkeys(("initial", "order"), "published") | dict.fromkeys(
        ("train_records", "test_records"), "official"
    )
    keys = product((8, 10, 12), ("plain", "residual"), SEEDS)
    return pd.DataFrame(keys, columns=["depth", "arch", "seed"]).assign(**columns)


@pytest.mark.slow
def test_a_number_of_the_published_networks_is_judged_by_its_digits():
    tables = decay(plain_rate=math.log(0.24) / -11)
    d = tables["distances"]
    spread = d.assign(
        C=d["C"] * (1 + 0.5 * (d["seed"] - 44) * (d["distance"] > 0))
    )  # the mean as before
    name, own = "plain C at the largest distance", published_origin()
    assert verdict(PAPER, tables | {"distances": spread}, name) == "inconclusive"
    assert verdict(PAPER, tables | {"distances": spread, "origin": own}, name) == "confirmed"
    named = own.assign(initial=own["initial"].where(own["seed"] != 42, "named"))
    assert verdict(PAPER, tables | {"distances": spread, "origin": named}, name) == "inconclusive"
    off = spread.assign(C=1.1 * spread["C"])
    assert verdict(PAPER, tables | {"distances": off, "origin": own}, name) == "inconclusive"


@pytest.mark.slow
def test_what_was_measured_on_the_published_networks_is_a_fact():
    tables = decay()
    n = tables["networks"]
    moved = n.assign(
        lyapunov_1=n["lyapunov_1"] + 0.02 * (n["seed"] - 44)
    )  # the mean as before, −0.02
    name, own = "negative exponent at init", published_origin()
    check(PAPER, tables | {"networks": moved}, inconclusive=name)
    check(PAPER, tables | {"networks": moved, "origin": own}, confirmed=name)
    up = moved.assign(lyapunov_1=moved["lyapunov_1"] + 0.03)
    check(PAPER, tables | {"networks": up, "origin": own}, refuted=name)
    check(PAPER, tables | {"networks": up, "origin": own[own["seed"] != 42]}, inconclusive=name)


def test_one_seed_decides_nothing():
    found = analyse(PAPER, decay(seeds=(42,))).claims()
    assert {c.verdict for c in found} == {"inconclusive"}
    assert all(c.seeds_needed == 3 for c in found if c.verdict == "inconclusive")


def test_every_statement_and_published_value_is_found():
    complete(PAPER, "exp1_resonance", decay(), 42)
    assert verdict(PAPER, decay(depths=(8,)), "norms at L=12") == "not run"


@pytest.mark.slow
def test_what_training_and_averaging_do():
    tables = decay(plain_rate=0.3)
    # cancellation: the images' own norms stay 1
    held = "plain C monotone; decay after training; rho of residual networks; cancellation"
    check(
        PAPER, tables, confirmed=held, refuted="positive exponent after training"
    )  # −0.02 throughout
    check(PAPER, decay(plain_rate=-0.1), refuted="plain C monotone; decay after training")
    d = tables["distances"]
    alike = d.assign(
        R_examples=d["R"] ** 1.5,
        C=d["C"] * d["checkpoint"].map({"init": 1.0, "mid": 1.1, "final": 1.2}),
    )
    check(PAPER, tables | {"distances": alike}, refuted="cancellation", confirmed="C shifts upward")
    early = d["R_examples"].where(d["checkpoint"] != "init", d["R"] ** 1.5)
    down = early.to_frame("R_examples").assign(
        C=d["C"] * d["checkpoint"].map({"init": 1.0, "mid": 0.9, "final": 0.8})
    )
    changed = tables | {"distances": d.assign(**down)}
    check(
        PAPER, changed, confirmed="cancellation", refuted="C shifts upward"
    )  # the remark is of after training
    assert verdicts(PAPER, changed, "cancellation")["init"] == "refuted"
    assert verdicts(PAPER, tables, "negative exponent at init") == {
        "QR": "confirmed",
        "Eq. 8": "refuted",
    }


@pytest.mark.slow
def test_statistics_cover_every_distance():
    rows = analyse(PAPER, decay()).statistics()
    between = [s for s in rows if s.kind == "mann_whitney" and s.name.startswith("R")]
    paired = [s for s in rows if s.kind == "wilcoxon" and s.name.startswith("R")]
    assert len(between) == len(paired) == 2 * (8 + 10 + 12)
    assert all(
        s.p == pytest.approx(2 / math.comb(10, 5)) for s in between if "distance=7" in s.group
    )


def test_other_protocols_are_not_comparable():
    changes = ("dataset=surrogate", "training.epochs=10", "metric.subsample=random")
    other = build_job(["experiment=exp1_resonance", *changes]).experiment
    reason = scope_of(other, PAPER, "paper").reason
    assert (
        all(f"{change} instead" in reason for change in changes)
        and scope_of(PAPER, PAPER, "paper").is_papers
    )


@pytest.mark.parametrize(
    "name", ["exp1_resonance", pytest.param("exp1b_spectral_norm", marks=pytest.mark.slow)]
)
def test_end_to_end_without_a_store(name):
    tables = end_to_end(quick(name, "experiment.depth=[3]", "metric.examples=4"))
    assert len(tables["pairs"]) == 2 * 2 * 3 * 6


def test_spectral_norm_claims():
    experiment = build_job(["experiment=exp1b_spectral_norm"]).experiment
    tables = decay(depths=(8, 12, 16), plain="plain_sn", plain_rate=5.5 * math.log(10) / 15)
    rho = tables["networks"]["rho"].where(tables["networks"]["arch"] != "plain_sn", 0.91)
    tables["networks"] = tables["networks"].assign(rho=rho)
    held = "decay in orders; rho below 1; contracting; rho after training"
    check(experiment, tables, confirmed=held, refuted="flatness of R; accuracy drops")
    networks = tables["networks"]
    low = (networks["arch"] == "plain_sn") & (networks["depth"] > 8)
    tables["networks"] = networks.assign(test_accuracy=networks["test_accuracy"].where(~low, 0.1))
    check(experiment, tables, confirmed="accuracy drops; accuracy of residual networks")  # 49.8
    complete(experiment, "exp1b_spectral_norm", tables, 30)


def test_the_fall_of_norms_of_section_5_is_that_of_spectral_normalisation_at_both_depths():
    def falling(depth, orders, arch="plain_sn"):
        rows = [
            {
                "depth": depth,
                "arch": arch,
                "checkpoint": "init",
                "seed": seed,
                "images": FIRST,
                "distance": d,
                "R": r,
            }
            for seed in (42, 43)
            for d, r in ((0, 1e-2), (depth - 1, 10 ** (-2 - orders)))
        ]
        return pd.DataFrame(rows)

    distances = pd.concat([falling(12, 3.9), falling(12, 0.5, "residual"), falling(16, 5.5)])
    (told,) = norms_note(distances, falling(32, 12.0))
    assert (
        "L = 12 init: 3.90 orders, to 10^-5.9" in told
        and "L = 32 init: 12.00 orders, to 10^-14.0" in told
    )
    assert "0.50" not in told and "L = 16" not in told and "final" not in told
    assert "L = 32 init" not in norms_note(distances, None)[0]
    assert norms_note(falling(16, 5.5), None) == []


def test_cells_of_the_deeper_companion_of_spectral_normalisation_are_not_its_own():
    job = build_job(["experiment=exp1b_spectral_norm"])
    deeper = job.experiment.companions()[DEEPER]
    assert [c.params for c in deeper.experiment.cells()] == [{"depth": 32, "arch": "plain_sn"}]
    keys = {Identity.of(job.name, e, 1, "cpu").key for e in (job.experiment, deeper.experiment)}
    assert len(keys) == 2
    assert (
        DEEPER
        not in build_job(
            ["experiment=exp1b_spectral_norm", "metric.subsamples=0"]
        ).experiment.companions()
    )
