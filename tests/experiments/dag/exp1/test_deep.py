import math

import pytest
import torch
from torch.testing import assert_close

from experiments.dag.exp1.settings import DESCRIBED, DESCRIBED_TRAINED
from experiments.dag.protocol.estimates import (
    estimated_metrics,
    estimates_by_distance,
    frobenius_estimates,
    spectral_estimates,
)
from experiments.dag.protocol.summary import first
from runner.run.config.experiment import preview
from tests.draws import normal, seeded
from tests.experiments.dag.inter_layer_tables import (
    SEEDS,
    complete,
    decay,
    end_to_end,
    kept,
    quick,
)
from tests.experiments.tables import changed, check, claims_of, grid, verdicts

PAPER = preview("exp1_deep")


def test_estimates_meet_the_exact_norms():
    blocks = normal(3, 7, 5, generator=seeded(1))
    exact = torch.linalg.matrix_norm(blocks)
    found = frobenius_estimates(blocks, 20_000, seeded(2))
    assert_close(found, exact, rtol=2e-2, atol=0)
    draws = torch.stack([frobenius_estimates(blocks, 4, seeded(s)) for s in range(400)])
    few = draws.square().mean(0).sqrt()
    assert_close(few, exact, rtol=0.05, atol=0)  # the square is unbiased at any number of probes
    top = torch.linalg.matrix_norm(blocks, 2)
    assert_close(spectral_estimates(blocks, 500, seeded(3)), top, rtol=1e-6, atol=0)
    assert bool((spectral_estimates(blocks, 1, seeded(3)) <= top * (1 + 1e-12)).all())


def test_estimated_metrics_of_blocks_of_rank_one():
    left = torch.linspace(1, 2, 4, dtype=torch.float64)
    total = {(v, w): torch.outer(left, left) for v in "ab" for w in "ab"}
    total["b", "b"] = torch.zeros(4, 4, dtype=torch.float64)
    rows = estimated_metrics(total, ["a", "b"], 20_000, seeded(1))
    pairs = [r["v"] + r["w"] + str(r["distance"]) for r in rows]
    assert pairs == ["aa0", "ab1", "bb0"]
    assert rows[0]["D"] == pytest.approx(1, abs=0.05) and rows[0]["C"] == pytest.approx(1)
    assert math.isnan(rows[2]["D"]) and math.isnan(rows[1]["C"])
    near, far = estimates_by_distance(rows)
    assert near["pairs"] == 2 and near["D"] == near["D_smallest"] == rows[0]["D"]
    assert far["R"] == rows[1]["R"]


@kept
def deep(**changes):
    """The tables of Exp. 1 at the depths of Table N.3, with estimates equal to the exact values."""
    tables = decay(depths=(16, 32), **changes)
    columns = ["depth", "arch", "checkpoint", "seed", "distance", "R", "C", "D"]
    own = first(tables["distances"])[columns]
    return tables | {"estimates": own.assign(D_smallest=0.9)}


def test_every_statement_and_published_value_is_found():
    complete(PAPER, "exp1_deep", deep(), 64, (DESCRIBED, DESCRIBED_TRAINED))


@pytest.mark.slow
def test_claims():
    tables = deep(plain_rate=0.4)
    at_32 = {"L=32 init": "refuted", "L=32 final": "refuted"}
    assert verdicts(PAPER, tables, "norms at L=32") == at_32
    failed = "rise of R; residual C of the ends | L=16 init"
    # R² of C at L = 32: e^(−0.62)
    held = "C monotone; R² of C; R² of C at L=32; R² of log R; residual R is stable; D below 1"
    check(PAPER, tables, confirmed=held, refuted=failed)
    other = deep(residual_rate=0.1, plain_rate=math.log(5.9) / 31)
    check(PAPER, other, refuted="residual R is stable", confirmed="fall of R")
    check(PAPER, deep(plain_rate=math.log(0.145) / -31), confirmed="coupling of the ends")
    rising = deep(plain_rate=-0.1)
    check(PAPER, rising, refuted="C monotone")
    assert verdicts(PAPER, rising, "rise of R") == {"final": "confirmed", "init": "confirmed"}
    wavy = u_shaped(tables).assign(C=lambda t: 0.5 + 0.4 * (t["distance"] % 2))
    shaped = tables | {"distances": wavy}
    check(PAPER, shaped, refuted="rise of R; R² of C at L=32")  # at L = 16 R still falls
    check(PAPER, shaped, confirmed="rise of R | L=32 final")


def u_shaped(tables):
    """Resonances at L = 32 that fall to d = 20 and rise from there, to less than at L/2."""
    table = tables["distances"]
    from_20 = table["distance"] - 20
    shape = 0.1 + 0.02 * from_20.clip(lower=0) + 0.1 * (-from_20).clip(lower=0)
    return changed(table, {"depth": 32, "arch": "plain"}, R=shape + 1e-6 * table["seed"])


@pytest.mark.slow
def test_a_stable_rank_below_one_is_confirmed_where_it_is_seen():
    never = deep()
    never["estimates"] = never["estimates"].assign(D_smallest=1.1)
    check(PAPER, never, inconclusive="D below 1")
    once = {"depth": 32, "seed": SEEDS[0], "checkpoint": "final"}
    seen = never | {"estimates": changed(never["estimates"], once, D_smallest=0.9)}
    check(PAPER, seen, inconclusive="D below 1", confirmed="D below 1 | L=32 final")
    detail = claims_of(PAPER, seen)["D below 1"].detail
    assert f"L=32 final: 1 of {len(SEEDS)}" in detail and "L=16 init: 0 of" in detail


@pytest.mark.parametrize(
    "last, expected, rise",
    [(12.0, "confirmed", "confirmed"), (2.0, "refuted", "confirmed"), (0.5, "refuted", "refuted")],
)
def test_self_curvature_near_the_output_is_held_against_all_blocks_a_rise_is_a_mark(
    last, expected, rise
):
    name, norms = "self-curvature near the output", {"block0": 9.0, "block1": 1.0, "block2": last}
    pairs = grid(depth=[32], arch=["plain"], checkpoint=["final"], seed=SEEDS, v=norms)
    pairs = pairs.assign(w=pairs["v"], R=pairs["v"].map(norms) + 0.01 * pairs["seed"] / 42)
    tables = deep() | {"pairs": pairs}
    check(PAPER, tables, **{expected: name})
    marks = {"last third": expected, "largest against the middle": rise}
    assert verdicts(PAPER, tables, name) == marks
    check(PAPER, deep(), not_run=name)


def test_the_u_is_judged_at_its_four_points():
    tables = deep()
    where = {"depth": 32, "arch": "plain", "checkpoint": "final"}
    shape = {distance: 0.33 + 1.42 * max(0, 1 - distance / 14) for distance in range(15)}
    shape |= {distance: 0.33 + 0.19 * (distance - 14) / 17 for distance in range(15, 32)}
    distances = tables["distances"]
    tables["distances"] = changed(distances, where, R=distances["distance"].map(shape))
    tables["estimates"] = first(tables["distances"]).assign(D_smallest=0.9)
    # 1.75 ± 0.53 and 0.52 ± 0.16 are too wide for a quarter
    bottom = "bottom of the U; place of the bottom"
    check(PAPER, tables, confirmed=bottom, inconclusive="start of the U; end of the U")
    check(PAPER, deep(), refuted=bottom)
    check(PAPER, deep(scale={"init": 1.0, "mid": 1.0, "final": 9.0}), refuted="start of the U")


def test_end_to_end_without_a_store():
    small = ("experiment.depth=[3]", "metric.examples=4", "experiment.probes=5")
    assert len(end_to_end(quick("exp1_deep", *small))["estimates"]) == 2 * 2 * 3 * 3
