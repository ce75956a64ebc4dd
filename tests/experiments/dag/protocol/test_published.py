"""Published initial networks and data orders, against torch itself."""

import copy
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import DataLoader, TensorDataset

from experiments.dag.protocol.inter_layer import mlp_settings
from experiments.dag.protocol.published import PUBLISHED_SEEDS, published_network, streams_of
from experiments.dag.protocol.training import build, build_with_stream, train_images
from runner.contract import Context
from runner.kinds.model import MlpModel
from runner.models import diamond, mlp
from runner.training.order import LoaderOrder
from tests.experiments.dag.protocol.conftest import DATA, TRAINING


def published(arch="plain", **model):
    return mlp_settings(MlpModel(width=5, initial="published", **model), DATA, depth=3, arch=arch, activation="relu")


def test_order_is_that_of_a_data_loader():
    loader = DataLoader(TensorDataset(torch.arange(50)), batch_size=16, shuffle=True)
    torch.manual_seed(42)
    nn.Linear(7, 5)  # whatever was built before
    stream = torch.Generator()
    stream.set_state(torch.get_rng_state())
    order = LoaderOrder(stream)
    for _ in range(3):
        assert torch.equal(order.permutation(50), torch.cat([batch for (batch,) in loader]))


@pytest.mark.parametrize("arch", ["plain", "residual", "plain_sn"])
def test_networks_are_layers_built_in_order_after_the_seed(arch):
    torch.manual_seed(44)
    wrap = spectral_norm if arch == "plain_sn" else lambda layer: layer
    layers = [wrap(nn.Linear(3072, 5)), *(wrap(nn.Linear(5, 5)) for _ in range(3)), nn.Linear(5, 10)]
    network, stream = build_with_stream(published(arch), 44)
    for stage, layer in zip(network.graph(), layers, strict=True):
        own = stage.module.linear
        assert torch.equal(own.bias, layer.bias)
        spectral = hasattr(own, "sigma")
        weight = layer.parametrizations.weight.original if spectral else layer.weight
        assert torch.equal(own.weight, weight)
        if spectral:
            assert torch.equal(own.u, layer.parametrizations.weight[0]._u)
            torch.testing.assert_close(own.weight / own.sigma(), layer.eval().weight)
    assert torch.equal(stream.get_state(), torch.get_rng_state())


def test_two_branches_are_built_one_after_the_other():
    torch.manual_seed(42)
    layers = [nn.Linear(8, 4), *(nn.Linear(4, 4) for _ in range(4)), nn.Linear(8, 4), nn.Linear(4, 3)]
    network, _ = published_network(lambda: diamond(width=4, inputs=8, outputs=3, merge="cat"), 42)
    for name, layer in zip(["stem", "a0", "a1", "b0", "b1", "merge", "head"], layers, strict=True):
        assert torch.equal(network.stages[name].linear.weight, layer.weight)


def test_published_streams_are_those_of_the_papers_seeds_and_leave_the_global_one_alone():
    named = {k: v for k, v in published().items() if k != "initial"}
    state = torch.get_rng_state()
    for seed in (41, *PUBLISHED_SEEDS, 47):
        own, other = (build(s, seed).stages["head"].linear.weight for s in (published(), named))
        assert torch.equal(own, other) == (seed not in PUBLISHED_SEEDS) == (streams_of("published", seed) == "named")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_training_says_where_its_network_and_order_come_from():
    order = dataclasses.replace(TRAINING, order="published")
    paper = train_images(published(), DATA, order, Context(seed=42))
    assert {k: v[0] for k, v in paper.origin_table()["origin"].items() if k != "fingerprint"} == {
        "initial": "published",
        "order": "published",
        "train_records": "surrogate",
        "test_records": "surrogate",
    }
    assert train_images(published(), DATA, order, Context(seed=3)).origin["order"] == "named"
    own = train_images(published(), DATA, TRAINING, Context(seed=42))
    assert own.origin["order"] == "named" and not torch.equal(
        own.training.states["final"]["stages.head.linear.weight"],
        paper.training.states["final"]["stages.head.linear.weight"],
    )


class Killed(Exception):
    pass


def test_a_killed_training_keeps_the_published_order():
    kept: dict = {}

    class Memory:
        load = staticmethod(kept.get)
        save = staticmethod(lambda name, state: kept.__setitem__(name, copy.deepcopy(state)))

    def stop(done, total, note):
        if done == 6:
            raise Killed

    training = dataclasses.replace(TRAINING, order="published", epochs=8)
    context = Context(seed=42, open_checkpoints=lambda key: Memory)
    with pytest.raises(Killed):
        train_images(published(), DATA, training, dataclasses.replace(context, progress=stop))
    assert kept["resume"]["epoch"] == 5
    resumed = train_images(published(), DATA, training, context)
    straight = train_images(published(), DATA, training, Context(seed=42))
    for name, value in straight.training.states["final"].items():
        assert torch.equal(value, resumed.training.states["final"][name])


def test_the_published_network_has_the_default_builder():
    network, _ = published_network(lambda: mlp(inputs=4, outputs=2, depth=1, width=3), 42)
    torch.manual_seed(42)
    assert torch.equal(network.stages["projection"].linear.weight, nn.Linear(4, 3).weight)
