"""Figs. 8, 9, 12 and 14: the data, the points of the search, and where the methods end, data set by
data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.printed import printed_number
from experiments.three_layer.drawing import (
    BOUND,
    EIGENVALUE,
    STARS,
    STYLES,
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
    HsrRegularization,
)
from experiments.three_layer.study import Tests, data_sets
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
LABELS = [f"{NAMES[a]} − {NAMES[b]}" for a, b in PAIRS]


def spectrum(tables: Tables, tests: Tests, variant: Variant) -> Figure:
    """Fig. 12: λ₁, mean, standard deviation and λ_D where each method ends, for all five data
    sets."""
    return _boxes_of_methods(tables, tests, variant, SPECTRUM)


def f1(tables: Tables, tests: Tests, variant: Variant) -> Figure:
    """Fig. 14: macro F1 on test data where each method ends, for all five data sets."""
    return _boxes_of_methods(tables, tests, variant, {"f1": "macro F1 on test data"})


def _boxes_of_methods(
    tables: Tables, tests: Tests, variant: Variant, quantities: Mapping[str, str]
) -> Figure:
    """A row of panels for each quantity; λ_D is left out where it is nothing next to λ₁."""
    rows = variant.rows(tables["endpoints"])
    rows = chosen(rows, status="ok")
    shown = dict(quantities)
    if "lambda_min" in shown:
        size_of_least = rows["lambda_min"].abs().quantile(0.95)
        if size_of_least < 1e-4 * rows["lambda_max"].median():
            shown.pop("lambda_min")

    tops = {}
    seeds = [seed for seed, _ in data_sets(rows)]

    def panel(ax: Axes, key: tuple[str, str]) -> None:
        of = dict(data_sets(chosen(rows, group=key[1])))
        samples = {}
        for seed in seeds:
            if seed in of:
                ends = of[seed]
                samples[seed] = {m: ends.loc[ends["method"] == m, key[0]] for m in NAMES}
        tops[key] = boxes(ax, samples)

    titles = {(q, g): f"{g} seeds" for q in shown for g in GROUPS}
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
        logarithmic = quantity in LOGARITHMIC
        if logarithmic:
            quartiles = rows.groupby(["seed", "group", "method"])[quantity].quantile(0.25)
            ax.set_ylim(bottom=max(ax.get_ylim()[0], quartiles.min() / BELOW))
            draw.log_axis(ax)
        if group == GROUPS[0]:
            ax.set_ylabel(shown[quantity])
        for (place, method), at in tops[quantity, group].items():
            name = f"{quantity}, {method} - gd, {group} seeds"
            test = tests.get((name, f"{variant.group} seed={seeds[place]}"))
            if test is not None:
                ax.annotate(
                    stars(test.p_holm),
                    at,
                    (0, -1),
                    textcoords="offset points",
                    ha="center",
                    va="bottom",
                    fontsize=9,
                )
    box_legend(figure, NAMES)
    counts = rows.groupby(["seed", "group", "method"]).size()
    draw.note(
        figure, f"{variant.text}; boxes: quartiles and median, whiskers to 1.5 interquartile ranges"
    )
    draw.note(figure, f"{STARS}, signed-rank test against plain descent")
    draw.note(
        figure, f"a box is {counts.min()} to {counts.max()} ends; the paper's, 113 (one data set)"
    )
    if len(shown) < len(quantities):
        draw.note(figure, f"|λ_D| is below {size_of_least:.1g} for 95 % of the ends and not drawn")
        draw.note(figure, "whiskers are cut: along a way to infinity the eigenvalues tend to 0")
    return figure


def effects(experiment: HsrRegularization, tests: Tests, variant: Variant) -> Figure:
    """Rank-biserial effect of every comparison, a mark for each data set, filled where p < level
    after Holm.
    """

    def panel(ax: Axes, key: tuple[str, str]) -> None:
        quantity, group = key
        for place, (a, b) in enumerate(PAIRS):
            name = f"{quantity}, {a} - {b}, {group} seeds"
            found = []
            for (n, g), s in tests.items():
                if n == name and g.startswith(f"{variant.group} seed="):
                    found.append(s)
            look = STYLES.point_style(a)
            for slot, test in enumerate(found):
                filled = "white"
                if test.p_holm < experiment.level:
                    filled = look["color"]
                height = place + 0.12 * (slot - (len(found) - 1) / 2)
                ax.scatter(
                    test.effect,
                    height,
                    edgecolors=look["color"],
                    facecolors=filled,
                    s=20,
                    marker=look["marker"],
                    linewidths=0.9,
                    zorder=3,
                )
        ax.axvline(0, color="black", linewidth=0.9)
        ax.set_xlim(-1.08, 1.08)
        ax.set_xticks([-1, -0.5, 0, 0.5, 1])

    titles = {
        (q, g): f"{text}, {g} seeds"
        for q, text in {**SPECTRUM, "f1": "macro F1"}.items()
        for g in GROUPS
    }
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
    draw.note(
        figure,
        f"{variant.text}; a mark is a data set; filled: p < {experiment.level:g} after Holm's "
        "correction",
    )
    return figure


def _pairs(axes: Sequence[Axes]) -> None:
    """The pairs of methods as ticks of every first panel of two, the first pair on top."""
    for ax in axes[::2]:
        ax.set_yticks(range(len(PAIRS)), LABELS)
    axes[0].set_ylim(len(PAIRS) - 0.4, -0.6)


def draws(experiment: HsrRegularization, tables: Tables) -> Figure:
    """Fig. 14 over draws of the data: the mean difference of macro F1 in every draw, and its mean
    over the draws with the 95 % interval; the band is the margin within which a difference is none.
    """

    def panel(ax: Axes, group: str) -> None:
        rows = chosen(tables["draws"], group=group)
        for place, (a, b) in enumerate(PAIRS):
            gains = rows.loc[(rows["a"] == a) & (rows["b"] == b), "f1"].dropna()
            values_with_mean(ax, gains, place, STYLES.colour(a), horizontal=True)
        ax.axvline(0, color="black", linewidth=0.9)
        ax.axvspan(-experiment.f1_margin, experiment.f1_margin, color="grey", alpha=0.15)

    number = tables["draws"].groupby(["seed", "draw"]).ngroups
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
            size = 9
            if kind == "train":
                size = 22
            dots(ax, points["x1"], points["x2"], name, f"class {label}", s=size, alpha=0.7)

    names = {"train": "training", "test": "test"}
    titles = {
        kind: f"{name} data, {(rows['set'] == kind).sum()} samples" for kind, name in names.items()
    }
    caption = "drawn: the first data set"
    return draw.panels(titles, panel, x="$x_1$", y="$x_2$", caption=caption, sharex=True)


def bound(experiment: HsrRegularization, tables: Tables, protocols: Sequence[str]) -> Figure:
    """Fig. 9: λ₁ against λ_sup, all data sets, and the bound's histogram with both thresholds,
    first data set.
    """
    figure, axes = draw.new_figure(len(protocols), 2, width=8.0, height=0.6 + 3.2 * len(protocols))
    titles = []
    for row, protocol in zip(axes, protocols, strict=True):
        part, search = (chosen(tables[t], protocol=protocol) for t in ("critical_points", "search"))
        part = part.infer_objects()
        first = first_seed(search).iloc[0]
        ratio = (part["lambda_sup"] / part["lambda_max"]).median()
        dots(
            row[0],
            part["lambda_max"],
            part["lambda_sup"],
            "lambda_sup",
            "end points of the descents",
        )
        draw.log_axis(row[0], "both")
        draw.identity_line(row[0])
        row[0].set_xlabel(EIGENVALUE)
        row[0].set_ylabel(BOUND)
        draw.histogram(
            row[1],
            first_seed(part)["lambda_sup"],
            label="lambda_sup",
            looks=STYLES,
            bins=40,
            name="end points",
            percentile=None,
        )
        for key, label in (("flat", "low"), ("sharp", "high")):
            at = first[f"{key}_threshold"]
            row[1].axvline(
                at,
                label=f"{key} seeds: {first[key]} beyond {at:.3g}",
                linestyle="--",
                linewidth=1.3,
                color=STYLES.colour(label),
            )
        row[1].set_xlabel(BOUND)
        row[1].set_ylabel("number of end points")
        for ax in row:
            draw.legend(ax)
        sets = part["seed"].nunique()
        stop = "calibrated" if protocol == "fitted" else protocol
        titles += [
            f"{stop} stop rule: {len(part)} points of {sets} data sets, median of bound / λ₁ "
            f"{ratio:.3f}",
            f"{stop} stop rule: seed {part['seed'].min()}, {first['unique']} of {first['starts']} "
            "starts",
        ]
    counts = [printed_number("hsr_regularization", metric=m) for m in ("unique", "sharp")]
    draw.note(
        figure, f"the paper's data set: {counts[0]:g} unique points, {counts[1]:g} in each group"
    )
    draw.letter(axes, titles)
    return figure
