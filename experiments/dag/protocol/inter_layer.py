"""Base class of the experiments that train networks and measure inter-layer blocks (DAG paper, Sections 4 and 5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar

from runner.contract.experiment import Cell, Context, Experiment, SettingError, Table
from runner.data.images import ImageSettings
from runner.metrics.inter_layer import InterLayerMetric
from runner.models import activations
from runner.models.kinds.chain import BlockChain
from runner.training.kinds.minibatch import MinibatchTraining

ACTIVATIONS = tuple(name for name in activations.ACTIVATIONS if name != "linear")


def mlp_settings(
    model: BlockChain, dataset: ImageSettings, *, depth: int, arch: str, activation: str
) -> dict[str, Any]:
    """Builder and arguments of a chain of blocks with an output for each class of the data."""
    return model.network(outputs=dataset.classes, depth=depth, arch=arch, activation=activation)


@dataclass(frozen=True, kw_only=True)
class InterLayer(Experiment):
    """Train one network per cell, then measure the blocks of all pairs of its measured nodes at each checkpoint.

    A subclass says which network a cell is (`network_settings`). data, architecture: kinds of the paper's protocol.
    """

    data: ClassVar[str] = "cifar10"
    architecture: ClassVar[str] = "mlp"

    dataset: ImageSettings
    metric: InterLayerMetric
    training: MinibatchTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric.examples > self.dataset.test:
            raise SettingError(
                f"metric.examples: expected at most the {self.dataset.test} test images, found {self.metric.examples}"
            )

    @abstractmethod
    def network_settings(self, cell: Cell) -> Mapping[str, Any]:
        """Name of a function of `runner.models` under "builder", and its keyword arguments."""

    def priced(self, cell: Cell, blocks: int, fixed: float = 2.0) -> Cell:
        """The cell with its predicted cost on one thread: epochs of training, then evaluations of all pairs.

        An epoch of 50,000 images takes about 0.95 s and 0.04 s a block; exact metrics of all pairs 0.0008 s a pair and
        set of images. fixed: seconds for everything else.
        """
        epoch = (0.95 + 0.04 * blocks) * self.dataset.train / 50000
        pairs = blocks * (blocks + 1) / 2 * 3 * (self.metric.subsamples + 1)
        return replace(cell, seconds=round(fixed + self.training.epochs * epoch + 0.0008 * pairs, 1), memory_gib=0.9)

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.dag.protocol.measure import measure
        from experiments.dag.protocol.training import train_images

        trained = train_images(self.network_settings(cell), self.dataset, self.training, ctx)
        return measure(trained, self.metric, ctx)

    def departures(self, protocol: Mapping[str, Any]) -> str:
        """How this run differs from the paper's protocol, '' where it does not.

        protocol: the experiment's own values by setting, as in "training.epochs"; what all of Section 5 shares (data,
        optimiser) is added here.
        """
        wanted = {
            "model.kind": self.architecture,
            "dataset.train": 50000,
            "dataset.test": 10000,
            "metric.subsample": "first",
            "training.optimizer": "sgd",
            "training.rate": 0.01,
            "training.momentum": 0.9,
            "training.weight_decay": 1e-4,
            "training.clip": 1.0,
            "training.batch": 128,
            "training.schedule": "cosine",
            "training.augment": False,
            **protocol,
        }
        found = {key: self._value(key, wanted[key]) for key in wanted}
        changed = [f"{key}={found[key]} instead of {value}" for key, value in wanted.items() if found[key] != value]
        if self.dataset.kind == "surrogate":
            changed = [f"dataset=surrogate instead of {self.data}", *(c for c in changed if "dataset" not in c)]
        elif self.dataset.kind != self.data:
            changed.insert(0, f"dataset={self.dataset.kind} instead of {self.data}")
        return f"not the paper's protocol: {', '.join(changed)}" if changed else ""

    def _value(self, key: str, wanted: Any) -> Any:
        """The value of a setting; `wanted` where another kind of model, which is named anyway, does not have it."""
        group, _, name = key.rpartition(".")
        if group == "model" and not hasattr(getattr(self, group), name):
            return wanted
        return attrgetter(key)(self)
