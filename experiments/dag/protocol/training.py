"""Networks, data and trainings of the inter-layer experiments, made from settings and shared through checkpoints.

Two cells that name the same network, data, training and seed use the same training: it is done once and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from runner.contract.experiment import Context
from runner.contract.seeding import torch_generator
from runner.curvature.graph.losses import LossSpec
from runner.data.attention import AttentionData, RegressionData
from runner.data.images import ImageData, ImageSettings
from runner.data.loading import load, load_images
from runner.models import Network, builder
from runner.training.kinds.minibatch import MinibatchTraining
from runner.training.minibatch import Training, train

NetworkSettings = Mapping[str, Any]
"""Name of a function of `runner.models` under "builder", beside its keyword arguments."""


@dataclass(frozen=True)
class Trained:
    """A finished training of the network `settings`, with its data."""

    settings: NetworkSettings
    seed: int
    data: ImageData | RegressionData
    training: Training
    loss: LossSpec = "cross_entropy"

    def at(self, checkpoint: str) -> Network:
        """The network in evaluation mode as it was at init, mid or final. Raises ValueError for one not reached."""
        return self.training.load_into(build(self.settings, self.seed), checkpoint)


def build(settings: NetworkSettings, seed: int) -> Network:
    """A fresh network, initialised from the stream "init" of the seed.

    The stream is the same for all networks of a seed, as in the DAG paper, which sets the seed anew for each model.
    """
    arguments = {name: value for name, value in settings.items() if name != "builder"}
    network = builder(settings["builder"])(**arguments, generator=torch_generator(seed, "init"))
    assert isinstance(network, Network)
    return network


def training_key(
    settings: NetworkSettings, dataset: ImageSettings, fingerprint: str, training: MinibatchTraining
) -> dict[str, Any]:
    """Everything that the result of a training depends on, but for the seed."""
    pixels = {name: getattr(dataset, name) for name in ("kind", "classes", "mean", "std", "train", "test")}
    return {
        "network": dict(settings),
        "data": {**pixels, "fingerprint": fingerprint},
        "training": training_arguments(training) | {"augment": training.augment},
    }


def training_arguments(training: MinibatchTraining) -> dict[str, Any]:
    """The keyword arguments of `train` that the configuration gives."""
    names = ("optimizer", "rate", "momentum", "weight_decay", "clip", "batch", "epochs", "schedule")
    return {name: getattr(training, name) for name in names}


def train_images(
    settings: NetworkSettings, dataset: ImageSettings, training: MinibatchTraining, ctx: Context, *, flat: bool = True
) -> Trained:
    """Train the network on images with cross-entropy, or load the training if it is there; go on where it stopped.

    Streams of the seed: "init" (parameters), "order" (permutations of the examples), "augment".
    """
    data = load_images(dataset, ctx, flat=flat)
    result = train(
        build(settings, ctx.seed),
        data.train,
        data.test,
        order=ctx.torch_generator("order"),
        augment=ctx.torch_generator("augment") if training.augment else None,
        checkpoints=ctx.checkpoints(training_key(settings, dataset, data.fingerprint, training)),
        progress=ctx.progress,
        **training_arguments(training),
    )
    return Trained(settings, ctx.seed, data, result)


def train_regression(
    settings: NetworkSettings, dataset: AttentionData, training: MinibatchTraining, ctx: Context
) -> Trained:
    """Train the network on token sequences with the squared error, or load the training if it is there."""
    data: RegressionData = load(dataset, ctx)
    key = {"network": dict(settings), "data": asdict(dataset) | {"fingerprint": data.fingerprint}}
    result = train(
        build(settings, ctx.seed),
        data.train,
        data.test,
        loss="mse",
        order=ctx.torch_generator("order"),
        checkpoints=ctx.checkpoints({**key, "training": training_arguments(training)}),
        progress=ctx.progress,
        save_every=training.epochs,
        **training_arguments(training),
    )
    return Trained(settings, ctx.seed, data, result, loss="mse")
