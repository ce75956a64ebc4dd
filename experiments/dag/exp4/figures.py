"""Figures of Exp. 4."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.protocol.drawing import (
    AT_ENDS,
    BARS,
    PAIR_LABELS,
    STYLES,
    checkpoint_ticks,
    crossed,
    error_line,
    hollow,
    image_sets as one_set,
    titles,
)
from experiments.dag.protocol.summary import at_ends, first, over_seeds, variance_components
from runner.report import figures
from runner.report.labels import label
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
            for shift, checkpoint in zip((-0.25, 0, 0.25), CHECKPOINTS, strict=True):
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
                places = [x] * len(rest)
                ax.scatter(places, rest["mean"], marker=style["marker"], **ROUNDING)
        ax.set_yscale("log")
        ax.set_ylim(ZERO / 5, 30)
        ax.set_yticks([ZERO, 1e-9, 1e-6, 1e-3, 1], GAP_TICKS)
        names = [kind["kind"] for kind in kinds]
        ax.set_xticks(range(len(kinds)), names, rotation=30, ha="right")

    said = "every seed a point, on the paper's images"
    heads = titles(table, "branch_depth")
    y = r"GN gap of $(A_{k-1}, B_{k-1})$"
    return figures.panels(heads, draw, y=y, legend_columns=3, caption=said)


def cross(distances: pd.DataFrame, value: str = "R") -> Figure:
    """Resonance across the branches against the graph distance, before and after training: a panel
    per branch depth."""
    table = at_ends(chosen(variant(first(distances)), relation="cross"))
    table = table[table["branch_depth"] > 1]

    def draw(ax: Axes, depth: int) -> None:
        own = chosen(table, branch_depth=depth)
        for (kind, checkpoint), part in groups(own, ["kind", "checkpoint"]):
            means = over_seeds(part, ["distance"], value)
            error_line(ax, means, "distance", kind, checkpoint)

    heads = titles(table, "branch_depth")
    return figures.panels(
        heads,
        draw,
        x="graph distance through the merge",
        y=f"{PAIR_LABELS[value]} ${value}(d)$\nacross branches",
        log="y",
        integer=True,
        legend_columns=2,
        caption=BARS,
    )


def within(distances: pd.DataFrame) -> Figure:
    """R within branches of more than one block against the distance, both branches averaged."""
    table = variant(first(distances))
    table = table[(table["relation"] != "cross") & (table["branch_depth"] > 1)]

    def draw(ax: Axes, key: tuple[int, str]) -> None:
        depth, checkpoint = key
        own = chosen(table, branch_depth=depth, checkpoint=checkpoint)
        for (kind,), part in groups(own, ["kind"]):
            seeds = part.groupby(["seed", "distance"])["R"].mean().reset_index()
            means = over_seeds(seeds, ["distance"], "R")
            error_line(ax, means, "distance", kind, checkpoint, text=kind)

    return figures.panels(
        crossed(titles(table, "branch_depth")),
        draw,
        x="distance within a branch",
        y="resonance $R(d)$\nwithin branches",
        columns=2,
        log="y",
        integer=True,
        caption=BARS,
    )


def image_sets(merge: pd.DataFrame) -> Figure:
    """GN gap of cat + SiLU on every set of images: means over seeds, the paper's set with its ±
    over seeds."""
    table = chosen(merge[merge["tensor"] > 0], merge="cat")
    table = table[table["activation"] != "relu"]
    depths = sorted(set(table["branch_depth"]))

    def draw(ax: Axes, checkpoint: str) -> None:
        ticks = []
        for i, depth in enumerate(depths):
            part = chosen(table, branch_depth=depth, checkpoint=checkpoint)
            means = over_seeds(part, ["images"], "gap")
            one_set(ax, i, means, STYLES.colour("init"))
            c = variance_components(part, "gap")
            std = ""
            if c.images == c.images:
                std = f"\nsets ± {c.images**0.5:.2g}\nseeds ± {c.seeds**0.5:.2g}"
            ticks.append(f"k = {depth}{std}")
        ax.set_xticks(range(len(depths)), ticks)
        ax.set_ylim(bottom=0)

    said = "below: std of the components of variance, between sets of images and between seeds"
    y = "GN gap at the merge, cat + SiLU"
    return figures.panels(AT_ENDS, draw, y=y, sharey=False, caption=said)


def jacobians(networks: pd.DataFrame) -> Figure:
    """Largest spectral norm of a branch block at every checkpoint, mean ± std over seeds: a panel
    per branch depth."""
    table = variant(first(networks))

    def draw(ax: Axes, depth: int) -> None:
        shown = chosen(table, branch_depth=depth)
        for (kind,), part in groups(shown, ["kind"]):
            means = over_seeds(part, ["checkpoint"], "rho")
            means["place"] = means["checkpoint"].map(CHECKPOINTS.index)
            error_line(ax, means, "place", kind, "init", text=kind, **STYLES.style(kind))
        checkpoint_ticks(ax)

    y = r"largest spectral norm $\rho_{\max}$"
    heads = titles(table, "branch_depth")
    return figures.panels(heads, draw, x="training", y=y, caption=BARS)
