"""Base class of the experiments that train networks and measure inter-layer blocks (DAG paper, Sections 4 and 5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.printed import Judged
from runner import contract as c
from runner.kinds.dataset import ImageSettings
from runner.kinds.metric import InterLayerMetric
from runner.kinds.model import BlockChain
from runner.kinds.training import MinibatchTraining
from runner.models import activations

ACTIVATIONS = tuple(name for name in activations.ACTIVATIONS if name != "linear")


def mlp_settings(
    model: BlockChain, dataset: ImageSettings, *, depth: int, arch: str, activation: str
) -> dict[str, Any]:
    """Builder and arguments of a chain of blocks with an output for each class of the data."""
    return model.network(outputs=dataset.classes, depth=depth, arch=arch, activation=activation)


@dataclass(frozen=True, kw_only=True)
class InterLayer(Judged):
    """Train one network per cell, then measure the blocks of all pairs of its measured nodes at each checkpoint.

    A subclass says which network a cell is (`network_settings`). One with a field `untrained` can leave the training
    out and measure the initial networks alone.
    """

    measure = "experiments.dag.protocol.measure:measure"

    dataset: ImageSettings
    metric: InterLayerMetric
    training: MinibatchTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric.examples > self.dataset.test:
            raise c.SettingError(
                f"metric.examples: expected at most the {self.dataset.test} test images, found {self.metric.examples}"
            )

    @abstractmethod
    def network_settings(self, cell: c.Cell) -> Mapping[str, Any]:
        """Name of a function of `runner.models` under "builder", and its keyword arguments."""

    def priced(self, cell: c.Cell, blocks: int, fixed: float = 2.0) -> c.Cell:
        """The cell with its predicted cost on one thread: epochs of training, then evaluations of all pairs.

        An epoch of 50,000 images takes about 0.95 s and 0.04 s a block; exact metrics of all pairs 0.0008 s a pair and
        set of images. fixed: seconds for everything else.
        """
        epoch = (0.95 + 0.04 * blocks) * self.dataset.train / 50000
        pairs = blocks * (blocks + 1) / 2 * 3 * (self.metric.subsamples + 1)
        epochs = 0 if getattr(self, "untrained", False) else self.training.epochs
        return replace(cell, seconds=round(fixed + epochs * epoch + 0.0008 * pairs, 1), memory_gib=0.9)
