import pandas as pd
import pytest

from experiments.dag.exp3.report import changes
from experiments.printed import statements
from runner.contract import analyse
from runner.report.collect import reference_path
from runner.report.compare import scorecard
from runner.report.score import read_reference
from runner.run.config import build_job
from tests.experiments.dag.inter_layer_tables import SEEDS, gaps, measured, quick

CURVATURE = {"relu": 0.0, "leaky_relu": 0.0, "softplus": 0.058, "silu": 0.246, "gelu": 0.618}
ACCURACY = {"relu": 0.45, "leaky_relu": 0.45, "softplus": 0.1, "silu": 0.11, "gelu": 0.2}


@pytest.fixture(scope="module")
def paper():
    return build_job(["experiment=exp3_gn_gap"]).experiment


def by_name(claims):
    found = {c.name: c for c in claims}
    assert len(found) == len(claims)  # one row for each statement
    return found


def test_claims(paper):
    values = {"relu": 0.0, "leaky_relu": 0.0, "softplus": 0.122, "silu": 0.225, "gelu": 0.358}
    found = by_name(analyse(paper, gaps(values, CURVATURE, ACCURACY)).claims())
    assert found["linear fit of the gap"].statistic == pytest.approx(0.908, abs=0.002)  # the paper's own values
    assert found["linear fit of the gap"].verdict == "confirmed"
    assert found["rank correlation"].verdict == "confirmed"
    assert found["H^T of piecewise linear networks"].verdict == "true by construction"
    smooth = found["accuracy of smooth activations"]
    assert (smooth.verdict, smooth.variants) == ("refuted", "confirmed: softplus, silu; refuted: gelu")
    p = found["p of the ranking"]
    assert p.verdict == "minor error" and "no data could give" in p.detail and p.statistic > 0.01


def test_a_tensor_part_of_a_piecewise_linear_network_is_seen(paper):
    values = dict.fromkeys(CURVATURE, 0.1)
    found = by_name(analyse(paper, gaps(values, CURVATURE, ACCURACY, largest_tensor=1e-6)).claims())
    assert found["H^T of piecewise linear networks"].verdict == "refuted"


def draws(shift, seeds=SEEDS):
    rows = [
        {
            "activation": a,
            "checkpoint": c,
            "probes": n,
            "draw": d,
            "seed": s,
            "gap_exact": 0.1,
            "gap_stochastic": 1e-7 if a in ("relu", "leaky_relu") else 0.1 * (1 + shift + 1e-4 * d),
            "discrepancy_percent": 100 * shift,
            "status": "ok",
        }
        for a in CURVATURE
        for c in ("init", "final")
        for n in (30, 100)
        for d in range(4)
        for s in seeds
    ]
    return pd.DataFrame(rows)


def test_every_printed_statement_has_one_row(paper):
    tables = {**gaps({k: 0.1 + v for k, v in CURVATURE.items()}, CURVATURE, ACCURACY), "stochastic": draws(0.002)}
    found = by_name(analyse(paper, tables).claims())
    assert sorted(found) == sorted(statements("exp3_gn_gap"))
    assert found["gap of piecewise linear networks"].verdict == "confirmed"


def test_the_gap_goes_with_a_power_of_the_curvature(paper):
    for power, expected in ((1.0, "confirmed"), (0.5, "refuted")):
        values = {k: 0.5 * v**power for k, v in CURVATURE.items()}
        found = by_name(analyse(paper, gaps(values, CURVATURE, ACCURACY)).claims())
        assert found["scaling of H^T"].statistic == pytest.approx(power)
        assert found["scaling of H^T"].verdict == expected


def test_a_gap_that_still_moves_has_not_stabilised(paper):
    tables = gaps({k: 0.5 * v for k, v in CURVATURE.items()}, CURVATURE, ACCURACY)
    assert by_name(analyse(paper, tables).claims())["gap stabilises"].verdict == "confirmed"
    d = tables["distances"]
    moving = {**tables, "distances": d.assign(tensor=d["tensor"] * d["checkpoint"].map({"final": 1.5}).fillna(1))}
    assert by_name(analyse(paper, moving).claims())["gap stabilises"].verdict == "refuted"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"relu": 0.6, "leaky_relu": 0.62, "softplus": 0.7, "silu": 1.9, "gelu": 2.3}, "confirmed"),
        ({"relu": 0.6, "leaky_relu": 0.62, "softplus": 0.4, "silu": 1.9, "gelu": 2.3}, "refuted"),
    ],
)
def test_ranking_with_layernorm_allows_ties_in_the_curvature(values, verdict):
    experiment = build_job(["experiment=exp3b_layernorm"]).experiment
    accuracy = dict.fromkeys(CURVATURE, 0.52)
    found = by_name(analyse(experiment, gaps(values, CURVATURE, accuracy)).claims())
    ranks = found["gap ranks as E[σ''²]"]
    assert (ranks.verdict, ranks.variants) == (verdict, f"{verdict}: init, mid, final")
    assert found["accuracy"].verdict == "confirmed"
    assert found["smooth activations add"].verdict == verdict


def test_the_ranking_with_layernorm_is_decided_at_the_end():
    experiment = build_job(["experiment=exp3b_layernorm"]).experiment
    values = {"relu": 0.6, "leaky_relu": 0.62, "softplus": 0.7, "silu": 1.9, "gelu": 2.3}
    tables = gaps(values, CURVATURE, dict.fromkeys(CURVATURE, 0.52))
    d = tables["distances"]
    before = (d["checkpoint"] == "init") & (d["activation"] == "softplus")
    found = by_name(
        analyse(experiment, {**tables, "distances": d.assign(tensor=d["tensor"].where(~before, 0))}).claims()
    )["gap ranks as E[σ''²]"]
    assert (found.verdict, found.variants) == ("confirmed", "refuted: init; confirmed: mid, final")


def test_one_seed_decides_only_what_one_network_can(paper):
    values = dict.fromkeys(CURVATURE, 0.1)
    found = analyse(paper, gaps(values, CURVATURE, ACCURACY, seeds=(42,))).claims()
    assert {c.verdict for c in found if not c.name.startswith("H^T")} == {"inconclusive", "not run"}


def test_the_change_is_that_of_the_means():
    rows = [
        {"activation": "silu", "seed": s, "checkpoint": c, "images": 0, "gap": g * (1 + 0.1 * s)}
        for s in (0, 1)
        for c, g in (("init", 2.0), ("final", 1.0))
    ]
    assert changes(pd.DataFrame(rows))["value"].mean() == pytest.approx(-50)


@pytest.mark.parametrize("name", ["exp3_gn_gap", "exp3b_layernorm"])
def test_reference_and_measured_values_meet(name):
    experiment = build_job([f"experiment={name}"]).experiment
    tables = gaps({k: 0.1 + v for k, v in CURVATURE.items()}, CURVATURE, ACCURACY)
    if name == "exp3_gn_gap":
        farther = tables["distances"].assign(distance=lambda t: t["distance"] + 3)
        tables["distances"] = pd.concat([tables["distances"], farther])
        tables["stochastic"] = draws(0.01)
    scores = scorecard(analyse(experiment, tables).measured(), read_reference(reference_path(name)))
    assert "not run" not in set(scores["verdict"])


@pytest.mark.parametrize("name", ["exp3_gn_gap", "exp3b_layernorm"])
def test_end_to_end_without_a_store(name):
    experiment = quick(name, "experiment.activation=[relu,gelu]", "metric.examples=4", "experiment.depth=3")
    tables = measured(experiment)
    assert ("stochastic" in tables) == (name == "exp3_gn_gap")
    relu = tables["pairs"][tables["pairs"]["activation"] == "relu"]
    assert (relu["frob_tensor"].max() == 0) == (name == "exp3_gn_gap")
    for figure in analyse(experiment, tables).figures().values():
        assert (figure() if callable(figure) else figure).axes
    assert analyse(experiment, tables).statistics() and analyse(experiment, tables).measured() is not None


def test_stochastic_gaps_surround_the_exact_one():
    experiment = quick(
        "exp3_gn_gap",
        "experiment.activation=[gelu]",
        "experiment.probes=[200]",
        "metric.examples=4",
        "experiment.depth=2",
        "metric.subsamples=0",
    )
    table = measured(experiment, seeds=(1,))["stochastic"]
    assert table["discrepancy_percent"].abs().max() < 30
    assert table.groupby("checkpoint")["gap_exact"].nunique().eq(1).all()
    assert table["gap_stochastic"].nunique() == len(table)
