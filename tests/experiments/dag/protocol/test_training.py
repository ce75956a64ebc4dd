import dataclasses

import pytest
import torch

from experiments.dag.protocol.inter_layer import mlp_settings
from experiments.dag.protocol.training import Trained, build, train_images, training_arguments, training_key
from runner.contract import Context
from runner.data.loading import load_images
from runner.kinds.dataset import CifarData, SurrogateData
from runner.kinds.model import MlpModel
from tests.experiments.dag.protocol.conftest import DATA, TRAINING, settings


class Memory:
    """Checkpoints in memory."""

    def __init__(self) -> None:
        self.kept: dict = {}

    def load(self, name):
        return self.kept.get(name)

    def save(self, name, state) -> None:
        self.kept[name] = state


def test_a_key_opens_the_same_training_from_two_experiments():
    stores: dict[str, Memory] = {}
    context = Context(seed=42, open_checkpoints=lambda key: stores.setdefault(str(key), Memory()))
    first = train_images(settings("residual"), DATA, TRAINING, context)
    again = train_images(settings("residual"), DATA, TRAINING, context)
    assert len(stores) == 1 and "result" in next(iter(stores.values())).kept
    for name, value in first.training.states["final"].items():
        assert torch.equal(value, again.training.states["final"][name])


@pytest.mark.parametrize(
    "change",
    [
        {"settings": settings("residual", depth=4)},
        {"settings": settings("plain")},
        {"dataset": dataclasses.replace(DATA, train=100)},
        {"training": dataclasses.replace(TRAINING, rate=0.02)},
        {"training": dataclasses.replace(TRAINING, augment=True)},
        {"fingerprint": "other pixels"},
    ],
)
def test_the_key_holds_what_training_depends_on(change):
    base = {"settings": settings("residual"), "dataset": DATA, "fingerprint": "f", "training": TRAINING}
    assert training_key(**base) != training_key(**{**base, **change})


def test_the_key_of_a_training_holds_nothing_of_the_experiment():
    """A new version or new settings of the measuring would lose hours of training otherwise."""
    key = training_key(settings("residual"), DATA, "f", TRAINING)
    assert set(key) == {"network", "data", "training"}
    assert set(key["training"]) == {"augment", *training_arguments(TRAINING)}


def test_the_key_does_not_hold_where_the_pixels_come_from():
    one, other = CifarData(), CifarData(url="elsewhere", mirrors=["mirror"])
    assert training_key(settings(), one, "f", TRAINING) == training_key(settings(), other, "f", TRAINING)


def test_init_is_the_untrained_network_and_final_is_not(trained):
    fresh = build(trained.settings, trained.seed).state_dict()
    at = {c: trained.at(c).state_dict() for c in ("init", "mid", "final")}
    assert all(torch.equal(value, at["init"][name]) for name, value in fresh.items())
    assert not torch.equal(at["init"]["stages.block0.linear.weight"], at["final"]["stages.block0.linear.weight"])
    assert not torch.equal(at["mid"]["stages.block0.linear.weight"], at["final"]["stages.block0.linear.weight"])
    assert not trained.at("final").training


def test_seeds_give_different_networks_and_the_same_seed_the_same():
    weights = [build(settings(), seed).state_dict()["stages.head.linear.weight"] for seed in (42, 42, 43)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_a_checkpoint_that_was_not_reached_is_refused(trained):
    broken = Trained(trained.settings, 42, trained.data, dataclasses.replace(trained.training, states={}))
    with pytest.raises(ValueError, match="expected one of"):
        broken.at("final")


def test_architectures_differ_as_the_paper_says():
    model, data = MlpModel(width=5), SurrogateData()
    plain, residual, spectral = (
        build(mlp_settings(model, data, depth=4, arch=a, activation="relu"), 1).stages["block0"]
        for a in ("plain", "residual", "plain_sn")
    )
    assert plain.norm is not None and plain.skip is None
    assert residual.norm is None and residual.skip == pytest.approx(0.5)
    weight = (spectral.linear.weight / spectral.linear.sigma()).detach()
    assert spectral.norm is None and float(torch.linalg.matrix_norm(weight, 2)) == pytest.approx(1, abs=0.02)


def test_surrogate_pixels_follow_the_seed():
    one, again, other = (load_images(DATA, Context(seed=seed)).fingerprint for seed in (1, 1, 2))
    assert one == again != other


def test_images_for_convolutions_are_the_same_pixels():
    flat, square = (load_images(DATA, Context(seed=1), flat=flat).train.batch(slice(3))[0] for flat in (True, False))
    assert square.shape == (3, 3, 32, 32) and torch.equal(square.flatten(1), flat)
