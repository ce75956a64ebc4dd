import dataclasses
import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from experiments.dag.protocol.measure import by_distance, measure_trained, second_derivative
from experiments.dag.protocol.points import image_sets
from runner.contract import Context
from runner.kinds.metric import InterLayerMetric
from runner.training.trained import Trained
from tests.experiments.dag.protocol.conftest import METRIC

FOUR = InterLayerMetric(examples=4, subsamples=0)
measured = partial(measure_trained, ctx=Context(seed=42))


@pytest.fixture(scope="module")
def tables(trained):
    return measured(trained, METRIC)


def rows(table, **where):
    return [row for row in table if where.items() <= row.items()]


def one(table, **where):
    (row,) = rows(table, **where)
    return row


def hessian_block(network, x, y, v, w):
    """d²L/de_v de_w by dense float64 autodiff of the perturbed network, as a block of ∇²L of all
    shifts."""
    network = network.double()
    names = [name for name, _, _ in network.graph() if name in (v, w)]

    def loss(shifts):
        value = x.double()
        for name, _, module in network.graph():
            value = module(value)
            if name in names:
                value = value + shifts[names.index(name)]
        return F.cross_entropy(value, y)

    zero = torch.zeros(len(names), 5, dtype=torch.float64)
    hessian = torch.autograd.functional.hessian(loss, zero)
    return hessian[names.index(v), :, names.index(w)]


@pytest.mark.parametrize("checkpoint", ["init", "final"])
@pytest.mark.parametrize("pair", [("block0", "block0"), ("block0", "block2"), ("block1", "block2")])
def test_pairs_hold_the_norm_of_the_mean_block(trained, tables, checkpoint, pair):
    v, w = pair
    images = trained.data.test.first(METRIC.examples)
    expected = float(hessian_block(trained.at(checkpoint), *images, v, w).norm())
    row = one(tables["pairs"], checkpoint=checkpoint, v=v, w=w)
    assert row["R"] == pytest.approx(expected, rel=2e-4)


def test_norms_of_single_examples(trained, tables):
    x, y = trained.data.test.first(METRIC.examples)
    network, norms = trained.at("init"), []
    for image in zip(x.split(1), y.split(1), strict=True):
        for pair in (("block0", "block1"), ("block1", "block2")):
            norms.append(float(hessian_block(network, *image, *pair).norm()))
    row = one(tables["distances"], checkpoint="init", images=0, distance=1)
    assert row["R_examples"] == pytest.approx(sum(norms) / len(norms), rel=2e-4)
    assert row["R_examples"] >= row["R"]


def test_distances_average_the_pairs(tables):
    for d in range(3):
        pairs = rows(tables["pairs"], checkpoint="mid", distance=d)
        row = one(tables["distances"], checkpoint="mid", images=0, distance=d)
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
    accuracy = tables["history"]["test_accuracy"]
    for checkpoint, images, epoch in (("mid", 0, 1), ("final", 1, 2)):
        row = one(tables["networks"], checkpoint=checkpoint, images=images)
        assert row["test_accuracy"] == accuracy[epoch]


def test_the_first_set_is_the_papers_and_the_others_are_the_same_for_all(trained):
    test = trained.data.test
    sets, again = (list(image_sets(test, METRIC)) for _ in range(2))
    assert [number for number, _, _ in sets] == [0, 1, 2]
    assert torch.equal(sets[0][1], test.first(6)[0])
    assert not torch.equal(sets[1][1], sets[2][1])
    assert all(torch.equal(a[1], b[1]) for a, b in zip(sets, again, strict=True))
    drawn = next(image_sets(test, InterLayerMetric(examples=6, subsamples=0, subsample="random")))
    assert not torch.equal(drawn[1], sets[0][1])


def test_a_training_that_diverged_says_so_in_its_rows(trained):
    status, states = "diverged in epoch 1", {"init": trained.training.states["init"]}
    lost = dataclasses.replace(trained.training, status=status, states=states)
    tables = measured(Trained(trained.settings, 42, trained.data, lost), METRIC)
    found = {row["checkpoint"]: row["status"] for row in tables["networks"]}
    assert found == {"init": "ok", "mid": status, "final": status}
    assert {row["checkpoint"] for row in tables["distances"]} == {"init"}


def test_pairs_without_a_distance_stay_out(trained):
    tables = measured(trained, FOUR, distance=lambda v, w: None if v == w else 1)
    assert {(row["distance"], row["pairs"]) for row in tables["distances"]} == {(1, 3)}


def test_double_precision_agrees_with_single(trained, tables):
    metric = dataclasses.replace(METRIC, double=True, subsamples=0)
    where = {"checkpoint": "final", "images": 0, "distance": 2}
    exact = one(measured(trained, metric)["distances"], **where)["R"]
    single = one(tables["distances"], **where)["R"]
    assert exact == pytest.approx(single, rel=1e-4) and exact != single


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
