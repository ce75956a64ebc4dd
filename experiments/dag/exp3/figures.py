"""Figures of Exp. 3, and of the stochastic gap."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.dag.exp3 import values
from experiments.dag.exp3.draws import (
    PAPER_PROBES,
    TEXT_PROBES,
    of_means,
    sizes_of,
)
from experiments.dag.protocol.drawing import (
    BARS,
    DISTANCE,
    LABELS,
    STYLES,
    crossed,
    error_line,
    hollow,
)
from experiments.dag.protocol.scores import printed
from experiments.dag.protocol.summary import at_ends, first, over_seeds
from runner import stats
from runner.report import figures
from runner.report.answers.labels import label
from runner.stats.tables import chosen, groups
from runner.training import CHECKPOINTS


def gap_and_curvature(gaps: pd.DataFrame, networks: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """GN gap against E[σ''²], one point per activation with ± std over seeds, and the linear fit,
    by checkpoint.

    Hollow marks: published gap at the published E[σ''²], which the paper gives before training;
    leaky ReLU lies on ReLU.
    """

    def draw(ax: Axes, checkpoint: str) -> str:
        points = values.gap_and_curvature(gaps, networks, checkpoint)
        for row in points.itertuples():
            style = STYLES.point_style(row.activation)
            style |= {"linestyle": "none", "markersize": 6}
            if row.activation == "leaky_relu":
                style["markersize"] = 4  # on top of ReLU, which stays visible
            std = 0 if np.isnan(row.std) else row.std
            text = label(row.activation)
            ax.errorbar(row.curvature, row.gap, yerr=std, capsize=2, label=text, **style)
            published = chosen(paper, activation=row.activation)
            own = chosen(published, checkpoint=checkpoint, metric="gap_global")
            places = list(chosen(published, metric="E_sigma_pp_sq")["mean"])[: len(own)]
            hollow(ax, places, own, row.activation)
        fit = stats.linear(points["curvature"], points["gap"], name="")
        rank = stats.spearman(points["curvature"], points["gap"], name="")
        x = np.array([0.0, points["curvature"].max()])
        line = fit.intercept + fit.slope * x
        ax.plot(x, line, color="black", linestyle=":", linewidth=1, label="linear fit")
        return f"{label(checkpoint)}\nR² = {fit.r2:.3f}, ρ = {rank.statistic:.2f}"

    heads = dict.fromkeys(CHECKPOINTS, "")
    x = r"mean squared curvature $E[\sigma''(z)^2]$"
    said = f"{BARS}; R² of the linear fit; ρ: Spearman's"
    return figures.panels(heads, draw, x=x, y=LABELS["gap"], sharey=False, caption=said)


def parts(distances: pd.DataFrame, paper: pd.DataFrame) -> Figure:
    """Σ‖H^GN‖_F and Σ‖H^T‖_F by distance before and after training, the published ones before as
    hollow marks.

    Parts that are exactly zero cannot be drawn: H^T of piecewise linear networks and, at the
    largest distance, of all.
    """
    table = first(distances)
    metrics = {"gn": "frob_gn_sum_over_pairs", "tensor": "frob_tensor_sum_over_pairs"}

    def draw(ax: Axes, activation: str) -> str:
        own = chosen(table, activation=activation)
        for value, metric in metrics.items():
            curves = groups(at_ends(own), ["checkpoint"])
            for (checkpoint,), part in curves:
                means = over_seeds(part, ["distance"], value)
                means = means[means["mean"] > 0]
                text = f"{LABELS[value]}, {label(checkpoint)}"
                if len(means):
                    error_line(ax, means, "distance", value, checkpoint, text=text)
            rows = chosen(paper, metric=metric, activation=activation).dropna(subset=["mean"])
            hollow(ax, list(rows["distance"]), rows, value)
        zero = ""
        if (own["tensor"] == 0).all():
            zero = " ($H^T = 0$)"
        return f"{label(activation)}{zero}"

    return figures.panels(
        dict.fromkeys(table["activation"], ""),
        draw,
        columns=3,
        legend_columns=3,
        height=5.2,
        x=DISTANCE,
        y="sum of norms over\nthe pairs at $d$",
        log="y",
        integer=True,
        caption=BARS,
    )


def discrepancies(draws: pd.DataFrame) -> Figure:
    """Relative error of the GN gap's means over seeds, a dot a draw: a panel per checkpoint and
    number of probes.

    Hollow marks: the one repetition that the paper publishes (without sign).
    """
    means = sizes_of(of_means(draws))
    paper = chosen(printed("exp3_stochastic"), metric="abs_rel_discrepancy_percent")
    known = set(means["probes"])
    counts = [count for count in (TEXT_PROBES, PAPER_PROBES) if count in known]
    shown_counts = counts or sorted(known)[:2]
    heads = crossed({n: f"{n} probes" for n in shown_counts})

    def draw(ax: Axes, key: tuple[int, str]) -> None:
        part = chosen(means, probes=key[0], checkpoint=key[1])
        for i, activation in enumerate(_by_activation(ax, part, "percent")):
            rows = chosen(paper, activation=activation, checkpoint=key[1])
            hollow(ax, [i] * len(rows), rows, "paper")

    said = "a dot: means over the seeds of one draw of probes"
    return figures.panels(heads, draw, columns=2, y="|estimated − exact| gap (%)", caption=said)


def _by_activation(ax: Axes, part: pd.DataFrame, column: str) -> list[str]:
    """A group of dots for each activation; their names, in order."""
    samples = {}
    names = {}
    for (activation,), rows in groups(part, ["activation"]):
        name = str(activation)
        samples[name] = rows[column]
        names[name] = label(name)
    figures.groups(ax, samples, looks=STYLES, names=names)
    return list(samples)
