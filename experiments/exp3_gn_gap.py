"""DAG, Exp. 3: what Gauss–Newton leaves out of the inter-layer blocks, by activation, without LayerNorm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.experiment import Cell, MlpModel, grid, one_of, positive
from runner.protocol.inter_layer import ACTIVATIONS, InterLayer, mlp_settings


@dataclass(frozen=True, kw_only=True)
class Exp3GnGap(InterLayer):
    """Settings, each explained in conf/experiment/exp3_gn_gap.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Gauss–Newton gap by activation, without LayerNorm"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Fig. 5; Tables 5, N.5, N.6"

    activation: list[str] = grid()
    depth: int = 6
    model: MlpModel

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.activation", self.activation, ACTIVATIONS)
        positive("experiment.depth", self.depth)

    def network_settings(self, cell: Cell) -> Mapping[str, Any]:
        activation = str(cell.params["activation"])
        return mlp_settings(self.model, self.dataset, depth=self.depth, arch="plain", activation=activation)
