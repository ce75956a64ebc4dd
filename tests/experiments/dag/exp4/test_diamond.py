"""Exp. 4: the merge block against autodiff, which pairs enter which distance, and claims that can fail."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments.dag.exp4 import report
from experiments.dag.exp4.measure import by_relation, distance, relation_of
from experiments.dag.exp4.settings import Exp4Diamond
from experiments.paper_audit.effects import cells
from experiments.printed import statements
from runner.contract import SettingError, analyse
from runner.curvature import block_metrics, resonance, split_blocks
from runner.models.architectures import diamond
from runner.report.collect import not_comparable
from runner.run.config import build_job, preview
from tests.experiments.dag.inter_layer_tables import measured, verdicts


@pytest.fixture(scope="module")
def experiment() -> Exp4Diamond:
    small = ["dataset=surrogate", "dataset.train=64", "dataset.test=40", "model.width=6", "training.epochs=2"]
    found = build_job(["experiment=exp4_diamond", *small, "metric.examples=8", "metric.subsamples=2"]).experiment
    assert isinstance(found, Exp4Diamond)
    return found


@pytest.fixture(scope="module")
def tables(experiment: Exp4Diamond) -> dict[str, pd.DataFrame]:
    return measured(experiment, (0, 1, 2))


def dense_merge_block(network, x, y, dtype=torch.float64):
    """∂²L/∂e_a ∂e_b at the last nodes of both branches, and its Gauss–Newton part, example by example."""
    values = network.activations(x)
    depth = len(network.measured) // 2
    a, b = (values[f"{branch}{depth - 1}"] for branch in "ab")
    stages = network.stages

    def logits(e, i):
        return stages["head"](stages["merge"](a[i : i + 1] + e[0], b[i : i + 1] + e[1]))[0]

    width, total, gauss_newton = a.shape[1], 0, 0
    for i in range(len(x)):
        e = torch.zeros(2, width, dtype=dtype)
        loss = lambda e, i=i: torch.nn.functional.cross_entropy(logits(e, i)[None], y[i : i + 1])  # noqa: E731
        total = total + torch.func.hessian(loss)(e)[0, :, 1] / len(x)
        j = torch.func.jacrev(lambda e, i=i: logits(e, i))(e)
        p = torch.softmax(logits(e, i), -1)
        inner = torch.diag(p) - torch.outer(p, p)
        gauss_newton = gauss_newton + j[:, 0].T @ inner @ j[:, 1] / len(x)
    return total.detach(), gauss_newton.detach()


@pytest.mark.parametrize(("merge", "activation"), [("cat", "silu"), ("cat", "relu"), ("sum", "silu")])
def test_merge_block_is_that_of_autodiff(merge, activation):
    generator = torch.Generator().manual_seed(5)
    network = diamond(merge=merge, activation=activation, width=5, inputs=7, outputs=4, generator=generator).double()
    x, y = torch.randn(6, 7, dtype=torch.float64, generator=generator), torch.arange(6) % 4
    found = split_blocks(network.eval().to_dag(), x, y, network.measured)
    total, gauss_newton = dense_merge_block(network, x, y)
    assert torch.allclose(found.total["a1", "b1"], total, rtol=1e-10, atol=1e-14)
    assert torch.allclose(found.gauss_newton["a1", "b1"], gauss_newton, rtol=1e-10, atol=1e-14)
    tensor = resonance(found.tensor["a1", "b1"])
    assert tensor > 1e-4 if (merge, activation) == ("cat", "silu") else tensor == 0


def test_distances_of_pairs():
    assert [distance(v, w, 3) for v, w in (("a2", "b2"), ("a0", "b2"), ("a0", "b0"), ("b0", "b2"))] == [2, 4, 6, 2]
    assert [relation_of(*pair) for pair in (("a0", "a1"), ("b1", "b1"), ("a0", "b1"))] == ["a", "b", "cross"]
    network = diamond(branch_depth=3, width=4, inputs=5, outputs=3).eval()
    blocks = split_blocks(network.to_dag(), torch.randn(4, 5), torch.arange(4) % 3, network.measured)
    rows = by_relation(block_metrics(blocks, order=network.measured), 3)
    pairs = {(r["relation"], r["distance"]): r["pairs"] for r in rows}
    inside = {0: 3, 1: 2, 2: 1}
    assert pairs == {(r, d): n for r in "ab" for d, n in inside.items()} | {
        ("cross", d): n for d, n in {2: 1, 3: 2, 4: 3, 5: 2, 6: 1}.items()
    }
    far = next(r for r in rows if (r["relation"], r["distance"]) == ("cross", 6))
    assert far["R"] == pytest.approx(resonance(blocks.total["a0", "b0"]), rel=1e-6)


def test_tables_and_report(experiment, tables):
    assert len(tables["merge"]) == 12 * 3 * 3 * 3
    flat = tables["merge"][~((tables["merge"]["merge"] == "cat") & (tables["merge"]["activation"] == "silu"))]
    assert (flat["tensor"] == 0).all() and (tables["networks"]["rho"] > 0).all()
    last = tables["distances"].query("relation == 'cross' and distance == 2")
    assert tables["merge"]["R"].tolist() == pytest.approx(last["R"].tolist())
    for figure in analyse(experiment, tables).figures().values():
        assert figure().axes
    values = analyse(experiment, tables).measured()
    assert len(values) == 2 * 12 * 3 * 3
    assert analyse(experiment, tables).statistics()
    assert "dataset=surrogate instead of cifar10" in not_comparable(experiment, preview("exp4_diamond"))


def test_every_printed_statement_has_one_row(experiment, tables):
    found = [c.name for c in analyse(experiment, tables).claims()]
    assert sorted(found) == sorted(statements("exp4_diamond"))


def test_claims_follow_the_tables(experiment, tables):
    def verdict(name, **changed):
        (claim,) = [c for c in analyse(experiment, {**tables, **changed}).claims() if c.name == name]
        return claim.verdict

    merge, distances = tables["merge"], tables["distances"]
    assert verdict("H4.3 flat merge") == verdict("separation") == "true by construction"
    assert verdict("H4.3 flat merge", merge=merge.assign(gap=1e-3, tensor=1e-3)) == "refuted"
    assert verdict("tensor part of cat+ReLU", merge=merge.assign(gap=1e-3, tensor=1e-3)) == "confirmed"
    assert verdict("H4.3 curved merge", merge=merge.assign(gap=1e-4)) == "refuted"
    assert verdict("H4.3 curved merge", merge=merge.assign(gap=1.3 + 0.01 * merge["seed"])) == "confirmed"
    falling = distances.assign(R=0.5 ** distances["distance"])
    (steps,) = [c for c in analyse(experiment, {**tables, "distances": falling}).claims() if c.name == "H4.1"]
    assert steps.verdict == "confirmed" and steps.statistic == 48
    assert verdict("H4.1 deviations", distances=falling) == "not run"
    assert verdict("H4.2a ratio", distances=falling) == "refuted"  # 0.25
    assert verdict("H4.2a decay", distances=falling) == "confirmed"
    rising = distances.assign(R=2.0 ** distances["distance"])
    assert verdict("H4.1", distances=rising) == verdict("H4.1 deviations", distances=rising) == "refuted"
    assert verdict("H4.2b growth", distances=rising) == "confirmed"  # 4
    after = distances["checkpoint"].map({"init": 1.0, "final": 2.0}).fillna(1.0)
    kept = distances.assign(R_examples=1.0 + 0.01 * distances["seed"])
    steeper = after ** distances["distance"]  # what survives averaging grows with distance after training, not before
    assert verdict("weakened cancellation", distances=kept.assign(R=steeper)) == "confirmed"
    assert verdict("weakened cancellation", distances=kept.assign(R=1 / steeper)) == "refuted"
    lower = {**tables, "distances": kept.assign(R=steeper / 1e3 ** (after - 1))}  # less survives, but most far away
    marks = verdicts(experiment, lower, "weakened cancellation")
    assert marks == {"growth": "confirmed", "level": "refuted"}
    assert verdict("H4.2a cancellation", distances=kept.assign(R=0.5 ** distances["distance"])) == "confirmed"
    alone = 0.4 ** distances["distance"] * kept["R_examples"]  # a mean that falls as its images' own blocks, or less
    slower = kept.assign(R=0.5 ** distances["distance"], R_examples=alone)
    assert verdict("H4.2a cancellation", distances=slower) == "refuted"
    assert verdict("H4.2a cancellation", distances=rising) == "not run"  # no decay, nothing to explain


@pytest.fixture(scope="module")
def stored() -> dict[str, pd.DataFrame]:
    """Tables of the published cells: the published networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HESS_PUBLISHED", str(Path(__file__).resolve().parents[4] / "outputs" / "published"))
        found = list(cells("exp4_diamond"))
        return {
            name: pd.concat([cell.table(name) for cell in found], ignore_index=True)
            for name in ("distances", "merge", "networks", "origin")
        }


def test_r_across_the_branches_is_the_papers_quantity(stored):
    """Printed ‖T‖ over printed gap is the authors' R(2); two digits each, and a quotient of means."""
    own = report.shares(stored["merge"])
    assert len(own) == 9 and all(0.98 < share < 1.03 for share in own.values())
    halved = report.shares(stored["merge"].assign(gn=stored["merge"]["gn"] / 2))
    assert not any(0.98 < share < 1.03 for share in halved.values())


def test_the_printed_ratios_are_not_found_on_it(stored):
    ratios = report.two_blocks(stored["distances"])  # with LayerNorm, as published
    assert len(ratios) == 4 * (1 + 3) and not any(0.28 <= ratio <= 0.39 for ratio in ratios.values())
    assert 0.6 < min(ratios.values()) < max(ratios.values()) < 1.1


def test_decay_across_the_branches_is_a_fact_on_the_published_networks(experiment, stored):
    (found,) = [c for c in analyse(experiment, stored).claims() if c.name == "H4.2a decay"]
    assert found.verdict == "refuted" and "refuted: k=2 cat+silu, k=3 cat+silu" in found.variants
    other = {**stored, "origin": stored["origin"].assign(initial="named")}
    (unknown,) = [c for c in analyse(experiment, other).claims() if c.name == "H4.2a decay"]
    assert unknown.verdict == "inconclusive"


def test_refuses_settings_it_would_ignore(experiment):
    with pytest.raises(SettingError, match="merge"):
        replace(experiment, merge=["add"])
