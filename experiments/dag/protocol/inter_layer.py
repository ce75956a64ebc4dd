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

        The constants are fitted to stored cells of widths 64, 128 and 512, which they meet within a factor of two.
        fixed: seconds for everything else.
        """
        epochs = 0 if getattr(self, "untrained", False) else self.training.epochs
        pairs, scale = blocks * (blocks + 1) / 2 * 3, self._width / 64
        metrics = 0.0008 * pairs * (self.metric.subsamples + 1) * scale**2.5 * self.metric.examples / 32
        seconds = round(fixed + epochs * self.epoch_seconds(blocks) + metrics, 1)
        return replace(cell, seconds=seconds, memory_gib=self.peak_gib(blocks))

    def epoch_seconds(self, blocks: int) -> float:
        """Predicted time of one epoch: the projection costs in proportion to the width, a block to its square."""
        scale = self._width / 64
        return (0.7 + 0.25 * scale + (0.02 + 0.02 * scale**2) * blocks) * self.dataset.train / 50000

    def peak_gib(self, blocks: int) -> float:
        """Predicted memory: the program and its data, 16 bytes a parameter, and the three parts of the blocks of all
        pairs, of which at most `metric.memory_gib` is held at a time, but one pair always."""
        pair = 3 * 4 * self.metric.examples * self._width**2 / 2**30
        held = max(pair, min(self.metric.memory_gib, pair * blocks * (blocks + 1) / 2))
        return round(0.6 + 16 * (3072 + blocks * self._width) * self._width / 2**30 + held, 2)

    @property
    def _width(self) -> int:
        return int(getattr(getattr(self, "model", None), "width", 64))
