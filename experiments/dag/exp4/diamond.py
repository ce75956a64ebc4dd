"""DAG, Exp. 4: the tensor term at the merge of two branches, by merge and activation, and blocks across branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer
from runner.contract.experiment import Cell, Claim, Context, Table, grid, one_of, positive
from runner.models.kinds.diamond import DiamondModel

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runner.stats import Statistic

MERGES = ("sum", "cat")
VARIANT = ("branch_depth", "merge", "activation")


@dataclass(frozen=True, kw_only=True)
class Exp4Diamond(InterLayer):
    """Settings, each explained in conf/experiment/exp4_diamond.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Tensor term at the merge of two branches"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Figs. 6, N.2; Tables 6, N.4"
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
        shape = {"branch_depth": depth, "merge": str(cell.params["merge"]), "activation": activation}
        return self.model.network(outputs=self.dataset.classes, **shape)

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.dag.exp4.measure import measure
        from experiments.dag.protocol.training import train_images

        trained = train_images(self.network_settings(cell), self.dataset, self.training, ctx)
        return measure(trained, self.metric, ctx)

    def figures(self, tables: Mapping[str, pd.DataFrame]) -> Mapping[str, Figure | Callable[[], Figure]]:
        from experiments.dag.exp4 import figures as draw
        from experiments.dag.protocol import figures

        history = draw.variant(tables["history"])
        return {
            "fig6_merge_gap": lambda: draw.merge_gap(tables["merge"]),
            "figN2_across_branches": lambda: draw.cross(tables["distances"]),
            "within_branches": lambda: draw.within(tables["distances"]),
            "rho": lambda: draw.jacobians(tables["networks"]),
            "image_sets": lambda: draw.image_sets(tables["merge"]),
            "training": lambda: figures.learning_curves(history, panel="branch_depth", variant="kind"),
        }

    def statistics(self, tables: Mapping[str, pd.DataFrame]) -> list[Statistic]:
        from experiments.dag.protocol import comparisons

        distances, merge, networks = tables["distances"], tables["merge"], tables["networks"]
        variant, where = list(VARIANT), [*VARIANT, "checkpoint"]
        cross, curved = distances[distances["relation"] == "cross"], merge[merge["tensor"] > 0]
        deep = cross[cross["branch_depth"] > 1]
        rows = comparisons.decay_fits(deep, "R", keys=where, figure="figN2_across_branches")
        rows += comparisons.through_training(deep, "R", keys=[*variant, "distance"], figure="figN2_across_branches")
        rows += comparisons.through_training(curved, "gap", keys=variant, figure="fig6_merge_gap")
        rows += comparisons.through_training(networks, "rho", keys=variant, figure="rho")
        concatenated = merge[merge["merge"] == "cat"]
        for column, table, keys in (
            ("activation", concatenated, ["branch_depth", "checkpoint"]),
            ("merge", merge, ["branch_depth", "activation", "checkpoint"]),
        ):
            a, b = {"activation": ("silu", "relu"), "merge": ("cat", "sum")}[column]
            value = "gap" if column == "activation" else "R"
            figure = "fig6_merge_gap" if column == "activation" else "R at the merge"
            rows += comparisons.between(table, value, column=column, a=a, b=b, keys=keys, figure=figure)
        rows += comparisons.variance_rows(curved, "gap", keys=where, figure="image_sets")
        rows += comparisons.variance_rows(cross, "R", keys=[*where, "distance"], figure="figN2_across_branches")
        return rows

    def claims(self, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
        from experiments.dag.exp4.claims import claims

        return claims(tables)

    def measured(self, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
        from experiments.dag.exp4.claims import measured

        return measured(tables)

    def comparable(self) -> str:
        return self.departures({"training.epochs": 50, "metric.examples": 32, "model.width": 32})

    def notes(self, tables: Mapping[str, pd.DataFrame]) -> list[str]:
        from experiments.dag.exp4.claims import notes

        return notes(tables)
