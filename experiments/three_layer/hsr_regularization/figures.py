"""Figs. 8, 9, 12 and 14: the data, the points of the search, and where the methods end, data set by
data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.printed import printed_number
from experiments.three_layer.drawing import (
    BOUND,
    EIGENVALUE,
    STYLES,
    Look,
    box_legend,
    boxes,
    dots,
    stars,
    values_with_mean,
)
from experiments.three_layer.hsr_regularization.analysis import Variant
from experiments.three_layer.hsr_regularization.settings import (
    GROUPS,
    NAMES,
    PAIRS,
)
from experiments.three_layer.settings import STOP_RULES
from experiments.three_layer.study import data_sets
from runner.contract import Tables
from runner.report import figures as draw
from runner.stats.tables import chosen, first_seed

SPECTRUM = {
    "lambda_max": EIGENVALUE,
    "mean": r"mean eigenvalue $\mu$",
    "std": r"standard deviation $\sigma$",
    "lambda_min": r"smallest eigenvalue $\lambda_D$",
}
LOGARITHMIC = ("lambda_max", "mean", "std")
BELOW = 4
"""A logarithmic panel ends at the lowest quartile over this: ends that run to infinity have
eigenvalues near 0.
"""
STAR = 0.01
"""Level of one star."""
LABELS = [f"{NAMES[a]} − {NAMES[b]}" for a, b in PAIRS]


def spectrum(variant: Variant) -> Figure:
    """Fig. 12: λ₁, mean, standard deviation and λ_D where each method ends, for all five data
    sets."""
    return _boxes_of_methods(variant, SPECTRUM)


def f1(variant: Variant) -> Figure:
    """Fig. 14: macro F1 on test data where each method ends, for all five data sets."""
    return _boxes_of_methods(variant, {"f1": "macro F1 on test data"})


def _boxes_of_methods(variant: Variant, quantities: Mapping[str, str]) -> Figure:
    """A row of panels for each quantity; λ_D is left out where it is nothing next to λ₁."""
    rows = variant.rows("endpoints")
    shown = dict(quantities)
    least = rows["lambda_min"].abs().quantile(0.95)
    if least < 1e-4 * rows["lambda_max"].median():
        shown.pop("lambda_min", None)
    counts = rows.groupby(["seed", "group", "method"])
    marks: list[tuple[Axes, str, tuple[float, float]]] = []

    def panel(ax: Axes, key: tuple[str, str]) -> None:
        quantity, group = key
        samples = {}
        for seed, ends in data_sets(chosen(rows, group=group)):
            samples[seed] = {m: ends.loc[ends["method"] == m, quantity] for m in NAMES}
        for (place, method), top in boxes(ax, samples).items():
            test = variant.test(f"{quantity}, {method} - gd, {group} seeds", list(samples)[place])
            if test is not None:
                marks.append((ax, stars(test.p_holm), top))

    titles = {key: f"{key[1]} seeds" for key in product(shown, GROUPS)}
    figure = draw.panels(
        titles,
        panel,
        x="data set (seed)",
        columns=2,
        legend_columns=0,
        width=draw.WIDEST,
        height=0.9 + 2.4 * len(shown),
        sharey="row",
    )
    for ax, (quantity, group) in zip(figure.axes, titles, strict=True):
        if quantity in LOGARITHMIC:
            lowest = counts[quantity].quantile(0.25).min() / BELOW
            ax.set_ylim(bottom=max(ax.get_ylim()[0], lowest))
            draw.log_axis(ax)
        if group == GROUPS[0]:
            ax.set_ylabel(shown[quantity])
    look: Look = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 9}
    for ax, text, top in marks:
        ax.annotate(text, top, (0, -1), **look)
    box_legend(figure, NAMES)
    figure.suptitle(variant.text)
    _note_boxes(figure, variant, counts.size())
    if len(shown) < len(quantities):
        draw.note(figure, f"|λ_D| is below {least:.1g} for 95 % of the ends and not drawn")
        draw.note(figure, "whiskers are cut: along a way to infinity the eigenvalues tend to 0")
    return figure


def _note_boxes(figure: Figure, variant: Variant, ends: pd.Series[int]) -> None:
    """What a box and its asterisks are; ends: their numbers in each box."""
    boxes_are = "boxes: quartiles and median, whiskers to 1.5 interquartile ranges"
    draw.note(figure, f"{variant.text}; {boxes_are}")
    stars_are = "above a box: * p < 0.01, ** p < 0.001 after Holm's correction"
    draw.note(figure, f"{stars_are}, signed-rank test against plain descent")
    sizes = f"{ends.min()} to {ends.max()}"
    draw.note(figure, f"a box is {sizes} ends; the paper's, 113 (one data set)")


def effects(variant: Variant) -> Figure:
    """Rank-biserial effect of every comparison, a mark for each data set, filled where p < level
    after Holm.
    """

    def panel(ax: Axes, key: tuple[str, str]) -> None:
        quantity, group = key
        for place, (a, b) in enumerate(PAIRS):
            tests = variant.tests(f"{quantity}, {a} - {b}, {group} seeds")
            look = STYLES.point_style(a)
            colour = look.pop("color")
            look |= {"edgecolors": colour, "s": 20, "linewidths": 0.9, "zorder": 3}
            for slot, test in enumerate(tests):
                filled = colour if test.p_holm < STAR else "white"
                height = place + 0.12 * (slot - (len(tests) - 1) / 2)
                ax.scatter(test.effect, height, facecolors=filled, **look)
        ax.axvline(0, color="black", linewidth=0.9)
        ax.set_xlim(-1.08, 1.08)
        ax.set_xticks([-1, -0.5, 0, 0.5, 1])

    names = {**SPECTRUM, "f1": "macro F1"}
    titles = {}
    for quantity, group in product(names, GROUPS):
        titles[quantity, group] = f"{names[quantity]}, {group} seeds"
    figure = draw.panels(
        titles,
        panel,
        x="effect (rank-biserial)",
        columns=2,
        legend_columns=0,
        width=draw.WIDEST,
        height=13.0,
    )
    _pairs(figure.axes)
    figure.suptitle(variant.text)
    filled = f"filled: p < {STAR:g} after Holm's correction"
    draw.note(figure, f"{variant.text}; a mark is a data set; {filled}")
    return figure


def _pairs(axes: Sequence[Axes]) -> None:
    """The pairs of methods as ticks of every first panel of two, the first pair on top."""
    for ax in axes[::2]:
        ax.set_yticks(range(len(PAIRS)), LABELS)
    axes[0].set_ylim(len(PAIRS) - 0.4, -0.6)


def draws(margin: float, tables: Tables) -> Figure:
    """Fig. 14 over draws of the data: the mean difference of macro F1 in every draw, and its mean
    over the draws with the 95 % interval; the band is the margin within which a difference is none.
    """
    table = tables["draws"]

    def panel(ax: Axes, group: str) -> None:
        for place, (a, b) in enumerate(PAIRS):
            gains = chosen(table, group=group, a=a, b=b)["f1"].dropna()
            values_with_mean(ax, gains, place, STYLES.colour(a), horizontal=True)
        ax.axvline(0, color="black", linewidth=0.9)
        ax.axvspan(-margin, margin, color="grey", alpha=0.15)

    number = table.groupby(["seed", "draw"]).ngroups
    titles = {group: f"{group} seeds, {number} draws" for group in GROUPS}
    figure = draw.panels(
        titles,
        panel,
        x="difference of macro F1",
        legend_columns=0,
        width=draw.WIDEST,
        height=3.8,
        sharex=True,
    )
    _pairs(figure.axes)
    draw.note(
        figure,
        "a dot is a draw; black: their mean with its 95 % interval; grey: differences that count "
        "as none",
    )
    return figure


def data(tables: Tables) -> Figure:
    """Fig. 8: training and test data of the first data set."""
    rows = first_seed(tables["data"])
    rows = chosen(rows, protocol=rows["protocol"].iloc[0])

    def panel(ax: Axes, kind: str) -> None:
        for label, name in ((0, "low"), (1, "high")):
            points = chosen(rows, set=kind, label=label)
            size = 22 if kind == "train" else 9
            dots(ax, points["x1"], points["x2"], name, f"class {label}", s=size, alpha=0.7)

    names = {"train": "training", "test": "test"}
    titles = {
        kind: f"{name} data, {(rows['set'] == kind).sum()} samples" for kind, name in names.items()
    }
    caption = "drawn: the first data set"
    return draw.panels(titles, panel, x="$x_1$", y="$x_2$", caption=caption, sharex=True)


def bound(tables: Tables, protocols: Sequence[str]) -> Figure:
    """Fig. 9: λ₁ against λ_sup, all data sets, and the bound's histogram with both thresholds,
    first data set.
    """
    figure, axes = draw.new_figure(len(protocols), 2, width=8.0, height=0.6 + 3.2 * len(protocols))
    titles = []
    for (left, right), protocol in zip(axes, protocols, strict=True):
        points = chosen(tables["critical_points"], protocol=protocol).infer_objects()
        search = first_seed(chosen(tables["search"], protocol=protocol)).iloc[0]
        largest = points["lambda_max"]
        bounds = points["lambda_sup"]
        dots(left, largest, bounds, "lambda_sup", "end points of the descents")
        draw.log_axis(left, "both")
        draw.identity_line(left)
        left.set_xlabel(EIGENVALUE)
        left.set_ylabel(BOUND)
        draw.legend(left)
        draw.histogram(
            right,
            first_seed(points)["lambda_sup"],
            label="lambda_sup",
            looks=STYLES,
            bins=40,
            name="end points",
            percentile=None,
        )
        for key, label in (("flat", "low"), ("sharp", "high")):
            at = search[f"{key}_threshold"]
            look: Look = {"color": STYLES.colour(label), "linestyle": "--", "linewidth": 1.3}
            right.axvline(at, label=f"{key} seeds: {search[key]} beyond {at:.3g}", **look)
        right.set_xlabel(BOUND)
        right.set_ylabel("number of end points")
        draw.legend(right)
        stop = f"{STOP_RULES[protocol]} stop rule"
        titles.append(
            f"{stop}: {len(points)} points of {points['seed'].nunique()} data sets, median of "
            f"bound / λ₁ {(bounds / largest).median():.3f}"
        )
        titles.append(
            f"{stop}: seed {points['seed'].min()}, {search['unique']} of {search['starts']} starts"
        )
    counts = [printed_number("hsr_regularization", metric=m) for m in ("unique", "sharp")]
    draw.note(
        figure, f"the paper's data set: {counts[0]:g} unique points, {counts[1]:g} in each group"
    )
    draw.letter(axes, titles)
    return figure
