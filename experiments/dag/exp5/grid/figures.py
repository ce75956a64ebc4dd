"""Figures of the trained grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.dag.exp5.grid import score
from runner.report import figures as draw
from runner.report.looks import COLOURS, MARKERS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LABELS = {
    "as printed": "as printed, best noise",
    "printed teacher": "printed teacher, best scale, noise, pairs",
    "all": "best of all tried",
}
SHORT = {"full": r"$\|H\|_F$", "gn": r"$\|H^{GN}\|_F$", "gap": "gap", "test_loss": "test MSE"}


def nearest(best: Mapping[str, pd.Series], margin: float) -> Figure:
    """Mean over the seeds over the printed number, for the nearest protocol of three families; grey: within the margin.
    The nearest of a wider family is a choice among more, and fits better for that alone."""
    numbers = list(score.printed())
    figure, axes = draw.new_figure(1, 1, width=10.5, height=4.6)
    ax = axes[0, 0]
    ax.axhspan(1 - margin, 1 + margin, color="0.85", label=f"within {margin:.0%}")
    ax.axhline(1, color="black", linewidth=0.8)
    for i, (name, row) in enumerate(best.items()):
        ratios = score.ratios_of(row)
        x = [numbers.index(n) + 0.2 * (i - 1) for n in ratios]
        look = {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": ""}
        ax.plot(x, list(ratios.values()), label=f"{LABELS[name]} ({row['met']:.0f} of {len(numbers)})", **look)
    draw.log_axis(ax, "y")
    ax.set_ylabel("measured over printed")
    ax.set_xticks(range(len(numbers)), [f"{SHORT[q]}\n{c}" for _, q, c in numbers], fontsize=8)
    split = sum(network == "attention" for network, _, _ in numbers) - 0.5
    ax.axvline(split, color="0.5", linewidth=0.8, linestyle=":")
    ax.text(split - 0.1, 0.98, "attention", ha="right", va="top", transform=ax.get_xaxis_transform())
    ax.text(split + 0.1, 0.98, "ReLU network", ha="left", va="top", transform=ax.get_xaxis_transform())
    draw.shared_legend(figure, columns=2)
    return figure


def numbers_met(scored: pd.DataFrame) -> Figure:
    """How many protocols and pairs of blocks give how many of the printed numbers, by family."""
    figure, axes = draw.new_figure(1, 1, width=6.4, height=4.0)
    ax = axes[0, 0]
    total = len(score.printed())
    for i, name in enumerate(score.FAMILIES[::-1]):
        counts = score.family(scored, name)["met"].value_counts().reindex(range(total + 1), fill_value=0)
        ax.step(
            range(total + 1), counts.replace(0, 0.5), where="mid", color=COLOURS[i], label=f"{name} ({counts.sum()})"
        )
    draw.log_axis(ax, "y")
    ax.set_ylim(0.7, None)
    ax.set_xlabel(f"printed numbers met, of {total}")
    ax.set_ylabel("protocols and pairs")
    ax.legend()
    return figure
