"""Figures of the scalar-spectrum experiment, from saved tables alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

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

CELL = {"+": (COLOURS[0], MARKERS[0]), "-": (COLOURS[1], MARKERS[1]), "": (COLOURS[2], MARKERS[2])}
NAMES = {"linear": "linear", "relu": "ReLU", "+": "positive cell", "-": "negative cell"}


def _expand(group: pd.DataFrame) -> np.ndarray:
    """Eigenvalues as often as they occur, descending."""
    values = np.repeat(group["eigenvalue"].to_numpy(), group["multiplicity"].to_numpy())
    return np.sort(values)[::-1]


def data_scaling(tables: Tables) -> Figure:
    """Fig. 1: spectra of two networks under scaling of the inputs, and how far they scale with
    σ²."""
    frame = tables["scaling"]
    shown = first_seed(chosen(frame, targets="fixed"))

    def draw(ax: Axes, width: int) -> None:
        if width == 0:
            return _per_variance(ax, frame)
        for i, (sigma, group) in enumerate(chosen(shown, scaled_width=width).groupby("sigma")):
            values = _expand(group)
            ax.plot(
                np.arange(1, len(values) + 1),
                values,
                marker=MARKERS[i % 8],
                color=COLOURS[i % 8],
                linewidth=0.8,
                markersize=3.5,
                label=f"σ = {sigma:g}",
            )
        ax.set_yscale("symlog", linthresh=0.01)
        ax.axhline(0, color="0.4", linestyle=":", linewidth=1)
        ax.set_xlabel("index of eigenvalue")
        ax.set_ylabel("Hessian eigenvalue")
        return None

    heads = {int(m): f"width m = {m}" for m in sorted(frame["scaled_width"].unique())} | {
        0: "eigenvalue / σ²"
    }
    said = "spectra: the first seed, linear within ±0.01; last panel: all seeds"
    return panels(heads, draw, sharey=False, height=3.3, legend_columns=5, caption=said)


def _per_variance(ax: Axes, frame: pd.DataFrame) -> None:
    """Eigenvalue/σ² over its value at σ = 1: flat where the eigenvalue is proportional to σ².

    With fixed targets the bulk, whose size is the residual covariance, passes through zero: marks
    without lines.
    """
    value = frame.assign(size=frame["eigenvalue"].abs() / frame["sigma"] ** 2)
    value = (
        value.groupby(["targets", "kind", "scaled_width", "seed", "sigma"])["size"].max().unstack()
    )
    if 1.0 not in value.columns:
        value[1.0] = value.iloc[:, 0]
    share = value.div(value[1.0], axis=0)
    for (targets, kind), runs in share.groupby(["targets", "kind"]):
        bulk = kind == "bulk"
        look: dict[str, Any] = {
            "color": "black" if bulk else "0.55",
            "marker": MARKERS[5 + bulk],
            "markersize": 4,
            "linewidth": 0.8,
            "linestyle": "none" if bulk else "-",
        }
        text = f"{'bulk' if bulk else 'largest'}, targets fixed"
        if targets == "scaled":  # proportional to σ² as it must be: one line for all of them
            look = {"color": COLOURS[4], "linewidth": 3, "alpha": 0.5, "zorder": 0}
            text = "all, targets scaled"
        for k, (_, run) in enumerate(runs.iterrows()):
            ax.plot(run.index, run, **look, label=text if k == 0 else None)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(list(share.columns), [f"{sigma:g}" for sigma in share.columns])
    ticks = [
        tick
        for tick in (1 / 64, 1 / 16, 0.25, 1, 4, 16, 64)
        if share.min().min() / 2 < tick < 2 * share.max().max()
    ]
    ax.set_yticks(ticks, [f"{tick:g}" if tick >= 1 else f"1/{1 / tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel("σ of the inputs")
    ax.set_ylabel("relative to σ = 1, one line a run")


def relu_cells(tables: Tables) -> Figure:
    """Fig. 2: the ReLU spectrum coloured by cell, and its dependence on the share of samples in the
    cell."""
    frame = first_seed(tables["relu_cells"])
    density = first_seed(tables["density"])
    figure, axes = new_figure(1, 2, width=8.2, height=3.6)
    note(
        figure,
        "drawn: the first seed; the paper's figure, too, has 6 neurons in the positive and 4 in "
        "the negative cell",
    )
    ax = axes[0, 0]
    for cell, part in frame.groupby("cell"):
        colour, marker = CELL[str(cell)]
        ax.vlines(part["index"] + 1, 0, part["eigenvalue"], color=colour, linewidth=1)
        ax.plot(
            part["index"] + 1,
            part["eigenvalue"],
            marker,
            color=colour,
            markersize=6,
            label=NAMES[str(cell)],
        )
    ax.plot(
        frame["index"] + 1,
        frame["dense"],
        "+",
        color="black",
        markersize=4,
        label="dense eigensolver",
    )
    negative = int((frame["eigenvalue"] >= 0).sum())
    ax.axvline(negative + 0.5, color="0.4", linestyle=":")
    ax.axhline(0, color="0.6", linewidth=0.8)
    ax.set_xticks(range(1, len(frame) + 1, 3))
    ax.set_xlabel("index of eigenvalue (dotted: change of sign)")
    ax.set_ylabel("Hessian eigenvalue")
    ax = axes[0, 1]
    for (cell, kind), part in density.groupby(["cell", "kind"]):
        top = (
            part.groupby("copies").agg({"share": "first", "eigenvalue": "max"}).sort_values("share")
        )
        colour, marker = CELL[str(cell)]
        slope = float(top["eigenvalue"].iloc[-1] / top["share"].iloc[-1])
        ax.plot(
            [0, 1],
            [0, slope],
            color=colour,
            linestyle="-" if kind == "outlier" else ":",
            linewidth=1,
        )
        ax.plot(
            top["share"],
            top["eigenvalue"],
            marker,
            color=colour,
            markersize=6,
            markerfacecolor=colour if kind == "outlier" else "none",
        )
    ax.plot([], [], "o-", color="0.3", label="(b) larger outlier")
    ax.plot([], [], "o:", color="0.3", markerfacecolor="none", label="(b) positive bulk")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, None)
    ax.set_xlabel("share of the samples in the cell, n±/n")
    ax.set_ylabel("Hessian eigenvalue")
    letter(axes, ["spectrum by cell", "proportional to the cell's density"])
    shared_legend(figure)
    return figure


def outlier_pairs(tables: Tables, left: float) -> Figure:
    """Fig. 3: both outliers through training, linear and ReLU (positive cell), low and high rate,
    on one wedge."""
    from experiments.scalar_spectrum.claims import wedge_name

    frame = chosen(paired_steps(tables), left=left)
    frame = frame[frame["cell"] != "-"].sort_values("step")
    runs = list(product(sorted(frame["network"].unique()), sorted(frame["rate"].unique())))
    names = {"first": "λ₁ and trace of H", "second": "λ₂"}
    symbols = {"first": "λ₁", "second": "λ₂"}

    def draw(ax: Axes, key: tuple[str, str, float]) -> None:
        value, network, rate = key
        part = chosen(frame, network=network, rate=rate)
        for i, (_, run) in enumerate(part.groupby("seed")):
            which = "other seeds"
            width = 0.6
            alpha = 0.6
            if i == 0:
                which = "first seed"
                width = 1.6
                alpha = 1.0
            text = f"{value} outlier {symbols[value]}, {which}"
            colour = COLOURS[value == "second"]
            ax.plot(run["step"], run[value], color=colour, label=text, linewidth=width, alpha=alpha)
            if i == 0 and value == "first":
                trace = "trace of H, first seed"
                ax.plot(
                    run["step"],
                    run["trace"],
                    color="black",
                    linestyle="--",
                    linewidth=1,
                    label=trace,
                )
        if value == "second":
            ax.axhline(0, color="0.3", linestyle=":", linewidth=1)
        if float(part["step"].max()) > 200 and rate == max(frame["rate"]):
            ax.set_xlim(0, 150)  # the rest is zero
        if (network, rate) == runs[0]:
            ax.set_ylabel(names[value])

    cell = {"linear": "linear", "relu": "ReLU, positive cell"}
    heads = {(value, n, r): f"{cell[n]}, rate {r:g}" for value in names for n, r in runs}
    said = (
        "the paper's rate is 0.18 for both networks; teeth in a line: a neuron that changes its "
        "cell back and forth from step to step"
    )
    figure = panels(
        heads,
        draw,
        x="training step",
        columns=len(runs),
        height=4.9,
        sharex="col",
        sharey=False,
        legend_columns=3,
        caption=said,
    )
    figure.suptitle(f"wedge data: {wedge_name(left)}", fontsize=9)
    return figure


def paired_steps(tables: Tables) -> pd.DataFrame:
    """The recorded steps of the runs that did not diverge; cell: "" for linear networks."""
    frame = tables["pairs"].assign(cell=tables["pairs"]["cell"].fillna(""))
    return chosen(frame, status="ok")


def phases(tables: Tables) -> Figure:
    """Second outlier against ⟨w,v⟩/θ*: positive exactly in the late phase, for either sign of
    θ*."""
    frame = paired_steps(tables)
    frame = frame[frame["target"].abs() > 1e-6]
    frame = frame.assign(share=frame["slope"] / frame["target"])
    frame = chosen(frame, network="relu", left=frame["left"].max())
    frame = frame[frame["share"].between(-0.6, 1.8)]

    def draw(ax: Axes, cell: str) -> None:
        colour, marker = CELL[cell]
        ax.axvspan(1 / 3, 1, color="0.9", zorder=0)
        ax.axhline(0, color="0.3", linewidth=0.8)
        for _, run in chosen(frame, cell=cell).groupby(["rate", "seed"]):
            ax.plot(
                run["share"],
                run["second"],
                marker,
                color=colour,
                markersize=2.2,
                alpha=0.5,
                linestyle="none",
            )
        ax.set_xlim(-0.6, 1.8)
        ax.set_xticks([-0.5, 0, 1 / 3, 1, 1.5], ["−0.5", "0", "1/3", "1", "1.5"])
        for x, name in ((-0.13, "early"), (2 / 3, "late"), (1.4, "divergent")):
            ax.text(x, 0.97, name, transform=ax.get_xaxis_transform(), ha="center", va="top")

    said = "a dot is a recorded step of a run, all rates and seeds"
    heads = {"+": "positive cell, θ* > 0", "-": "negative cell, θ* < 0"}
    figure = panels(heads, draw, x="⟨w,v⟩ / θ*", y="second outlier λ₂", height=3.4, caption=said)
    low, high = figure.axes[0].get_ylim()
    figure.axes[0].set_ylim(low, high + 0.12 * (high - low))  # room for the names of the phases
    return figure


def bias_outliers(tables: Tables) -> Figure:
    """The five outliers of the network with bias next to Theorem 6's values while its ⟨v,b⟩ = 0 is
    given up."""
    exact = first_seed(tables["bias_outliers"])
    theorem = first_seed(tables["bias"])
    figure, axes = new_figure(1, 2, width=8.2, height=3.6)
    note(figure, "drawn: the first seed")
    ax = axes[0, 0]
    for rank, part in exact.groupby("rank"):
        ax.plot(
            part["mix"],
            part["eigenvalue"],
            "o",
            color=COLOURS[0],
            markersize=4,
            label="outliers (5×5 problem)" if rank == 0 else None,
        )
    for member, dashes, colour in (("pair", "--", COLOURS[1]), ("triple", ":", "black")):
        part = chosen(theorem, member=member)
        lines = np.array([np.sort(g["theorem"].to_numpy()) for _, g in part.groupby("mix")]).T
        for i, line in enumerate(lines):
            ax.plot(
                sorted(part["mix"].unique()),
                line,
                linestyle=dashes,
                color=colour,
                label=f"Theorem 6, {member}" if i == 0 else None,
            )
    bounds = theorem.drop_duplicates("mix").sort_values("mix")
    ax.fill_between(
        bounds["mix"],
        bounds["lower"],
        bounds["upper"],
        color="0.92",
        label="bounds of the triple",
        zorder=0,
    )
    ax.set_ylabel("Hessian eigenvalue")
    ax = axes[0, 1]
    gap = tables["bias"].groupby(["seed", "mix"])["gap"].max().reset_index()
    for i, (_, run) in enumerate(gap.groupby("seed")):
        ax.plot(
            run["mix"],
            run["gap"].clip(lower=1e-17),
            color=COLOURS[1],
            marker=MARKERS[1],
            markersize=3,
            linewidth=1.4 if i == 0 else 0.6,
        )
    error = tables["bias"].groupby("mix")["dense_error"].max()
    ax.plot(error.index, error.clip(lower=1e-17), color=COLOURS[0], marker=MARKERS[0], markersize=3)
    ax.text(
        0.5,
        0.8,
        "Theorem 6, one line a seed",
        transform=ax.transAxes,
        ha="center",
        color=COLOURS[1],
    )
    ax.text(
        0.5, 0.2, "5×5 problem, all seeds", transform=ax.transAxes, ha="center", color=COLOURS[0]
    )
    ax.set_yscale("log")
    ax.set_ylabel("error / largest eigenvalue")
    for ax in axes[0]:
        ax.set_xlabel("b turned from orthogonal (0) to parallel to v (1)")
    letter(axes, ["five outliers", "error against a dense eigensolver"])
    shared_legend(figure)
    return figure


RATIO = "sharpness · rate / 2"


def _ratio(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(ratio=frame["sharpness"] * frame["rate"] / 2).sort_values("step")


def _ratio_axis(ax: Axes, low: float, high: float) -> None:
    """Logarithmic axis of sharpness over 2/rate with plain numbers."""
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.set_yticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
    ax.yaxis.set_minor_locator(NullLocator())


def edge_of_stability(tables: Tables) -> Figure:
    """Sharpness over 2/rate along gradient descent at the largest width, from small and from large
    weights."""
    frame = first_seed(_ratio(tables["edge"]))
    frame = chosen(frame, width=frame["width"].max())
    factors = sorted(frame["factor"].unique())

    def draw(ax: Axes, key: tuple[str, str]) -> None:
        network, start = key
        part = chosen(frame, network=network, start=start)
        for i, factor in enumerate(factors):
            if start == "small" and 1.2 < factor < 2 and len(factors) > 5:
                continue  # chaotic
            run = chosen(part, factor=factor)
            if (run["status"] == "settled").any():  # it stays where it is
                run = pd.concat([run, run.iloc[-1:].assign(step=max(40, run["step"].max()))])
            shown = run[run["ratio"] < 6]
            look: dict[str, Any] = {"color": COLOURS[i % 8], "marker": MARKERS[i % 8]}
            dashes = DASHES[i % 8] if factor < 1 else "-"
            text = f"rate = {factor:g} × 2/λ₁ of the reference"
            ax.plot(
                shown["step"],
                shown["ratio"],
                **look,
                linewidth=1,
                linestyle=dashes,
                markevery=5,
                markersize=3.5,
                label=text,
            )
            if len(shown) < len(run):
                ax.plot(shown["step"].iloc[-1:], [5.5], **look, markersize=6)
        ax.axhline(1, color="black", linestyle=":", linewidth=1, label="edge of stability")
        ax.set_xlim(0, 40)
        _ratio_axis(ax, 0.12, 7)

    said = (
        "drawn: the first seed; a large mark at the top: the run diverges; reference: the start, "
        "and for small weights the solution"
    )
    heads = _by_start(frame, f", m = {int(frame['width'].max()):,}")
    size = _size(frame)
    return panels(heads, draw, x="training step", y=RATIO, **size, legend_columns=2, caption=said)


def _by_start(frame: pd.DataFrame, more: str = "") -> dict[tuple[str, str], str]:
    """Network and start of the weights -> title of their panel."""
    starts = [s for s in ("small", "large") if (frame["start"] == s).any()]
    return {
        (n, s): f"{NAMES[n]}, {s} start{more}"
        for n in sorted(frame["network"].unique())
        for s in starts
    }


def _size(frame: pd.DataFrame) -> dict[str, Any]:
    """Grid of `_by_start`: a row for each network, a column for each start."""
    return {
        "columns": frame["start"].nunique(),
        "height": 2.6 * frame["network"].nunique() + 0.7,
        "sharex": True,
    }
