"""DAG, Exp. 1: decay of resonance R(d) and coupling C(d) with the distance between layers, plain against residual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer, mlp_settings
from runner.contract.experiment import Analysis, Cell, Tables, grid, one_of, positive
from runner.models.kinds.chain import ARCHITECTURES, BlockChain


@dataclass(frozen=True, kw_only=True)
class Exp1Resonance(InterLayer):
    """Settings, each explained in conf/experiment/exp1_resonance.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Resonance and coupling decay with the distance between layers"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Figs. 2, 3; Table 2"
    claimed: ClassVar[str] = "exp1_resonance"

    depth: list[int] = grid()
    arch: list[str] = grid()
    activation: str = "relu"
    model: BlockChain

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("experiment.depth", self.depth)
        one_of("experiment.arch", self.arch, ARCHITECTURES)
        one_of("experiment.activation", self.activation, ACTIVATIONS)
        if not set(self.arch) & set(self.model.archs):
            one_of(f"experiment.arch of model={self.model.kind}", self.arch, self.model.archs)

    def cells(self) -> list[Cell]:
        """Depths and blocks of the grid, of those blocks that the model can have."""
        wanted = [params for params in self.combinations() if params["arch"] in self.model.archs]
        return [self.priced(Cell(params), int(params["depth"])) for params in wanted]

    def network_settings(self, cell: Cell) -> Mapping[str, Any]:
        depth, arch = int(cell.params["depth"]), str(cell.params["arch"])
        return mlp_settings(self.model, self.dataset, depth=depth, arch=arch, activation=self.activation)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp1.report import ResonanceAnalysis

        return ResonanceAnalysis(self, tables)
