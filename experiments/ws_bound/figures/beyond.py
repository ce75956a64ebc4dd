"""Fig. 13, and what the paper does not show: the scanned rate, the slack of the theorems, the other activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.ws_bound.analysis import PAPER_ACTIVATION, Tables, split_low_high, unique_points, variants
from experiments.ws_bound.exact_claims import INFINITE
from experiments.ws_bound.figures.scatter import BOUND
from experiments.ws_bound.plot_styles import STYLES
from runner.report import figures as draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.ws_bound.settings import WsBound

PUBLISHED = {3: (460 / 500, 353 / 500), 10: (453 / 500, 420 / 500)}
"""Shares of starts that converge and that are unique (Appendix C)."""


def activation_curves(tables: Tables) -> Figure:
    """Fig. 13: every stored activation with its first two derivatives."""
    figure, axes = draw.new_figure(1, 3)
    table = tables["activations"].drop_duplicates(["activation", "y"])
    for ax, column, label in zip(axes[0], ("f", "f_slope", "f_bend"), ("f(y)", "f'(y)", "f''(y)"), strict=True):
        for activation, rows in table.groupby("activation", sort=False):
            look = STYLES.style(str(activation)) | {"marker": ""}
            ax.plot(rows["y"], rows[column], label=str(activation), **look)
        ax.set_xlabel("$y$")
        ax.set_ylabel(f"${label}$")
    axes[0, 0].set_ylim(-1.6, 3)
    draw.note(figure, "functions without chance: every cell has the same")
    draw.letter(axes, ["functions", "first derivatives", "second derivatives"])
    draw.shared_legend(figure)
    return figure


def scan(experiment: WsBound, tables: Tables) -> Figure:
    """Counts and sharpness against the learning rate under the printed stop rule."""
    rows = tables["search"]
    rows = rows[(rows["protocol"] == "printed") & (rows["activation"] == PAPER_ACTIVATION)]
    figure, axes = draw.new_figure(1, 3)
    for hidden, part in rows.groupby("hidden", sort=True):
        label = f"N={hidden}"
        for ax, column, slot in zip(axes[0], ("converged", "unique"), (0, 1), strict=False):
            share = (part[column] / part["starts"]).groupby(part["rate"])
            _ranged(ax, share, label, f"N = {hidden}")
            if hidden in PUBLISHED:
                ax.axhline(
                    PUBLISHED[int(str(hidden))][slot],
                    color=STYLES.colour(label),
                    linewidth=1,
                    linestyle=":",
                    label=f"published, N = {hidden}",
                )
        _ranged(axes[0, 2], part.groupby("rate")["lambda_max_largest"], label, f"N = {hidden}")
    rates = sorted(rows["rate"].unique())
    axes[0, 2].plot(rates, [2 / rate for rate in rates], color="black", linestyle="--", label="stability limit 2/η")
    for ax, text in zip(axes[0], ("share of starts", "share of starts", r"largest $\lambda_1$ found"), strict=True):
        draw.log_axis(ax, "x")
        ax.set_xticks(rates, [f"{rate:g}" for rate in rates], minor=False)
        ax.set_xlabel("learning rate η")
        ax.set_ylabel(text)
    for ax in axes[0, :2]:
        ax.set_ylim(0, 1.03)
    draw.log_axis(axes[0, 2], "y")
    draw.note(figure, "lines: mean over the data sets, bands: their range; dotted: the paper's counts (Appendix C)")
    draw.letter(axes, ["converged", "unique", "edge of stability"])
    draw.shared_legend(figure)
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
    chosen = limits[(limits["activation"] == PAPER_ACTIVATION) | (~limits["activation"].eq(PAPER_ACTIVATION).any())]
    first = chosen[chosen["seed"] == chosen["seed"].min()]
    first = first[first["hidden"] == first["hidden"].min()]
    first = first[(first["protocol"] == first["protocol"].iloc[0]) & (first["rate"] == first["rate"].iloc[0])]
    for path, rows in first.groupby("path", sort=False):
        name = {"scaled": "V scaled up", "cancelling": "and two units that cancel"}[str(path)]
        axes[0, 1].plot(rows["error_max"], rows["lambda_sup"], label=name, **STYLES.style(str(path)))
    draw.log_axis(axes[0, 1], "both")
    axes[0, 1].invert_xaxis()
    axes[0, 1].set_xlabel(r"largest error $\max_i |\delta_i|$ (falling)")
    axes[0, 1].set_ylabel(BOUND)
    draw.legend(axes[0, 1])
    draw.note(figure, "(a): all widths, rates and data sets; (b): the first data set")
    draw.letter(axes, ["room left at critical points", "Theorem 7: along vanishing errors"])
    return figure


def activations(experiment: WsBound, tables: Tables) -> Figure:
    """The paper's main findings for all activations under the fitted protocol."""
    figure, axes = draw.new_figure(2, 2, width=8.6, height=6.0)
    shown = [v for v in variants(experiment, tables) if v.protocol == "fitted"]
    names = [v.activation for v in shown]
    from experiments.ws_bound.figures.groups import WHAT_BOXES_ARE, boxes

    widths = sorted(tables["search"]["hidden"].unique())
    labels = {f"N={n}": f"N = {n}" for n in widths}
    ratio, bound = {}, {}
    for place, variant in enumerate(shown):
        points = unique_points(tables, variant)
        parts = {f"N={n}": points[points["hidden"] == n] for n in widths}
        ratio[place] = {k: p["lambda_sup"] / p["lambda_max"] for k, p in parts.items()}
        bound[place] = {k: p["lambda_sup"] for k, p in parts.items()}
    for ax, samples, text in ((axes[0, 0], ratio, r"$\lambda_{\mathrm{sup}} / \lambda_1$"), (axes[0, 1], bound, BOUND)):
        handles = boxes(ax, samples, labels)
        ax.legend(handles=handles, loc="upper left")
        ax.set_xticks(range(len(names)), names)
        ax.set_ylabel(text)
    draw.log_axis(axes[0, 1], "y")
    _shares(axes[1, 0], experiment, tables, names)
    _f1_differences(axes[1, 1], experiment, tables)
    draw.note(figure, f"{WHAT_BOXES_ARE}, data sets pooled; (d): a mark is a data set")
    draw.letter(axes, ["tightness", "sharpness", "search", "generalisation"])
    return figure


def _shares(ax: Axes, experiment: WsBound, tables: Tables, names: list[str]) -> None:
    rows = tables["search"][tables["search"]["protocol"] == "fitted"]
    for slot, (hidden, part) in enumerate(rows.groupby("hidden", sort=True)):
        for column, filled in (("converged", True), ("unique", False)):
            share = (part[column] / part["starts"]).groupby(part["activation"]).mean().reindex(names)
            look = STYLES.point_style(f"N={hidden}")
            ax.scatter(
                [i + 0.2 * (slot - 0.5) for i in range(len(names))],
                share,
                s=34,
                marker=look["marker"],
                edgecolors=look["color"],
                facecolors=look["color"] if filled else "none",
                label=f"{column}, N = {hidden}",
            )
    ax.set_xticks(range(len(names)), names)
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_ylim(0, 1.05)
    ax.set_ylabel("share of starts, mean over data sets")
    draw.legend(ax)


def _f1_differences(ax: Axes, experiment: WsBound, tables: Tables) -> None:
    """Median F1 of the low minus that of the high group, one dot per data set."""
    size = max(experiment.dataset.test)
    shown = [v for v in variants(experiment, tables) if v.protocol == "fitted"]
    for place, variant in enumerate(shown):
        points = unique_points(tables, variant, experiment.portrait_hidden)
        gaps = []
        for _, rows in points.groupby("seed"):
            low, high = split_low_high(rows, experiment.low_share)
            gaps.append(low[f"f1_test{size}"].median() - high[f"f1_test{size}"].median())
        ax.scatter([place] * len(gaps), gaps, s=26, **STYLES.point_style(variant.activation))
    ax.axhline(0, color="black", linewidth=1)
    ax.set_xticks(range(len(shown)), [v.activation for v in shown])
    ax.set_xlim(-0.5, len(shown) - 0.5)
    ax.set_ylabel(f"median F1, low - high bound\n({size} test samples, N = {experiment.portrait_hidden})")
