"""Figures that several of the inter-layer experiments have: decay with distance, maps of pairs,
values through training, learning curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.protocol.drawing import (
    BARS,
    DISTANCE,
    HEADS,
    LABELS,
    PAIR_LABELS,
    STYLES,
    band,
    checkpoint_ticks,
    crossed,
    error_line,
    hollow,
    look,
    titles,
)
from experiments.dag.protocol.summary import ENDS, first, in_percent, over_seeds
from runner.report import figures
from runner.report.labels import label
from runner.stats.tables import chosen, groups
from runner.training import CHECKPOINTS


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
    table = table[table["checkpoint"].isin(checkpoints)]

    def draw(ax: Axes, at: Any) -> None:
        texts = []
        shown = table[table[panel] == at]
        for (kind, checkpoint), part in groups(shown, [variant, "checkpoint"]):
            means = over_seeds(part, ["distance"], value)
            error_line(ax, means, "distance", kind, checkpoint)
            _runs(ax, part, value, look(kind, checkpoint)["color"])
            texts.append((fits or {}).get((at, kind, checkpoint), ""))
        if fits is not None:
            handles = ax.get_legend_handles_labels()[0]
            ax.legend(handles, texts, loc="upper center", bbox_to_anchor=(0.5, -0.22))
        marks(ax, at)

    head = HEADS.get(panel, panel + " ${}$")
    heads = {at: head.format(at) for at in dict.fromkeys(first(distances)[panel])}
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
    wide = means["std"].fillna(0) > 0.5 * means["mean"].abs()
    if not wide.any():
        return
    style: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.45, "zorder": 1}
    for _, rows in part.sort_values("distance").groupby("seed"):
        ax.plot(rows["distance"], rows[value], color=colour, **style)


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
        limits = None
        if means.notna().any():
            limits = (float(means.min()), float(means.max()))
        matrix = _matrix(chosen(rows_of_kind, checkpoint=checkpoint), value)
        last = checkpoint == checkpoints[-1]
        name = f"{PAIR_LABELS[value]} ${value}(v, w)$"
        figures.heatmap(ax, matrix, name, limits=limits, bar=last)
        layers: Any = ax.yaxis.get_major_locator()
        layers.set_params(integer=True)
        finite = matrix[~np.isnan(matrix)]
        if not finite.size:
            return at[key]
        return f"{at[key]}:\n{finite.min():.3g} to {finite.max():.3g}"

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
        shown = table[table[panel] == where]
        for (kind,), part in groups(shown, [variant]):
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
