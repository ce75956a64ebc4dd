"""Figures of the contest: ratios with intervals, and trainings by loss and by processor time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.three_layer.drawing import EIGENVALUE, STYLES, plain_log
from experiments.three_layer.hsr_flat_training.comparison import MAIN, Comparison, Entry, Ratio, words
from experiments.three_layer.hsr_flat_training.settings import BASELINES, HSR, NAMES
from runner.report import figures as draw

ALIKE = {"sgd": "gd", "asam_all": "asam_wide"}
"""Methods that look as one of the regularisation study does."""
FURTHER: dict[str, dict[str, Any]] = {
    "hsr_late": {"color": "#332288", "marker": "*", "linestyle": (0, (1, 2))},
    "hsr_wide": {"color": "#117733", "marker": "p", "linestyle": "--"},
}
"""Tol's indigo and green, none of the project's eight colours."""


def look(method: str) -> dict[str, Any]:
    """color, marker and linestyle of a method; hollow marks are left to the flattest settings."""
    return FURTHER.get(method) or STYLES.style(ALIKE.get(method, method))


def ratios(compared: Comparison, entries: Sequence[Entry]) -> Figure:
    """λ₁ of each way of HSR over each baseline's, geometric mean and 95 % interval over seeds; left of 1: flatter."""
    titles: dict[Entry | None, str] = {entry: words(entry) for entry in entries}
    titles[None] = "most accurate at equal cost, at the same training loss"

    def panel(ax: Axes, entry: Entry | None) -> None:
        there = compared.methods(entry or MAIN)
        for i, b in enumerate(BASELINES):
            for j, own in enumerate(HSR):
                if {own, b} <= set(there):
                    matched = Ratio.of(compared.matched(MAIN, own, b)) if entry is None else None
                    _ratio(ax, matched or compared.ratio(entry or MAIN, own, b), own, i + 0.18 * (j - 1.5))
        ax.axvline(1, color="black", linewidth=0.9)
        plain_log(ax, "x")
        ax.grid(False, axis="y")

    size: dict[str, Any] = {"columns": 2, "width": 8.4, "height": 0.8 + 2.8 * math.ceil(len(titles) / 2)}
    figure = draw.panels(titles, panel, x=r"ratio of $\lambda_1$, HSR over baseline", **size)
    for ax in figure.axes[::2]:
        ax.set_yticks(range(len(BASELINES)), [NAMES[b] for b in BASELINES])
    figure.axes[0].set_ylim(len(BASELINES) - 0.5, -0.5)
    draw.note(figure, compared.data)
    draw.note(figure, "geometric means over the seeds with their 95 % intervals; left of 1: HSR is flatter")
    return figure


def _ratio(ax: Axes, found: Ratio, own: str, y: float) -> None:
    if found.n and math.isfinite(found.value):
        style: dict[str, Any] = {**look(own), "linestyle": "none", "markersize": 5.5, "capsize": 2, "elinewidth": 0.9}
        arms = [[found.value - found.low], [found.high - found.value]] if math.isfinite(found.low) else None
        ax.errorbar([found.value], [y], xerr=arms, label=NAMES[own], **style)


def trainings(compared: Comparison) -> Figure:
    """Trainings at equal cost with the most accurate settings, geometric means over seeds: baselines on the left, HSR
    and its cheaper ways with SGD on the right, the other methods in grey."""
    groups = {"baselines": BASELINES, "HSR and its cheaper ways, with SGD": (*HSR, "sgd")}
    quantities = {
        ("train_loss", "lambda_max"): ("training loss (falls to the right)", EIGENVALUE),
        ("cpu_seconds", "lambda_max"): ("processor time (s)", EIGENVALUE),
        ("cpu_seconds", "test_error"): ("processor time (s)", "test error (%)"),
    }
    of = {m: _means(compared.curves(MAIN, m)) for m in compared.methods(MAIN)}

    def panel(ax: Axes, key: tuple[str, tuple[str, str]]) -> None:
        (x, y), shown = key[1], groups[key[0]]
        for method, means in sorted(of.items(), key=lambda item: item[0] in shown):
            rows = means[means["cpu_seconds"] > 0] if x == "cpu_seconds" else means
            if method in shown:
                ax.plot(rows[x], rows[y], label=NAMES[method], **(look(method) | {"markersize": 4}))
            else:
                ax.plot(rows[x], rows[y], color="0.8", linewidth=1)
        plain_log(ax, "both")
        if x == "train_loss":
            ax.invert_xaxis()
        ax.set_xlabel(quantities[x, y][0])
        ax.set_ylabel(quantities[x, y][1])

    titles = {(group, pair): group for pair in quantities for group in groups}
    size: dict[str, Any] = {"width": 8.4, "height": 9.6, "sharey": "row", "legend_columns": 3}
    figure = draw.panels(titles, panel, columns=2, **size)
    draw.note(figure, compared.data)
    draw.note(figure, "geometric means over the seeds, most accurate settings at equal cost; grey: the other methods")
    return figure


def _means(curves: pd.DataFrame) -> pd.DataFrame:
    """Geometric means over seeds by epoch, of errors arithmetic ones; epochs that a seed lacks are left out."""
    seeds = curves["seed"].nunique()
    whole = curves.groupby("epoch")["seed"].transform("count") == seeds
    by_epoch = curves[whole].groupby("epoch")
    logs = by_epoch[["train_loss", "lambda_max"]].agg(lambda v: float(np.exp(np.log(v.where(v > 0)).mean())))
    error = 100 * (1 - by_epoch["test_accuracy"].mean())
    return logs.assign(cpu_seconds=by_epoch["cpu_seconds"].mean(), test_error=error)
