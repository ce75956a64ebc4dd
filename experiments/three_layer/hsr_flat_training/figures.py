"""Figure of the contest: HSR against each baseline in every entry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.three_layer.drawing import STYLES
from experiments.three_layer.hsr_flat_training.comparison import CONTEST, WORDS, Entry
from experiments.three_layer.hsr_flat_training.settings import BASELINES, NAMES
from runner.report import figures as draw
from runner.stats.intervals import Sample
from runner.stats.judge import LEVEL

PANELS = {
    "lambda_max": "largest eigenvalue, HSR over baseline",
    "test_accuracy": "test accuracy, HSR less baseline (points)",
}
Key = tuple[Entry, str, str]


def contest(differences: Mapping[Key, Sequence[float]], data: str) -> Figure:
    """Ratios of λ₁ and differences of test accuracy, means and 95 % intervals over seeds."""

    def panel(ax: Axes, quantity: str) -> None:
        for place, entry in enumerate(CONTEST):
            for slot, baseline in enumerate(BASELINES):
                values = differences.get((entry, quantity, baseline))
                if values:
                    height = place + 0.15 * (slot - (len(BASELINES) - 1) / 2)
                    _interval(ax, quantity, values, height, baseline)
        ax.axvline(float(quantity == "lambda_max"), color="black", linewidth=0.9)
        if quantity == "lambda_max":
            draw.log_axis(ax, "x")
        ax.grid(False, axis="y")
        ax.set_xlabel(PANELS[quantity])

    titles = {
        "lambda_max": "left of 1: HSR is flatter",
        "test_accuracy": "right of 0: HSR is more accurate",
    }
    figure = draw.panels(titles, panel, columns=2, width=draw.WIDEST, height=6.4)
    labels = [f"{WORDS[e.budget]}\n{WORDS[e.rule]}\n{e.schedule}" for e in CONTEST]
    figure.axes[0].set_yticks(range(len(CONTEST)), labels)
    figure.axes[0].set_ylim(len(CONTEST) - 0.5, -0.5)
    draw.note(figure, f"{data}; means over the seeds with their 95 % intervals")
    draw.note(figure, "throughout, first half: the steps with the method's penalty")
    return figure


def _interval(
    ax: Axes, quantity: str, values: Sequence[float], height: float, baseline: str
) -> None:
    """A mean with its interval: of logarithms as a ratio, of accuracies in points."""
    sample = Sample.of(values)
    shown = np.array([sample.mean, *sample.interval(LEVEL)])
    shown = np.exp(shown) if quantity == "lambda_max" else 100 * shown
    if not math.isfinite(shown[0]):
        return
    style = STYLES.style(baseline) | {"linestyle": "none", "markersize": 4.5}
    arms = None
    if math.isfinite(shown[1]):
        arms = [[shown[0] - shown[1]], [shown[2] - shown[0]]]
    style |= {"xerr": arms, "capsize": 2, "elinewidth": 0.9, "label": NAMES[baseline]}
    ax.errorbar([shown[0]], [height], **style)
