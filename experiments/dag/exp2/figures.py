"""Figures of Exp. 2, with the paper's values as hollow marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from experiments.dag.exp2.claims import NAME
from experiments.dag.protocol.figures import BARS, error_line
from experiments.dag.protocol.plot_styles import STYLES
from experiments.dag.protocol.printed import hollow, printed
from experiments.dag.protocol.summary import first, groups, over_seeds
from runner.report import figures

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDS = ("init", "final")


def stable_rank(far: pd.DataFrame, classes: int) -> Figure:
    """D_far against d_u: a panel per depth, estimates as published with ± std over seeds; dotted: min(d_u, K−1)."""
    figure, axes = _panels(far, "D_estimate", "D_far", r"stable rank $D_{\mathrm{far}}$")
    for ax in axes:
        widths = sorted(set(far["d_u"]))
        ax.plot(widths, [min(d, classes - 1) for d in widths], ":", color="black", label=r"$\min(d_u, K-1)$")
        figures.log_axis(ax)
    figures.shared_legend(figure)
    figures.note(figure, BARS)
    return figure


def coupling_and_resonance(far: pd.DataFrame) -> Figure:
    """C_far and R_far against d_u: a column per depth."""
    table, paper = first(far), printed(NAME)
    depths = sorted(set(table["depth"]))
    figure, axes = figures.new_figure(2, len(depths), sharey="row")
    for column, depth in enumerate(depths):
        for ax, value in zip(axes[:, column], ("C", "R"), strict=True):
            _lines(ax, table[table["depth"] == depth], f"{value}_estimate")
            if value == "C":
                _paper(ax, paper, depth, "C_far", set(table["checkpoint"]))
            else:
                figures.log_axis(ax)
    axes[0, 0].set_ylabel(r"coupling $C_{\mathrm{far}}$")
    axes[1, 0].set_ylabel(r"resonance $R_{\mathrm{far}}$")
    figures.letter(axes, [f"$L={d}$" for d in depths] * 2)
    figures.shared_legend(figure)
    figures.note(figure, BARS)
    return figure


def ranks(table: pd.DataFrame, classes: int) -> Figure:
    """Largest numerical rank of H^GN across the narrow layer, of one example and of the batch mean, at init."""
    part = table[(table["part"] == "gauss_newton") & (table["checkpoint"] == "init")]
    depths = sorted(set(part["depth"]))
    figure, axes = figures.new_figure(1, len(depths), sharey=True)
    for ax, depth in zip(axes[0], depths, strict=True):
        for (block,), rows in groups(part[part["depth"] == depth], ["block"]):
            top = rows.groupby("d_u")["rank"].max()
            text = {"example": "one example", "mean": "batch mean"}[str(block)]
            ax.plot(top.index, top, label=text, **STYLES.style("exact" if block == "example" else "stochastic"))
        widths = sorted(set(part["d_u"]))
        ax.plot(widths, [min(d, classes - 1) for d in widths], ":", color="black", label=r"$\min(d_u, K-1)$")
        _log2(ax, widths)
        figures.log_axis(ax)
    axes[0, 0].set_ylabel(r"rank of $H^{GN}$ (float64)")
    figures.letter(axes, [f"$L={d}$" for d in depths])
    figures.shared_legend(figure)
    return figure


def image_sets(far: pd.DataFrame) -> Figure:
    """Exact D_far at init on every set of images, mean over seeds: dots for random sets, a diamond for the papers'."""
    table = far[far["checkpoint"] == "init"]
    depths = sorted(set(table["depth"]))
    figure, axes = figures.new_figure(1, len(depths), sharey=True)
    for ax, depth in zip(axes[0], depths, strict=True):
        means = over_seeds(table[table["depth"] == depth], ["d_u", "images"], "D")
        random, own = means[means["images"] != 0], means[means["images"] == 0]
        ax.scatter(random["d_u"], random["mean"], s=14, alpha=0.6, linewidths=0, label="random sets of images")
        look: dict[str, Any] = {"marker": "D", "color": "black", "capsize": 3, "markersize": 4, "linestyle": "none"}
        text = "the first images, ± std over seeds"
        ax.errorbar(own["d_u"], own["mean"], yerr=own["std"].fillna(0), label=text, **look)
        _log2(ax, sorted(set(table["d_u"])))
    axes[0, 0].set_ylabel(r"exact $D_{\mathrm{far}}$ at init")
    figures.letter(axes, [f"$L={d}$" for d in depths])
    figures.shared_legend(figure)
    return figure


def _panels(far: pd.DataFrame, value: str, metric: str, text: str) -> tuple[Figure, list[Axes]]:
    table, paper = first(far), printed(NAME)
    depths = sorted(set(table["depth"]))
    figure, axes = figures.new_figure(1, len(depths), sharey=True)
    for ax, depth in zip(axes[0], depths, strict=True):
        _lines(ax, table[table["depth"] == depth], value)
        _paper(ax, paper, depth, metric, set(table["checkpoint"]))
    axes[0, 0].set_ylabel(text)
    figures.letter(axes, [f"$L={d}$" for d in depths])
    return figure, list(axes[0])


def _lines(ax: Axes, table: pd.DataFrame, value: str) -> None:
    for checkpoint in ENDS:
        part = table[table["checkpoint"] == checkpoint]
        if len(part):
            means = over_seeds(part, ["d_u"], value).sort_values("d_u")
            error_line(ax, means, "d_u", checkpoint, checkpoint, text=f"{checkpoint}, here")
    _log2(ax, sorted(set(table["d_u"])))


def _paper(ax: Axes, paper: pd.DataFrame, depth: int, metric: str, measured: set[str]) -> None:
    """The paper's marks at the checkpoints that are measured, whose lines explain their shapes."""
    rows = paper[(paper["depth"] == depth) & (paper["metric"] == metric)]
    for checkpoint in (c for c in ENDS if c in measured):
        at = rows[rows["checkpoint"] == checkpoint]
        hollow(ax, list(at["d_u"]), at, checkpoint)


def _log2(ax: Axes, widths: list[int]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(widths, [str(w) for w in widths])
    ax.set_xlabel("width $d_u$ of the narrow layer")
