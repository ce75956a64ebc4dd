"""DAG, Exp. 3: what Gauss–Newton leaves out of the inter-layer blocks, by activation, without LayerNorm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.dag.protocol.inter_layer import ACTIVATIONS, InterLayer, mlp_settings
from runner.contract.experiment import Cell, Claim, Context, Table, grid, non_negative, one_of, positive
from runner.models.kinds.chain import BlockChain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runner.stats import Statistic


@dataclass(frozen=True, kw_only=True)
class Exp3GnGap(InterLayer):
    """Settings, each explained in conf/experiment/exp3_gn_gap.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Gauss–Newton gap by activation, without LayerNorm"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Fig. 5; Tables 5, N.5, N.6"
    norm: ClassVar[bool] = False

    activation: list[str] = grid()
    depth: int = 6
    probes: list[int]
    probe_draws: int = 10
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

    def figures(self, tables: Mapping[str, pd.DataFrame]) -> Mapping[str, Figure | Callable[[], Figure]]:
        from experiments.dag.exp3 import figures as exp3_figures
        from experiments.dag.protocol import figures

        gaps = self.gaps(tables)
        found: dict[str, Figure | Callable[[], Figure]] = {
            "fig5_gap_and_curvature": lambda: exp3_figures.gap_and_curvature(gaps, tables["networks"]),
            "tableN5_parts": lambda: exp3_figures.parts(tables["distances"]),
            "image_sets": lambda: exp3_figures.image_sets(gaps),
            "training": lambda: figures.learning_curves(tables["history"], panel=None, variant="activation"),
        }
        if "stochastic" in tables:
            found["tableN6_stochastic"] = lambda: exp3_figures.stochastic(tables["stochastic"])
        return found

    def gaps(self, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """GN-gap over all pairs by activation, seed, checkpoint and set of images."""
        from experiments.dag.protocol.summary import global_gaps

        return global_gaps(tables["distances"], ["activation"])

    def statistics(self, tables: Mapping[str, pd.DataFrame]) -> list[Statistic]:
        from experiments.dag.exp3.claims import correlations
        from experiments.dag.protocol import comparisons

        gaps = self.gaps(tables)
        rows = correlations(gaps, tables["networks"])
        rows += comparisons.through_training(gaps, "gap", keys=["activation"], figure="tables 4, 5")
        rows += comparisons.variance_rows(gaps, "gap", keys=["activation", "checkpoint"], figure="image_sets")
        for value in ("gn", "tensor"):
            rows += comparisons.decay_fits(
                tables["distances"], value, keys=["activation", "checkpoint"], figure="tableN5_parts"
            )
        return rows

    def claims(self, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
        from experiments.dag.exp3 import claims as exp3_claims

        return exp3_claims.without_norm(self.gaps(tables), tables)

    def measured(self, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
        from experiments.dag.exp3.claims import measured

        return measured(self.gaps(tables), tables)

    def comparable(self) -> str:
        protocol = {"training.epochs": 20, "metric.examples": 16, "model.width": 64, "depth": 6}
        return self.departures({**protocol, "model.norm": self.norm})

    def notes(self, tables: Mapping[str, pd.DataFrame]) -> list[str]:
        from experiments.dag.exp3.claims import notes

        return notes(self.gaps(tables), tables)
