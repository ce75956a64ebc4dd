"""Distributions and groups: Figs. 6, 7 and 11."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.printed import printed_number
from experiments.ws_bound.analysis import Tables, Variant, by_seed, split_low_high, unique_points
from experiments.ws_bound.figures.scatter import BOUND, seeds_text
from experiments.ws_bound.plot_styles import STYLES
from runner.report import figures as draw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from experiments.ws_bound.settings import WsBound
    from runner.stats import Statistic


WHAT_BOXES_ARE = "boxes: quartiles and median, whiskers from the 10th to the 90th percentile"
SMALLEST = ("lambda_sup_smallest", "lambda_sup_second_smallest")
"""Metrics of the bounds that the paper prints (Fig. 4)."""


def boxes(ax: Axes, samples: Mapping[int, Mapping[str, pd.Series]], names: Mapping[str, str]) -> list[Patch]:
    """Boxes of two labels side by side in every data set; whiskers from the 10th to the 90th percentile.

    Returns the handles of a legend.
    """
    from matplotlib.patches import Patch

    labels = list(names)
    width = 0.8 / len(labels)
    for place, by_label in enumerate(samples.values()):
        for slot, label in enumerate(labels):
            centre = place + (slot - (len(labels) - 1) / 2) * width
            drawn = ax.boxplot(
                [by_label[label].dropna()],
                positions=[centre],
                widths=0.8 * width,
                whis=(10, 90),
                showfliers=False,
                patch_artist=True,
                manage_ticks=False,
                medianprops={"color": "black", "linewidth": 1.8},
            )
            drawn["boxes"][0].set(facecolor=STYLES.colour(label), alpha=0.55, hatch="///" if slot else None)
    ax.set_xticks(range(len(samples)), [str(seed) for seed in samples])
    ax.set_xlim(-0.6, len(samples) - 0.4)
    return [
        Patch(facecolor=STYLES.colour(label), alpha=0.55, hatch="///" if slot else None, label=names[label])
        for slot, label in enumerate(labels)
    ]


def p_line(tests: Sequence[Statistic]) -> str:
    """p-values in the order of the data sets, as they are and after Holm's correction within the figure."""

    def texts(values: Iterable[float]) -> str:
        return ", ".join("–" if p != p else "< 1e-4" if p < 1e-4 else f"{p:.2g}" for p in values)

    return f"p: {texts(t.p for t in tests)}\nHolm: {texts(t.p_holm for t in tests)}"


def distribution(experiment: WsBound, tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 6: histogram of the bound with the 90 % line, narrow network."""
    figure, axes = draw.new_figure(1, len(variants))
    titles = []
    for ax, variant in zip(axes[0], variants, strict=True):
        points = unique_points(tables, variant, experiment.portrait_hidden)
        draw.histogram(
            ax,
            points["lambda_sup"],
            label=f"N={experiment.portrait_hidden}",
            looks=STYLES,
            bins=40,
            name=f"N = {experiment.portrait_hidden}",
            percentile=100 * experiment.low_share,
        )
        ax.set_xlabel(BOUND)
        smallest = [printed_number("ws_bound", metric=m) for m in SMALLEST]
        ax.scatter(smallest, [0, 0], marker="v", s=40, facecolors="none", edgecolors="black", zorder=5, clip_on=False)
        titles.append(f"{variant.protocol}, η = {variant.rate:g}")
        draw.note(figure, f"{variant.protocol}: {seeds_text(points)}")
    axes[0, 0].set_ylabel("critical points")
    draw.note(figure, "hollow: the paper's two smallest bounds (Fig. 4), of one data set")
    draw.letter(axes, titles)
    return figure


def generalisation(
    experiment: WsBound, tables: Tables, tests: Mapping[tuple[str, str], Statistic], variants: Sequence[Variant]
) -> Figure:
    """Fig. 7: macro F1 of the points with low and with high bound, on each test set, data set by data set."""
    sizes = experiment.dataset.test
    figure, axes = draw.new_figure(len(variants), len(sizes), sharey="row")
    titles = []
    for row, variant in zip(axes, variants, strict=True):
        points = unique_points(tables, variant, experiment.portrait_hidden)
        for ax, size in zip(row, sizes, strict=True):
            samples, found = {}, []
            for seed, rows in by_seed(points):
                low, high = split_low_high(rows, experiment.low_share)
                samples[seed] = {"low": low[f"f1_test{size}"], "high": high[f"f1_test{size}"]}
                found.append(tests[(f"F1 on {size}, low - high", f"{variant.group} seed={seed}")])
            handles = boxes(ax, samples, {"low": "low bound (90 %)", "high": "high bound (10 %)"})
            ax.set_xlabel(f"data set (seed)\n{p_line(found)}")
            titles.append(f"{variant.protocol}, η = {variant.rate:g}, {size} test samples")
        row[0].set_ylabel("macro F1 on test data")
    draw.note(figure, f"{WHAT_BOXES_ARE}; p: Mann–Whitney, two-sided, in the order of the data sets")
    draw.letter(axes, titles)
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def width(
    experiment: WsBound, tables: Tables, tests: Mapping[tuple[str, str], Statistic], variants: Sequence[Variant]
) -> Figure:
    """Fig. 11: the bound of the narrow and the wide network, data set by data set."""
    narrow, wide = experiment.portrait_hidden, experiment.compared_hidden
    figure, axes = draw.new_figure(1, len(variants), sharey=True)
    titles = []
    for ax, variant in zip(axes[0], variants, strict=True):
        samples, found = {}, []
        for seed, rows in by_seed(unique_points(tables, variant)):
            samples[seed] = {f"N={n}": rows.loc[rows["hidden"] == n, "lambda_sup"] for n in (narrow, wide)}
            test = tests.get((f"bound, N={wide} - N={narrow}", f"{variant.group} seed={seed}"))
            found += [test] if test is not None else []
        handles = boxes(ax, samples, {f"N={n}": f"N = {n}" for n in (narrow, wide)})
        ax.set_xlabel(f"data set (seed)\n{p_line(found)}")
        titles.append(f"{variant.protocol}, η = {variant.rate:g}")
    for ax in axes[0]:
        draw.log_axis(ax, "y")
    axes[0, 0].set_ylabel(BOUND)
    draw.note(figure, f"{WHAT_BOXES_ARE}; p: Mann–Whitney, two-sided, in the order of the data sets")
    draw.letter(axes, titles)
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure
