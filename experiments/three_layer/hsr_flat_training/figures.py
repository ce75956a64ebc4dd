"""Figure of the contest: ratios with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.three_layer.drawing import STYLES, plain_log
from experiments.three_layer.hsr_flat_training.comparison import (
    MAIN,
    Comparison,
    Entry,
    Ratio,
    words,
)
from experiments.three_layer.hsr_flat_training.settings import BASELINES, HSR, NAMES
from runner.report import figures as draw

LATE: dict[str, Any] = {"color": "#332288", "marker": "*"}
"""Tol's indigo, none of the project's eight colours."""


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
                    _ratio(
                        ax,
                        matched or compared.ratio(entry or MAIN, own, b),
                        own,
                        i + 0.18 * (j - 1.5),
                    )
        ax.axvline(1, color="black", linewidth=0.9)
        plain_log(ax, "x")
        ax.grid(False, axis="y")

    size: dict[str, Any] = {
        "columns": 2,
        "width": 8.4,
        "height": 0.8 + 2.8 * math.ceil(len(titles) / 2),
    }
    figure = draw.panels(titles, panel, x=r"ratio of $\lambda_1$, HSR over baseline", **size)
    for ax in figure.axes[::2]:
        ax.set_yticks(range(len(BASELINES)), [NAMES[b] for b in BASELINES])
    figure.axes[0].set_ylim(len(BASELINES) - 0.5, -0.5)
    draw.note(figure, compared.data)
    draw.note(
        figure,
        "geometric means over the seeds with their 95 % intervals; left of 1: HSR is flatter",
    )
    return figure


def _ratio(ax: Axes, found: Ratio, own: str, y: float) -> None:
    if found.n and math.isfinite(found.value):
        style = LATE if own == "hsr_late" else STYLES.style(own)
        style = {**style, "linestyle": "none", "markersize": 5.5, "capsize": 2, "elinewidth": 0.9}
        arms = (
            [[found.value - found.low], [found.high - found.value]]
            if math.isfinite(found.low)
            else None
        )
        ax.errorbar([found.value], [y], xerr=arms, label=NAMES[own], **style)
