"""DAG, Exp. 4: the tensor term at the merge of two branches, by merge and activation, and blocks across branches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer
from runner.contract.experiment import Analysis, Cell, Context, Table, Tables, grid, one_of, positive
from runner.models.kinds.diamond import DiamondModel

MERGES = ("sum", "cat")


@dataclass(frozen=True, kw_only=True)
class Exp4Diamond(InterLayer):
    """Settings, each explained in conf/experiment/exp4_diamond.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Tensor term at the merge of two branches"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Figs. 6, N.2; Tables 6, N.4"
    claimed: ClassVar[str] = "exp4_diamond"
    architecture: ClassVar[str] = "diamond"

    branch_depth: list[int] = grid()
    merge: list[str] = grid()
    activation: list[str] = grid()
    model: DiamondModel

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("experiment.branch_depth", self.branch_depth)
        one_of("experiment.merge", self.merge, MERGES)
        one_of("experiment.activation", self.activation, ACTIVATIONS)

    def cells(self) -> list[Cell]:
        return [self.priced(Cell(params), 2 * int(params["branch_depth"])) for params in self.combinations()]

    def network_settings(self, cell: Cell) -> Mapping[str, Any]:
        depth, activation = int(cell.params["branch_depth"]), str(cell.params["activation"])
        shape: dict[str, Any] = {"branch_depth": depth, "merge": str(cell.params["merge"]), "activation": activation}
        return self.model.network(outputs=self.dataset.classes, **shape)

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.dag.exp4.measure import measure
        from experiments.dag.protocol.training import train_images

        trained = train_images(self.network_settings(cell), self.dataset, self.training, ctx)
        return measure(trained, self.metric, ctx)

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp4.report import DiamondAnalysis

        return DiamondAnalysis(self, tables)
