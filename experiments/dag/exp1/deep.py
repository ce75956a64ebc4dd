"""DAG, Exp. 1 at depths 16 and 32 (Appendix N.2): does the decay persist, and where does R(d) rise again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from experiments.dag.exp1.resonance import Exp1Resonance
from runner.contract.experiment import Cell, Claim, Context, Table, positive

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Exp1Deep(Exp1Resonance):
    """Settings, each explained in conf/experiment/exp1_deep.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Resonance and coupling at depths 16 and 32"
    reproduces: ClassVar[str] = "Table N.3"
    resonance_figure: ClassVar[str] = "tableN3_resonance"
    coupling_figure: ClassVar[str] = "tableN3_coupling"
    dynamics_figure: ClassVar[str] = "tableN3_dynamics"

    probes: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("experiment.probes", self.probes)

    def cells(self) -> list[Cell]:
        """Twice the epochs' cost of Exp. 1 for twice the width, and 9 ms a pair and set of 64 images."""
        cells = []
        for params in self.combinations():
            blocks = int(params["depth"])
            pairs = blocks * (blocks + 1) / 2 * 3 * (self.metric.subsamples + 1)
            training = self.training.epochs * (1.2 + 0.06 * blocks) * self.dataset.train / 50000
            cells.append(Cell(params, seconds=round(5 + training + 0.009 * pairs, 1), memory_gib=1.6))
        return cells

    def measure(self, cell: Cell, ctx: Context) -> dict[str, Table]:
        from experiments.dag.exp1.deep_measure import estimates
        from experiments.dag.protocol.measure import measure
        from experiments.dag.protocol.training import train_images

        trained = train_images(self.network_settings(cell), self.dataset, self.training, ctx)
        return {
            **measure(trained, self.metric, ctx),
            "estimates": estimates(trained, replace(self.metric, subsamples=0), self.probes, ctx),
        }

    def figures(self, tables: Mapping[str, pd.DataFrame]) -> Mapping[str, Figure | Callable[[], Figure]]:
        from experiments.dag.exp1 import deep_figures

        return {
            **super().figures(tables),
            "u_shape": lambda: deep_figures.u_shape(tables["distances"]),
            "estimates": lambda: deep_figures.estimates(tables["distances"], tables["estimates"]),
        }

    def claims(self, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
        from experiments.dag.exp1.deep_claims import claims

        return claims(tables)

    def measured(self, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
        from experiments.dag.exp1.deep_claims import measured

        return measured(tables)

    def comparable(self) -> str:
        return self.departures({"training.epochs": 50, "metric.examples": 64, "model.width": 128, "probes": 100})

    def notes(self, tables: Mapping[str, pd.DataFrame]) -> list[str]:
        from experiments.dag.exp1.deep_claims import notes

        return notes(tables)
