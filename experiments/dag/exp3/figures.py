"""Figures of Exps. 3 and 3b."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.dag.exp3.claims import gap_and_curvature as points_at
from experiments.dag.protocol.figures import BARS, error_line, name
from experiments.dag.protocol.plot_styles import STYLES
from experiments.dag.protocol.printed import chosen, hollow
from experiments.dag.protocol.summary import first, groups, over_seeds
from runner import stats
from runner.report import figures
from runner.training import CHECKPOINTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def gap_and_curvature(gaps: pd.DataFrame, networks: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Gap against E[σ''²], one point per activation with ± std over seeds, and the linear fit, by checkpoint.

    Hollow marks: printed gap at the printed E[σ''²], which the paper gives at init; leaky ReLU lies on ReLU.
    """
    import numpy as np

    figure, axes = figures.new_figure(1, len(CHECKPOINTS))
    titles = []
    for ax, checkpoint in zip(axes[0], CHECKPOINTS, strict=True):
        points = points_at(gaps, networks, checkpoint)
        for row in points.itertuples():
            std = 0 if np.isnan(row.std) else row.std
            ax.errorbar(
                row.curvature,
                row.gap,
                yerr=std,
                capsize=2,
                label=name(row.activation),
                **STYLES.point_style(row.activation),
                linestyle="none",
                markersize=4 if row.activation == "leaky_relu" else 6,  # on top of ReLU, which stays visible
            )
            own = chosen(paper, activation=row.activation, checkpoint=checkpoint, metric="gap_global")
            at = chosen(paper, activation=row.activation, metric="E_sigma_pp_sq")
            hollow(ax, list(at["mean"])[: len(own)], own, row.activation)
        fit = stats.linear(points["curvature"], points["gap"], name="")
        rank = stats.spearman(points["curvature"], points["gap"], name="")
        x = np.array([0.0, points["curvature"].max()])
        ax.plot(x, fit.intercept + fit.slope * x, color="black", linestyle=":", linewidth=1)
        ax.set_xlabel(r"$E[\sigma''(z)^2]$")
        titles.append(f"{checkpoint}: R² = {fit.r2:.3f}, ρ = {rank.statistic:.2f}")
    axes[0, 0].set_ylabel(r"GN-gap $\Sigma\|H^T\|_F\,/\,\Sigma\|H^{GN}\|_F$")
    figures.letter(axes, titles)
    figures.shared_legend(figure)
    figures.note(figure, BARS)
    return figure


def parts(distances: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Σ‖H^GN‖_F and Σ‖H^T‖_F by distance, at init and final, the printed ones at init as hollow marks.

    Parts that are exactly zero cannot be drawn: H^T of piecewise linear networks and, at the largest distance, of all.
    """
    table = first(distances)
    figure, axes = figures.new_figure(1, 2, sharey=True)
    for ax, value in zip(axes[0], ("gn", "tensor"), strict=True):
        for (activation, checkpoint), part in groups(table, ["activation", "checkpoint"]):
            means = over_seeds(part, ["distance"], value)
            means = means[means["mean"] > 0]
            if checkpoint != "mid" and len(means):
                error_line(ax, means, "distance", activation, checkpoint)
        for activation in dict.fromkeys(table["activation"]):
            metric = {"gn": "frob_gn_sum_over_pairs", "tensor": "frob_tensor_sum_over_pairs"}[value]
            rows = chosen(paper, metric=metric, activation=activation).dropna(subset=["mean"])
            if len(rows):  # Exp. 3b has no such table
                hollow(ax, list(rows["distance"]), rows, activation)
        figures.log_axis(ax)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("distance $d$ between layers")
    axes[0, 0].set_ylabel("sum of norms over the pairs at $d$")
    figures.letter(axes, [r"$\Sigma\|H^{GN}\|_F$", r"$\Sigma\|H^T\|_F$ (0 at $d = L-1$)"])
    figures.shared_legend(figure)
    figures.note(figure, BARS)
    return figure


def image_sets(gaps: pd.DataFrame) -> Figure:
    """The gap on every set of images, mean over seeds: the paper's set with its ± over seeds, random sets as dots."""
    import numpy as np

    figure, axes = figures.new_figure(1, 2, sharey=False)
    activations = list(dict.fromkeys(gaps["activation"]))
    for ax, checkpoint in zip(axes[0], ("init", "final"), strict=True):
        for i, activation in enumerate(activations):
            part = gaps[(gaps["checkpoint"] == checkpoint) & (gaps["activation"] == activation)]
            means = over_seeds(part, ["images"], "gap")
            random = means[means["images"] != 0]["mean"]
            look = STYLES.point_style(activation)
            spread = 0.25 * np.linspace(-1, 1, len(random)) if len(random) > 1 else np.zeros(len(random))
            ax.scatter(
                i + spread,
                random,
                s=14,
                alpha=0.6,
                linewidths=0,
                color=look["color"],
                label="random sets of images" if i == 0 else None,
            )
            own = means[means["images"] == 0]
            ax.errorbar(
                [i],
                own["mean"],
                yerr=own["std"].fillna(0),
                marker="D",
                color="black",
                capsize=3,
                markersize=4,
                linestyle="none",
                label="the paper's images, ± std over seeds" if i == 0 else None,
            )
        ax.set_xticks(range(len(activations)), [name(a) for a in activations], rotation=20)
        ax.set_ylim(bottom=0)
    axes[0, 0].set_ylabel(r"GN-gap $\Sigma\|H^T\|_F\,/\,\Sigma\|H^{GN}\|_F$")
    figures.letter(axes, ["init", "final"])
    figures.shared_legend(figure)
    return figure


def stochastic(table: pd.DataFrame) -> Figure:
    """Discrepancy of single estimates, all seeds and draws: a row per number of probes, init and final."""
    kept = table[table["status"] == "ok"]
    counts = list(dict.fromkeys(kept["probes"]))
    figure, axes = figures.new_figure(len(counts), 2, sharey=True)
    titles = []
    for row, probes in zip(axes, counts, strict=True):
        for ax, checkpoint in zip(row, ("init", "final"), strict=True):
            part = kept[(kept["checkpoint"] == checkpoint) & (kept["probes"] == probes)]
            samples = {str(a): rows["discrepancy_percent"] for (a,), rows in groups(part, ["activation"])}
            figures.groups(ax, samples, looks=STYLES, names={a: name(a) for a in samples})
            ax.axhline(0, color="black", linewidth=0.8)
            titles.append(f"{probes} probes, {checkpoint}")
        row[0].set_ylabel("stochastic / exact gap − 1 (%)")
    figures.letter(axes, titles)
    return figure
