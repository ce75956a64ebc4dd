"""Figures of the stochastic gap: repetitions of Table N.6, and the error against the number of probes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.dag.exp3.stochastic_claims import of_means, spreads
from experiments.dag.protocol.figures import name
from experiments.dag.protocol.plot_styles import STYLES
from experiments.dag.protocol.printed import hollow, printed
from experiments.dag.protocol.summary import groups
from runner.report import figures

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NAME = "exp3_stochastic"


def discrepancies(draws: pd.DataFrame) -> Figure:
    """|stochastic/exact − 1| of the gap's means over seeds, a dot a draw: a panel per checkpoint and number of probes.

    Hollow marks: the one repetition that the paper prints (without sign).
    """
    means, paper = of_means(draws), printed(NAME)
    paper = paper[paper["metric"] == "abs_rel_discrepancy_percent"]
    counts = [c for c in (30, 100) if c in set(means["probes"])] or sorted(set(means["probes"]))[:2]
    figure, axes = figures.new_figure(len(counts), 2, sharey=True)
    titles = []
    for row, probes in zip(axes, counts, strict=True):
        for ax, checkpoint in zip(row, ("init", "final"), strict=True):
            part = means[(means["checkpoint"] == checkpoint) & (means["probes"] == probes)]
            samples = {str(a): rows["percent"].abs() for (a,), rows in groups(part, ["activation"])}
            figures.groups(ax, samples, looks=STYLES, names={a: name(a) for a in samples})
            for i, activation in enumerate(samples):
                rows = paper[(paper["activation"] == activation) & (paper["checkpoint"] == checkpoint)]
                hollow(ax, [i] * len(rows), rows, "paper")
            titles.append(f"{probes} probes, {checkpoint}")
        row[0].set_ylabel("discrepancy (%)")
    figures.letter(axes, titles)
    figures.note(figure, "a dot: means over the seeds of one draw of probes; box: quartiles; hollow: printed")
    return figure


def rates(draws: pd.DataFrame, predicted: pd.DataFrame) -> Figure:
    """Relative std of one estimate over the draws against the number of probes; lines: predicted from the blocks."""
    found = spreads(draws)
    figure, axes = figures.new_figure(1, 2, sharey=True)
    for ax, checkpoint in zip(axes[0], ("init", "final"), strict=True):
        for (activation,), part in groups(found[found["checkpoint"] == checkpoint], ["activation"]):
            means = part.groupby("probes")["percent"].mean()
            theory = predicted[(predicted["checkpoint"] == checkpoint) & (predicted["activation"] == activation)]
            line = theory.groupby("probes")["percent"].mean()
            look = STYLES.style(str(activation))
            ax.plot(
                line.index, line, color=look["color"], linestyle=look["linestyle"], label=f"{name(activation)}, theory"
            )
            ax.plot(
                means.index,
                means,
                color=look["color"],
                marker=look["marker"],
                linestyle="none",
                label=f"{name(activation)}, draws",
            )
        ax.set_xscale("log")
        figures.log_axis(ax)
        ax.set_xlabel("probes $m$")
    axes[0, 0].set_ylabel("relative std of one estimate (%)")
    figures.letter(axes, ["init", "final"])
    figures.shared_legend(figure, columns=3)
    figures.note(figure, "marks: mean over the networks of the std over the draws")
    return figure
