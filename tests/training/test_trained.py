"""Trainings that cells share, perturbed inputs, and the published networks and data orders."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.testing import assert_close

from runner.contract import Context
from runner.data.images import Split, load_images
from runner.kinds.dataset import CifarData
from runner.kinds.model import MlpModel
from runner.models.architectures import diamond, mlp
from runner.run.config.jobs import build_job
from runner.store.identity import digest
from runner.training.initial import build, build_with_stream, published_network
from runner.training.order import LoaderOrder
from runner.training.perturbed import perturbed
from runner.training.streams import PUBLISHED_SEEDS, streams_of
from runner.training.trained import train_images, training_key
from tests.errors import refusal
from tests.training.conftest import DATA, TRAINING, Killed, Store, settings


def train(network=None, seed=42, store=None, progress=print, **changes):
    """The tiny training with these changes."""
    context = Context(seed=seed, open_checkpoints=store and (lambda key: store), progress=progress)
    return train_images(network or settings(), DATA, replace(TRAINING, **changes), context)


def final(*given, **changes):
    return train(*given, **changes).training.states["final"]


def same(a, b):
    return all(torch.equal(value, b[name]) for name, value in a.items())


def test_a_key_opens_the_same_training_from_two_experiments():
    stores = {}
    context = Context(seed=42, open_checkpoints=lambda key: stores.setdefault(str(key), Store()))
    first, again = (train_images(settings(), DATA, TRAINING, context) for _ in range(2))
    assert len(stores) == 1 and "result" in next(iter(stores.values())).saved
    assert same(first.training.states["final"], again.training.states["final"])


def test_stored_trainings_of_resnet18_keep_their_keys():
    """A changed key would train for hours again; these are the digests under which the states are
    stored."""
    job = build_job(["experiment=exp6_resnet18"])
    experiment, keys = job.experiment, set()
    assert job.identity.key == "c9f2cda5b3c1145b"
    for cell in experiment.cells():
        network = experiment.network_settings(cell)
        keys.add(digest(training_key(network, experiment.dataset, "f", experiment.training)))
    stored = "33b01c475c7f75db 7b743f24ac927957 58618617ca67716f aa06257a47af5376"
    assert keys == set(stored.split())


BASE = {"settings": settings(), "dataset": DATA, "fingerprint": "f", "training": TRAINING}
CHANGED_TRAINING = [
    {"rate": 0.02},
    {"augment": True},
    {"order_seed": 42},
    {"perturbation": 1e-7},
    {"order": "published"},
]
CHANGES = [
    {"settings": settings(depth=4)},
    {"settings": settings("residual")},
    {"dataset": replace(DATA, train=100)},
    {"fingerprint": "other pixels"},
    *({"training": replace(TRAINING, **change)} for change in CHANGED_TRAINING),
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_key_holds_what_training_depends_on(change):
    assert training_key(**BASE) != training_key(**{**BASE, **change})


def test_the_key_does_not_hold_where_the_pixels_come_from():
    here, elsewhere = CifarData(), CifarData(url="elsewhere", mirrors=["mirror"])
    key = training_key(**{**BASE, "dataset": here})
    assert key == training_key(**{**BASE, "dataset": elsewhere})


def test_init_is_the_untrained_network_and_final_is_not(trained):
    init, mid, end = (trained.at(name).state_dict() for name in ("init", "mid", "final"))
    weight = "stages.block0.linear.weight"
    assert same(build(trained.settings, trained.seed).state_dict(), init)
    assert not torch.equal(init[weight], end[weight])
    assert not torch.equal(mid[weight], end[weight])
    assert not trained.at("final").training


def test_a_checkpoint_that_was_not_reached_is_refused(trained):
    broken = replace(trained, training=replace(trained.training, states={}))
    with refusal("expected one of"):
        broken.at("final")


def test_architectures_differ_as_the_paper_says():
    plain, residual, spectral = (
        build(settings(arch), 1).stages["block0"] for arch in ("plain", "residual", "plain_sn")
    )
    assert plain.norm is not None and plain.skip is None
    assert residual.norm is None and residual.skip == pytest.approx(3**-0.5)
    weight = (spectral.linear.weight / spectral.linear.sigma()).detach()
    assert spectral.norm is None
    assert float(torch.linalg.matrix_norm(weight, 2)) == pytest.approx(1, abs=0.02)


def test_images_for_convolutions_are_the_same_pixels():
    flat, square = (
        load_images(DATA, Context(seed=1), flat=flat).train.batch(slice(3))[0]
        for flat in (True, False)
    )
    assert square.shape == (3, 3, 32, 32) and torch.equal(square.flatten(1), flat)


# ------------------------------------------------------------------------------ perturbed inputs


@pytest.mark.parametrize("flat", [True, False])
def test_every_input_changes_by_the_rounding_and_by_the_same_factor_in_all_examples(flat):
    pixels = torch.randint(256, (7, 3, 32, 32), dtype=torch.uint8)
    split = Split(pixels, torch.zeros(7), flat=flat)
    other = perturbed(split, 1e-7, 42)
    x, changed = (part.batch(slice(7))[0] for part in (split, other))
    ratio = (changed.double() / x.double()).flatten(1)
    assert ((ratio - 1).abs() < 2.4e-7).all() and (changed != x).all()
    larger = ratio > 1  # one sign per input, except roundings
    assert ((larger == larger[0]).double().mean(0) > 0.9).all()
    assert 0.4 < larger[0].double().mean() < 0.6
    read, index = other.to("cpu").reader(4), torch.tensor([5, 2])
    for _ in range(2):
        assert torch.equal(read(index, None)[0], changed[index])
    assert not torch.equal(perturbed(split, 1e-7, 43).batch(slice(7))[0], changed)
    assert perturbed(split, 0.0, 42) is split


def test_floats_are_not_changed_in_place():
    x = torch.randn(5, 8, 16)
    split = perturbed(Split(x.clone(), torch.zeros(5)), 1e-3, 1)
    assert not torch.equal(split.batch(slice(5))[0], x) and torch.equal(split.inputs, x)


def test_a_perturbed_training_ends_elsewhere_but_near():
    plain, changed = final(), final(perturbation=1e-6)
    assert not same(plain, changed)
    assert_close(plain, changed, rtol=1e-2, atol=1e-3)


# ------------------------------------------------------------------- published orders and networks


@pytest.mark.parametrize("order, origin", [("named", ""), ("published", "published of seed 43")])
def test_the_order_of_another_seed(order, origin):
    own = final(seed=43, order=order)
    crossed = train(order=order, order_seed=43)
    assert same(own, final(seed=43, order=order, order_seed=43))
    assert not same(final(order=order), crossed.training.states["final"])
    assert crossed.origin.get("order", "") == origin


def test_the_published_order_of_another_seed_follows_that_seeds_network(monkeypatch):
    network, seen = settings() | {"initial": "published"}, []
    expected = LoaderOrder(build_with_stream(network, 44)[1]).permutation(120)

    class Spy(LoaderOrder):
        def permutation(self, count):
            seen.append(super().permutation(count))
            return seen[-1]

    monkeypatch.setattr("runner.training.trained.LoaderOrder", Spy)
    train(network, order="published", order_seed=44)
    assert torch.equal(seen[0], expected)


def published(arch="plain"):
    model = MlpModel(width=5, initial="published")
    return model.network(outputs=DATA.classes, depth=3, arch=arch, activation="relu")


@pytest.mark.parametrize("arch", ["plain", "residual", "plain_sn"])
def test_networks_are_layers_built_in_order_after_the_seed(arch):
    torch.manual_seed(44)
    spectral = arch == "plain_sn"
    layers = []
    for inputs in (3072, 5, 5, 5):
        layer = nn.Linear(inputs, 5)
        layers.append(spectral_norm(layer) if spectral else layer)
    layers.append(nn.Linear(5, 10))
    network, stream = build_with_stream(published(arch), 44)
    assert torch.equal(stream.get_state(), torch.get_rng_state())
    for stage, layer in zip(network.graph(), layers, strict=True):
        own = stage.module.linear
        assert torch.equal(own.bias, layer.bias)
        assert hasattr(own, "sigma") == hasattr(layer, "parametrizations")
        if hasattr(own, "sigma"):
            normed = layer.parametrizations.weight
            assert torch.equal(own.weight, normed.original)
            assert torch.equal(own.u, normed[0]._u)
            assert_close(own.weight / own.sigma(), layer.eval().weight)
        else:
            assert torch.equal(own.weight, layer.weight)


@pytest.mark.parametrize("seed", [42, 47])
@pytest.mark.parametrize("arch", ["plain", "residual", "plain_sn"])
def test_he_initialisation_draws_every_weight_again_in_order_after_the_network_was_built(
    arch, seed
):
    model = MlpModel(width=5, initial="he")
    he = model.network(outputs=DATA.classes, depth=3, arch=arch, activation="relu")
    state = torch.get_rng_state()
    network, stream = build_with_stream(he, seed)
    assert torch.equal(torch.get_rng_state(), state) and streams_of("he", seed) == "he"
    torch.manual_seed(seed)
    builder = {name: value for name, value in published(arch).items() if name != "initial"}
    assert builder.pop("builder") == "mlp"
    mlp(**builder)
    for stage in network.graph():
        own = stage.module.linear
        expected = torch.empty_like(own.weight)
        nn.init.kaiming_normal_(expected, nonlinearity="relu")
        assert torch.equal(own.weight, expected) and not own.bias.any()
        if arch == "plain_sn" and stage.name != "head":
            assert_close(own.sigma(), torch.linalg.matrix_norm(expected, 2), rtol=0.05, atol=0)
    assert torch.equal(stream.get_state(), torch.get_rng_state())


def test_two_branches_are_built_one_after_the_other():
    torch.manual_seed(42)
    inputs = {"stem": 8, "a0": 4, "a1": 4, "b0": 4, "b1": 4, "merge": 8}
    layers = {name: nn.Linear(size, 4) for name, size in inputs.items()}
    layers["head"] = nn.Linear(4, 3)
    network, _ = published_network(lambda: diamond(width=4, inputs=8, outputs=3, merge="cat"), 42)
    for name, layer in layers.items():
        assert torch.equal(network.stages[name].linear.weight, layer.weight)


def test_published_streams_are_those_of_the_papers_seeds_and_leave_the_global_one_alone():
    state = torch.get_rng_state()
    for seed in (41, *PUBLISHED_SEEDS, 47):
        own, named = (
            build(s, seed).stages["head"].linear.weight for s in (published(), settings())
        )
        expected = "published" if seed in PUBLISHED_SEEDS else "named"
        assert streams_of("published", seed) == expected
        assert torch.equal(own, named) == (expected == "named")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_training_says_where_its_network_and_order_come_from():
    paper, own = train(published(), order="published"), train(published())
    origin = paper.origin_table()["origin"]
    assert origin.pop("fingerprint")
    assert origin == {
        "initial": ["published"],
        "order": ["published"],
        "train_records": ["surrogate"],
        "test_records": ["surrogate"],
    }
    assert train(published(), 3, order="published").origin["order"] == "named"
    assert own.origin["order"] == "named"
    assert not same(own.training.states["final"], paper.training.states["final"])


def test_a_killed_training_keeps_the_published_order():
    def stop(done, total, note):
        if done == 6:
            raise Killed

    store, changes = Store(), {"order": "published", "epochs": 8}
    with pytest.raises(Killed):
        train(published(), store=store, progress=stop, **changes)
    assert store.load("resume")["epoch"] == 5
    resumed = final(published(), store=store, **changes)
    assert same(final(published(), **changes), resumed)
