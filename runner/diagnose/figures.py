"""Figures of a diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runner.contract import Analysis
from runner.report.figures import PlotStyles, heatmap, legend, letter, log_axis, new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {"lambda_1": "λ₁", "lambda_sup": "λ_sup, upper bound"}
STYLES = PlotStyles(("density", "lambda_sup", "lambda_1", "lambda_n"))
PANELS = {
    ("loss",): "loss",
    ("gradient norm",): "gradient norm",
    ("lambda_1", "lambda_sup"): "λ₁ and λ_sup, upper bound",
    ("lambda_n",): "smallest eigenvalue",
    ("trace",): "trace",
    ("discarded share",): "discarded share",
    ("gradient noise scale",): "gradient noise scale",
}
"""Quantities that share a panel -> its title."""
TITLES = {
    "R": "R = ‖H[v,w]‖",
    "C": "C, coupling",
    "D": "D, stable rank",
    "gap": "GN gap = ‖T‖ / ‖GN‖",
    "share": "share of ‖H‖²; the diagonal is kept",
}
LONGEST = 24
"""Letters of a name next to a heat map."""


def at_last_step(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last step that a table has."""
    return table[table["step"] == table["step"].max()]


class DiagnosisAnalysis(Analysis):
    """Figures and notes of a diagnosis."""

    def figures(self) -> dict[str, Callable[[], Figure]]:
        """Every figure that the tables allow."""
        made: dict[str, Callable[[], Figure]] = {}
        if self._has("layers") and self.tables["layers"]["R"].notna().any():
            made["layers"] = self.between_layers
        if self._has("groups"):
            made["groups"] = self.between_groups
        if self._has("eigenvalues") or self._has("density"):
            made["spectrum"] = self.spectrum
        if self._has("scalars") and self.tables["scalars"]["step"].nunique() > 1:
            made["training"] = self.curves
        return made

    def notes(self) -> list[str]:
        """What was said of the networks."""
        return list(dict.fromkeys(self.tables["notes"]["note"])) if self._has("notes") else []

    def _has(self, name: str) -> bool:
        return name in self.tables and len(self.tables[name]) > 0

    def _last(self, name: str) -> list[dict[Any, Any]]:
        """The rows of a table at its last step."""
        if not self._has(name):
            return []
        return at_last_step(self.tables[name]).to_dict("records")

    def between_layers(self) -> Figure:
        """R, C, D and Gauss–Newton gap of every pair of named outputs, at the last step."""
        return self._maps("layers", ("R", "C", "D", "gap"), 2)

    def between_groups(self) -> Figure:
        """‖H_vw‖ between groups of parameters, at the last step; block-diagonal methods discard all
        blocks off the diagonal."""
        return self._maps("groups", ("R", "C", "share"), 3)

    def _maps(self, name: str, columns: tuple[str, ...], in_row: int) -> Figure:
        """Heat maps of the columns of a table of pairs."""
        table = at_last_step(self.tables[name]).astype({"v": str, "w": str})
        names = list(dict.fromkeys([*table["v"], *table["w"]]))
        side = 2.4 + 0.18 * len(names)
        rows = len(columns) // in_row
        figure, axes = new_figure(rows, in_row, width=in_row * side, height=rows * side)
        ticks = [node if len(node) <= LONGEST else "…" + node[1 - LONGEST :] for node in names]
        for ax, column in zip(axes.ravel(), columns, strict=True):
            half = table.pivot(index="v", columns="w", values=column).reindex(names, columns=names)
            log = column in ("R", "share") and bool((table[column] > 0).any())
            heatmap(ax, half.combine_first(half.T).to_numpy(), column, log=log)
            ax.set_xticks(range(len(names)), ticks, rotation=90)
            ax.set_yticks(range(len(names)), ticks)
            ax.grid(False)
        letter(axes, [TITLES[column] for column in columns])
        return figure

    def spectrum(self) -> Figure:
        """Density of the eigenvalues of the Hessian in the parameters at the last step, its extreme
        eigenvalues, and the upper bound λ_sup of the largest. Band: 95 % interval of the
        density."""
        figure, axes = new_figure(1, 1, width=6.0, height=3.2)
        ax = axes[0, 0]
        if self._has("density"):
            _draw_density(ax, at_last_step(self.tables["density"]))
        for i, row in enumerate(self._last("eigenvalues")):
            label = "extreme eigenvalues" if i == 0 else None
            ax.axvline(row["value"], color="0.3", linewidth=0.8, linestyle=":", label=label)
        for row in self._last("scalars"):
            if row["quantity"] == "lambda_sup":
                ax.axvline(row["value"], label="λ_sup", color=STYLES.colour("lambda_sup"))
        ax.set_xlabel("eigenvalue of the Hessian in the parameters")
        ax.set_ylabel("density")
        legend(ax)
        return figure

    def curves(self) -> Figure:
        """Measured quantities over the steps of the training. Bands: standard error, residual or
        half of the 95 % interval, as the method says."""
        curves = dict(list(self.tables["scalars"].groupby("quantity")))
        panels = {names: title for names, title in PANELS.items() if curves.keys() & set(names)}
        figure, axes = new_figure((len(panels) + 2) // 3, min(3, len(panels)))
        for ax, names in zip(axes.ravel(), panels, strict=False):
            for name in filter(curves.__contains__, names):
                rows = curves[name].sort_values("step")
                style = STYLES.style(name)
                ax.plot(rows["step"], rows["value"], label=LABELS.get(name, name), **style)
                band = rows["value"] - rows["error"], rows["value"] + rows["error"]
                ax.fill_between(rows["step"], *band, color=style["color"], alpha=0.2)
            ax.set_xlabel("step")
            if len(names) > 1:
                legend(ax)
        for ax in axes.ravel()[len(panels) :]:
            ax.set_visible(False)
        letter(axes.ravel()[: len(panels)], list(panels.values()))
        return figure


def _draw_density(ax: Axes, density: pd.DataFrame) -> None:
    """The density with its band, on a logarithmic axis."""
    colour = STYLES.colour("density")
    grid = density["eigenvalue"]
    ax.plot(grid, density["density"], color=colour, label="density")
    largest = float(density["density"].max())
    bottom = max(1e-8, largest * 1e-7)
    low, high = (density[band].clip(lower=bottom) for band in ("low", "high"))
    ax.fill_between(grid, low, high, color=colour, alpha=0.25, linewidth=0)
    if largest > 0:
        log_axis(ax, "y")
        ax.set_ylim(bottom, 3 * float(high.max()))
