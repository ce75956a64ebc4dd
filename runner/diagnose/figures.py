"""Figures of a diagnosis: between layers, between groups of parameters, the spectrum, and curves over a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runner.report.figures import heatmap, legend, letter, log_axis, new_figure
from runner.report.plot_style import PlotStyles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

STYLES = PlotStyles(("density", "lambda_sup", "lambda_1", "lambda_n"))

CURVES = (
    ("loss",),
    ("gradient norm",),
    ("lambda_1", "lambda_sup"),
    ("lambda_n",),
    ("trace",),
    ("discarded share",),
    ("gradient noise scale",),
)
"""Scalars that share a panel of the curves."""


def figures(tables: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Every figure that the tables allow, by name, as a function: one that fails loses no other."""
    if "layers" in tables and tables["layers"]["R"].notna().any():
        yield "layers", lambda: between_layers(_last(tables["layers"]))
    if "groups" in tables and len(tables["groups"]):
        yield "groups", lambda: between_groups(_last(tables["groups"]))
    if "eigenvalues" in tables or "density" in tables:
        yield "spectrum", lambda: spectrum(tables)
    if "scalars" in tables and tables["scalars"]["step"].nunique() > 1:
        yield "training", lambda: curves(tables["scalars"])


def _last(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["step"] == table["step"].max()]


def _matrix(table: pd.DataFrame, value: str, names: list[str]) -> Any:
    import numpy as np

    matrix = np.full((len(names), len(names)), np.nan)
    place = {name: i for i, name in enumerate(names)}
    for v, w, x in zip(table["v"], table["w"], table[value], strict=True):
        matrix[place[v], place[w]] = matrix[place[w], place[v]] = x
    return matrix


def _name_axes(ax: Any, names: list[str]) -> None:
    shown = [name if len(name) <= 24 else "…" + name[-23:] for name in names]
    ax.set_xticks(range(len(names)), shown, rotation=90)
    ax.set_yticks(range(len(names)), shown)
    ax.grid(False)


def between_layers(table: pd.DataFrame) -> Figure:
    """R, C, D and GN-gap of every pair of named outputs."""
    names = list(dict.fromkeys([*table["v"], *table["w"]]))
    side = 2.4 + 0.18 * len(names)
    figure, axes = new_figure(2, 2, width=2 * side, height=2 * side)
    kinds = (("R", True), ("C", False), ("D", False), ("gap", False))
    for ax, (value, log) in zip(axes.ravel(), kinds, strict=True):
        heatmap(ax, _matrix(table, value, names), value, log=log and bool((table[value] > 0).any()))
        _name_axes(ax, names)
    letter(axes, ("R = ‖H[v,w]‖", "C, coupling", "D, stable rank", "GN-gap = ‖T‖ / ‖GN‖"))
    return figure


def between_groups(table: pd.DataFrame) -> Figure:
    """‖H_vw‖ between groups of parameters: what lies off the diagonal is what a block-diagonal method throws away."""
    names = list(dict.fromkeys([*table["v"], *table["w"]]))
    side = 2.4 + 0.18 * len(names)
    figure, axes = new_figure(1, 3, width=3 * side, height=side)
    for ax, value in zip(axes.ravel(), ("R", "C", "share"), strict=True):
        heatmap(ax, _matrix(table, value, names), value, log=value != "C" and bool((table[value] > 0).any()))
        _name_axes(ax, names)
    letter(axes, ("‖H_vw‖ of parameters", "C, coupling of parameters", "share of ‖H‖²: kept on the diagonal"))
    return figure


def spectrum(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """The density of eigenvalues, the extreme ones as marks, and the bound λ_sup beside λ_1, at the last step."""
    figure, axes = new_figure(1, 1, width=6.0, height=3.2)
    ax = axes[0, 0]
    if "density" in tables:
        density = _last(tables["density"])
        ax.plot(density["eigenvalue"], density["density"], color=STYLES.colour("density"), label="density")
        largest = float(density["density"].max())
        bottom = max(1e-8, largest * 1e-7)
        low, high = (density[band].clip(lower=bottom) for band in ("low", "high"))
        ax.fill_between(density["eigenvalue"], low, high, color=STYLES.colour("density"), alpha=0.25, linewidth=0)
        if largest > 0:
            log_axis(ax, "y")
            ax.set_ylim(bottom, 3 * float(high.max()))
    if "eigenvalues" in tables:
        found = _last(tables["eigenvalues"])
        for i, value in enumerate(found["value"]):
            ax.axvline(
                value, color="0.3", linewidth=0.8, linestyle=":", label="extreme eigenvalues" if i == 0 else None
            )
    scalars: Any = _last(tables["scalars"]).set_index("quantity")["value"] if "scalars" in tables else {}
    if "lambda_sup" in scalars:
        ax.axvline(scalars["lambda_sup"], label="λ_sup", color=STYLES.colour("lambda_sup"))
    ax.set_xlabel("eigenvalue of the Hessian in the parameters")
    ax.set_ylabel("density")
    legend(ax)
    return figure


def curves(scalars: pd.DataFrame) -> Figure:
    """Scalars over the steps of a training."""
    known = set(scalars["quantity"])
    panels = [[name for name in names if name in known] for names in CURVES]
    panels = [names for names in panels if names]
    figure, axes = new_figure((len(panels) + 2) // 3, min(3, len(panels)))
    for ax, names in zip(axes.ravel(), panels, strict=False):
        for name in names:
            rows = scalars[scalars["quantity"] == name].sort_values("step")
            look = STYLES.style(name)
            ax.plot(rows["step"], rows["value"], label=name, **look)
            ax.fill_between(
                rows["step"],
                rows["value"] - rows["error"],
                rows["value"] + rows["error"],
                color=look["color"],
                alpha=0.2,
            )
        ax.set_xlabel("step")
        legend(ax)
    for ax in axes.ravel()[len(panels) :]:
        ax.set_visible(False)
    letter(axes.ravel()[: len(panels)], [" and ".join(names) for names in panels])
    return figure
