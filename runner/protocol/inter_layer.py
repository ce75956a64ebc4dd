"""Base class of the experiments that train networks and measure inter-layer blocks (DAG paper, Sections 4 and 5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.experiment import (
    BlockMetric,
    Cell,
    CifarData,
    Context,
    Experiment,
    MinibatchTraining,
    MlpModel,
    SettingError,
    Table,
)

CHECKPOINTS = ("init", "mid", "final")
ARCHITECTURES = ("plain", "residual", "plain_sn")
ACTIVATIONS = ("relu", "leaky_relu", "softplus", "silu", "gelu", "tanh")


def mlp_settings(model: MlpModel, dataset: CifarData, *, depth: int, arch: str, activation: str) -> dict[str, Any]:
    """Settings of `runner.models.mlp`: plain, residual, or plain with spectral norm instead of LayerNorm."""
    return {
        "builder": "mlp",
        "outputs": dataset.classes,
        "depth": depth,
        "width": model.width,
        "activation": activation,
        "residual": arch == "residual",
        "norm": model.norm and arch != "plain_sn",
        "spectral": arch == "plain_sn",
    }


@dataclass(frozen=True, kw_only=True)
class InterLayer(Experiment):
    """Train one network per cell, then measure the blocks of all pairs of its measured nodes at each checkpoint.

    A subclass says which network a cell is (`network_settings`).
    """

    dataset: CifarData
    metric: BlockMetric
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

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from runner.protocol.measure import measure
        from runner.protocol.training import train_images

        trained = train_images(self.network_settings(cell), self.dataset, self.training, ctx)
        return measure(trained, self.metric, ctx)
