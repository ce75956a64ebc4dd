"""Figures of Exp. 6, with the paper's values as hollow marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.dag.exp6.claims import gaps, selected
from experiments.dag.protocol.figures import BARS, LABELS, error_line
from experiments.dag.protocol.plot_styles import STYLES
from experiments.dag.protocol.printed import hollow, printed
from experiments.dag.protocol.summary import groups, over_seeds
from runner.report import figures

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

NAME = "exp6_resnet18"
TITLES = {"resnet18": "ResNet-18", "plain_resnet18": "plain", "relu": "ReLU", "silu": "SiLU"}


def by_distance(distances: pd.DataFrame, value: str, *, log: bool) -> Figure:
    """R, C, D or gap against distance: a panel per activation, a line per architecture and checkpoint, ± over seeds."""
    table = gaps(selected(distances, "engine"))
    paper = printed(NAME)[lambda t: t["metric"] == value]
    activations = list(dict.fromkeys(table["activation"]))
    figure, axes = figures.new_figure(1, len(activations), sharey=True)
    for ax, activation in zip(axes[0], activations, strict=True):
        for (arch, checkpoint), part in groups(table[table["activation"] == activation], ["arch", "checkpoint"]):
            means = over_seeds(part, ["distance"], value)
            means = means[means["mean"] > 0] if log else means
            if len(means):
                text = f"{TITLES.get(str(arch), arch)}, {checkpoint}"
                error_line(ax, means, "distance", arch, str(checkpoint), text=text)
            rows = paper[(paper["activation"] == activation) & (paper["arch"] == arch)]
            rows = rows[(rows["checkpoint"] == checkpoint) & rows["mean"].notna()]
            hollow(ax, list(rows["distance"]), rows, str(arch))
        if log:
            figures.log_axis(ax)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("distance $d$ between outputs")
    axes[0, 0].set_ylabel(LABELS.get(value, value))
    figures.note(figure, BARS)
    figures.letter(axes, [TITLES.get(str(a), str(a)) for a in activations])
    figures.shared_legend(figure)
    return figure


def calibration(distances: pd.DataFrame) -> Figure:
    """R(d) at init with BatchNorm's statistics as published (0 and 1) and estimated from training images."""
    table = distances[(distances["checkpoint"] == "init") & (distances["estimator"] == "engine")]
    activations = list(dict.fromkeys(table["activation"]))
    figure, axes = figures.new_figure(1, len(activations), sharey=True)
    for ax, activation in zip(axes[0], activations, strict=True):
        for (arch, statistics), part in groups(table[table["activation"] == activation], ["arch", "statistics"]):
            style = "init" if statistics == "running" else "final"
            kind = "0 and 1" if statistics == "running" else "of images"
            text = f"{TITLES.get(str(arch), arch)}, statistics {kind}"
            error_line(ax, over_seeds(part, ["distance"], "R"), "distance", arch, style, text=text)
        figures.log_axis(ax)
        ax.set_xlabel("distance $d$ between outputs")
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0, 0].set_ylabel(LABELS["R"] + ", init")
    figures.note(figure, BARS)
    figures.letter(axes, [TITLES.get(str(a), str(a)) for a in activations])
    figures.shared_legend(figure, columns=2)
    return figure


def probe_error(pairs: pd.DataFrame) -> Figure:
    """R of every pair from 30 probes over the engine's value, minus one: every network and pair is a dot."""
    keys = ["activation", "arch", "checkpoint", "seed", "v", "w"]
    both = selected(pairs, "published").merge(selected(pairs, "engine"), on=keys, suffixes=("", "_engine"))
    percent = 100 * (both["R"] / both["R_engine"] - 1)
    figure, axes = figures.new_figure(1, 1, width=6)
    labels = both["activation"].map(TITLES) + " " + both["arch"].map(TITLES) + "\n" + both["checkpoint"]
    samples = {str(label): percent[labels == label] for label in dict.fromkeys(labels)}
    figures.groups(axes[0, 0], samples, looks=STYLES, names={label: label for label in samples})
    axes[0, 0].axhline(0, color="black", linewidth=0.8)
    axes[0, 0].set_ylabel("R from 30 probes / engine − 1 (%)")
    figures.note(figure, "every network and pair a dot; box: quartiles")
    return figure
