"""Networks, data and trainings of the inter-layer experiments, made from settings and shared through checkpoints.

Two cells that name the same network, data, training and seed use the same training: it is done once and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from runner import models
from runner.contract.experiment import AttentionData, CifarData, Context, MinibatchTraining
from runner.contract.seeding import torch_generator
from runner.curvature.graph.losses import LossSpec
from runner.data import cifar
from runner.data.attention import RegressionData, token_regression
from runner.data.images import ImageData
from runner.data.surrogate import surrogate_images
from runner.models import Network
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
    network = getattr(models, settings["builder"])(**arguments, generator=torch_generator(seed, "init"))
    assert isinstance(network, Network)
    return network


def load_images(dataset: CifarData, seed: int, *, flat: bool = True) -> ImageData:
    """The pixels a configuration asks for, read once per process."""
    return _load(
        dataset.kind,
        seed if dataset.kind == "surrogate" else 0,
        tuple(dataset.mean),
        tuple(dataset.std),
        classes=dataset.classes,
        train=dataset.train,
        test=dataset.test,
        flat=flat,
    )


@lru_cache(maxsize=1)
def _load(
    kind: str,
    seed: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    *,
    classes: int,
    train: int,
    test: int,
    flat: bool,
) -> ImageData:
    if kind == "surrogate":
        generator = torch_generator(seed, "images")
        return surrogate_images(
            train=train, test=test, generator=generator, classes=classes, mean=mean, std=std, flat=flat
        )
    return cifar.load(kind, train=train, test=test, mean=mean, std=std, flat=flat)


def training_key(
    settings: NetworkSettings, dataset: CifarData, fingerprint: str, training: MinibatchTraining
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
    settings: NetworkSettings, dataset: CifarData, training: MinibatchTraining, ctx: Context, *, flat: bool = True
) -> Trained:
    """Train the network on images with cross-entropy, or load the training if it is there; go on where it stopped.

    Streams of the seed: "init" (parameters), "order" (permutations of the examples), "augment".
    """
    data = load_images(dataset, ctx.seed, flat=flat)
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


def load_tokens(dataset: AttentionData, seed: int) -> RegressionData:
    """Sequences from the stream "inputs" of the seed, targets from the teacher of `teacher_seed`, the same for all."""
    names = ("train", "validation", "tokens", "width", "noise", "response", "spread", "offset")
    return token_regression(
        generator=torch_generator(seed, "inputs"),
        teacher=torch_generator(dataset.teacher_seed, "teacher"),
        **{name: getattr(dataset, name) for name in names},
    )


def train_regression(
    settings: NetworkSettings, dataset: AttentionData, training: MinibatchTraining, ctx: Context
) -> Trained:
    """Train the network on token sequences with the squared error, or load the training if it is there."""
    data = load_tokens(dataset, ctx.seed)
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
