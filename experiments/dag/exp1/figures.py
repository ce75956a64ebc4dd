"""Figures of Exp. 1 that add published values and fits to those of the protocol; estimates at
depths 16 and 32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.protocol.drawing import (
    BARS,
    DISTANCE,
    LABELS,
    STYLES,
    error_line,
    hollow,
    mark,
    titles,
)
from experiments.dag.protocol.figures import decay
from experiments.dag.protocol.scores import printed
from experiments.dag.protocol.summary import ENDS, at_ends, first, over_seeds
from runner import stats
from runner.report import figures
from runner.report.labels import label
from runner.stats.tables import chosen, groups

HOLLOW: dict[str, Any] = {"linestyle": "none", "markerfacecolor": "none", "markersize": 7}


Points = Iterable[tuple[int, int, float, str]]
"""Single published values: depth, distance, value, architecture."""


def coupling(distances: pd.DataFrame, points: Points) -> Figure:
    """C(d), with single published values."""
    return decay(distances, "C", panel="depth", variant="arch", marks=_marks(list(points)))


def resonance(distances: pd.DataFrame, points: Points, table: str = "") -> Figure:
    """R(d) with the decay rate b and R² of the fit log R = a − b d to the means over seeds.

    table: file of published values, of which R at the smallest and the largest distance are marked.
    """
    fits = {}
    for keys, part in groups(first(distances), ["depth", "arch", "checkpoint"]):
        means = over_seeds(part, ["distance"], "R")
        fit = stats.log_linear(means["distance"], means["mean"], name="")
        rate = round(fit.decay, 3) + 0.0  # no minus before a rounded zero
        fits[keys] = f"b = {rate:.3f}, R² = {fit.r2:.2f}"
    marks = _marks(list(points), printed(table) if table else None)
    figure = decay(distances, "R", log=True, fits=fits, panel="depth", variant="arch", marks=marks)
    figures.note(figure, "b, R²: of the fit log R(d) = a − b d to the means over seeds")
    return figure


def stable_rank(distances: pd.DataFrame) -> Figure:
    """D(d): a row per checkpoint, a column per depth; marks of one distance next to each other, so
    that their bars do not overlap."""
    table = first(distances)
    depths = titles(table, "depth")
    heads = {(c, d): f"{depths[d]}, {label(c)}" for c, d in product(ENDS, depths)}
    kinds = list(dict.fromkeys(table["arch"]))

    def draw(ax: Axes, key: tuple[str, int]) -> None:
        checkpoint, depth = key
        shown = chosen(table, checkpoint=checkpoint, depth=depth)
        for (kind,), part in groups(shown, ["arch"]):
            means = over_seeds(part, ["distance"], "D")
            means["place"] = means["distance"] + APART * (kinds.index(kind) - 0.5)
            error_line(ax, means, "place", kind, checkpoint, text=label(kind), capsize=0)

    y = LABELS["D"]
    columns = len(depths)
    return figures.panels(heads, draw, x=DISTANCE, y=y, columns=columns, integer=True, caption=BARS)


APART = 0.36
"""Distance between the marks of two networks, in layers."""


def _marks(
    points: Sequence[tuple[int, int, float, str]], paper: pd.DataFrame | None = None
) -> Callable[[Axes, int], None]:
    """What draws the published values of one depth: single ones, and R at both ends of the
    distances from a table."""

    def draw(ax: Axes, depth: int) -> None:
        for at, distance, value, arch in points:
            if at == depth:
                mark(ax, distance, value, arch)
        if paper is None:
            return
        for metric, distance in (("R_d0", 0), ("R_dLminus1", depth - 1)):
            published = chosen(paper, depth=depth, metric=metric)
            for (arch,), rows in groups(published, ["arch"]):
                ends = at_ends(rows)
                hollow(ax, [distance] * len(ends), ends, arch)

    return draw


def estimates(distances: pd.DataFrame, table: pd.DataFrame) -> Figure:
    """Stable rank D(d) of untrained plain networks: exact, estimated, and the smallest estimate of
    one pair.

    No exact value is below 1 (black line); an estimate can be.
    """
    plain = chosen(first(distances), arch="plain", checkpoint="init")
    own = chosen(table, arch="plain", checkpoint="init")
    smallest = {"color": "#009E73", "marker": "v", "linestyle": ":"}
    looks: tuple[tuple[pd.DataFrame, str, str, dict[str, Any]], ...] = (
        (plain, "D", "exact", STYLES.style("exact")),
        (own, "D", "estimate, mean over pairs", STYLES.style("stochastic") | HOLLOW),
        (own, "D_smallest", "smallest estimate of a pair", smallest),
    )

    def draw(ax: Axes, depth: Any) -> None:
        for rows, value, text, style in looks:
            means = over_seeds(chosen(rows, depth=depth), ["distance"], value)
            ax.plot(means["distance"], means["mean"], label=text, **style)
        ax.axhline(1, color="black", linewidth=0.8, label="least possible value")

    said = f"means over {plain['seed'].nunique()} seeds, 100 probes"
    y = "stable rank $D(d)$, before training"
    heads = titles(plain, "depth")
    return figures.panels(heads, draw, x=DISTANCE, y=y, integer=True, caption=said)
