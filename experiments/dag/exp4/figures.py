"""Figures of Exp. 4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.dag.protocol.figures import BARS, error_line, name
from experiments.dag.protocol.plot_styles import STYLES
from experiments.dag.protocol.printed import chosen, hollow
from experiments.dag.protocol.summary import first, groups, over_seeds, variance_components
from runner.report import figures
from runner.training import CHECKPOINTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ZERO = 1e-12
"""Where an exact zero is drawn on a logarithmic axis; the tick there says 0."""


def variant(table: pd.DataFrame) -> pd.DataFrame:
    """The table with a column `kind`: "cat + SiLU" and the like."""
    return table.assign(kind=[f"{m} + {name(a)}" for m, a in zip(table["merge"], table["activation"], strict=True)])


def merge_gap(merge: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Gap of the last two branch nodes at every checkpoint, every seed a point: a panel per branch depth.

    Hollow marks: printed gaps. What the paper prints for the other merges, up to 1.4e-7, is the rounding of a
    difference of two float32 matrices; the engine has exact zeros there.
    """
    table = variant(first(merge))
    depths = sorted(set(table["branch_depth"]))
    figure, axes = figures.new_figure(1, len(depths), sharey=True)
    for ax, depth in zip(axes[0], depths, strict=True):
        part = table[table["branch_depth"] == depth]
        kinds = list(dict.fromkeys(part["kind"]))
        for i, kind in enumerate(kinds):
            for shift, checkpoint in zip((-0.22, 0, 0.22), CHECKPOINTS, strict=True):
                rows = part[(part["kind"] == kind) & (part["checkpoint"] == checkpoint)]
                ax.scatter(
                    [i + shift] * len(rows),
                    rows["gap"].clip(lower=ZERO),
                    s=16,
                    alpha=0.8,
                    label=checkpoint if i == 0 else None,
                    **STYLES.point_style(checkpoint),
                )
                where = {"branch_depth": depth, "checkpoint": checkpoint, "metric": "gap_merge"}
                where |= {"merge": rows["merge"].iloc[0], "activation": rows["activation"].iloc[0]} if len(rows) else {}
                own = chosen(paper, **where)
                hollow(ax, [i + shift] * len(own), own, checkpoint)
        ax.set_yscale("log")
        ax.set_ylim(ZERO / 5, 30)
        ax.set_yticks([ZERO, 1e-9, 1e-6, 1e-3, 1], ["0", "$10^{-9}$", "$10^{-6}$", "$10^{-3}$", "1"])
        ax.set_xticks(range(len(kinds)), kinds, rotation=30, ha="right")
    axes[0, 0].set_ylabel(r"GN-gap of $(A_{k-1}, B_{k-1})$")
    figures.letter(axes, [f"k = {d}" for d in depths])
    figures.shared_legend(figure)
    figures.note(figure, "every seed a point, on the paper's images")
    return figure


def cross(distances: pd.DataFrame, value: str = "R") -> Figure:
    """`value` across the branches against the graph distance, init and final: a panel per branch depth above 1."""
    table = variant(first(distances))
    table = table[(table["relation"] == "cross") & (table["branch_depth"] > 1)]
    depths = sorted(set(table["branch_depth"]))
    figure, axes = figures.new_figure(1, len(depths), sharey=True)
    for ax, depth in zip(axes[0], depths, strict=False):
        for (kind, checkpoint), part in groups(table[table["branch_depth"] == depth], ["kind", "checkpoint"]):
            if checkpoint != "mid":
                error_line(ax, over_seeds(part, ["distance"], value), "distance", kind, checkpoint)
        ax.set_xlabel("graph distance through the merge")
        ax.xaxis.get_major_locator().set_params(integer=True)
        figures.log_axis(ax)
    axes[0, 0].set_ylabel(f"${value}(d)$ across branches")
    figures.letter(axes, [f"k = {d}" for d in depths])
    figures.shared_legend(figure, columns=4)
    figures.note(figure, BARS)
    return figure


def within(distances: pd.DataFrame) -> Figure:
    """R within branches of more than one block against the distance, both branches averaged: init and final."""
    table = variant(first(distances))
    table = table[(table["relation"] != "cross") & (table["branch_depth"] > 1)]
    depths = sorted(set(table["branch_depth"]))
    panels = [(depth, checkpoint) for depth in depths for checkpoint in ("init", "final")]
    figure, axes = figures.new_figure(1, len(panels), sharey=True)
    for ax, (depth, checkpoint) in zip(axes[0], panels, strict=False):
        own = table[(table["branch_depth"] == depth) & (table["checkpoint"] == checkpoint)]
        for (kind,), part in groups(own, ["kind"]):
            seeds = part.groupby(["seed", "distance"])["R"].mean().reset_index()
            error_line(ax, over_seeds(seeds, ["distance"], "R"), "distance", kind, checkpoint, text=kind)
        ax.set_xlabel("distance within a branch")
        ax.xaxis.get_major_locator().set_params(integer=True)
        figures.log_axis(ax)
    axes[0, 0].set_ylabel("$R(d)$ within branches")
    figures.letter(axes, [f"k = {depth}, {checkpoint}" for depth, checkpoint in panels])
    figures.shared_legend(figure)
    figures.note(figure, BARS)
    return figure


def image_sets(merge: pd.DataFrame) -> Figure:
    """Gap of the curved merges on every set of images: means over seeds, the paper's set with its ± over seeds."""
    import numpy as np

    table = merge[merge["tensor"] > 0]
    figure, axes = figures.new_figure(1, 2)
    depths = sorted(set(table["branch_depth"]))
    for ax, checkpoint in zip(axes[0], ("init", "final"), strict=True):
        titles = []
        for i, depth in enumerate(depths):
            part = table[(table["branch_depth"] == depth) & (table["checkpoint"] == checkpoint)]
            part = part[(part["merge"] == "cat") & (part["activation"] != "relu")]
            means = over_seeds(part, ["images"], "gap")
            random, own = means[means["images"] != 0]["mean"], means[means["images"] == 0]
            spread = 0.25 * np.linspace(-1, 1, len(random)) if len(random) > 1 else np.zeros(len(random))
            ax.scatter(
                i + spread,
                random,
                s=14,
                alpha=0.6,
                linewidths=0,
                color=STYLES.colour("random"),
                label="random sets of images, means over seeds" if i == 0 else None,
            )
            ax.errorbar(
                [i] * len(own),
                own["mean"],
                yerr=own["std"].fillna(0),
                marker="D",
                color="black",
                capsize=3,
                markersize=4,
                linestyle="none",
                label="the paper's images, ± std over seeds" if i == 0 else None,
            )
            c = variance_components(part, "gap")
            std = f"\nstd {c.images**0.5:.2g} sets\n{c.seeds**0.5:.2g} seeds" if c.images == c.images else ""
            titles.append(f"k = {depth}{std}")
        ax.set_xticks(range(len(depths)), titles)
        ax.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("GN-gap at the merge, cat + SiLU")
    figures.letter(axes, ["init", "final"])
    figures.shared_legend(figure)
    return figure


def jacobians(networks: pd.DataFrame) -> Figure:
    """Largest spectral norm of a branch block at every checkpoint, mean ± std over seeds: a panel per branch depth."""
    table = variant(first(networks))
    depths = sorted(set(table["branch_depth"]))
    figure, axes = figures.new_figure(1, len(depths), sharey=True)
    for ax, depth in zip(axes[0], depths, strict=True):
        for (kind,), part in groups(table[table["branch_depth"] == depth], ["kind"]):
            means = over_seeds(part, ["checkpoint"], "rho").set_index("checkpoint").reindex(CHECKPOINTS)
            ax.errorbar(
                range(len(CHECKPOINTS)),
                means["mean"],
                yerr=means["std"].fillna(0),
                capsize=2,
                label=kind,
                **STYLES.style(kind),
            )
        ax.set_xticks(range(len(CHECKPOINTS)), CHECKPOINTS)
    axes[0, 0].set_ylabel(r"$\rho_{\max}$ of the branch blocks")
    figures.letter(axes, [f"k = {d}" for d in depths])
    figures.shared_legend(figure)
    figures.note(figure, BARS)
    return figure
