"""Statements and figures: Phi by partition, classes, architecture and state of training."""

from __future__ import annotations

from functools import cached_property

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.judged import JudgedAnalysis
from experiments.phi_block_diagonal.alternatives import CHANGES
from experiments.phi_block_diagonal.settings import PhiBlockDiagonal
from runner.contract import Figures, Tables
from runner.report import figures as draw
from runner.report.figures import PlotStyles
from runner.stats.tables import chosen

STYLES = PlotStyles(
    (
        "mlp plain",
        "convnet plain",
        "transformer plain",
        "mlp residual",
        "convnet residual",
        "transformer residual",
    )
)
STATES = {"initial": "at the start", "final": "after training"}
NETWORK = ["architecture", "residual", "classes"]


class PhiBlockDiagonalAnalysis(JudgedAnalysis):
    experiment: PhiBlockDiagonal
    changes = CHANGES

    @cached_property
    def phi(self) -> pd.DataFrame:
        """The Hessian's Phi at the first and last checkpoint, with a column `state`."""
        rows = self.tables["phi"]
        rows = chosen(rows, part="hessian")
        steps = sorted(rows["step"].unique())
        states = {steps[-1]: "final"} | {steps[0]: "initial"}
        return rows.assign(state=rows["step"].map(states)).dropna(subset=["state"])

    def judged(self) -> Tables:
        return {"phi": self.phi} if "phi" in self.tables else {}

    def _values(self, partition: str, state: str) -> pd.DataFrame:
        """Phi by network (rows) and seed (columns)."""
        rows = chosen(self.phi, partition=partition, state=state)
        return rows.pivot_table(index=NETWORK, columns="seed", values="phi")

    def figures(self) -> Figures:
        if "phi" not in self.tables:
            return {}
        return {"layer": self._of_layers}

    def _of_layers(self) -> Figure:
        """Phi of layers, the share of the squared norm outside their blocks, against the number of
        classes, at the start and after training: mean over seeds, bars for the range."""

        def panel(ax: Axes, state: str) -> None:
            values = self._values("layer", state)
            networks = values.groupby(level=["architecture", "residual"])
            for (architecture, residual), rows in networks:
                kind = "residual" if residual else "plain"
                label = f"{architecture} {kind}"
                classes = rows.index.get_level_values("classes")
                mean = rows.mean(axis=1)
                lower = mean - rows.min(axis=1)
                below = lower.clip(lower=0)  # rounding
                upper = rows.max(axis=1) - mean
                above = upper.clip(lower=0)
                style = STYLES.style(label) | {"capsize": 2, "label": label.replace("mlp", "MLP")}
                ax.errorbar(classes, mean, yerr=[below, above], **style)
            ax.set(xscale="log", ylim=(0, 1.02))
            ax.set_xticks(sorted(set(values.index.get_level_values("classes"))), minor=False)
            ax.xaxis.set_major_formatter("{x:g}")
            ax.minorticks_off()

        y = "share $\\Phi$ outside blocks\nof layers"
        return draw.panels(STATES, panel, x="number of classes", y=y, height=3.6, legend_columns=3)
