"""Figures of Exp. 4."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.protocol.drawing import (
    BARS,
    STYLES,
    error_line,
    hollow,
    titles,
)
from experiments.dag.protocol.summary import at_ends, first, over_seeds
from runner.report import figures
from runner.report.answers.labels import label
from runner.stats.tables import chosen, groups
from runner.training import CHECKPOINTS

ZERO = 1e-12
"""Where an exact zero is drawn on a logarithmic axis; the tick there says 0."""
GAP_TICKS = ("0", "$10^{-9}$", "$10^{-6}$", "$10^{-3}$", "1")
ROUNDING: dict[str, Any] = {
    "facecolors": "none",
    "edgecolors": "0.5",
    "s": 40,
    "label": "published: rounding of a zero",
}
"""Look of what the paper publishes where the gap is zero."""


def variant(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column `kind`: "cat + SiLU" and the like."""
    return table.assign(kind=table["merge"] + " + " + table["activation"].map(label))


def merge_gap(merge: pd.DataFrame, paper: pd.DataFrame, roundings: pd.DataFrame) -> Figure:
    """GN gap of the last two branch nodes at every checkpoint, every seed a point: a panel per
    branch depth.

    Black hollow marks: published gaps. Grey hollow marks: what the paper publishes for merges
    without curvature, up to 1.4e-7, the rounding of a difference of two float32 matrices; the
    engine has exact zeros there.
    """
    table = variant(first(merge))

    def draw(ax: Axes, depth: int) -> None:
        part = chosen(table, branch_depth=depth)
        kinds = part.drop_duplicates("kind")[["merge", "activation", "kind"]].to_dict("records")
        for i, kind in enumerate(kinds):
            places_of_checkpoints = zip((-0.25, 0, 0.25), CHECKPOINTS, strict=True)
            for shift, checkpoint in places_of_checkpoints:
                rows = chosen(part, kind=kind["kind"], checkpoint=checkpoint)
                style = STYLES.point_style(checkpoint)
                x = i + shift
                gaps = rows["gap"].clip(lower=ZERO)
                text = label(checkpoint)
                ax.scatter([x] * len(rows), gaps, s=16, alpha=0.8, label=text, zorder=3, **style)
                where = {"branch_depth": depth, "checkpoint": checkpoint, "metric": "gap_merge"}
                where |= {name: kind[name] for name in ("merge", "activation")}
                own = chosen(paper, **where)
                hollow(ax, [x] * len(own), own, checkpoint)
                rest = chosen(roundings, **where)
                ax.scatter([x] * len(rest), rest["mean"], marker=style["marker"], **ROUNDING)
        ax.set_yscale("log")
        ax.set_ylim(ZERO / 5, 30)
        ax.set_yticks([ZERO, 1e-9, 1e-6, 1e-3, 1], GAP_TICKS)
        ax.set_xticks(range(len(kinds)), [kind["kind"] for kind in kinds], rotation=30, ha="right")

    said = "every seed a point, on the paper's images"
    heads = titles(table, "branch_depth")
    y = r"GN gap of $(A_{k-1}, B_{k-1})$"
    return figures.panels(heads, draw, y=y, legend_columns=3, caption=said)


def cross(distances: pd.DataFrame) -> Figure:
    """Resonance across the branches against the graph distance, before and after training: a panel
    per branch depth."""
    table = at_ends(chosen(variant(first(distances)), relation="cross"))
    table = table[table["branch_depth"] > 1]

    def draw(ax: Axes, depth: int) -> None:
        curves = groups(chosen(table, branch_depth=depth), ["kind", "checkpoint"])
        for (kind, checkpoint), part in curves:
            error_line(ax, over_seeds(part, ["distance"], "R"), "distance", kind, checkpoint)

    return figures.panels(
        titles(table, "branch_depth"),
        draw,
        x="graph distance through the merge",
        y="resonance $R(d)$\nacross branches",
        log="y",
        integer=True,
        legend_columns=2,
        caption=BARS,
    )
