"""Figures of the search for Exp. 5's data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.report.figures import new_figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from experiments.dag.exp5.search.score import Targets


def norms(pooled: pd.DataFrame, targets: Targets) -> Figure:
    """Norms of the untrained networks that know no targets, over all readings of the data.

    Mean over the five published seeds; marks: average over the readings, bars: their whole range. Dashed: printed.
    """
    figure, (axes,) = new_figure(1, 2, width=9, height=3.4, width_ratios=(1, 3))
    part = pooled[pooled["network"] == "of the seed"]
    for ax, rows, target, title in (
        (axes[0], part[part["norm"] == "attention gn"], targets["attention gn"], "attention, (q, k), Gauss–Newton"),
        (axes[1], part[part["norm"] != "attention gn"], targets["mlp full"], "ReLU network, pair of blocks"),
    ):
        low, high = rows["mean"] - rows["lowest"], rows["highest"] - rows["mean"]
        names = [
            n.replace("attention gn", r"$\|H^{GN}\|_F$").replace("-", "\n").replace(" ", "\n") for n in rows["norm"]
        ]
        ax.errorbar(range(len(rows)), rows["mean"], yerr=[low, high], fmt="o", capsize=4)
        ax.axhline(target.value, linestyle="--", color="black", linewidth=0.8, label="printed")
        ax.set_xticks(range(len(rows)), names, fontsize=8)
        ax.set_xlim(-0.6, len(rows) - 0.4)
        ax.set_yscale("log")
        ax.set_ylabel(r"$\|H\|_F$ at init")
        ax.set_title(title, fontsize=9)
        ax.legend(fontsize=8)
    return figure


def numbers_met(counts: pd.DataFrame) -> Figure:
    """How many readings give how many of the seven printed init numbers; those whose inputs fit, with all targets."""
    figure, ((ax,),) = new_figure(width=5, height=3.2)
    rows = counts[counts["stage"] == "targets"].groupby("numbers_met")["variants"].sum()
    ax.bar(rows.index, rows)
    for x, n in rows.items():
        ax.annotate(f"{n}", (float(x), n), ha="center", va="bottom", fontsize=8)  # type: ignore[arg-type]
    ax.set_yscale("log")
    ax.set_xticks(range(8))
    ax.set_xlabel("printed init numbers met, of 7")
    ax.set_ylabel("readings")
    return figure
