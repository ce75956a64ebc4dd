"""Settings of the experiments that train networks and measure inter-layer blocks (DAG paper,
Sections 4 and 5).

`InterLayer` is the base class. Companions are settings whose cells an experiment's report uses in
addition to its own; measured or not, they change no value of the experiment itself. What rounding
does:

    hess-run -m experiment=exp3_gn_gap training.perturbation=1e-7 seed=range(42,47)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.printed import Judged
from runner import contract as c
from runner.kinds.dataset import ImageSettings
from runner.kinds.metric import InterLayerMetric
from runner.kinds.training import MinibatchTraining
from runner.models import activations
from runner.training.streams import PUBLISHED_SEEDS

ACTIVATIONS = tuple(name for name in activations.ACTIVATIONS if name != "linear")


@dataclass(frozen=True, kw_only=True)
class InterLayer(Judged):
    """Train one network per cell, then measure the blocks of all pairs of its measured nodes at
    each checkpoint.

    A subclass says which network a cell is (`network_settings`). One with a field `untrained` can
    leave the training out and measure the initial networks alone.
    """

    measure = "experiments.dag.protocol.measure:measure"
    own_rows: ClassVar[Mapping[str, c.Scalar]] = {"images": 0}  # of the paper's own images

    dataset: ImageSettings
    metric: InterLayerMetric
    training: MinibatchTraining

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric.examples > self.dataset.test:
            raise c.SettingError(
                f"metric.examples: expected at most the {self.dataset.test} test images, found "
                f"{self.metric.examples}"
            )

    @abstractmethod
    def network_settings(self, cell: c.Cell) -> Mapping[str, Any]:
        """Name of a function of `runner.models` under "builder", and its keyword arguments."""

    def priced(self, cell: c.Cell, blocks: int, fixed: float = 2.0) -> c.Cell:
        """The cell with its predicted cost on one thread: epochs of training, then evaluations of
        all pairs.

        The constants are fitted to stored cells of widths 64, 128 and 512, which they meet within a
        factor of two. fixed: seconds for everything else.
        """
        epochs = 0 if getattr(self, "untrained", False) else self.training.epochs
        measured = 3 * blocks * (blocks + 1) / 2 * (self.metric.subsamples + 1)
        evaluations = measured * self.metric.examples / 32
        metrics = 0.0008 * evaluations * (self._width / 64) ** 2.5
        seconds = fixed + epochs * self.epoch_seconds(blocks) + metrics
        return replace(cell, seconds=round(seconds, 1), memory_gib=self.peak_gib(blocks))

    def epoch_seconds(self, blocks: int) -> float:
        """Predicted time of one epoch: the projection costs in proportion to the width, a block to
        its square."""
        scale = self._width / 64
        projection = 0.7 + 0.25 * scale
        block = 0.02 + 0.02 * scale**2
        return (projection + block * blocks) * self.dataset.train / 50000

    def peak_gib(self, blocks: int) -> float:
        """Predicted memory: the program and its data, 16 bytes a parameter, and the three parts of
        the blocks of all pairs, of which at most `metric.memory_gib` is held at a time, but one
        pair always."""
        pair = 3 * 4 * self.metric.examples * self._width**2 / 2**30
        pairs = pair * blocks * (blocks + 1) / 2
        held = max(pair, min(self.metric.memory_gib, pairs))
        parameters = (3072 + blocks * self._width) * self._width
        return round(0.6 + 16 * parameters / 2**30 + held, 2)

    @property
    def _width(self) -> int:
        model = getattr(self, "model", None)
        return int(getattr(model, "width", 64))


ROUNDING = "rounding"
WITHOUT_NORM = "without LayerNorm"
"""Of Exps. 1 and 4: untrained networks without LayerNorm, with which printed norms agree better
(Sections 5.1, 5.4)."""
DEEPER = "L = 32"
"""Of Exp. 1b: the depth to which Section 5.1 follows the norms of plain networks."""
PERTURBATION = 1e-7
"""Relative change of every input: about the rounding of float32."""


def without_norm(experiment: InterLayer, model: Any, **grid: Any) -> c.Companion:
    """Untrained networks without LayerNorm on the paper's images; grid: fields of the experiment
    that change."""
    bare = replace(model, norm=False)
    paper_images = replace(experiment.metric, subsamples=0)
    changes = {
        "model": bare,
        "metric": paper_images,
        "untrained": True,
    }
    return companion(experiment, PUBLISHED_SEEDS, **changes, **grid)


def companion(experiment: InterLayer, seeds: range, **changes: Any) -> c.Companion:
    """The experiment with other settings."""
    return c.Companion(replace(experiment, **changes), seeds)


def companions(experiment: InterLayer) -> dict[str, c.Companion]:
    """The companions of an experiment on images; none of settings that are a companion
    themselves."""
    training = experiment.training
    if training.perturbation or training.order_seed >= 0:
        return {}
    rounded = replace(training, perturbation=PERTURBATION)
    return {ROUNDING: companion(experiment, PUBLISHED_SEEDS, training=rounded)}
