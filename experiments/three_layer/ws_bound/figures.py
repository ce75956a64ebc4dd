"""Figures of all critical points: Figs. 2, 6, 7 and 9 to 13.

Data sets are pooled where only the eye compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
    line,
)
from experiments.three_layer.study import data_sets
from experiments.three_layer.ws_bound.analysis import KEYS, Case, lower_edge
from runner.contract import Tables
from runner.report import figures as draw
from runner.report.figures import COLOURS

SMALLEST = ("lambda_sup_smallest", "lambda_sup_second_smallest")
"""Metrics of the bounds that the paper prints (Fig. 4)."""


def note_points(figure: Figure, case: Case, rows: pd.DataFrame) -> None:
    """How many points of how many data sets."""
    count = rows["seed"].nunique()
    sets = "data set" + "s" * (count > 1)
    draw.note(figure, f"{case.title}: {len(rows)} points, {count} {sets}")


def bound_and_eigenvalue(cases: Sequence[Case]) -> Figure:
    """Fig. 2: the largest eigenvalue λ₁ against its bound at every end point of the descents that
    converged; dotted: equality.
    """
    of = {}
    for case in cases:
        by_width = case.points.groupby("hidden", sort=True)
        for width, rows in by_width:
            of[case, width] = rows

    def panel(ax: Axes, key: tuple[Case, int]) -> str:
        case, width = key
        rows = of[key]
        dots(ax, rows["lambda_max"], rows["lambda_sup"], f"N={width}")
        ratio = (rows["lambda_sup"] / rows["lambda_max"]).median()
        return f"N = {width}, {case.title}:\nmedian of bound / λ₁ {ratio:.3f}"

    figure = draw.panels(
        dict.fromkeys(of, ""),
        panel,
        x=EIGENVALUE,
        y=BOUND,
        columns=min(2, len(of)),
        legend_columns=0,
        sharex=True,
    )
    low = 0.7 * min(rows["lambda_max"].min() for rows in of.values())
    high = 1.4 * max(rows["lambda_sup"].max() for rows in of.values())
    for ax in figure.axes:
        ax.set(xlim=(low, high), ylim=(low, high))
        draw.log_axis(ax, "both")
        draw.identity_line(ax)
    for case in cases:
        note_points(figure, case, case.points)
    return figure


def traces(cases: Sequence[Case]) -> Figure:
    """Fig. 9: traces of H and H², closed form against numerical Hessian."""
    names = {"trace": r"$\mathrm{tr}\,H$", "trace_of_square": r"$\mathrm{tr}\,H^2$"}
    figure, axes = draw.new_figure(1, 2, width=7.6, height=3.4)
    panels = zip(axes[0], names.items(), strict=True)
    for ax, (column, label) in panels:
        for case in cases:
            both = case.rows("traces").merge(case.points, on=KEYS)
            numerical = both[f"{column}_numerical"]
            worst = (numerical / both[column] - 1).abs().max()
            name = f"{case.title}: largest difference {worst:.1e}"
            dots(ax, both[column], numerical, case.protocol, name)
            note_points(figure, case, both)
        draw.log_axis(ax, "both")
        draw.identity_line(ax)
        ax.set_xlabel(f"{label}, closed form")
        ax.set_ylabel(f"{label}, from differences")
        draw.legend(ax)
    draw.letter(axes, ["Theorem 2", "Theorem 5"])
    return figure


def norms(cases: Sequence[Case]) -> Figure:
    """Fig. 10: parameter norms against the bound, narrow network, with Spearman's ρ of each data
    set.
    """
    labels = {
        "V_norm_sq": r"squared norm $\|V\|_F^2$",
        "W_norm_sq": r"squared norm $\|W\|_F^2$",
    }

    def panel(ax: Axes, key: tuple[Case, str]) -> str:
        case, column = key
        points = case.narrow
        hidden = case.experiment.portrait_hidden
        dots(ax, points[column], points["lambda_sup"], f"N={hidden}")
        draw.log_axis(ax, "y")
        ax.set_xlabel(labels[column])
        ranks = []
        for _, rows in data_sets(points):
            rank = rows[column].corr(rows["lambda_sup"], method="spearman")
            ranks.append(f"{rank:+.2f}".replace("-", "−"))
        listed = ", ".join(ranks)
        return f"{case.title}\nSpearman's ρ of the {len(ranks)} data sets: {listed}"

    titles = dict.fromkeys([(case, column) for case in cases for column in labels], "")
    figure = draw.panels(titles, panel, y=BOUND, columns=2, sharey="row", legend_columns=0)
    for case in cases:
        note_points(figure, case, case.narrow)
    return figure


def hidden_gram(cases: Sequence[Case]) -> Figure:
    """Fig. 12: ||RᵀR||_F² against the bound, one colour a data set; the lines are the lower edges
    that are tested.
    """

    def panel(ax: Axes, key: tuple[Case, bool]) -> None:
        case, enlarged = key
        points = case.narrow
        numbered = enumerate(data_sets(points))
        for k, (seed, rows) in numbered:
            look: Look = {"color": COLOURS[k % len(COLOURS)], "marker": "o"}
            alpha = 0.2 if enlarged else 0.35
            place = rows["RtR_norm_sq"]
            bound = rows["lambda_sup"]
            dots(ax, place, bound, "measured", "_", alpha=alpha, **look)
            if enlarged:
                edge = lower_edge(rows)
                ax.plot(*edge, color="white", linewidth=3.2, zorder=4)
                look |= {"linewidth": 1.6, "markersize": 3, "zorder": 5}
                ax.plot(*edge, label=f"data set (seed) {seed}", **look)
        ax.set_ylim(0, points["lambda_sup"].quantile(0.75) if enlarged else None)

    titles = {}
    for case in cases:
        titles[case, False] = case.title
        titles[case, True] = f"{case.title}, enlarged"
    figure = draw.panels(
        titles,
        panel,
        x=r"squared norm $\|R^\top R\|_F^2$",
        y=BOUND,
        columns=2,
        sharey=False,
        width=8.0,
        height=3.3 * len(cases),
    )
    draw.note(
        figure,
        "lines: the smallest bound in ten bins of equal counts of a data set, the edge that is "
        "tested",
    )
    for case in cases:
        note_points(figure, case, case.narrow)
    return figure


def distribution(cases: Sequence[Case]) -> Figure:
    """Fig. 6: histogram of the bound with the 90 % line, narrow network."""
    smallest = [printed_number("ws_bound", metric=metric) for metric in SMALLEST]
    mark: Look = {"marker": "v", "s": 40, "facecolors": "none", "edgecolors": "black", "zorder": 5}

    def panel(ax: Axes, case: Case) -> None:
        name = f"N = {case.experiment.portrait_hidden}"
        ax.scatter(smallest, [0, 0], clip_on=False, label="published, the two smallest", **mark)
        draw.histogram(
            ax,
            case.narrow["lambda_sup"],
            label=name.replace(" ", ""),
            looks=STYLES,
            bins=40,
            name=name,
            percentile=100 * case.experiment.low_share,
        )

    titles = {case: case.title for case in cases}
    y = "number of end points"
    figure = draw.panels(titles, panel, x=BOUND, y=y, sharey=False, legend_columns=0)
    for case in cases:
        note_points(figure, case, case.narrow)
    draw.note(figure, "published: Fig. 4, of one data set")
    return figure


Groups = Callable[[pd.DataFrame], Mapping[str, pd.Series]]
"""Two samples of the points of a data set, by label."""


def _tested_boxes(ax: Axes, case: Case, points: pd.DataFrame, groups: Groups, name: str) -> None:
    """Two boxes a data set, a bracket above them with Holm's p of their test."""
    samples = {seed: groups(rows) for seed, rows in data_sets(points)}
    tops = boxes(ax, samples, (10, 90))
    low, high = ax.get_ylim()
    logarithmic = ax.get_yscale() == "log"
    room = 0.025 * (high - low)

    def above(y: float, steps: float) -> float:
        return y * 1.08**steps if logarithmic else y + steps * room

    places = enumerate(samples.items())
    for place, (seed, by_label) in places:
        left, right = (tops[place, label] for label in by_label)
        test = case.test(name, seed)
        top = max(left[1], right[1])
        if test is None or top != top:
            continue
        foot = above(top, 1)
        y = above(top, 2)
        corners = [left[0], left[0], right[0], right[0]]
        heights = [foot, y, y, foot]
        ax.plot(corners, heights, color="black", linewidth=0.9)
        text = f"p = {test.p_holm:.2g}"
        if test.p_holm < 1e-4:
            text = "p < 10⁻⁴"
        if test.p_holm != test.p_holm:
            text = "no test"
        weight = "bold" if test.p_holm < 0.01 else "normal"
        text_y = y * 1.05 if logarithmic else above(y, 1.1)
        ax.text(place, text_y, text, ha="center", fontsize=8, fontweight=weight)
    ax.set_ylim(top=high * 1.6 if logarithmic else high + 0.12 * (high - low))


TESTED = (
    "boxes: quartiles and median, whiskers from the 10th to the 90th percentile; p: Mann–Whitney, "
    "two-sided, after Holm's correction within the figure; bold below 0.01"
)


def generalisation(cases: Sequence[Case]) -> Figure:
    """Fig. 7: macro F1 of the points with low and with high bound, on each test set, data set by
    data set.
    """

    def panel(ax: Axes, key: tuple[Case, int]) -> None:
        case, size = key

        def groups(rows: pd.DataFrame) -> dict[str, pd.Series]:
            low, high = case.low_and_high(rows)
            of_low = low[f"f1_test{size}"]
            of_high = high[f"f1_test{size}"]
            return {"low": of_low, "high": of_high}

        _tested_boxes(ax, case, case.narrow, groups, f"F1 on {size}, low - high")
        draw.ticks_up_to(ax, 1)

    titles = {}
    for case in cases:
        for size in case.experiment.dataset.test:
            titles[case, size] = f"{case.title}, {size} test samples"
    figure = draw.panels(
        titles,
        panel,
        x="data set (seed)",
        y="macro F1 on test data",
        columns=len(titles) // len(cases),
        legend_columns=0,
        sharey=False,
        width=draw.WIDEST,
        height=3.1 * len(cases),
    )
    box_legend(figure, {"low": "lowest 90 % of the bounds", "high": "highest 10 %"})
    draw.note(figure, TESTED)
    return figure


def width(cases: Sequence[Case]) -> Figure:
    """Fig. 11: the bound of the narrow and the wide network, data set by data set."""
    experiment = cases[0].experiment
    narrow = experiment.portrait_hidden
    wide = experiment.compared_hidden

    def groups(rows: pd.DataFrame) -> dict[str, pd.Series]:
        return {f"N={n}": rows.loc[rows["hidden"] == n, "lambda_sup"] for n in (narrow, wide)}

    def panel(ax: Axes, case: Case) -> None:
        ax.set_yscale("log")
        _tested_boxes(ax, case, case.points, groups, f"bound, N={wide} - N={narrow}")

    figure = draw.panels(
        {case: case.title for case in cases},
        panel,
        x="data set (seed)",
        y=BOUND,
        legend_columns=0,
        sharey=False,
        width=draw.WIDEST,
        height=3.6,
    )
    for ax in figure.axes:
        draw.log_axis(ax)
    box_legend(figure, {f"N={n}": f"N = {n}" for n in (narrow, wide)})
    draw.note(figure, TESTED)
    return figure


def activation_curves(tables: Tables) -> Figure:
    """Fig. 13: every stored activation with its first two derivatives."""
    table = tables["activations"].drop_duplicates(["activation", "y"])

    def panel(ax: Axes, column: str) -> None:
        by_activation = table.groupby("activation", sort=False)
        for activation, rows in by_activation:
            name = str(activation)
            ax.plot(rows["y"], rows[column], label=name, **line(name))
        if column == "f":
            ax.set_ylim(-1.6, 3)

    titles = {
        "f": "activation $f(y)$",
        "f_slope": "first derivative $f'(y)$",
        "f_bend": "second derivative $f''(y)$",
    }
    caption = "functions without chance: every cell has the same"
    x = "input $y$ of the activation"
    return draw.panels(titles, panel, x=x, sharey=False, caption=caption, height=3.2)
