"""Figures of Exp. 1: R and C against distance and the dynamics of the chain, with published
values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.exp1.values import VARIANT, printed_values
from experiments.dag.protocol.drawing import (
    BARS,
    DISTANCE,
    LABELS,
    checkpoint_ticks,
    error_line,
    hollow,
    look,
    mark,
    titles,
)
from experiments.dag.protocol.summary import at_ends, first, over_seeds
from runner import stats
from runner.report import figures
from runner.report.answers.labels import label
from runner.stats.tables import chosen, groups
from runner.training import CHECKPOINTS

Points = Iterable[tuple[int, int, float, str]]
"""Single published values: depth, distance, value, architecture."""
Fits = Mapping[tuple[Any, ...], str]
Marks = Callable[[Axes, int], None]


def coupling(distances: pd.DataFrame, points: Points) -> Figure:
    """C(d), with single published values."""
    return _decay(distances, "C", _marks(points))


def resonance(distances: pd.DataFrame, points: Points, table: str = "") -> Figure:
    """R(d) with the decay rate b and R² of the fit log R = a − b d to the means over seeds.

    table: file of published values, of which R at the smallest and the largest distance are marked.
    """
    fits = {}
    for keys, part in groups(first(distances), VARIANT):
        means = over_seeds(part, ["distance"], "R")
        fit = stats.log_linear(means["distance"], means["mean"], name="")
        rate = round(fit.decay, 3) + 0.0  # no minus before a rounded zero
        fits[keys] = f"b = {rate:.3f}, R² = {fit.r2:.2f}"
    figure = _decay(distances, "R", _marks(points, table), fits)
    figures.note(figure, "b, R²: of the fit log R(d) = a − b d to the means over seeds")
    return figure


def _decay(distances: pd.DataFrame, value: str, marks: Marks, fits: Fits | None = None) -> Figure:
    """`value` against distance: a panel per depth, a line per architecture and checkpoint.

    marks: draws the published values of a depth. fits: text below the panel for each line, on a
    logarithmic axis. Thin lines: single seeds, where they are far apart.
    """
    table = first(distances)

    def draw(ax: Axes, depth: int) -> None:
        texts = []
        curves = groups(at_ends(chosen(table, depth=depth)), ["arch", "checkpoint"])
        for (kind, checkpoint), part in curves:
            error_line(ax, over_seeds(part, ["distance"], value), "distance", kind, checkpoint)
            _runs(ax, part, value, look(kind, checkpoint)["color"])
            texts.append((fits or {}).get((depth, kind, checkpoint), ""))
        if fits:
            handles = ax.get_legend_handles_labels()[0]
            ax.legend(handles, texts, loc="upper center", bbox_to_anchor=(0.5, -0.22))
        marks(ax, depth)

    return figures.panels(
        titles(table, "depth"),
        draw,
        x=DISTANCE,
        y=LABELS[value],
        log="y" if fits else "",
        integer=True,
        legend_columns=2,
        height=4.4 if fits else 3.4,
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


def _marks(points: Points, table: str = "") -> Marks:
    """What draws the published values of one depth: single ones, and R at both ends of the
    distances from a file."""
    listed = list(points)

    def draw(ax: Axes, depth: int) -> None:
        for at, distance, value, arch in listed:
            if at == depth:
                mark(ax, distance, value, arch)
        if not table:
            return
        ends_of_curve = (("R_d0", 0), ("R_dLminus1", depth - 1))
        for metric, distance in ends_of_curve:
            published = chosen(printed_values(table), depth=depth, metric=metric)
            for (arch,), rows in groups(published, ["arch"]):
                ends = at_ends(rows)
                hollow(ax, [distance] * len(ends), ends, arch)

    return draw


def dynamics(networks: pd.DataFrame, values: Mapping[str, str], paper: pd.DataFrame) -> Figure:
    """Columns of `networks` (column -> axis label) at the checkpoints: a row each, a column per
    depth; black hollow marks around ours: the published values of metrics that `PRINTED` names."""
    table = first(networks)
    kinds = list(dict.fromkeys(table["arch"]))
    heads = titles(table, "depth")
    at = {(value, depth): heads[depth] for value, depth in product(values, heads)}

    def draw(ax: Axes, key: tuple[str, int]) -> None:
        value, depth = key
        of_depth = chosen(table, depth=depth)
        for (kind,), part in groups(of_depth, ["arch"]):
            shift = 0.08 * kinds.index(kind)
            means = over_seeds(part, ["checkpoint"], value)
            means["place"] = means["checkpoint"].map(CHECKPOINTS.index) + shift
            error_line(ax, means, "place", kind, "init", text=label(kind))
            rows = chosen(paper, metric=PRINTED.get(value, ""), arch=kind, depth=depth)
            hollow(ax, [CHECKPOINTS.index(c) + shift for c in rows["checkpoint"]], rows, str(kind))
        checkpoint_ticks(ax)
        ax.grid(False, axis="x")
        if depth == next(iter(heads)):
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


PRINTED = {"rho": "rho_max", "lyapunov_1": "lyapunov_1"}
"""Columns that the tables print -> metric of the reference file."""
