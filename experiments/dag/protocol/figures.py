"""Figures of the inter-layer experiments: styles and names, decay with distance, maps of pairs,
spread, training.

Filled marks and solid lines: before training. Half-filled and dotted: halfway. Hollow and dashed:
after training. Black hollow marks: the values that the paper publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.protocol.summary import ENDS, first, in_percent, over_seeds
from runner.report import figures
from runner.report.labels import label
from runner.stats.tables import chosen, groups
from runner.training import CHECKPOINTS

STYLES = figures.PlotStyles(
    ("plain", "residual", "plain_sn", "diamond", "attention", "relu_mlp", "bottleneck", "baseline"),
    ("resnet18", "plain_resnet18", "flat_mlp"),
    ("recovered", "standardised", "described", "small_noise"),
    ("sigmoid", "tanh", "softplus", "gelu", "linear", "silu", "relu", "leaky_relu"),
    ("init", "final", "mid"),
    ("sum", "cat"),
    ("exact", "stochastic"),
    ("measured", "paper", "bound"),
    ("gn", "tensor", "full"),
    ("train", "test", "validation"),
    tuple(f"width {width}" for width in (4, 8, 16, 32, 64, 128, 256, 512)),
)
LINES = {"init": "-", "mid": ":", "final": "--"}
"""Line style of a checkpoint; the variant gives colour and marker."""
LABELS = {
    "R": r"resonance $R(d) = \|H\|_F$",
    "R_examples": r"mean over images of $\|H\|_F$",
    "C": r"coupling $C(d)$",
    "D": r"stable rank $D(d)$",
    "gap": "GN gap\n" + r"$\Sigma\|H^T\|_F\,/\,\Sigma\|H^{GN}\|_F$",
    "tensor": r"$\Sigma\|H^T\|_F$",
    "gn": r"$\Sigma\|H^{GN}\|_F$",
}
PAIR_LABELS = {"R": "resonance", "C": "coupling", "D": "stable rank"}
"""Of one pair of layers, for the colours of a map."""
DISTANCE = "distance $d$ between layers"
BARS = "marks and bars: mean ± sample std over the seeds, on the paper's images"
"""What `error_line` draws, for the caption."""
PAPER = "published"
BEHIND = 1.9
"""zorder of published values: behind our lines and marks, in front of the grid."""
HEADS = {"depth": "$L={}$", "branch_depth": "$k={}$"}
"""Title of a panel, by the column whose value it shows."""


AT_ENDS = {checkpoint: label(checkpoint) for checkpoint in ENDS}
"""Titles of panels before and after training."""


def titles(table: pd.DataFrame, column: str) -> dict[Any, str]:
    """Value of a column -> title of its panel, in order."""
    return {at: HEADS.get(column, "{}").format(label(at)) for at in sorted(set(table[column]))}


def crossed(
    heads: Mapping[Any, str], checkpoints: Sequence[str] = ENDS
) -> dict[tuple[Any, str], str]:
    """(key, checkpoint) -> title of its panel, of panels for every pair of both."""
    return {(key, at): f"{head}, {label(at)}" for key, head in heads.items() for at in checkpoints}


def look(variant: Any, checkpoint: str) -> dict[str, Any]:
    """Style of a line: colour and marker of the variant, dashes and filling of the checkpoint."""
    style = STYLES.style(str(variant)) | {"linestyle": LINES.get(checkpoint, "-.")}
    filling = {
        "mid": {"fillstyle": "left", "markerfacecoloralt": "white"},
        "final": {"markerfacecolor": "white"},
    }
    return style | filling.get(checkpoint, {})


def error_line(
    ax: Axes,
    means: pd.DataFrame,
    x: str,
    variant: Any,
    checkpoint: str,
    *,
    text: str = "",
    **style: Any,
) -> None:
    """Mean with ± sample std over seeds as error bars. means: columns x, mean, std (see
    over_seeds).

    A bar that would reach below zero from a positive mean is left out, for logarithmic axes. style:
    changes of `look`.
    """
    std = means["std"].fillna(0)
    down = std.where((std < means["mean"]) | (means["mean"] <= 0), 0)
    style = {"capsize": 2, "elinewidth": 0.8} | look(variant, checkpoint) | style
    style.setdefault("label", text or f"{label(variant)}, {label(checkpoint)}")
    ax.errorbar(means[x], means["mean"], yerr=[down, std], **style)


def mark(ax: Axes, x: float, y: float, variant: str) -> None:
    """One published value as a black hollow mark in the shape of the variant."""
    style = HOLLOW | {"s": 90, "marker": STYLES.style(variant)["marker"]}
    ax.scatter([x], [y], label=PAPER, **style)


HOLLOW: dict[str, Any] = {
    "facecolors": "none",
    "edgecolors": "black",
    "linewidths": 0.9,
    "zorder": BEHIND,
}
"""Look of a published value in a scatter plot."""
PRINTED_BARS: dict[str, Any] = {
    "color": "0.75",
    "linestyle": "none",
    "elinewidth": 5,
    "capsize": 0,
    "label": f"{PAPER} ±",
    "zorder": BEHIND - 0.1,
}
"""Look of a published ±: wider than our bars, without caps, which look like minus signs."""


def hollow(ax: Axes, x: Sequence[Any], rows: pd.DataFrame, variant: str) -> None:
    """Published means at x as black hollow marks in the shape of the variant, with the printed ±
    as a grey bar where there is one.

    They are larger than our marks and behind them, so that neither hides the other.
    """
    if rows.empty or rows["mean"].isna().all():
        return
    style: dict[str, Any] = {"color": "black", "linestyle": "none", "zorder": BEHIND}
    marker = style | {"marker": STYLES.style(variant)["marker"], "markersize": 10}
    marker |= {"markerfacecolor": "none", "markeredgewidth": 0.9}
    ax.plot(x, rows["mean"], label=PAPER, **marker)
    printed = rows["std"].notna().to_numpy()
    if printed.any():
        places = np.asarray(x, dtype=float)[printed]
        shown = rows[printed]
        ax.errorbar(places, shown["mean"], yerr=shown["std"], **PRINTED_BARS)


def image_sets(
    ax: Axes, x: float, means: pd.DataFrame, colour: str, *, jitter: float = 0.25
) -> None:
    """Values on random sets of images as dots around x, on the paper's images as a diamond ± std
    over the seeds.

    means: columns images, mean, std.
    """
    random = means[means["images"] != 0]["mean"]
    own = chosen(means, images=0)
    spread = np.zeros(len(random))
    if len(random) > 1:
        spread = jitter * np.linspace(-1, 1, len(random))
    ax.scatter(
        x + spread,
        random,
        label="random sets of images",
        s=14,
        alpha=0.6,
        linewidths=0,
        color=colour,
    )
    diamond: dict[str, Any] = {
        "marker": "D",
        "color": "black",
        "linestyle": "none",
        "zorder": 3,
        "capsize": 3,
        "markersize": 4,
        "label": "the paper's images, ± std over seeds",
    }
    ax.errorbar([x] * len(own), own["mean"], yerr=own["std"].fillna(0), **diamond)


def decay(
    distances: pd.DataFrame,
    value: str,
    *,
    panel: str,
    variant: str,
    checkpoints: Sequence[str] = ENDS,
    log: bool = False,
    fits: Mapping[tuple[Any, ...], str] | None = None,
    marks: Callable[[Axes, Any], None] = lambda ax, at: None,
) -> Figure:
    """`value` against distance: a panel per value of the column `panel`, a line per variant and
    checkpoint.

    fits: text below the panel for each (panel, variant, checkpoint). marks: draws published values
    in a panel. Thin lines: single seeds, where they are far apart.
    """
    table = first(distances)

    def draw(ax: Axes, at: Any) -> None:
        texts = []
        for (kind, checkpoint), part in groups(table[table[panel] == at], [variant, "checkpoint"]):
            if checkpoint in checkpoints:
                error_line(ax, over_seeds(part, ["distance"], value), "distance", kind, checkpoint)
                _runs(ax, part.sort_values("distance"), value, look(kind, checkpoint)["color"])
                texts.append((fits or {}).get((at, kind, checkpoint), ""))
        if fits is not None:
            handles = ax.get_legend_handles_labels()[0]
            ax.legend(handles, texts, loc="upper center", bbox_to_anchor=(0.5, -0.22))
        marks(ax, at)

    heads = {at: HEADS.get(panel, panel + " ${}$").format(at) for at in dict.fromkeys(table[panel])}
    return figures.panels(
        heads,
        draw,
        x=DISTANCE,
        y=LABELS.get(value, value),
        log="y" if log else "",
        integer=True,
        legend_columns=2,
        height=3.4 if fits is None else 4.4,
        caption=BARS,
    )


def _runs(ax: Axes, part: pd.DataFrame, value: str, colour: str) -> None:
    """Every seed as a thin line, where the spread over seeds is more than half the mean somewhere:
    a bar hides it."""
    means = over_seeds(part, ["distance"], value)
    if not (means["std"].fillna(0) > 0.5 * means["mean"].abs()).any():
        return
    for _, rows in part.groupby("seed"):
        ax.plot(rows["distance"], rows[value], color=colour, linewidth=0.7, alpha=0.45, zorder=1)


def pair_maps(
    pairs: pd.DataFrame, value: str, *, variant: str, checkpoints: Sequence[str] = ENDS
) -> Figure:
    """`value` of every pair of measured nodes, mean over seeds: a row per variant, a column per
    checkpoint.

    The panels of a row share their colours; those of different rows do not.
    """
    variants = list(dict.fromkeys(pairs[variant]))
    shown = pairs[pairs["checkpoint"].isin(checkpoints)]
    at = crossed({kind: label(kind) for kind in variants}, checkpoints)

    def draw(ax: Axes, key: tuple[str, str]) -> str:
        kind, checkpoint = key
        rows_of_kind = shown[shown[variant] == kind]
        means = rows_of_kind.groupby(["checkpoint", "v", "w"])[value].mean()
        limits = (float(means.min()), float(means.max())) if means.notna().any() else None
        matrix = _matrix(chosen(rows_of_kind, checkpoint=checkpoint), value)
        last = checkpoint == checkpoints[-1]
        name = f"{PAIR_LABELS[value]} ${value}(v, w)$"
        figures.heatmap(ax, matrix, name, limits=limits, bar=last)
        layers: Any = ax.yaxis.get_major_locator()
        layers.set_params(integer=True)
        finite = matrix[~np.isnan(matrix)]
        return at[key] + (f":\n{finite.min():.3g} to {finite.max():.3g}" if finite.size else "")

    return figures.panels(
        at,
        draw,
        x="layer $w$",
        y="layer $v$",
        columns=len(checkpoints),
        integer=True,
        sharey=False,
        legend_columns=0,
        width=6.2,
        height=0.3 + 2.6 * len(variants),
        caption="colours: one scale for each row; above a panel: its range",
    )


def _matrix(rows: pd.DataFrame, value: str) -> np.ndarray:
    """Means by node v and w; the blocks are symmetric, and the table has one half of them."""
    nodes = list(dict.fromkeys([*rows["v"], *rows["w"]]))
    grid = rows.pivot_table(index="v", columns="w", values=value, dropna=False)
    matrix = grid.reindex(index=nodes, columns=nodes).to_numpy(copy=True)
    missing = np.isnan(matrix)
    matrix[missing] = matrix.T[missing]
    return matrix


def through_training(
    networks: pd.DataFrame,
    values: Mapping[str, str],
    *,
    panel: str,
    variant: str,
    paper: tuple[pd.DataFrame, Mapping[str, str]] | None = None,
) -> Figure:
    """Columns of `networks` (column -> axis label) at the checkpoints: a row each, a column per
    value of `panel`.

    paper: published values, and column of ours -> metric of theirs; black hollow marks around ours.
    """
    table = first(networks)
    kinds = list(dict.fromkeys(table[variant]))
    heads = titles(table, panel)
    at = {(value, key): heads[key] for value, key in product(values, heads)}
    printed, metrics = (None, {}) if paper is None else paper

    def draw(ax: Axes, key: tuple[str, Any]) -> None:
        value, where = key
        for (kind,), part in groups(table[table[panel] == where], [variant]):
            shift = 0.08 * kinds.index(kind)
            means = over_seeds(part, ["checkpoint"], value)
            means["place"] = means["checkpoint"].map(CHECKPOINTS.index) + shift
            error_line(ax, means, "place", kind, "init", text=label(kind))
            if value in metrics:
                rows = chosen(printed, metric=metrics[value], **{variant: kind, panel: where})
                x = [CHECKPOINTS.index(c) + shift for c in rows["checkpoint"]]
                hollow(ax, x, rows, str(kind))
        checkpoint_ticks(ax)
        ax.grid(False, axis="x")
        if where == next(iter(heads)):
            ax.set_ylabel(values[value])

    return figures.panels(
        at,
        draw,
        x="training",
        caption=BARS,
        sharey="row",
        height=0.8 + 1.75 * len(values),
        columns=len(heads),
    )


def checkpoint_ticks(ax: Axes) -> None:
    """The checkpoints as ticks of the x axis."""
    ax.set_xticks(range(len(CHECKPOINTS)), ["before", "halfway", "after"])


def band(ax: Axes, means: pd.DataFrame, text: str, style: Mapping[str, Any]) -> None:
    """Means by epoch as a line, mean ± std as a band that stays above zero. means: columns epoch,
    mean, std."""
    x = means["epoch"]
    mean = means["mean"]
    std = means["std"].fillna(0)
    ax.plot(x, mean, label=text, markevery=max(1, len(x) // 12), **style)
    low = (mean - std).clip(lower=1e-3 * mean)
    ax.fill_between(x, low, mean + std, color=style["color"], alpha=0.18, linewidth=0)


def learning_curves(history: pd.DataFrame, *, panel: str | None, variant: str) -> Figure:
    """Test accuracy against the epoch, mean ± std over seeds.

    A panel for each value of the column `panel`, a line for each value of `variant`.
    """
    percent = in_percent(history)

    def draw(ax: Axes, at: Any) -> None:
        shown = percent if panel is None else percent[percent[panel] == at]
        for (kind,), part in groups(shown, [variant]):
            means = over_seeds(part, ["epoch"], "percent")
            band(ax, means, label(kind), STYLES.style(str(kind)))

    said = "bands: mean ± sample std over the seeds"
    heads = {None: ""} if panel is None else titles(history, panel)
    return figures.panels(heads, draw, x="epoch", y="test accuracy (%)", integer=True, caption=said)
