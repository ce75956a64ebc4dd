"""Networks, data and trainings of the inter-layer experiments, made from settings and shared
through checkpoints.

Networks and permutations are drawn on the CPU, whatever the device: initial weights and data order
do not depend on it.

Two cells that name the same network, data, training and seed use the same training: it is done once
and kept.

The paper's trainings set torch's global seed for each model, build the network's layers in order on
the CPU with torch's default initialisation, and go on with the same stream: each epoch's DataLoader
draws its permutation from it. The same draws give the same networks for seeds 42 to 46 (Exp. 1 at
init: R(d), mean and spread over seeds, to eight digits) and, on records in the official order, the
same batches. For every other seed, and for what the paper does not have, the project's named
streams are used; `streams_of` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from experiments.dag.protocol.inter_layer import PUBLISHED_SEEDS, InterLayer
from runner.contract import Cell, Context, Table
from runner.contract.experiment import torch_generator
from runner.curvature.graph.losses import LossSpec
from runner.data.images import ImageData, Split, load, load_images
from runner.data.synthetic import RegressionData
from runner.kinds.dataset import AttentionData, ImageSettings
from runner.kinds.training import MinibatchTraining
from runner.models import builder
from runner.models.network import Network, SpectralLinear
from runner.training.minibatch import Training, evaluate, train
from runner.training.order import LoaderAugment, LoaderOrder

NetworkSettings = Mapping[str, Any]
"""Name of a function of `runner.models` under "builder", "initial" ("published"; named streams if
left out), and the function's keyword arguments."""


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
        return (
            {"origin": {name: [value] for name, value in self.origin.items()}}
            if self.origin
            else {}
        )


def build(settings: NetworkSettings, seed: int) -> Network:
    """A fresh network on the CPU: the published one of the seed, or one initialised from the seed's
    stream "init".

    The stream is the same for all networks of a seed, as in the DAG paper, which sets the seed
    again for each model.
    """
    return build_with_stream(settings, seed)[0]


def build_with_stream(settings: NetworkSettings, seed: int) -> tuple[Network, torch.Generator]:
    """The network, and torch's global stream as it stands after the published network of these
    settings was built."""
    arguments = {
        name: value for name, value in settings.items() if name not in ("builder", "initial")
    }
    make = partial(builder(settings["builder"]), **arguments)
    network, stream = published_network(lambda: make(generator=None), seed)
    if streams_of(settings.get("initial", "named"), seed) == "named":
        network = make(generator=torch_generator(seed, "init"))
    return network, stream


def training_key(
    settings: NetworkSettings, dataset: ImageSettings, fingerprint: str, training: MinibatchTraining
) -> dict[str, Any]:
    """Everything that the result of a training depends on, except the seed."""
    pixels = {
        name: getattr(dataset, name) for name in ("kind", "classes", "mean", "std", "train", "test")
    }
    return {
        "network": dict(settings),
        "data": {**pixels, "fingerprint": fingerprint},
        "training": training_arguments(training)
        | {"augment": training.augment}
        | settings_since(training),
    }


def settings_since(training: MinibatchTraining) -> dict[str, Any]:
    """The entries of a training's key that keys made before these settings lack, where they are not
    the default."""
    defaults = {"order": "named", "order_seed": -1, "perturbation": 0.0}
    return {
        name: getattr(training, name)
        for name, usual in defaults.items()
        if getattr(training, name) != usual
    }


def training_arguments(training: MinibatchTraining) -> dict[str, Any]:
    """The keyword arguments of `train` that the configuration gives."""
    names = ("optimizer", "rate", "momentum", "weight_decay", "clip", "batch", "epochs", "schedule")
    return {name: getattr(training, name) for name in names}


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
    "augment". Published ones: see `experiments.dag.protocol.training`; crops and flips then come
    from the same stream as the order does.
    """
    data = load_images(dataset, ctx, flat=flat)
    parts = [perturbed(part, training.perturbation, ctx.seed) for part in (data.train, data.test)]
    data = data._replace(train=parts[0], test=parts[1])
    network, stream = build_with_stream(settings, ctx.seed)
    seed = order_seed(training, ctx.seed)
    if seed != ctx.seed:
        stream = build_with_stream(settings, seed)[1]
    published = streams_of(training.order, seed) == "published"
    augment = LoaderAugment(stream) if published else ctx.torch_generator("augment")
    result = train(
        network.to(ctx.device),
        data.train,
        data.test,
        order=LoaderOrder(stream) if published else torch_generator(seed, "order"),
        augment=augment if training.augment else None,
        save_every=save_every,
        until=until,
        checkpoints=ctx.checkpoints(training_key(settings, dataset, data.fingerprint, training)),
        progress=ctx.progress,
        **training_arguments(training),
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


def on_images(experiment: InterLayer, cell: Cell, ctx: Context) -> Trained:
    """The network of a cell, trained, or as it starts where the experiment's field `untrained` is
    true."""
    make = untrained_images if getattr(experiment, "untrained", False) else train_images
    return make(experiment.network_settings(cell), experiment.dataset, experiment.training, ctx)


def order_seed(training: MinibatchTraining, seed: int) -> int:
    """The seed whose order of the examples a run of `seed` takes."""
    return seed if training.order_seed < 0 else training.order_seed


def origin_of(
    settings: NetworkSettings, training: MinibatchTraining, data: ImageData, seed: int
) -> dict[str, str]:
    """Columns of `Trained.origin_table`; none where the settings ask for named streams alone."""
    initial, of_order = settings.get("initial", "named"), order_seed(training, seed)
    if (initial, training.order) == ("named", "named"):
        return {}
    another = "" if of_order == seed else f" of seed {of_order}"
    return {
        "initial": streams_of(initial, seed),
        "order": streams_of(training.order, of_order) + another,
        "train_records": data.train_order or data.source,
        "test_records": data.test_order or data.source,
        "fingerprint": data.fingerprint,
    }


def train_regression(
    settings: NetworkSettings, dataset: AttentionData, training: MinibatchTraining, ctx: Context
) -> Trained:
    """Train the network on token sequences with the squared error, or load the training if it is
    there."""
    data: RegressionData = load(dataset, ctx)
    parts = [
        perturbed(part, training.perturbation, ctx.seed) for part in (data.train, data.validation)
    ]
    data = data._replace(train=parts[0], validation=parts[1])
    key = {"network": dict(settings), "data": asdict(dataset) | {"fingerprint": data.fingerprint}}
    network, stream = build_with_stream(settings, ctx.seed)
    published = streams_of(training.order, ctx.seed) == "published"
    result = train(
        network.to(ctx.device),
        data.train,
        data.test,
        loss="mse",
        order=LoaderOrder(stream)
        if published
        else torch_generator(order_seed(training, ctx.seed), "order"),
        checkpoints=ctx.checkpoints(
            {**key, "training": training_arguments(training) | settings_since(training)}
        ),
        progress=ctx.progress,
        save_every=training.epochs,
        **training_arguments(training),
    )
    origin = {
        "initial": streams_of(settings.get("initial", "named"), ctx.seed),
        "order": streams_of(training.order, ctx.seed),
        "inputs": dataset.streams,
        "fingerprint": data.fingerprint,
    }
    return Trained(settings, ctx.seed, data, result, loss="mse", origin=origin, device=ctx.device)


# Inputs changed in their last digit: what the rounding of another device does to a training. Every
# input x_i is multiplied by 1 ± ε, ε about the rounding of float32, with the same sign for pixel i
# in all examples, which is the same as changing the first layer's weights by as little.


@dataclass(frozen=True, kw_only=True)
class Perturbed(Split):
    """A split whose normalised inputs are multiplied by `factor`, of the shape of one example's
    input."""

    factor: Tensor

    def to(self, device: str | torch.device) -> Split:
        return replace(
            self,
            inputs=self.inputs.to(device),
            targets=self.targets.to(device),
            factor=self.factor.to(device),
        )

    def normalised(self, pixels: Tensor, out: Tensor | None = None) -> Tensor:
        x = super().normalised(pixels, out)
        return x * self.factor if x is pixels else x.mul_(self.factor)


def perturbed(split: Split, relative: float, seed: int) -> Split:
    """The split with every input changed by ± `relative` of itself, signs from the seed's stream
    "perturbation".

    The same factors for every split of one shape. The split itself for 0.
    """
    if relative == 0:
        return split
    shape = split.batch(slice(1))[0].shape[1:]
    signs = torch.randint(2, shape, generator=torch_generator(seed, "perturbation")) * 2 - 1
    return Perturbed(**vars(split), factor=(1 + relative * signs.double()).float())


STREAMS = ("named", "published")


def streams_of(setting: str, seed: int) -> str:
    """What the setting "named" or "published" means at one seed: published streams exist for the
    paper's seeds only.

    >>> streams_of("published", 42), streams_of("published", 47), streams_of("named", 42)
    ('published', 'named', 'named')
    """
    return setting if seed in PUBLISHED_SEEDS else "named"


def published_network(make: Callable[[], Network], seed: int) -> tuple[Network, torch.Generator]:
    """make() under torch.manual_seed(seed), and a generator that goes on where the global stream
    then stood.

    The global state of the caller is kept. make() must build the layers on the CPU in the paper's
    order. Spectral weights get a 16th step of their power iteration: torch's spectral_norm makes 15
    and, as it registers the parametrization of a layer in training mode, one more (Table N.2 at
    init: ρ = 0.91, with 15 steps 0.92 at L = 12).
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make()
        for module in network.modules():
            if isinstance(module, SpectralLinear):
                module.iterate()
        stream = torch.Generator()
        stream.set_state(torch.get_rng_state())
    return network, stream
