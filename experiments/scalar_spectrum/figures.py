"""Figures of the scalar-spectrum experiment, from saved tables alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.scalar_spectrum.claims import paired_steps
from experiments.scalar_spectrum.wedge_scale import wedge_name
from runner.contract import Tables
from runner.report.figures import (
    COLOURS,
    DASHES,
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
            values = rows["eigenvalue"].repeat(rows["multiplicity"])
            falling = np.sort(values)[::-1]
            places = range(1, len(falling) + 1)
            style = look(i, linewidth=0.8, markersize=3.5)
            ax.plot(places, falling, label=f"σ = {sigma:g}", **style)
        ax.set_yscale("symlog", linthresh=0.01)
        ax.axhline(0, color="0.4", linestyle=":", linewidth=1)
        ax.set_xlabel("index of eigenvalue")
        ax.set_ylabel("Hessian eigenvalue")

    widths = sorted(frame["scaled_width"].unique())
    titles = {int(m): f"width m = {m}" for m in widths}
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
    for (targets, kind), runs in share.groupby(["targets", "kind"]):
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
    text = "dense eigensolver"
    ax.plot(places, frame["dense"], "+", color="black", markersize=4, label=text)
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
    for (cell, kind), part in density.groupby(["cell", "kind"]):
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


def outlier_pairs(tables: Tables, left: float) -> Figure:
    """Fig. 3: both outliers through training, linear and ReLU (positive cell), low and high rate,
    on one wedge."""
    frame = chosen(paired_steps(tables), left=left)
    frame = frame[frame["cell"] != "-"].sort_values("step")
    rates = sorted(frame["rate"].unique())
    networks = sorted(frame["network"].unique())
    runs = list(product(networks, rates))
    names = {"first": "λ₁ and trace of H", "second": "λ₂"}
    texts = {"first": "first outlier λ₁", "second": "second outlier λ₂"}

    def panel(ax: Axes, key: tuple[str, str, float]) -> None:
        value, network, rate = key
        part = chosen(frame, network=network, rate=rate)
        colour = COLOURS[value == "second"]
        text = texts[value]
        style: dict[str, Any] = {"linewidth": 1.6, "label": f"{text}, first seed"}
        for i, (_, run) in enumerate(part.groupby("seed")):
            steps = run["step"]
            ax.plot(steps, run[value], color=colour, **style)
            style = {"linewidth": 0.6, "alpha": 0.6, "label": f"{text}, other seeds"}
            if i == 0 and value == "first":
                trace_style: dict[str, Any] = {"linewidth": 1, "label": "trace of H, first seed"}
                ax.plot(steps, run["trace"], "--", color="black", **trace_style)
        if value == "second":
            ax.axhline(0, color="0.3", linestyle=":", linewidth=1)
        if float(part["step"].max()) > 200 and rate == rates[-1]:
            ax.set_xlim(0, 150)  # the rest is zero
        if (network, rate) == runs[0]:
            ax.set_ylabel(names[value])

    cell = {"linear": "linear", "relu": "ReLU, positive cell"}
    titles = {}
    for value, network, rate in product(names, networks, rates):
        titles[value, network, rate] = f"{cell[network]}, rate {rate:g}"
    caption = (
        "the paper's rate is 0.18 for both networks; teeth in a line: a neuron that changes its "
        "cell back and forth from step to step"
    )
    figure = panels(
        titles,
        panel,
        x="training step",
        columns=len(runs),
        height=4.9,
        sharex="col",
        sharey=False,
        legend_columns=3,
        caption=caption,
    )
    figure.suptitle(f"wedge data: {wedge_name(left)}", fontsize=9)
    return figure


def phases(tables: Tables) -> Figure:
    """Second outlier against ⟨w,v⟩/θ*: positive exactly in the late phase, for either sign of
    θ*."""
    frame = paired_steps(tables)
    frame = frame[frame["target"].abs() > 1e-6]
    frame = frame.assign(share=frame["slope"] / frame["target"])
    frame = chosen(frame, network="relu", left=frame["left"].max())
    low, high = (-0.6, 1.8)
    frame = frame[frame["share"].between(low, high)]
    names = {"early": -0.13, "late": 2 / 3, "divergent": 1.4}
    ticks = {-0.5: "−0.5", 0: "0", 1 / 3: "1/3", 1: "1", 1.5: "1.5"}

    def panel(ax: Axes, cell: str) -> None:
        ax.axvspan(1 / 3, 1, color="0.9", zorder=0)
        ax.axhline(0, color="0.3", linewidth=0.8)
        runs = chosen(frame, cell=cell)
        style = marks(CELL[cell], markersize=2.2, alpha=0.5)
        ax.plot(runs["share"], runs["second"], **style)
        ax.set_xlim(low, high)
        ax.set_xticks(list(ticks), list(ticks.values()))
        above_axis = ax.get_xaxis_transform()
        for name, x in names.items():
            ax.text(x, 0.97, name, transform=above_axis, ha="center", va="top")

    caption = "a dot is a recorded step of a run, all rates and seeds"
    titles = {"+": "positive cell, θ* > 0", "-": "negative cell, θ* < 0"}
    y = "second outlier λ₂"
    figure = panels(titles, panel, x="⟨w,v⟩ / θ*", y=y, height=3.4, caption=caption)
    ax = figure.axes[0]
    bottom, top = ax.get_ylim()
    ax.set_ylim(bottom, top + 0.12 * (top - bottom))  # room for the names of the phases
    return figure


def bias_outliers(tables: Tables) -> Figure:
    """The five outliers of the network with bias next to Theorem 6's values while its ⟨v,b⟩ = 0 is
    given up."""
    figure, axes = new_figure(1, 2, width=8.2, height=3.6)
    note(figure, "drawn: the first seed")
    bias = tables["bias"]
    _five_outliers(axes[0, 0], first_seed(tables["bias_outliers"]), first_seed(bias))
    _bias_errors(axes[0, 1], bias)
    for ax in axes[0]:
        ax.set_xlabel("b turned from orthogonal (0) to parallel to v (1)")
    letter(axes, ["five outliers", "error against a dense eigensolver"])
    shared_legend(figure)
    return figure


def _five_outliers(ax: Axes, exact: pd.DataFrame, theorem: pd.DataFrame) -> None:
    points = marks(0, markersize=4, label="outliers (5×5 problem)")
    ax.plot(exact["mix"], exact["eigenvalue"], **points)
    for member, dashes, colour in (("pair", "--", COLOURS[1]), ("triple", ":", "black")):
        part = chosen(theorem, member=member)
        values = part.groupby("mix")["theorem"].apply(sorted)
        lines = ax.plot(values.index, list(values), linestyle=dashes, color=colour)
        lines[0].set_label(f"Theorem 6, {member}")
    bounds = theorem.drop_duplicates("mix").sort_values("mix")
    style: dict[str, Any] = {"color": "0.92", "zorder": 0, "label": "bounds of the triple"}
    ax.fill_between(bounds["mix"], bounds["lower"], bounds["upper"], **style)
    ax.set_ylabel("Hessian eigenvalue")


def _bias_errors(ax: Axes, bias: pd.DataFrame) -> None:
    gaps = bias.groupby(["mix", "seed"])["gap"].max().unstack()
    gaps = gaps.clip(lower=1e-17)
    lines = ax.plot(gaps.index, gaps, **look(1, markersize=3, linewidth=0.6))
    lines[0].set_linewidth(1.4)
    error = bias.groupby("mix")["dense_error"].max()
    error = error.clip(lower=1e-17)
    ax.plot(error.index, error, **look(0, markersize=3))
    texts = {0.8: ("Theorem 6, one line a seed", 1), 0.2: ("5×5 problem, all seeds", 0)}
    for height, (text, colour) in texts.items():
        ax.text(0.5, height, text, color=COLOURS[colour], transform=ax.transAxes, ha="center")
    ax.set_yscale("log")
    ax.set_ylabel("error / largest eigenvalue")


def _ratio_axis(ax: Axes) -> None:
    """Logarithmic axis of sharpness over 2/rate with plain numbers."""
    ticks = {0.25: "1/4", 0.5: "1/2", 1: "1", 2: "2", 4: "4"}
    ax.set_yscale("log")
    ax.set_ylim(0.12, 7)
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.yaxis.set_minor_locator(NullLocator())


def edge_of_stability(tables: Tables) -> Figure:
    """Sharpness over 2/rate along gradient descent at the largest width, from small and from large
    weights."""
    frame = first_seed(tables["edge"]).sort_values("step")
    frame = frame.assign(ratio=frame["sharpness"] * frame["rate"] / 2)
    width = int(frame["width"].max())
    frame = chosen(frame, width=width)
    factors = sorted(frame["factor"].unique())

    def panel(ax: Axes, key: tuple[str, str]) -> None:
        network, start = key
        part = chosen(frame, network=network, start=start)
        for i, factor in enumerate(factors):
            if start == "small" and 1.2 < factor < 2 and len(factors) > 5:
                continue  # chaotic
            run = chosen(part, factor=factor)
            if (run["status"] == "settled").any():  # it stays where it is
                end = run.iloc[-1:]
                last_step = max(40, run["step"].max())
                run = pd.concat([run, end.assign(step=last_step)])
            shown = run[run["ratio"] < 6]
            steps = shown["step"]
            style = look(i, linewidth=1, markevery=5, markersize=3.5)
            style["linestyle"] = DASHES[i % 8] if factor < 1 else "-"
            style["label"] = f"rate = {factor:g} × 2/λ₁ of the reference"
            ax.plot(steps, shown["ratio"], **style)
            if len(shown) < len(run):
                ax.plot(steps.iloc[-1:], [5.5], **look(i, markersize=6))
        ax.axhline(1, color="black", linestyle=":", linewidth=1, label="edge of stability")
        ax.set_xlim(0, 40)
        _ratio_axis(ax)

    networks = sorted(frame["network"].unique())
    present = set(frame["start"])
    starts = [start for start in ("small", "large") if start in present]
    titles = {}
    for network, start in product(networks, starts):
        titles[network, start] = f"{NAMES[network]}, {start} start, m = {width:,}"
    caption = (
        "drawn: the first seed; a large mark at the top: the run diverges; reference: the start, "
        "and for small weights the solution"
    )
    return panels(
        titles,
        panel,
        x="training step",
        y="sharpness · rate / 2",
        columns=len(starts),
        height=2.6 * len(networks) + 0.7,
        sharex=True,
        legend_columns=2,
        caption=caption,
    )
