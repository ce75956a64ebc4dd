"""Exp. 4: the merge block against autodiff, which pairs enter which distance, and claims that can
fail."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments.dag.exp4 import report
from experiments.dag.exp4.measure import by_relation, distance, relation_of
from experiments.dag.exp4.settings import Exp4Diamond
from experiments.dag.protocol.measure import pairs_of
from experiments.paper_audit.published import cells
from experiments.printed import statements
from runner.contract import analyse
from runner.curvature import split_blocks
from runner.curvature.estimators.blocks import resonance
from runner.kinds.metric import InterLayerMetric
from runner.models.architectures import diamond
from runner.run.config import build_job
from tests.experiments.dag.inter_layer_tables import measured, verdicts
from tests.experiments.tables import claims_of


@pytest.fixture(scope="module")
def experiment():
    small = [
        "dataset=surrogate",
        "dataset.train=32",
        "dataset.test=20",
        "model.width=6",
        "training.epochs=2",
    ]
    found = build_job(
        ["experiment=exp4_diamond", *small, "metric.examples=6", "metric.subsamples=1"]
    ).experiment
    assert isinstance(found, Exp4Diamond)
    return found


@pytest.fixture(scope="module")
def tables(experiment):
    return measured(experiment, (0, 1, 2))


def test_distances_of_pairs():
    assert [
        distance(v, w, 3) for v, w in (("a2", "b2"), ("a0", "b2"), ("a0", "b0"), ("b0", "b2"))
    ] == [2, 4, 6, 2]
    assert [relation_of(*pair) for pair in (("a0", "a1"), ("b1", "b1"), ("a0", "b1"))] == [
        "a",
        "b",
        "cross",
    ]
    network = diamond(branch_depth=3, width=4, inputs=5, outputs=3).eval()
    blocks = split_blocks(
        network.to_dag(), torch.randn(4, 5), torch.arange(4) % 3, network.measured
    )
    rows = by_relation(pairs_of(blocks, network.measured, InterLayerMetric()), 3)
    pairs = {(r["relation"], r["distance"]): r["pairs"] for r in rows}
    inside = {0: 3, 1: 2, 2: 1}
    assert pairs == {(r, d): n for r in "ab" for d, n in inside.items()} | {
        ("cross", d): n for d, n in {2: 1, 3: 2, 4: 3, 5: 2, 6: 1}.items()
    }
    far = next(r for r in rows if (r["relation"], r["distance"]) == ("cross", 6))
    assert far["R"] == pytest.approx(resonance(blocks.total["a0", "b0"]), rel=1e-6)


def test_tables_and_report(experiment, tables):
    assert len(tables["merge"]) == 12 * 3 * 3 * 2
    curved = (tables["merge"]["merge"] == "cat") & (tables["merge"]["activation"] == "silu")
    assert (tables["merge"]["tensor"][curved] > 1e-6).all() and not tables["merge"]["tensor"][
        ~curved
    ].any()
    assert (tables["networks"]["rho"] > 0).all()
    last = tables["distances"].query("relation == 'cross' and distance == 2")
    assert tables["merge"]["R"].tolist() == pytest.approx(last["R"].tolist())
    analysis = analyse(experiment, tables)
    assert len(analysis.measured()) == 2 * 12 * 3 * 3
    assert analysis.figures() and analysis.statistics() and len(tables["certificate"])
    assert sorted(c.name for c in analysis.claims()) == sorted(statements("exp4_diamond"))


@pytest.mark.slow
def test_claims_follow_the_tables(experiment, tables):
    def check(expected, **changed):
        found = claims_of(experiment, {**tables, **changed})
        assert {name: found[name].verdict for name in expected} == expected
        return found

    merge, distances = tables["merge"], tables["distances"]
    check(dict.fromkeys(("H4.3 flat merge", "separation"), "true by construction"))
    curved = merge.assign(gap=1e-3, tensor=1e-3)
    check({"H4.3 flat merge": "refuted", "tensor part of cat+ReLU": "confirmed"}, merge=curved)
    falling = distances.assign(
        R_examples=1.0 + 0.01 * distances["seed"], R=0.5 ** distances["distance"]
    )
    expected = {
        "H4.1": "minor error",
        "H4.1 deviations": "not run",
        "H4.2a ratio": "refuted",
    }  # a ratio of 0.25
    expected |= {
        "H4.2a decay": "confirmed",
        "H4.2a cancellation": "confirmed",
        "H4.3 curved merge": "refuted",
    }
    assert check(expected, distances=falling, merge=merge.assign(gap=1e-4))["H4.1"].statistic == 48
    rising = distances.assign(R=2.0 ** distances["distance"])
    expected = {"H4.1": "refuted", "H4.1 deviations": "refuted", "H4.2b growth": "confirmed"}  # 4
    expected |= {
        "H4.2a cancellation": "not run",
        "H4.3 curved merge": "confirmed",
    }  # no decay, nothing to explain
    check(expected, distances=rising, merge=merge.assign(gap=1.3 + 0.01 * merge["seed"]))
    after = distances["checkpoint"].map({"init": 1.0, "final": 2.0}).fillna(1.0)
    steeper = (
        after ** distances["distance"]
    )  # what survives averaging grows with distance after training, not before
    check({"weakened cancellation": "confirmed"}, distances=falling.assign(R=steeper))
    alone = (
        0.4 ** distances["distance"] * falling["R_examples"]
    )  # a mean that falls as its images' own blocks, or less
    check({"H4.2a cancellation": "refuted"}, distances=falling.assign(R_examples=alone))
    lower = {
        **tables,
        "distances": falling.assign(R=steeper / 1e3 ** (after - 1)),
    }  # less survives, but most far away
    marks = verdicts(experiment, lower, "weakened cancellation")
    assert marks == {"growth": "confirmed", "level": "refuted"}
    check({"weakened cancellation": "refuted"}, distances=falling.assign(R=1 / steeper))


@pytest.fixture(scope="module")
def stored():
    """Tables of the published cells: the published networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "HESS_PUBLISHED", str(Path(__file__).resolve().parents[4] / "outputs" / "published")
        )
        published = list(cells("exp4_diamond"))
        tables = {}
        for name in ("distances", "merge", "networks", "origin"):
            tables[name] = pd.concat([cell.table(name) for cell in published], ignore_index=True)
        return tables


def test_r_across_the_branches_is_the_papers_quantity(stored):
    """Printed ‖T‖ over printed gap is the authors' R(2); two digits each, and a quotient of
    means."""
    own = report.shares(stored["merge"])
    assert len(own) == 9 and all(0.98 < share < 1.03 for share in own.values())
    halved = report.shares(stored["merge"].assign(gn=stored["merge"]["gn"] / 2))
    assert not any(0.98 < share < 1.03 for share in halved.values())


def test_the_printed_ratios_are_not_found_on_it(stored):
    ratios = report.two_blocks(stored["distances"])  # with LayerNorm, as published
    assert len(ratios) == 4 * (1 + 3) and not any(
        0.28 <= ratio <= 0.39 for ratio in ratios.values()
    )
    assert 0.6 < min(ratios.values()) < max(ratios.values()) < 1.1


@pytest.mark.slow
def test_decay_across_the_branches_is_a_fact_on_the_published_networks(experiment, stored):
    found = claims_of(experiment, stored)["H4.2a decay"]
    assert found.verdict == "refuted"
    assert {found.variants[f"k={k} cat+silu"] for k in (2, 3)} == {"refuted"}
    other = {**stored, "origin": stored["origin"].assign(initial="named")}
    unknown = claims_of(experiment, other)["H4.2a decay"]
    assert unknown.verdict == "inconclusive"
