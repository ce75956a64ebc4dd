"""Figures of all critical points:

Figs. 2, 6, 7, 9 to 13, and the scanned rate. Data sets are pooled where only the eye compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.printed import printed_number
from experiments.three_layer.drawing import (
    BOUND,
    EIGENVALUE,
    STYLES,
    box_legend,
    boxes,
    dots,
    line,
)
from experiments.three_layer.study import Tests, data_sets
from experiments.three_layer.ws_bound.analysis import (
    KEYS,
    PAPER_ACTIVATION,
    Variant,
    lower_edge,
    split_low_high,
    unique_points,
)
from experiments.three_layer.ws_bound.settings import WsBound
from runner.contract import Tables
from runner.report import figures as draw
from runner.report.figures import COLOURS
from runner.stats.tables import chosen

WHAT_BOXES_ARE = "boxes: quartiles and median, whiskers from the 10th to the 90th percentile"
SMALLEST = ("lambda_sup_smallest", "lambda_sup_second_smallest")
"""Metrics of the bounds that the paper prints (Fig. 4)."""


def note_points(figure: Figure, variant: Variant, rows: pd.DataFrame) -> None:
    """How many points of how many data sets."""
    count = rows["seed"].nunique()
    sets = "data set" + "s" * (count > 1)
    draw.note(figure, f"{variant.title}: {len(rows)} points, {count} {sets}")


def bound_and_eigenvalue(
    experiment: WsBound, tables: Tables, variants: Sequence[Variant]
) -> Figure:
    """Fig. 2: the largest eigenvalue λ₁ against its bound at every end point of the descents that
    converged; dotted: equality.
    """
    of = {
        (v, n): rows
        for v in variants
        for n, rows in unique_points(tables, v).groupby("hidden", sort=True)
    }

    def panel(ax: Axes, key: tuple[Variant, int]) -> str:
        rows = of[key]
        dots(ax, rows["lambda_max"], rows["lambda_sup"], f"N={key[1]}")
        ratio = (rows["lambda_sup"] / rows["lambda_max"]).median()
        return f"N = {key[1]}, {key[0].title}:\nmedian of bound / λ₁ {ratio:.3f}"

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
    for variant in variants:
        note_points(figure, variant, unique_points(tables, variant))
    return figure


def traces(tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 9: traces of H and H², closed form against numerical Hessian."""
    names = {"trace": r"$\mathrm{tr}\,H$", "trace_of_square": r"$\mathrm{tr}\,H^2$"}
    figure, axes = draw.new_figure(1, 2, width=7.6, height=3.4)
    for ax, (column, label) in zip(axes[0], names.items(), strict=True):
        for variant in variants:
            both = variant.rows(tables["traces"]).merge(unique_points(tables, variant), on=KEYS)
            worst = (both[f"{column}_numerical"] / both[column] - 1).abs().max()
            name = f"{variant.title}: largest difference {worst:.1e}"
            dots(ax, both[column], both[f"{column}_numerical"], variant.protocol, name)
            note_points(figure, variant, both)
        draw.log_axis(ax, "both")
        draw.identity_line(ax)
        ax.set_xlabel(f"{label}, closed form")
        ax.set_ylabel(f"{label}, from differences")
        draw.legend(ax)
    draw.letter(axes, ["Theorem 2", "Theorem 5"])
    return figure


def norms(experiment: WsBound, tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 10: parameter norms against the bound, narrow network, with Spearman's ρ of each data
    set.
    """
    figure, axes = draw.new_figure(len(variants), 2, sharey="row")
    titles = []
    for row, variant in zip(axes, variants, strict=True):
        points = unique_points(tables, variant, experiment.portrait_hidden)
        for ax, column, label in zip(
            row,
            ("V_norm_sq", "W_norm_sq"),
            (r"squared norm $\|V\|_F^2$", r"squared norm $\|W\|_F^2$"),
            strict=True,
        ):
            dots(ax, points[column], points["lambda_sup"], f"N={experiment.portrait_hidden}")
            draw.log_axis(ax, "y")
            ax.set_xlabel(label)
            ranks = []
            for _, rows in data_sets(points):
                ranks.append(rows[column].corr(rows["lambda_sup"], method="spearman"))
            listed = ", ".join(f"{rank:+.2f}" for rank in ranks).replace("-", "−")
            titles.append(f"{variant.title}\nSpearman's ρ of the {len(ranks)} data sets: {listed}")
        note_points(figure, variant, points)
        row[0].set_ylabel(BOUND)
    draw.letter(axes, titles)
    return figure


def hidden_gram(experiment: WsBound, tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 12: ||RᵀR||_F² against the bound, one colour a data set; the lines are the lower edges
    that are tested.
    """
    of = {v: unique_points(tables, v, experiment.portrait_hidden) for v in variants}

    def panel(ax: Axes, key: tuple[Variant, str]) -> None:
        points = of[key[0]]
        for k, (seed, rows) in enumerate(data_sets(points)):
            colour = COLOURS[k % len(COLOURS)]
            dots(
                ax,
                rows["RtR_norm_sq"],
                rows["lambda_sup"],
                "measured",
                "_",
                color=colour,
                alpha=0.2 if key[1] else 0.35,
                marker="o",
            )
            if key[1]:
                ax.plot(*lower_edge(rows), color="white", linewidth=3.2, zorder=4)
                ax.plot(
                    *lower_edge(rows),
                    label=f"data set (seed) {seed}",
                    color=colour,
                    linewidth=1.6,
                    marker="o",
                    markersize=3,
                    zorder=5,
                )
        ax.set_ylim(0, points["lambda_sup"].quantile(0.75) if key[1] else None)

    titles = {(v, part): f"{v.title}{part}" for v in variants for part in ("", ", enlarged")}
    figure = draw.panels(
        titles,
        panel,
        x=r"squared norm $\|R^\top R\|_F^2$",
        y=BOUND,
        columns=2,
        sharey=False,
        width=8.0,
        height=3.3 * len(variants),
    )
    draw.note(
        figure,
        "lines: the smallest bound in ten bins of equal counts of a data set, the edge that is "
        "tested",
    )
    for variant, points in of.items():
        note_points(figure, variant, points)
    return figure


def distribution(experiment: WsBound, tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 6: histogram of the bound with the 90 % line, narrow network."""
    label = f"N={experiment.portrait_hidden}"
    smallest = [printed_number("ws_bound", metric=m) for m in SMALLEST]

    def panel(ax: Axes, variant: Variant) -> None:
        points = unique_points(tables, variant, experiment.portrait_hidden)
        ax.scatter(
            smallest,
            [0, 0],
            marker="v",
            s=40,
            facecolors="none",
            edgecolors="black",
            zorder=5,
            clip_on=False,
            label="published, the two smallest",
        )
        draw.histogram(
            ax,
            points["lambda_sup"],
            label=label,
            looks=STYLES,
            bins=40,
            name=label.replace("=", " = "),
            percentile=100 * experiment.low_share,
        )

    titles = {v: v.title for v in variants}
    figure = draw.panels(
        titles, panel, x=BOUND, y="number of end points", sharey=False, legend_columns=0
    )
    for variant in variants:
        note_points(figure, variant, unique_points(tables, variant, experiment.portrait_hidden))
    draw.note(figure, "published: Fig. 4, of one data set")
    return figure


def _tested_boxes(
    ax: Axes,
    samples: Mapping[int, Mapping[str, pd.Series]],
    tests: Tests,
    name: str,
    variant: Variant,
) -> None:
    """Two boxes a data set, a bracket above them with Holm's p of their test."""
    tops = boxes(ax, samples, (10, 90))
    low, high = ax.get_ylim()
    logarithmic = ax.get_yscale() == "log"
    step = 1.08 if logarithmic else 0.025 * (high - low)
    for place, (seed, by_label) in enumerate(samples.items()):
        ends = [tops[place, label] for label in by_label]
        test = tests.get((name, variant.at(seed)["group"]))
        top = max(y for _, y in ends)
        if test is None or top != top:
            continue
        y, foot = (top * step**2, top * step) if logarithmic else (top + 2 * step, top + step)
        ax.plot(
            [ends[0][0]] * 2 + [ends[1][0]] * 2, [foot, y, y, foot], color="black", linewidth=0.9
        )
        p = test.p_holm
        text = f"p = {p:.2g}"
        if p < 1e-4:
            text = "p < 10⁻⁴"
        if p != p:
            text = "no test"
        weight = "normal"
        if p < 0.01:
            weight = "bold"
        ax.text(
            place,
            y * 1.05 if logarithmic else y + 1.1 * step,
            text,
            ha="center",
            fontsize=8,
            fontweight=weight,
        )
    ax.set_ylim(top=high * 1.6 if logarithmic else high + 0.12 * (high - low))


TESTED = "p: Mann–Whitney, two-sided, after Holm's correction within the figure; bold below 0.01"


def generalisation(
    experiment: WsBound, tables: Tables, tests: Tests, variants: Sequence[Variant]
) -> Figure:
    """Fig. 7: macro F1 of the points with low and with high bound, on each test set, data set by
    data set.
    """

    def panel(ax: Axes, key: tuple[Variant, int]) -> None:
        samples = {}
        for seed, rows in data_sets(unique_points(tables, key[0], experiment.portrait_hidden)):
            low, high = split_low_high(rows, experiment.low_share)
            samples[seed] = {"low": low[f"f1_test{key[1]}"], "high": high[f"f1_test{key[1]}"]}
        _tested_boxes(ax, samples, tests, f"F1 on {key[1]}, low - high", key[0])

    sizes = experiment.dataset.test
    titles = {(v, size): f"{v.title}, {size} test samples" for v in variants for size in sizes}
    figure = draw.panels(
        titles,
        panel,
        x="data set (seed)",
        y="macro F1 on test data",
        columns=len(sizes),
        legend_columns=0,
        sharey=False,
        width=draw.WIDEST,
        height=3.1 * len(variants),
    )
    box_legend(figure, {"low": "lowest 90 % of the bounds", "high": "highest 10 %"})
    draw.note(figure, f"{WHAT_BOXES_ARE}; {TESTED}")
    return figure


def width(experiment: WsBound, tables: Tables, tests: Tests, variants: Sequence[Variant]) -> Figure:
    """Fig. 11: the bound of the narrow and the wide network, data set by data set."""
    narrow = experiment.portrait_hidden
    wide = experiment.compared_hidden

    def panel(ax: Axes, variant: Variant) -> None:
        samples = {}
        for seed, rows in data_sets(unique_points(tables, variant)):
            samples[seed] = {
                f"N={n}": rows.loc[rows["hidden"] == n, "lambda_sup"] for n in (narrow, wide)
            }
        ax.set_yscale("log")
        _tested_boxes(ax, samples, tests, f"bound, N={wide} - N={narrow}", variant)

    figure = draw.panels(
        {v: v.title for v in variants},
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
    draw.note(figure, f"{WHAT_BOXES_ARE}; {TESTED}")
    return figure


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

    titles = {
        "f": "activation $f(y)$",
        "f_slope": "first derivative $f'(y)$",
        "f_bend": "second derivative $f''(y)$",
    }
    caption = "functions without chance: every cell has the same"
    x = "input $y$ of the activation"
    return draw.panels(titles, panel, x=x, sharey=False, caption=caption, height=3.2)


def scan(tables: Tables) -> Figure:
    """Counts and sharpness against the learning rate under the printed stop rule."""
    rows = tables["search"]
    rows = chosen(rows, protocol="printed", activation=PAPER_ACTIVATION)
    rates = sorted(rows["rate"].unique())

    def panel(ax: Axes, column: str) -> None:
        for hidden, part in rows.groupby("hidden", sort=True):
            label = f"N={hidden}"
            if column == "lambda_max_largest":
                _ranged(ax, part.groupby("rate")[column], label, f"N = {hidden}")
                continue
            _ranged(
                ax, (part[column] / part["starts"]).groupby(part["rate"]), label, f"N = {hidden}"
            )
            ax.set_ylim(0, 1.03)
            if hidden in PUBLISHED:
                share = PUBLISHED[int(str(hidden))][column == "unique"]
                ax.axhline(
                    share,
                    label=f"published, N = {hidden}",
                    color=STYLES.colour(label),
                    linewidth=1,
                    linestyle=":",
                )
        if column == "lambda_max_largest":
            limit = [2 / rate for rate in rates]
            ax.plot(rates, limit, color="black", linestyle="--", label="stability limit 2/η")
            draw.log_axis(ax, "y")

    titles = {"converged": "share of starts that converge", "unique": "share of distinct points"}
    titles["lambda_max_largest"] = r"largest $\lambda_1$ found"
    caption = (
        "lines: mean over the data sets, bands: their range; dotted: the paper's counts (Appendix "
        "C)"
    )
    figure = draw.panels(
        titles,
        panel,
        x="learning rate η",
        log="x",
        caption=caption,
        sharey=False,
        width=draw.WIDEST,
        height=3.4,
    )
    for ax in figure.axes:
        ax.set_xticks(rates, [f"{rate:g}" for rate in rates], minor=False)
    return figure


def _ranged(ax: Axes, grouped: pd.core.groupby.SeriesGroupBy, label: str, name: str) -> None:
    """Mean over data sets as a line, their range as a band."""
    mean = grouped.mean()
    low = grouped.min()
    high = grouped.max()
    ax.plot(mean.index, mean, label=name, **STYLES.style(label))
    ax.fill_between(mean.index, low, high, color=STYLES.colour(label), alpha=0.18, linewidth=0)
