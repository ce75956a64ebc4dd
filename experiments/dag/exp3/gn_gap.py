"""DAG, Exp. 3: what Gauss–Newton leaves out of the inter-layer blocks, by activation, without LayerNorm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer, mlp_settings
from runner.contract.experiment import (
    Analysis,
    Cell,
    Context,
    Table,
    Tables,
    free,
    grid,
    non_negative,
    one_of,
    positive,
)
from runner.models.kinds.chain import BlockChain


@dataclass(frozen=True, kw_only=True)
class Exp3GnGap(InterLayer):
    """Settings, each explained in conf/experiment/exp3_gn_gap.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Gauss–Newton gap by activation, without LayerNorm"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Fig. 5; Tables 5, N.5, N.6"
    claimed: ClassVar[str] = "exp3_gn_gap"

    activation: list[str] = grid()
    depth: int = 6
    probes: list[int]
    probe_draws: int = free(10)
    model: BlockChain

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("experiment.activation", self.activation, ACTIVATIONS)
        positive("experiment.depth", self.depth)
        positive("experiment.probes", self.probes)
        non_negative("experiment.probe_draws", self.probe_draws)

    def cells(self) -> list[Cell]:
        estimates = 0.0015 * 3 * sum(self.probes) * self.probe_draws
        return [self.priced(Cell(params), self.depth, fixed=2 + estimates) for params in self.combinations()]

    def network_settings(self, cell: Cell) -> Mapping[str, Any]:
        activation, arch = str(cell.params["activation"]), self.model.archs[0]
        return mlp_settings(self.model, self.dataset, depth=self.depth, arch=arch, activation=activation)

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.dag.protocol.measure import measure
        from experiments.dag.protocol.stochastic import compare_gaps
        from experiments.dag.protocol.training import train_images

        trained = train_images(self.network_settings(cell), self.dataset, self.training, ctx)
        tables = measure(trained, self.metric, ctx)
        if self.probes and self.probe_draws:
            tables["stochastic"] = compare_gaps(trained, self.metric, self.probes, self.probe_draws, ctx)
        return tables

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp3.report import GapAnalysis

        return GapAnalysis(self, tables)
