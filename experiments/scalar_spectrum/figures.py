"""Figures of the scalar-spectrum experiment, from saved tables alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from runner.contract import Tables
from runner.report.figures import (
    COLOURS,
    MARKERS,
    letter,
    new_figure,
    note,
    panels,
    shared_legend,
)
from runner.stats.tables import chosen, first_seed

CELL = {"+": 0, "-": 1, "": 2}
"""Cell -> number of its look."""
NAMES = {"linear": "linear", "relu": "ReLU", "+": "positive cell", "-": "negative cell"}


def look(number: int, **more: Any) -> dict[str, Any]:
    """Colour and marker of the lines of a kind, and what else they have."""
    place = number % len(COLOURS)
    return {"color": COLOURS[place], "marker": MARKERS[place], **more}


def marks(number: int, **more: Any) -> dict[str, Any]:
    """The same without a line."""
    return look(number, linestyle="none", **more)


def data_scaling(tables: Tables) -> Figure:
    """Fig. 1: spectra of two networks under scaling of the inputs, and how far they scale with
    σ²."""
    frame = tables["scaling"]
    shown = first_seed(chosen(frame, targets="fixed"))

    def panel(ax: Axes, width: int) -> None:
        if width == 0:
            _per_variance(ax, frame)
            return
        by_sigma = chosen(shown, scaled_width=width).groupby("sigma")
        for i, (sigma, rows) in enumerate(by_sigma):
            falling = np.sort(rows["eigenvalue"].repeat(rows["multiplicity"]))[::-1]
            places = range(1, len(falling) + 1)
            style = look(i, linewidth=0.8, markersize=3.5)
            ax.plot(places, falling, label=f"σ = {sigma:g}", **style)
        ax.set_yscale("symlog", linthresh=0.01)
        ax.axhline(0, color="0.4", linestyle=":", linewidth=1)
        ax.set_xlabel("index of eigenvalue")
        ax.set_ylabel("Hessian eigenvalue")

    titles = {int(m): f"width m = {m}" for m in sorted(frame["scaled_width"].unique())}
    titles[0] = "eigenvalue / σ²"
    caption = "spectra: the first seed, linear within ±0.01; last panel: all seeds"
    return panels(titles, panel, sharey=False, height=3.3, legend_columns=5, caption=caption)


KEYS = ["targets", "kind", "scaled_width", "seed", "sigma"]
TICKS = {1 / 64: "1/64", 1 / 16: "1/16", 0.25: "1/4", 1: "1", 4: "4", 16: "16", 64: "64"}


def _per_variance(ax: Axes, frame: pd.DataFrame) -> None:
    """Eigenvalue/σ² over its value at σ = 1: flat where the eigenvalue is proportional to σ².

    With fixed targets the bulk, whose size is the residual covariance, passes through zero: marks
    without lines.
    """
    size = frame["eigenvalue"].abs() / frame["sigma"] ** 2
    sizes = frame.assign(size=size).groupby(KEYS)["size"].max().unstack()
    reference = sizes[1.0] if 1.0 in sizes else sizes.iloc[:, 0]
    share = sizes.div(reference, axis=0)
    by_kind = share.groupby(["targets", "kind"])
    for (targets, kind), runs in by_kind:
        style: dict[str, Any]
        if targets == "scaled":  # proportional to σ² as it must be: one line for all of them
            style = {"color": COLOURS[4], "linewidth": 3, "alpha": 0.5, "zorder": 0}
            text = "all, targets scaled"
        else:
            style = {"color": "0.55", "marker": MARKERS[5], "markersize": 4, "linewidth": 0.8}
            text = "largest, targets fixed"
            if kind == "bulk":
                style |= {"color": "black", "marker": MARKERS[6], "linestyle": "none"}
                text = "bulk, targets fixed"
        lines = ax.plot(runs.columns, runs.T, **style)
        lines[0].set_label(text)
    ax.set_xscale("log")
    ax.set_yscale("log")
    sigmas = list(share.columns)
    ax.set_xticks(sigmas, [f"{sigma:g}" for sigma in sigmas])
    low = share.min().min() / 2
    high = 2 * share.max().max()
    ticks = {value: text for value, text in TICKS.items() if low < value < high}
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.minorticks_off()
    ax.set_xlabel("σ of the inputs")
    ax.set_ylabel("relative to σ = 1, one line a run")


def relu_cells(tables: Tables) -> Figure:
    """Fig. 2: the ReLU spectrum coloured by cell, and its dependence on the share of samples in the
    cell."""
    figure, axes = new_figure(1, 2, width=8.2, height=3.6)
    caption = (
        "drawn: the first seed; the paper's figure, too, has 6 neurons in the positive and 4 in "
        "the negative cell"
    )
    note(figure, caption)
    _by_cell(axes[0, 0], first_seed(tables["relu_cells"]))
    _by_density(axes[0, 1], first_seed(tables["density"]))
    letter(axes, ["spectrum by cell", "proportional to the cell's density"])
    shared_legend(figure)
    return figure


def _by_cell(ax: Axes, frame: pd.DataFrame) -> None:
    for cell, part in frame.groupby("cell"):
        name = str(cell)
        places = part["index"] + 1
        style = marks(CELL[name], markersize=6, label=NAMES[name])
        ax.vlines(places, 0, part["eigenvalue"], color=style["color"], linewidth=1)
        ax.plot(places, part["eigenvalue"], **style)
    places = frame["index"] + 1
    ax.plot(places, frame["dense"], "+", color="black", markersize=4, label="dense eigensolver")
    not_negative = int((frame["eigenvalue"] >= 0).sum())
    ax.axvline(not_negative + 0.5, color="0.4", linestyle=":")
    ax.axhline(0, color="0.6", linewidth=0.8)
    ax.set_xticks(range(1, len(frame) + 1, 3))
    ax.set_xlabel("index of eigenvalue (dotted: change of sign)")
    ax.set_ylabel("Hessian eigenvalue")


KINDS: dict[str, dict[str, Any]] = {
    "outlier": {"linestyle": "-", "label": "(b) larger outlier"},
    "bulk": {"linestyle": ":", "label": "(b) positive bulk", "markerfacecolor": "none"},
}


def _by_density(ax: Axes, density: pd.DataFrame) -> None:
    by_kind = density.groupby(["cell", "kind"])
    for (cell, kind), part in by_kind:
        by_copies = part.groupby("copies").agg({"share": "first", "eigenvalue": "max"})
        top = by_copies.sort_values("share")
        last = top.iloc[-1]
        slope = last["eigenvalue"] / last["share"]
        style = marks(CELL[str(cell)], markersize=6)
        if kind != "outlier":
            style["markerfacecolor"] = "none"
        dashes = KINDS[str(kind)]["linestyle"]
        ax.plot([0, 1], [0, slope], color=style["color"], linestyle=dashes, linewidth=1)
        ax.plot(top["share"], top["eigenvalue"], **style)
    for style in KINDS.values():
        ax.plot([], [], marker="o", color="0.3", **style)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, None)
    ax.set_xlabel("share of the samples in the cell, n±/n")
    ax.set_ylabel("Hessian eigenvalue")
