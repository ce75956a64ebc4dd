"""DAG, Exp. 3, Appendix N.6: the stochastic Gauss–Newton gap against the exact one, and how its error falls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer, mlp_settings
from runner.contract.experiment import (
    Analysis,
    Cell,
    Context,
    SettingError,
    Table,
    Tables,
    free,
    grid,
    one_of,
    positive,
)
from runner.models.kinds.chain import MlpModel


@dataclass(frozen=True, kw_only=True)
class Exp3Stochastic(InterLayer):
    """Settings, each explained in conf/experiment/exp3_stochastic.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Stochastic against exact Gauss–Newton gap"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Table N.6"
    claimed: ClassVar[str] = "exp3_stochastic"

    activation: list[str] = grid()
    depth: int = 6
    probes: list[int]
    draws: int = free(20)
    model: MlpModel

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.activation", self.activation, ACTIVATIONS)
        positive("experiment.depth", self.depth)
        positive("experiment.draws", self.draws)
        if not self.probes or min(self.probes) < 2:
            raise SettingError(f"experiment.probes: expected numbers of at least 2, found {self.probes}")

    def cells(self) -> list[Cell]:
        return [
            replace(self.priced(Cell(params), self.depth, fixed=5), memory_gib=0.9) for params in self.combinations()
        ]

    def network_settings(self, cell: Cell) -> Mapping[str, Any]:
        activation = str(cell.params["activation"])
        return mlp_settings(self.model, self.dataset, depth=self.depth, arch="plain", activation=activation)

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.dag.exp3.stochastic_measure import compare
        from experiments.dag.protocol.training import train_images

        trained = train_images(self.network_settings(cell), self.dataset, self.training, ctx)
        tables = compare(trained, self.metric, self.probes, self.draws, str(cell.params["activation"]), ctx)
        return {**tables, **trained.origin_table()}

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp3.stochastic_report import StochasticGapAnalysis

        return StochasticGapAnalysis(self, tables)
