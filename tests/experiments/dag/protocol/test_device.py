"""Nothing that training or measuring needs stays behind on the CPU: torch's meta device refuses
tensors of another."""

from functools import partial

import pytest
import torch

from experiments.dag.protocol.estimates import frobenius_estimates, spectral_estimates
from experiments.dag.protocol.points import image_sets
from runner.contract import Context
from runner.data.images import load_images
from runner.kinds.model import MlpModel
from runner.models.architectures import diamond
from runner.models.resnet import resnet18
from runner.training.backprop import gradient_function
from runner.training.initial import build
from runner.training.minibatch import Training, flatten_parameters
from runner.training.order import LoaderAugment, LoaderOrder, StreamAugment
from runner.training.trained import Trained
from tests.draws import seeded
from tests.experiments.dag.protocol.conftest import DATA, METRIC

META = "meta"


def published(arch):
    model = MlpModel(width=5, initial="published")
    return model.network(outputs=DATA.classes, depth=3, arch=arch, activation="silu")


NETWORKS = {arch: partial(build, published(arch), 42) for arch in ("plain", "residual", "plain_sn")}
NETWORKS |= {merge: partial(diamond, width=4, merge=merge) for merge in ("sum", "cat")}
NETWORKS |= {"resnet18": resnet18}


@pytest.mark.parametrize("name", list(NETWORKS))
def test_a_training_step_runs_where_the_network_is(name):
    flat = name != "resnet18"
    split = load_images(DATA, Context(seed=1), flat=flat).train.to(META)
    network = NETWORKS[name]().to(META)
    assert {v.device.type for v in network.state_dict().values()} == {META}
    vector = flatten_parameters(network)
    gradient = gradient_function(network, "cross_entropy")
    index = LoaderOrder(seeded(1)).permutation(len(split))[:8].to(META)
    augment = None if flat else LoaderAugment(seeded(1))
    x, y = split.reader(8)(index, augment)
    assert gradient(x, y).device.type == vector.grad.device.type == META
    with pytest.raises((RuntimeError, NotImplementedError), match=r"device|meta"):
        gradient(torch.zeros(tuple(x.shape)), y)  # what the test would miss otherwise


def test_crops_are_made_on_the_device_from_draws_of_the_cpu():
    pixels = torch.zeros(6, 3, 8, 8, dtype=torch.uint8, device=META)
    assert StreamAugment(seeded(1))(pixels).device.type == META
    assert LoaderAugment(seeded(1))(pixels).device.type == META


@pytest.mark.filterwarnings("ignore:for stages")  # nothing is copied to a meta tensor
def test_images_blocks_and_checkpoints_go_to_the_device():
    data = load_images(DATA, Context(seed=1))
    for _, x, y in image_sets(data.test, METRIC, META):
        assert x.device.type == y.device.type == META
    settings = published("plain_sn")
    training = Training(states={"init": build(settings, 42).state_dict()})
    trained = Trained(settings, 42, data, training, device=META)
    assert {p.device.type for p in trained.at("init").parameters()} == {META}
    blocks = torch.zeros(2, 4, 3, device=META)
    assert frobenius_estimates(blocks, 5, seeded(1)).device.type == META
    assert spectral_estimates(blocks, 2, seeded(1)).device.type == META
