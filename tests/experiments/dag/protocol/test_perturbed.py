"""Perturbed inputs, and initial networks crossed with data orders."""

import dataclasses

import pytest
import torch

from experiments.dag.protocol.perturbed import perturbed
from experiments.dag.protocol.training import build_with_stream, train_images, training_key
from runner.contract import Context, SettingError, check
from runner.data.images import Split
from runner.kinds.training import MinibatchTraining
from runner.store.identity import settings as identity
from runner.training.order import LoaderOrder
from tests.experiments.dag.protocol.conftest import DATA, TRAINING, settings

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
    assert torch.all(((ratio > 1) == (ratio[0] > 1)).float().mean(0) > 0.9)  # but for roundings, one sign per input
    assert 0.4 < float((ratio[0] > 1).double().mean()) < 0.6
    read, index = other.to("cpu").reader(4), torch.tensor([5, 2])
    assert torch.equal(read(index, None)[0], changed[index]) and torch.equal(read(index, None)[0], changed[index])
    assert not torch.equal(perturbed(split, 1e-7, 43).batch(slice(7))[0], changed)
    assert perturbed(split, 0.0, 42) is split


def test_floats_are_not_changed_in_place():
    x = torch.randn(5, 8, 16)
    split = perturbed(Split(x.clone(), torch.zeros(5)), 1e-3, 1)
    assert not torch.equal(split.batch(slice(5))[0], x) and torch.equal(split.inputs, x)


def test_a_perturbed_training_ends_elsewhere_but_near():
    plain, changed = (final(settings(), t, 42) for t in (TRAINING, dataclasses.replace(TRAINING, perturbation=1e-6)))
    assert not same(plain, changed)
    for name, value in plain.items():
        torch.testing.assert_close(value, changed[name], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("training", [TRAINING, PUBLISHED])
def test_the_order_of_another_seed(training):
    crossed = dataclasses.replace(training, order_seed=43)
    assert same(final(settings(), training, 43), final(settings(), crossed, 43))
    assert not same(final(settings(), training, 42), final(settings(), crossed, 42))
    found = train_images(settings(), DATA, crossed, Context(seed=42))
    assert found.origin.get("order", "") == ("published of seed 43" if training.order == "published" else "")


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
        patch.setattr("experiments.dag.protocol.training.LoaderOrder", Spy)
        train_images(network, DATA, dataclasses.replace(PUBLISHED, order_seed=44), Context(seed=42))
    assert torch.equal(seen[0], want)


def test_settings_that_are_off_leave_identities_and_checkpoints_alone():
    assert not {"order_seed", "perturbation"} & set(identity(TRAINING))
    base = {"settings": settings(), "dataset": DATA, "fingerprint": "f"}
    keys = [
        training_key(**base, training=dataclasses.replace(TRAINING, **change))
        for change in ({}, {"order_seed": 42}, {"perturbation": 1e-7}, {"order": "published"})
    ]
    assert all(a != b for i, a in enumerate(keys) for b in keys[:i])


@pytest.mark.parametrize(("setting", "value"), [("perturbation", 1e-9), ("perturbation", 2.0), ("order_seed", -2)])
def test_settings_that_cannot_be_meant(setting, value):
    with pytest.raises(SettingError, match=f"training.{setting}: expected"):
        check(MinibatchTraining(**{setting: value}), "training")
