import dataclasses
import math

import pytest
import torch
from torch.nn import functional as F

from experiments.dag.protocol.measure import by_distance, measure_trained, second_derivative
from experiments.dag.protocol.points import image_sets
from runner.contract import Context
from runner.kinds.metric import InterLayerMetric
from runner.training.trained import Trained
from tests.experiments.dag.protocol.conftest import METRIC


@pytest.fixture(scope="module")
def tables(trained):
    return measure_trained(trained, METRIC, Context(seed=42))


def rows(table, **where):
    return [row for row in table if where.items() <= row.items()]


def hessian_block(network, x, y, v, w):
    """d²L/de_v de_w by dense float64 autodiff of the perturbed network."""
    network = network.double()
    sizes = {name: 5 for name in (v, w)}

    def loss(e_v, e_w):
        value, shift = x.double(), {v: e_v}
        shift[w] = shift.get(w, 0) + e_w
        for name, _, module in network.graph():
            value = module(value)
            value = value + shift[name] if name in shift else value
        return F.cross_entropy(value, y)

    zero = tuple(torch.zeros(size, dtype=torch.float64) for size in sizes.values())
    if v == w:
        return torch.autograd.functional.hessian(lambda e: loss(e, torch.zeros_like(e)), zero[0])
    return torch.autograd.functional.hessian(loss, zero)[0][1]


@pytest.mark.parametrize("checkpoint", ["init", "final"])
@pytest.mark.parametrize("pair", [("block0", "block0"), ("block0", "block2"), ("block1", "block2")])
def test_pairs_hold_the_norm_of_the_mean_block(trained, tables, checkpoint, pair):
    v, w = pair
    x, y = trained.data.test.first(METRIC.examples)
    expected = float(hessian_block(trained.at(checkpoint), x, y, v, w).norm())
    (row,) = rows(tables["pairs"], checkpoint=checkpoint, v=v, w=w)
    assert row["R"] == pytest.approx(expected, rel=2e-4)


def test_norms_of_single_examples(trained, tables):
    x, y = trained.data.test.first(METRIC.examples)
    network = trained.at("init")
    own = []
    for example, label in zip(x.split(1), y.split(1), strict=True):
        first = hessian_block(network, example, label, "block0", "block1")
        second = hessian_block(network, example, label, "block1", "block2")
        own.append(float(first.norm() + second.norm()) / 2)
    (row,) = rows(tables["distances"], checkpoint="init", images=0, distance=1)
    assert row["R_examples"] == pytest.approx(sum(own) / len(own), rel=2e-4)
    assert row["R_examples"] >= row["R"]


def test_distances_average_the_pairs(tables):
    for d in range(3):
        pairs = rows(tables["pairs"], checkpoint="mid", distance=d)
        (row,) = rows(tables["distances"], checkpoint="mid", images=0, distance=d)
        assert row["pairs"] == len(pairs) == 3 - d
        assert row["R"] == pytest.approx(sum(p["R"] for p in pairs) / len(pairs), rel=1e-12)
        assert row["tensor"] == pytest.approx(sum(p["frob_tensor"] for p in pairs), rel=1e-12)
        gaps = [p["frob_tensor"] / (p["frob_gn"] + 1e-12) for p in pairs]
        assert row["gap_of_pairs"] == pytest.approx(sum(gaps) / len(gaps), rel=1e-9)


def test_every_checkpoint_and_set_of_images_is_there(tables):
    assert len(tables["networks"]) == 3 * 3
    assert len(tables["distances"]) == 3 * 3 * 3
    assert tables["history"]["epoch"] == [0, 1, 2]
    assert {row["status"] for row in tables["networks"]} == {"ok"}


def test_accuracy_is_that_of_the_checkpoint(tables):
    (mid,) = rows(tables["networks"], checkpoint="mid", images=0)
    (final,) = rows(tables["networks"], checkpoint="final", images=1)
    assert mid["test_accuracy"] == tables["history"]["test_accuracy"][1]
    assert final["test_accuracy"] == tables["history"]["test_accuracy"][2]


def test_the_first_set_is_the_papers_and_the_others_are_the_same_for_all(trained):
    test = trained.data.test
    sets = list(image_sets(test, METRIC))
    assert [number for number, _, _ in sets] == [0, 1, 2]
    assert torch.equal(sets[0][1], test.first(6)[0])
    assert not torch.equal(sets[1][1], sets[2][1])
    again = list(image_sets(test, METRIC))
    assert all(torch.equal(a[1], b[1]) for a, b in zip(sets, again, strict=True))
    drawn = next(image_sets(test, InterLayerMetric(examples=6, subsamples=0, subsample="random")))
    assert not torch.equal(drawn[1], sets[0][1])


def test_a_training_that_diverged_says_so_in_its_rows(trained):
    states = {"init": trained.training.states["init"]}
    lost = dataclasses.replace(trained.training, status="diverged in epoch 1", states=states)
    tables = measure_trained(
        Trained(trained.settings, 42, trained.data, lost), METRIC, Context(seed=42)
    )
    status = {r["checkpoint"]: r["status"] for r in rows(tables["networks"])}
    assert status == {"init": "ok", "mid": "diverged in epoch 1", "final": "diverged in epoch 1"}
    assert {row["checkpoint"] for row in tables["distances"]} == {"init"}


def test_pairs_without_a_distance_stay_out(trained):
    def across(v, w):
        return None if v == w else 1

    tables = measure_trained(
        trained, InterLayerMetric(examples=4, subsamples=0), Context(seed=42), across
    )
    assert {row["distance"] for row in tables["distances"]} == {1}
    assert {row["pairs"] for row in tables["distances"]} == {3}


def test_double_precision_agrees_with_single(trained, tables):
    exact = measure_trained(
        trained, dataclasses.replace(METRIC, double=True, subsamples=0), Context(seed=42)
    )
    (a,), (b,) = (
        rows(t["distances"], checkpoint="final", images=0, distance=2) for t in (exact, tables)
    )
    assert a["R"] == pytest.approx(b["R"], rel=1e-4) and a["R"] != b["R"]


@pytest.mark.parametrize(
    "act, expected",
    [
        (torch.relu, 0),
        (F.silu, 0.5),
        (F.softplus, 0.25),
        (F.gelu, 2 / math.sqrt(2 * math.pi)),
        (lambda z: 3 * z, 0),
    ],
)
def test_second_derivative_at_zero(act, expected):
    z = torch.zeros(3) + 1e-4
    assert second_derivative(act, z).tolist() == pytest.approx([expected] * 3, abs=1e-3)


def test_a_numerically_zero_block_is_counted_not_averaged():
    sizes = {"R": 1.0, "C": 1.0, "D": 2.0, "frob_gn": 1.0, "frob_tensor": 0.5}
    zero = {"R": 0.0, "C": math.nan, "D": math.nan, "frob_gn": 0.0, "frob_tensor": 0.0}
    (row,) = by_distance([{"distance": 0, **pair} for pair in (sizes, zero)])
    assert row["D"] == 2.0 and row["R"] == 0.5 and row["status"].startswith("no D for 1 pairs")


def test_progress_is_reported(trained):
    seen = []
    context = Context(seed=42, progress=lambda done, total, note="": seen.append((done, total)))
    measure_trained(trained, InterLayerMetric(examples=4, subsamples=1), context)
    assert seen == [(i, 6) for i in range(1, 7)]
