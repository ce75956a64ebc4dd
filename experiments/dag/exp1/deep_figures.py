"""Figures of Exp. 1 at depths 16 and 32, with the paper's values as hollow marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.dag.protocol.figures import BARS, error_line
from experiments.dag.protocol.plot_styles import STYLES
from experiments.dag.protocol.printed import hollow, printed
from experiments.dag.protocol.summary import first, groups, over_seeds
from runner.report import figures

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NAME = "exp1_deep"


def u_shape(distances: pd.DataFrame) -> Figure:
    """R(d) of plain and residual networks, mean ± std over seeds; the paper's R(0) and R(L−1) as hollow marks."""
    table, paper = first(distances), printed(NAME)
    depths = list(dict.fromkeys(table["depth"]))
    figure, axes = figures.new_figure(1, len(depths), sharey=True)
    for ax, depth in zip(axes[0], depths, strict=True):
        for (arch, checkpoint), part in groups(table[table["depth"] == depth], ["arch", "checkpoint"]):
            if checkpoint == "mid":
                continue
            error_line(ax, over_seeds(part, ["distance"], "R"), "distance", arch, checkpoint)
            for metric, at in (("R_d0", 0), ("R_dLminus1", depth - 1)):
                rows = paper[(paper["depth"] == depth) & (paper["arch"] == arch) & (paper["checkpoint"] == checkpoint)]
                hollow(ax, [at], rows[rows["metric"] == metric], arch)
        figures.log_axis(ax)
        ax.set_xlabel("distance $d$ between layers")
    axes[0, 0].set_ylabel(r"resonance $R(d) = \|H\|_F$")
    figures.letter(axes, [f"$L={d}$" for d in depths])
    figures.shared_legend(figure)
    figures.note(figure, BARS)
    return figure


def estimates(distances: pd.DataFrame, table: pd.DataFrame) -> Figure:
    """Exact D(d) and the mean and smallest estimate of it, plain networks at init; below 1 no exact value can be."""
    plain = first(distances)[lambda t: (t["arch"] == "plain") & (t["checkpoint"] == "init")]
    own = table[(table["arch"] == "plain") & (table["checkpoint"] == "init")]
    depths = list(dict.fromkeys(plain["depth"]))
    figure, axes = figures.new_figure(1, len(depths), sharey=True)
    for ax, depth in zip(axes[0], depths, strict=True):
        for rows, value, label in (
            (plain, "D", "exact"),
            (own, "D", "stochastic"),
            (own, "D_smallest", "smallest estimate of a pair"),
        ):
            means = over_seeds(rows[rows["depth"] == depth], ["distance"], value)
            look = STYLES.style("stochastic" if rows is own else "exact")
            look |= {"linestyle": ":"} if value == "D_smallest" else {}
            text = {"stochastic": "estimate, mean over pairs"}.get(label, label)
            ax.plot(means["distance"], means["mean"], label=text, **look)
        ax.axhline(1, color="black", linewidth=0.8)
        ax.set_xlabel("distance $d$ between layers")
    axes[0, 0].set_ylabel("stable rank $D(d)$, plain, init")
    figures.letter(axes, [f"$L={d}$" for d in depths])
    figures.shared_legend(figure)
    return figure
