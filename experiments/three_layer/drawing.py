"""Styles and parts of figures that the studies of the three-layer network share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from runner.report.figures import PlotStyles
from runner.stats.intervals import Sample

STYLES = PlotStyles(
    ("sigmoid", "tanh", "softplus", "gelu", "linear"),
    ("low", "high"),
    ("N=3", "N=10"),
    ("fitted", "printed"),
    ("lambda_1", "lambda_sup", "lambda_D", "lambda_inf", "lambda_2", "lambda_3", "loss"),
    ("scaled", "cancelling"),  # paths of Theorem 7 of the WS-bound paper
    ("gd", "hsr", "trace", "asam", "asam_wide"),
    ("exact", "numerical"),
    ("mean_term", "std_term"),
    ("measured",),
    ("double sum", "matrix", "own", "autodiff", "differences"),
)
Look = dict[str, Any]
"""Keywords of an artist."""
HATCHES = (None, "///", "...", "ooo", "xxx")
BOUND = r"bound $\lambda_{\mathrm{sup}}$"
EIGENVALUE = r"largest eigenvalue $\lambda_1$"


def line(label: str, **changed: Any) -> Look:
    """Colour and dashes of a label, without markers."""
    return STYLES.style(label) | {"marker": ""} | changed


def dots(ax: Axes, x: Any, y: Any, label: str, name: str | None = None, **changed: Any) -> None:
    """Points in the style of a label, small enough that thousands stay readable."""
    look: Look = {"s": 9, "alpha": 0.35, "linewidths": 0, "label": label}
    if name is not None:
        look["label"] = name
    look |= STYLES.point_style(label) | changed
    ax.scatter(x, y, **look)


def band(ax: Axes, x: Any, middle: Any, low: Any, high: Any, label: str, name: str) -> None:
    """A line in the style of a label with a band from `low` to `high`."""
    ax.plot(x, middle, label=name, **line(label))
    ax.fill_between(x, low, high, color=STYLES.colour(label), alpha=0.18, linewidth=0)


def box_look(label: str, slot: int) -> Look:
    """Filling of a box, in its place among those side by side."""
    hatch = HATCHES[slot % len(HATCHES)]
    return {"facecolor": STYLES.colour(label), "alpha": 0.6, "hatch": hatch}


def boxes(
    ax: Axes,
    samples: Mapping[Any, Mapping[str, pd.Series]],
    whiskers: float | tuple[int, int] = 1.5,
) -> dict[tuple[int, str], tuple[float, float]]:
    """A box for each label side by side at every place; (place, label) -> (x, upper end) of the
    whisker.

    whiskers: as matplotlib has them, interquartile ranges or percentiles.
    """
    thin = {"linewidth": 0.8}
    tops = {}
    for place, by_label in enumerate(samples.values()):
        count = len(by_label)
        width = 0.8 / count
        groups = enumerate(by_label.items())
        for slot, (label, values) in groups:
            centre = place + (slot - (count - 1) / 2) * width
            drawn = ax.boxplot(
                [values.dropna()],
                positions=[centre],
                widths=0.8 * width,
                whis=whiskers,
                showfliers=False,
                patch_artist=True,
                manage_ticks=False,
                medianprops={"color": "black", "linewidth": 1.6},
                whiskerprops=thin,
                capprops=thin,
            )
            drawn["boxes"][0].set(linewidth=0.6, **box_look(label, slot))
            upper_cap = drawn["caps"][1].get_ydata()
            top = max(upper_cap, default=math.nan)
            tops[place, label] = (centre, float(top))
    ax.set_xticks(range(len(samples)), [str(place) for place in samples])
    ax.set_xlim(-0.6, len(samples) - 0.4)
    return tops


def box_legend(figure: Figure | Axes, names: Mapping[str, str], **where: Any) -> None:
    """A legend of boxes, label -> name, in the order in which they stand side by side."""
    handles = []
    numbered = enumerate(names.items())
    for slot, (label, name) in numbered:
        handles.append(Patch(label=name, **box_look(label, slot)))
    below: Look = {"loc": "outside lower center", "ncols": len(handles)}
    about: Look = below | where
    figure.legend(handles=handles, **about)


def stars(p: float) -> str:
    """The papers' asterisks.

    >>> stars(0.5), stars(0.002), stars(1e-5)
    ('', '*', '**')
    """
    return "*" * ((p < 0.01) + (p < 0.001))


def values_with_mean(
    ax: Axes, values: Iterable[float], place: float, colour: str, *, horizontal: bool = False
) -> None:
    """Sorted values spread around a place, and in black their mean with its 95 % interval."""
    gains = sorted(values)
    last = max(1, len(gains) - 1)
    spread = [place + 0.4 * (k / last - 0.5) for k in range(len(gains))]
    sample = Sample.of(gains)
    interval = sample.interval(0.95)
    if horizontal:
        ax.scatter(gains, spread, s=10, alpha=0.6, linewidths=0, color=colour)
        ax.plot(interval, [place, place], color="black", linewidth=2.4)
        ax.scatter([sample.mean], [place], s=22, color="black", zorder=3)
    else:
        ax.scatter(spread, gains, s=10, alpha=0.6, linewidths=0, color=colour)
        ax.plot([place, place], interval, color="black", linewidth=2.4)
        ax.scatter([place], [sample.mean], s=22, color="black", zorder=3)
