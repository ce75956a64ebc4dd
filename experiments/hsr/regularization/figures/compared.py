"""Figs. 12 and 14 and the effects of all comparisons, data set by data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.hsr.plot_styles import STYLES
from experiments.hsr.regularization.analysis import GROUPS, NAMES, PAIRS, Tables, Variant, by_seed
from runner.report import figures as draw

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.hsr.regularization.settings import HsrRegularization
    from runner.stats import Statistic

HATCHES = {"gd": None, "trace": "///", "asam": "...", "asam_wide": "ooo", "hsr": "xxx"}
SPECTRUM = {
    "lambda_max": r"largest eigenvalue $\lambda_1$",
    "mean": r"mean $\mu$",
    "std": r"standard deviation $\sigma$",
    "lambda_min": r"smallest eigenvalue $\lambda_D$",
}


def boxes(ax: Axes, rows: pd.DataFrame, quantity: str) -> None:
    """A box per method in every data set: quartiles, whiskers to 1.5 interquartile ranges as in the paper."""
    width = 0.8 / len(NAMES)
    seeds = []
    for place, (seed, part) in enumerate(by_seed(rows)):
        seeds.append(str(seed))
        for slot, method in enumerate(NAMES):
            values = part.loc[part["method"] == method, quantity].dropna()
            centre = place + (slot - (len(NAMES) - 1) / 2) * width
            drawn = ax.boxplot(
                [values],
                positions=[centre],
                widths=0.8 * width,
                patch_artist=True,
                showfliers=False,
                manage_ticks=False,
                medianprops={"color": "black", "linewidth": 1.6},
                whiskerprops={"linewidth": 0.8},
                capprops={"linewidth": 0.8},
            )
            drawn["boxes"][0].set(facecolor=STYLES.colour(method), alpha=0.6, hatch=HATCHES[method], linewidth=0.6)
    ax.set_xticks(range(len(seeds)), seeds)
    ax.set_xlim(-0.6, len(seeds) - 0.4)


def _legend(figure: Figure) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=STYLES.colour(m), alpha=0.6, hatch=HATCHES[m], label=name) for m, name in NAMES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def _panels(tables: Tables, variant: Variant, quantities: Mapping[str, str], logarithmic: Sequence[str]) -> Figure:
    rows = variant.rows(tables["endpoints"])
    rows = rows[rows["status"] == "ok"]
    figure, axes = draw.new_figure(len(quantities), 2, width=8.8, height=0.5 + 2.3 * len(quantities), sharey="row")
    titles = []
    for line, (quantity, text) in zip(axes, quantities.items(), strict=True):
        for ax, group in zip(line, GROUPS, strict=True):
            part = rows[rows["group"] == group]
            boxes(ax, part, quantity)
            titles.append(f"{group} seeds")
        if quantity in logarithmic:
            draw.log_axis(line[0], "y")
        line[0].set_ylabel(text)
    for ax in axes[-1]:
        ax.set_xlabel("data set (seed)")
    counts = rows.groupby(["seed", "group", "method"]).size()
    draw.note(figure, "boxes: quartiles and median, whiskers to 1.5 interquartile ranges")
    draw.note(figure, f"a box is {counts.min()} to {counts.max()} ends; the paper's, 113 (one data set)")
    draw.letter(axes, titles)
    _legend(figure)
    return figure


def spectrum(tables: Tables, variant: Variant) -> Figure:
    """Fig. 12: λ₁, mean, standard deviation and λ_D where each method ends; the tests are in `effects`."""
    return _panels(tables, variant, SPECTRUM, ("lambda_max", "mean", "std"))


def f1(tables: Tables, variant: Variant) -> Figure:
    """Fig. 14: macro F1 on test data."""
    return _panels(tables, variant, {"f1": "macro F1 on test data"}, ())


def effects(experiment: HsrRegularization, tests: Mapping[tuple[str, str], Statistic], variant: Variant) -> Figure:
    """Rank-biserial effect of every comparison, a dot per data set, filled where p < level after Holm's correction."""
    shown = {**SPECTRUM, "f1": "macro F1"}
    figure, axes = draw.new_figure(2, len(shown), width=12.4, height=5.6, sharex=True, sharey=True)
    titles = []
    for line, group in zip(axes, GROUPS, strict=True):
        for ax, (quantity, text) in zip(line, shown.items(), strict=True):
            for place, (a, b) in enumerate(PAIRS):
                name = f"{quantity}, {a} - {b}, {group} seeds"
                found = [s for (n, g), s in tests.items() if n == name and g.startswith(f"{variant.group} seed=")]
                look = STYLES.point_style(a)
                for slot, test in enumerate(found):
                    height = place + 0.12 * (slot - (len(found) - 1) / 2)
                    filled = test.p_holm < experiment.level
                    ax.scatter(
                        test.effect,
                        height,
                        s=20,
                        marker=look["marker"],
                        edgecolors=look["color"],
                        facecolors=look["color"] if filled else "white",
                        linewidths=0.9,
                        zorder=3,
                    )
            ax.axvline(0, color="black", linewidth=0.9)
            titles.append(f"{text}, {group} seeds")
    for ax in axes[:, 0]:
        ax.set_yticks(range(len(PAIRS)), [f"{NAMES[a]} - {NAMES[b]}" for a, b in PAIRS])
        ax.set_ylim(-0.6, len(PAIRS) - 0.4)
        ax.invert_yaxis()
    for ax in axes[1]:
        ax.set_xlim(-1.08, 1.08)
        ax.set_xlabel("effect (rank-biserial)")
    draw.note(figure, f"a mark is a data set; filled: p < {experiment.level:g} after Holm's correction")
    draw.letter(axes, titles)
    return figure


def draws(experiment: HsrRegularization, tables: Tables) -> Figure:
    """Fig. 14 over draws of the data: the mean difference of macro F1 in every draw, and its mean over the draws with
    the 95 % interval; the band is the margin within which a difference is none."""
    from runner.stats.intervals import Sample

    figure, axes = draw.new_figure(1, 2, width=9.6, height=3.8, sharex=True, sharey=True)
    for ax, group in zip(axes[0], GROUPS, strict=True):
        rows = tables["draws"][tables["draws"]["group"] == group]
        for place, (a, b) in enumerate(PAIRS):
            gain = sorted(rows.loc[(rows["a"] == a) & (rows["b"] == b), "f1"].dropna())
            heights = [place + 0.5 * (k / max(1, len(gain) - 1) - 0.5) for k in range(len(gain))]
            ax.scatter(gain, heights, s=10, alpha=0.6, linewidths=0, color=STYLES.colour(a))
            sample = Sample.of(gain)
            ax.plot(sample.interval(0.95), [place, place], color="black", linewidth=2.4)
            ax.scatter([sample.mean], [place], s=22, color="black", zorder=3)
        ax.axvline(0, color="black", linewidth=0.9)
        ax.axvspan(-experiment.f1_margin, experiment.f1_margin, color="grey", alpha=0.15)
        ax.set_xlabel("difference of macro F1")
    axes[0, 0].set_yticks(range(len(PAIRS)), [f"{NAMES[a]} - {NAMES[b]}" for a, b in PAIRS])
    axes[0, 0].invert_yaxis()
    draw.note(figure, "a dot is a draw; black: their mean with its 95 % interval; grey: differences that count as none")
    number = tables["draws"].groupby(["seed", "draw"]).ngroups
    draw.letter(axes, [f"{group} seeds, {number} draws" for group in GROUPS])
    return figure
