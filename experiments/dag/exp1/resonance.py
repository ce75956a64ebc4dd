"""DAG, Exp. 1: decay of resonance R(d) and coupling C(d) with the distance between layers, plain against residual."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from experiments.dag.protocol.inter_layer import ACTIVATIONS, ARCHITECTURES, InterLayer, mlp_settings
from runner.contract.experiment import Cell, Claim, MlpModel, grid, one_of, positive

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from runner.stats import Statistic

VARIANT = ("depth", "arch")
DYNAMICS = {"rho": r"$\rho_{\max}$", "lyapunov_1": r"$\lambda_1$ (QR)", "lyapunov_log_norm": r"$\lambda_1$ (Eq. 8)"}
"""Columns of `networks` that Table 2 holds, and the second reading of λ₁."""


@dataclass(frozen=True, kw_only=True)
class Exp1Resonance(InterLayer):
    """Settings, each explained in conf/experiment/exp1_resonance.yaml."""

    version: ClassVar[int] = 1
    title: ClassVar[str] = "Resonance and coupling decay with the distance between layers"
    paper: ClassVar[str] = "DAG"
    reproduces: ClassVar[str] = "Figs. 2, 3; Table 2"
    plain: ClassVar[str] = "plain"
    resonance_figure: ClassVar[str] = "fig3_resonance"
    coupling_figure: ClassVar[str] = "fig2_coupling"
    dynamics_figure: ClassVar[str] = "table2_dynamics"

    depth: list[int] = grid()
    arch: list[str] = grid()
    activation: str = "relu"
    model: MlpModel

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("experiment.depth", self.depth)
        one_of("experiment.arch", self.arch, ARCHITECTURES)
        one_of("experiment.activation", self.activation, ACTIVATIONS)

    def cells(self) -> list[Cell]:
        return [self.priced(Cell(params), int(params["depth"])) for params in self.combinations()]

    def network_settings(self, cell: Cell) -> Mapping[str, Any]:
        depth, arch = int(cell.params["depth"]), str(cell.params["arch"])
        return mlp_settings(self.model, self.dataset, depth=depth, arch=arch, activation=self.activation)

    def figures(self, tables: Mapping[str, pd.DataFrame]) -> Mapping[str, Figure | Callable[[], Figure]]:
        from experiments.dag.protocol import figures

        distances, networks, pairs = tables["distances"], tables["networks"], tables["pairs"]
        deepest = pairs[pairs["depth"] == pairs["depth"].max()]
        return {
            self.coupling_figure: lambda: figures.decay(distances, "C", panel="depth", variant="arch"),
            self.resonance_figure: lambda: figures.decay(
                distances, "R", panel="depth", variant="arch", log=True, fits=self.fit_texts(distances)
            ),
            "remark38_examples": lambda: figures.decay(
                distances, "R_examples", panel="depth", variant="arch", log=True
            ),
            "stable_rank": lambda: figures.decay(distances, "D", panel="depth", variant="arch"),
            self.dynamics_figure: lambda: figures.against(
                networks,
                DYNAMICS,
                x="depth",
                variant="arch",
                text="depth $L$",
            ),
            "coupling_map": lambda: figures.pair_maps(deepest, "C", variant="arch"),
            "spread": lambda: figures.spread(distances, "R", panel="depth", variant="arch", checkpoint="final"),
            "training": lambda: figures.learning_curves(tables["history"], panel="depth", variant="arch"),
        }

    def fit_texts(self, distances: pd.DataFrame) -> dict[tuple[Any, ...], str]:
        """Decay rate and R² of the fit to the means, by depth, architecture and checkpoint."""
        from experiments.dag.protocol.summary import first, groups, over_seeds
        from runner import stats

        texts = {}
        for keys, part in groups(first(distances), [*VARIANT, "checkpoint"]):
            means = over_seeds(part, ["distance"], "R")
            fit = stats.log_linear(means["distance"], means["mean"], name="")
            texts[keys] = f"b = {round(fit.decay, 3) + 0.0:.3f}, R² = {fit.r2:.2f}"  # no minus before a rounded zero
        return texts

    def statistics(self, tables: Mapping[str, pd.DataFrame]) -> list[Statistic]:
        from experiments.dag.protocol import comparisons

        distances, networks = tables["distances"], tables["networks"]
        where = [*VARIANT, "checkpoint"]
        rows: list[Statistic] = []
        for value, figure in (("C", self.coupling_figure), ("R", self.resonance_figure)):
            rows += comparisons.decay_fits(distances, value, keys=where, figure=figure)
            compared = distances[distances["checkpoint"] != "mid"]
            rows += comparisons.between(
                compared,
                value,
                column="arch",
                a=self.plain,
                b="residual",
                keys=["depth", "checkpoint", "distance"],
                figure=figure,
            )
            rows += comparisons.through_training(compared, value, keys=[*VARIANT, "distance"], figure=figure)
            rows += comparisons.variance_rows(compared, value, keys=[*where, "distance"], figure="spread")
        for value in DYNAMICS:
            rows += comparisons.variance_rows(networks, value, keys=where, figure=self.dynamics_figure)
        return rows

    def claims(self, tables: Mapping[str, pd.DataFrame]) -> list[Claim]:
        from experiments.dag.exp1.claims import claims

        return claims(tables)

    def measured(self, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame | None:
        from experiments.dag.exp1.claims import measured

        return measured(tables)

    def comparable(self) -> str:
        return self.departures({"training.epochs": 50, "metric.examples": 32, "model.width": 64})

    def notes(self, tables: Mapping[str, pd.DataFrame]) -> list[str]:
        from experiments.dag.exp1.claims import notes

        return notes(tables, self.plain)
