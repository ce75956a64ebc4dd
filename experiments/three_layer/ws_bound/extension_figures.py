"""Fig. 13, and extensions: the scanned rate, the slack of the theorems, the other activations."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.three_layer.drawing import BOUND, STYLES, box_legend, boxes, line
from experiments.three_layer.study import data_sets, first_seed
from experiments.three_layer.ws_bound.analysis import PAPER_ACTIVATION, split_low_high, unique_points, variants
from experiments.three_layer.ws_bound.exact_claims import INFINITE
from experiments.three_layer.ws_bound.figures import WHAT_BOXES_ARE
from experiments.three_layer.ws_bound.settings import WsBound
from runner.contract import Tables
from runner.report import figures as draw

PUBLISHED = {3: (460 / 500, 353 / 500), 10: (453 / 500, 420 / 500)}
"""Shares of starts that converge and that are unique (Appendix C)."""


def activation_curves(tables: Tables) -> Figure:
    """Fig. 13: every stored activation with its first two derivatives."""
    table = tables["activations"].drop_duplicates(["activation", "y"])

    def panel(ax: Axes, column: str) -> None:
        for activation, rows in table.groupby("activation", sort=False):
            ax.plot(rows["y"], rows[column], label=str(activation), **line(str(activation)))
        if column == "f":
            ax.set_ylim(-1.6, 3)

    titles = {"f": "$f(y)$", "f_slope": "first derivative $f'(y)$", "f_bend": "second derivative $f''(y)$"}
    caption = "functions without chance: every cell has the same"
    return draw.panels(titles, panel, x="$y$", sharey=False, caption=caption, width=8.4, height=3.2)


def scan(tables: Tables) -> Figure:
    """Counts and sharpness against the learning rate under the printed stop rule."""
    rows = tables["search"]
    rows = rows[(rows["protocol"] == "printed") & (rows["activation"] == PAPER_ACTIVATION)]
    rates = sorted(rows["rate"].unique())

    def panel(ax: Axes, column: str) -> None:
        for hidden, part in rows.groupby("hidden", sort=True):
            label = f"N={hidden}"
            if column == "lambda_max_largest":
                _ranged(ax, part.groupby("rate")[column], label, f"N = {hidden}")
                continue
            _ranged(ax, (part[column] / part["starts"]).groupby(part["rate"]), label, f"N = {hidden}")
            ax.set_ylim(0, 1.03)
            if hidden in PUBLISHED:
                share = PUBLISHED[int(str(hidden))][column == "unique"]
                look: dict[str, Any] = {"color": STYLES.colour(label), "linewidth": 1, "linestyle": ":"}
                ax.axhline(share, label=f"published, N = {hidden}", **look)
        if column == "lambda_max_largest":
            limit = [2 / rate for rate in rates]
            ax.plot(rates, limit, color="black", linestyle="--", label="stability limit 2/η")
            draw.log_axis(ax, "y")

    titles = {"converged": "share of starts that converge", "unique": "share of distinct points"}
    titles["lambda_max_largest"] = r"largest $\lambda_1$ found"
    caption = "lines: mean over the data sets, bands: their range; dotted: the paper's counts (Appendix C)"
    size: dict[str, Any] = {"sharey": False, "width": 9.0, "height": 3.4}
    figure = draw.panels(titles, panel, x="learning rate η", log="x", caption=caption, **size)
    for ax in figure.axes:
        ax.set_xticks(rates, [f"{rate:g}" for rate in rates], minor=False)
    return figure


def _ranged(ax: Axes, grouped: pd.core.groupby.SeriesGroupBy, label: str, name: str) -> None:
    """Mean over data sets as a line, their range as a band."""
    mean, low, high = grouped.mean(), grouped.min(), grouped.max()
    ax.plot(mean.index, mean, label=name, **STYLES.style(label))
    ax.fill_between(mean.index, low, high, color=STYLES.colour(label), alpha=0.18, linewidth=0)


def slack_and_limit(tables: Tables) -> Figure:
    """How much room each inequality leaves, where the bound is attained, and the limit of Theorem 7."""
    figure, axes = draw.new_figure(1, 2, width=9.0, height=3.6)
    theorems = tables["theorems"][(tables["theorems"]["points"] > 0) & (tables["theorems"]["slack_min"] < INFINITE)]
    order = list(theorems["inequality"].unique())
    for slot, (activation, rows) in enumerate(theorems.groupby("activation", sort=False)):
        typical = rows.groupby("inequality")["slack_median"].median().reindex(order)
        least = rows.groupby("inequality")["slack_min"].min().reindex(order)
        places = [i + 0.12 * (slot - 2) for i in range(len(order))]
        look = STYLES.style(str(activation))
        axes[0, 0].vlines(places, least, typical, color=look["color"], linewidth=1.2)
        axes[0, 0].plot(places, typical, label=str(activation), **(look | {"linestyle": ""}))
    axes[0, 0].set_xticks(range(len(order)), order, rotation=25, ha="right")
    axes[0, 0].set_ylabel("(bound - value) / bound\nmedian (marker) down to least")
    axes[0, 0].axhline(0, color="black", linewidth=1)
    draw.legend(axes[0, 0])
    limits = tables["limits"]
    first = first_seed(limits[limits["activation"] == PAPER_ACTIVATION])
    for column in ("hidden", "protocol", "rate"):
        first = first[first[column] == first[column].min()]
    for path, rows in first.groupby("path", sort=False):
        name = {"scaled": "V scaled up", "cancelling": "and two units that cancel"}[str(path)]
        axes[0, 1].plot(rows["error_max"], rows["lambda_sup"], label=name, **STYLES.style(str(path)))
    draw.log_axis(axes[0, 1], "both")
    axes[0, 1].invert_xaxis()
    axes[0, 1].set_xlabel(r"largest error $\max_i |\delta_i|$ (falls to the right)")
    axes[0, 1].set_ylabel(BOUND)
    draw.legend(axes[0, 1])
    draw.note(figure, "(a): all widths, rates and data sets; (b): the first data set")
    draw.letter(axes, ["room left at critical points", "Theorem 7: along vanishing errors"])
    return figure


def activations(experiment: WsBound, tables: Tables) -> Figure:
    """The paper's main findings for all activations under the calibrated stop rule."""
    figure, axes = draw.new_figure(2, 2, width=8.6, height=6.0)
    shown = [v for v in variants(experiment, tables) if v.protocol == "fitted"]
    names = [draw.named(v.activation) for v in shown]
    widths = sorted(tables["search"]["hidden"].unique())
    ratio, bound = {}, {}
    for name, variant in zip(names, shown, strict=True):
        parts = {f"N={n}": unique_points(tables, variant, n) for n in widths}
        ratio[name] = {k: p["lambda_sup"] / p["lambda_max"] for k, p in parts.items()}
        bound[name] = {k: p["lambda_sup"] for k, p in parts.items()}
    for ax, samples, text in ((axes[0, 0], ratio, r"$\lambda_{\mathrm{sup}} / \lambda_1$"), (axes[0, 1], bound, BOUND)):
        boxes(ax, samples, (10, 90))
        box_legend(ax, {f"N={n}": f"N = {n}" for n in widths}, loc="upper left", ncols=1)
        ax.set_ylabel(text)
    draw.log_axis(axes[0, 1], "y")
    _shares(axes[1, 0], tables, [v.activation for v in shown])
    size = max(experiment.dataset.test)
    for place, variant in enumerate(shown):  # a dot a data set
        points = unique_points(tables, variant, experiment.portrait_hidden)
        groups = [split_low_high(rows, experiment.low_share) for _, rows in data_sets(points)]
        gaps = [low[f"f1_test{size}"].median() - high[f"f1_test{size}"].median() for low, high in groups]
        axes[1, 1].scatter([place] * len(gaps), gaps, s=26, **STYLES.point_style(variant.activation))
    axes[1, 1].axhline(0, color="black", linewidth=1)
    axes[1, 1].set_ylabel(f"median F1, low less high bound\n({size} test samples, N = {experiment.portrait_hidden})")
    for ax in axes[1]:
        ax.set_xticks(range(len(names)), names)
        ax.set_xlim(-0.5, len(names) - 0.5)
    draw.note(figure, f"{WHAT_BOXES_ARE}, data sets pooled; (d): a mark is a data set")
    draw.letter(axes, ["tightness", "sharpness", "search", "generalisation"])
    return figure


def _shares(ax: Axes, tables: Tables, names: list[str]) -> None:
    """Shares of starts that converge (filled) and of distinct points, means over data sets."""
    rows = tables["search"][tables["search"]["protocol"] == "fitted"]
    for slot, (hidden, part) in enumerate(rows.groupby("hidden", sort=True)):
        look = STYLES.point_style(f"N={hidden}")
        for column, filled in (("converged", look["color"]), ("unique", "none")):
            share = (part[column] / part["starts"]).groupby(part["activation"]).mean().reindex(names)
            places = [i + 0.2 * (slot - 0.5) for i in range(len(names))]
            style: dict[str, Any] = {
                "s": 34,
                "marker": look["marker"],
                "edgecolors": look["color"],
                "facecolors": filled,
            }
            ax.scatter(places, share, label=f"{column}, N = {hidden}", **style)
    ax.set_ylim(0, 1.05)
    ax.set_ylabel("share of starts, mean over data sets")
    draw.legend(ax)
