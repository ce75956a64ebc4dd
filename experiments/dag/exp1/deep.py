"""DAG, Exp. 1 at depths 16 and 32 (Appendix N.2): does the decay persist, and where does R(d) rise again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from experiments.dag.exp1.resonance import Exp1Resonance
from runner.contract.experiment import Analysis, Cell, Context, Table, Tables, positive


@dataclass(frozen=True, kw_only=True)
class Exp1Deep(Exp1Resonance):
    """Settings, each explained in conf/experiment/exp1_deep.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Resonance and coupling at depths 16 and 32"
    reproduces: ClassVar[str] = "Table N.3"
    claimed: ClassVar[str] = "exp1_deep"

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

    def analyse(self, tables: Tables) -> Analysis:
        from experiments.dag.exp1.report import DeepAnalysis

        return DeepAnalysis(self, tables)
