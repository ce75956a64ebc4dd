"""Trainings of networks that settings name, shared through checkpoints.

Two cells that name the same network, data, training and seed use the same training: it is done once
and kept. `runner.training.initial` says from which streams networks and data orders come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from runner.contract import Context, Table
from runner.contract.experiment import torch_generator
from runner.contract.schema import identifying
from runner.curvature.graphs.losses import LossSpec
from runner.data.images import ImageData, load, load_images
from runner.data.synthetic import RegressionData
from runner.kinds.dataset import AttentionData, ImageSettings
from runner.kinds.training import MinibatchTraining
from runner.models.network import Network
from runner.training.initial import NetworkSettings, build, build_with_stream
from runner.training.minibatch import Training, evaluate, train
from runner.training.order import LoaderAugment, LoaderOrder, Order
from runner.training.perturbed import perturbed
from runner.training.streams import NAMED, PUBLISHED, streams_of


@dataclass(frozen=True)
class Trained:
    """A finished training of the network `settings`, with its data."""

    settings: NetworkSettings
    seed: int
    data: ImageData | RegressionData
    training: Training
    loss: LossSpec = "cross_entropy"
    origin: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"

    def at(self, checkpoint: str) -> Network:
        """The network in evaluation mode as it was at init, mid or final, on the device of the
        training.

        Raises ValueError for a checkpoint that was not reached.
        """
        return self.training.load_into(build(self.settings, self.seed).to(self.device), checkpoint)

    def origin_table(self) -> dict[str, Table]:
        """Table `origin`, one row: which streams made network and data order, and in what order the
        records are.

        None for trainings of named streams alone, whose cells are older than the table.
        """
        if not self.origin:
            return {}
        return {"origin": {name: [value] for name, value in self.origin.items()}}


def training_key(
    settings: NetworkSettings, dataset: ImageSettings, fingerprint: str, training: MinibatchTraining
) -> dict[str, Any]:
    """Everything that the result of a training depends on, except the seed."""
    return {
        "network": dict(settings),
        "data": identifying(dataset) | {"fingerprint": fingerprint},
        "training": without(identifying(training), "kind"),
    }


def without(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The settings that have other names."""
    return {name: value for name, value in settings.items() if name not in names}


def order_seed(training: MinibatchTraining, seed: int) -> int:
    """The seed whose order of the examples a run of `seed` takes."""
    return seed if training.order_seed < 0 else training.order_seed


def origin_of(
    settings: NetworkSettings, training: MinibatchTraining, data: ImageData, seed: int
) -> dict[str, str]:
    """Columns of `Trained.origin_table`; none where the settings ask for named streams alone."""
    initial = settings.get("initial", NAMED)
    if initial == NAMED and training.order == NAMED:
        return {}
    seed_of_order = order_seed(training, seed)
    order = streams_of(training.order, seed_of_order)
    if seed_of_order != seed:
        order += f" of seed {seed_of_order}"
    return {
        "initial": streams_of(initial, seed),
        "order": order,
        "train_records": data.train_order or data.source,
        "test_records": data.test_order or data.source,
        "fingerprint": data.fingerprint,
    }


def train_images(
    settings: NetworkSettings,
    dataset: ImageSettings,
    training: MinibatchTraining,
    ctx: Context,
    *,
    flat: bool = True,
    save_every: int = 5,
    until: str = "final",
) -> Trained:
    """Train the network on images with cross-entropy to the checkpoint `until`, or load what is
    there of the training.

    Named streams of the seed: "init" (parameters), "order" (permutations of the examples),
    "augment". Published ones: see `runner.training.initial`; crops and flips then come from the
    same stream as the order does.
    """
    data = load_images(dataset, ctx, flat=flat)
    data = data._replace(
        train=perturbed(data.train, training.perturbation, ctx.seed),
        test=perturbed(data.test, training.perturbation, ctx.seed),
    )
    network, stream = build_with_stream(settings, ctx.seed)
    seed = order_seed(training, ctx.seed)
    if seed != ctx.seed:
        stream = build_with_stream(settings, seed)[1]
    order: Order | torch.Generator = torch_generator(seed, "order")
    augment: LoaderAugment | torch.Generator = ctx.torch_generator("augment")
    if streams_of(training.order, seed) == PUBLISHED:
        order = LoaderOrder(stream)
        augment = LoaderAugment(stream)
    result = train(
        network.to(ctx.device),
        data.train,
        data.test,
        training,
        order=order,
        augment=augment if training.augment else None,
        save_every=save_every,
        until=until,
        checkpoints=ctx.checkpoints(training_key(settings, dataset, data.fingerprint, training)),
        progress=ctx.progress,
    )
    origin = origin_of(settings, training, data, ctx.seed)
    if set(result.devices) - {"cpu"}:
        origin["trained_on"] = "; ".join(result.devices)
    return Trained(settings, ctx.seed, data, result, origin=origin, device=ctx.device)


def untrained_images(
    settings: NetworkSettings, dataset: ImageSettings, training: MinibatchTraining, ctx: Context
) -> Trained:
    """The network before any step, as `train_images` has it at "init", with its loss and accuracy
    on the test set."""
    data = load_images(dataset, ctx, flat=True)
    data = data._replace(test=perturbed(data.test, training.perturbation, ctx.seed))
    network = build(settings, ctx.seed).to(ctx.device).eval()
    loss, accuracy = evaluate(network, data.test.to(ctx.device), "cross_entropy")
    history = {"epoch": [0.0], "test_loss": [loss], "test_accuracy": [accuracy]}
    result = Training(states={"init": network.state_dict()}, history=history)
    origin = origin_of(settings, training, data, ctx.seed)
    return Trained(settings, ctx.seed, data, result, origin=origin, device=ctx.device)


def train_regression(
    settings: NetworkSettings, dataset: AttentionData, training: MinibatchTraining, ctx: Context
) -> Trained:
    """Train the network on token sequences with the squared error, or load the training if it is
    there."""
    data: RegressionData = load(dataset, ctx)
    data = data._replace(
        train=perturbed(data.train, training.perturbation, ctx.seed),
        validation=perturbed(data.validation, training.perturbation, ctx.seed),
    )
    key = {
        "network": dict(settings),
        "data": asdict(dataset) | {"fingerprint": data.fingerprint},
        "training": without(identifying(training), "kind", "augment"),
    }
    network, stream = build_with_stream(settings, ctx.seed)
    streams = streams_of(training.order, ctx.seed)
    order: Order | torch.Generator = LoaderOrder(stream)
    if streams == NAMED:
        order = torch_generator(order_seed(training, ctx.seed), "order")
    result = train(
        network.to(ctx.device),
        data.train,
        data.test,
        training,
        loss="mse",
        order=order,
        checkpoints=ctx.checkpoints(key),
        progress=ctx.progress,
        save_every=training.epochs,
    )
    origin = {
        "initial": streams_of(settings.get("initial", NAMED), ctx.seed),
        "order": streams,
        "inputs": dataset.streams,
        "fingerprint": data.fingerprint,
    }
    return Trained(settings, ctx.seed, data, result, loss="mse", origin=origin, device=ctx.device)
