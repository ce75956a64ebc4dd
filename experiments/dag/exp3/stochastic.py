"""DAG, Exp. 3, Appendix N.6: the stochastic Gauss–Newton gap against the exact one, and how its error falls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer, mlp_settings
from runner.contract.experiment import Cell, Claim, Context, MlpModel, SettingError, Table, grid, one_of, positive

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runner.stats import Statistic


@dataclass(frozen=True, kw_only=True)
class Exp3Stochastic(InterLayer):
    """Settings, each explained in conf/experiment/exp3_stochastic.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Stochastic against exact Gauss–Newton gap"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Table N.6"

    activation: list[str] = grid()
    depth: int = 6
    probes: list[int]
    draws: int = 20
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

    def figures(self, tables: Mapping[str, pd.DataFrame]) -> Mapping[str, Figure | Callable[[], Figure]]:
        from experiments.dag.exp3 import stochastic_figures as draw

        return {
            "tableN6_discrepancy": lambda: draw.discrepancies(tables["draws"]),
            "error_against_probes": lambda: draw.rates(tables["draws"], tables["predicted"]),
        }

    def statistics(self, tables: Mapping[str, pd.DataFrame]) -> list[Statistic]:
        from experiments.dag.exp3.stochastic_claims import rates

        return rates(tables["draws"])

    def claims(self, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
        from experiments.dag.exp3.stochastic_claims import claims

        return claims(tables["draws"])

    def measured(self, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
        from experiments.dag.exp3.stochastic_claims import measured

        return measured(tables["draws"])

    def comparable(self) -> str:
        protocol = {"training.epochs": 20, "metric.examples": 16, "model.width": 64, "depth": 6}
        return self.departures({**protocol, "model.norm": False})

    def notes(self, tables: Mapping[str, pd.DataFrame]) -> list[str]:
        from experiments.dag.exp3.stochastic_claims import notes

        return notes(tables)
