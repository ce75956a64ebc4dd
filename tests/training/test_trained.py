"""Trainings that cells share, perturbed inputs, and the published networks and data orders."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.testing import assert_close

from runner.contract import Context
from runner.data.images import Split, load_images
from runner.kinds.dataset import CifarData
from runner.kinds.model import MlpModel
from runner.models.architectures import diamond
from runner.run.config import build_job
from runner.store.identity import digest
from runner.training.initial import build, build_with_stream, published_network
from runner.training.order import LoaderOrder
from runner.training.perturbed import perturbed
from runner.training.streams import PUBLISHED_SEEDS, streams_of
from runner.training.trained import Trained, train_images, training_key
from tests.errors import refusal
from tests.training.conftest import DATA, TRAINING, Killed, Store, settings


def test_a_key_opens_the_same_training_from_two_experiments():
    stores = {}
    context = Context(seed=42, open_checkpoints=lambda key: stores.setdefault(str(key), Store()))
    first = train_images(settings("residual"), DATA, TRAINING, context)
    again = train_images(settings("residual"), DATA, TRAINING, context)
    assert len(stores) == 1 and "result" in next(iter(stores.values())).saved
    for name, value in first.training.states["final"].items():
        assert torch.equal(value, again.training.states["final"][name])


def test_stored_trainings_of_resnet18_keep_their_keys():
    """A changed key would train for hours again; these are the digests under which the states are
    stored."""
    job = build_job(["experiment=exp6_resnet18"])
    experiment = job.experiment
    assert job.identity.key == "c9f2cda5b3c1145b"
    keys = [
        digest(
            training_key(
                experiment.network_settings(cell), experiment.dataset, "f", experiment.training
            )
        )
        for cell in experiment.cells()
    ]
    assert set(keys) == {
        "33b01c475c7f75db",
        "7b743f24ac927957",
        "58618617ca67716f",
        "aa06257a47af5376",
    }


@pytest.mark.parametrize(
    "change",
    [
        {"settings": settings("residual", depth=4)},
        {"settings": settings("plain")},
        {"dataset": dataclasses.replace(DATA, train=100)},
        {"training": dataclasses.replace(TRAINING, rate=0.02)},
        {"training": dataclasses.replace(TRAINING, augment=True)},
        {"training": dataclasses.replace(TRAINING, order_seed=42)},
        {"training": dataclasses.replace(TRAINING, perturbation=1e-7)},
        {"training": dataclasses.replace(TRAINING, order="published")},
        {"fingerprint": "other pixels"},
    ],
)
def test_the_key_holds_what_training_depends_on(change):
    base = {
        "settings": settings("residual"),
        "dataset": DATA,
        "fingerprint": "f",
        "training": TRAINING,
    }
    assert training_key(**base) != training_key(**{**base, **change})


def test_the_key_does_not_hold_where_the_pixels_come_from():
    one, other = CifarData(), CifarData(url="elsewhere", mirrors=["mirror"])
    assert training_key(settings(), one, "f", TRAINING) == training_key(
        settings(), other, "f", TRAINING
    )


def test_init_is_the_untrained_network_and_final_is_not(trained):
    fresh = build(trained.settings, trained.seed).state_dict()
    at = {c: trained.at(c).state_dict() for c in ("init", "mid", "final")}
    assert all(torch.equal(value, at["init"][name]) for name, value in fresh.items())
    assert not torch.equal(
        at["init"]["stages.block0.linear.weight"], at["final"]["stages.block0.linear.weight"]
    )
    assert not torch.equal(
        at["mid"]["stages.block0.linear.weight"], at["final"]["stages.block0.linear.weight"]
    )
    assert not trained.at("final").training


def test_a_checkpoint_that_was_not_reached_is_refused(trained):
    broken = Trained(
        trained.settings, 42, trained.data, dataclasses.replace(trained.training, states={})
    )
    with refusal("expected one of"):
        broken.at("final")


def test_architectures_differ_as_the_paper_says():
    model = MlpModel(width=5)
    plain, residual, spectral = (
        build(model.network(outputs=10, depth=4, arch=a, activation="relu"), 1).stages["block0"]
        for a in ("plain", "residual", "plain_sn")
    )
    assert plain.norm is not None and plain.skip is None
    assert residual.norm is None and residual.skip == pytest.approx(0.5)
    weight = (spectral.linear.weight / spectral.linear.sigma()).detach()
    assert spectral.norm is None and float(torch.linalg.matrix_norm(weight, 2)) == pytest.approx(
        1, abs=0.02
    )


def test_surrogate_pixels_follow_the_seed():
    one, again, other = (load_images(DATA, Context(seed=seed)).fingerprint for seed in (1, 1, 2))
    assert one == again != other


def test_images_for_convolutions_are_the_same_pixels():
    flat, square = (
        load_images(DATA, Context(seed=1), flat=flat).train.batch(slice(3))[0]
        for flat in (True, False)
    )
    assert square.shape == (3, 3, 32, 32) and torch.equal(square.flatten(1), flat)


PUBLISHED = dataclasses.replace(TRAINING, order="published")


def final(network, training, seed):
    return train_images(network, DATA, training, Context(seed=seed)).training.states["final"]


def same(a, b):
    return all(torch.equal(value, b[name]) for name, value in a.items())


@pytest.mark.parametrize("flat", [True, False])
def test_every_input_changes_by_the_rounding_and_by_the_same_factor_in_all_examples(flat):
    pixels = torch.randint(256, (7, 3, 32, 32), dtype=torch.uint8)
    split = Split(pixels, torch.zeros(7), flat=flat)
    other = perturbed(split, 1e-7, 42)
    x, changed = (part.batch(slice(7))[0] for part in (split, other))
    ratio = (changed.double() / x.double()).flatten(1)
    assert torch.all((ratio - 1).abs() < 2.4e-7) and torch.all(changed != x)
    assert torch.all(
        ((ratio > 1) == (ratio[0] > 1)).float().mean(0) > 0.9
    )  # but for roundings, one sign per input
    assert 0.4 < float((ratio[0] > 1).double().mean()) < 0.6
    read, index = other.to("cpu").reader(4), torch.tensor([5, 2])
    assert torch.equal(read(index, None)[0], changed[index]) and torch.equal(
        read(index, None)[0], changed[index]
    )
    assert not torch.equal(perturbed(split, 1e-7, 43).batch(slice(7))[0], changed)
    assert perturbed(split, 0.0, 42) is split


def test_floats_are_not_changed_in_place():
    x = torch.randn(5, 8, 16)
    split = perturbed(Split(x.clone(), torch.zeros(5)), 1e-3, 1)
    assert not torch.equal(split.batch(slice(5))[0], x) and torch.equal(split.inputs, x)


def test_a_perturbed_training_ends_elsewhere_but_near():
    plain, changed = (
        final(settings(), t, 42)
        for t in (TRAINING, dataclasses.replace(TRAINING, perturbation=1e-6))
    )
    assert not same(plain, changed)
    for name, value in plain.items():
        assert_close(value, changed[name], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("training", [TRAINING, PUBLISHED])
def test_the_order_of_another_seed(training):
    crossed = dataclasses.replace(training, order_seed=43)
    assert same(final(settings(), training, 43), final(settings(), crossed, 43))
    assert not same(final(settings(), training, 42), final(settings(), crossed, 42))
    found = train_images(settings(), DATA, crossed, Context(seed=42))
    assert found.origin.get("order", "") == (
        "published of seed 43" if training.order == "published" else ""
    )


def test_the_published_order_of_another_seed_follows_that_seeds_network():
    network = settings() | {"initial": "published"}
    stream = build_with_stream(network, 44)[1]
    want = LoaderOrder(stream).permutation(120)
    seen = []

    class Spy(LoaderOrder):
        def permutation(self, count):
            seen.append(super().permutation(count))
            return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runner.training.trained.LoaderOrder", Spy)
        train_images(network, DATA, dataclasses.replace(PUBLISHED, order_seed=44), Context(seed=42))
    assert torch.equal(seen[0], want)


def published(arch="plain", **model):
    settings = MlpModel(width=5, initial="published", **model)
    return settings.network(outputs=DATA.classes, depth=3, arch=arch, activation="relu")


@pytest.mark.parametrize("arch", ["plain", "residual", "plain_sn"])
def test_networks_are_layers_built_in_order_after_the_seed(arch):
    torch.manual_seed(44)
    wrap = spectral_norm if arch == "plain_sn" else lambda layer: layer
    layers = [
        wrap(nn.Linear(3072, 5)),
        *(wrap(nn.Linear(5, 5)) for _ in range(3)),
        nn.Linear(5, 10),
    ]
    network, stream = build_with_stream(published(arch), 44)
    for stage, layer in zip(network.graph(), layers, strict=True):
        own = stage.module.linear
        assert torch.equal(own.bias, layer.bias)
        spectral = hasattr(own, "sigma")
        weight = layer.parametrizations.weight.original if spectral else layer.weight
        assert torch.equal(own.weight, weight)
        if spectral:
            assert torch.equal(own.u, layer.parametrizations.weight[0]._u)
            assert_close(own.weight / own.sigma(), layer.eval().weight)
    assert torch.equal(stream.get_state(), torch.get_rng_state())


def test_two_branches_are_built_one_after_the_other():
    torch.manual_seed(42)
    layers = [
        nn.Linear(8, 4),
        *(nn.Linear(4, 4) for _ in range(4)),
        nn.Linear(8, 4),
        nn.Linear(4, 3),
    ]
    network, _ = published_network(lambda: diamond(width=4, inputs=8, outputs=3, merge="cat"), 42)
    for name, layer in zip(["stem", "a0", "a1", "b0", "b1", "merge", "head"], layers, strict=True):
        assert torch.equal(network.stages[name].linear.weight, layer.weight)


def test_published_streams_are_those_of_the_papers_seeds_and_leave_the_global_one_alone():
    named = {k: v for k, v in published().items() if k != "initial"}
    state = torch.get_rng_state()
    for seed in (41, *PUBLISHED_SEEDS, 47):
        own, other = (build(s, seed).stages["head"].linear.weight for s in (published(), named))
        assert (
            torch.equal(own, other)
            == (seed not in PUBLISHED_SEEDS)
            == (streams_of("published", seed) == "named")
        )
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


def test_a_killed_training_keeps_the_published_order():
    memory = Store()

    def stop(done, total, note):
        if done == 6:
            raise Killed

    training = dataclasses.replace(TRAINING, order="published", epochs=8)
    context = Context(seed=42, open_checkpoints=lambda key: memory)
    with pytest.raises(Killed):
        train_images(published(), DATA, training, dataclasses.replace(context, progress=stop))
    assert memory.load("resume")["epoch"] == 5
    resumed = train_images(published(), DATA, training, context)
    straight = train_images(published(), DATA, training, Context(seed=42))
    for name, value in straight.training.states["final"].items():
        assert torch.equal(value, resumed.training.states["final"][name])
