"""Figs. 8 and 9: the data, and the bound at the critical points of plain descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.hsr.plot_styles import STYLES
from experiments.hsr.regularization.analysis import Tables
from experiments.printed import printed_number
from runner.report import figures as draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from experiments.hsr.regularization.settings import HsrRegularization

BOUND = r"bound $\lambda_{\mathrm{sup}}$"


def data(tables: Tables) -> Figure:
    """Fig. 8: training and test data of the first data set."""
    rows = tables["data"]
    rows = rows[(rows["seed"] == rows["seed"].min()) & (rows["protocol"] == rows["protocol"].iloc[0])]
    figure, axes = draw.new_figure(1, 2, sharex=True, sharey=True)
    titles = []
    for ax, kind in zip(axes[0], ("train", "test"), strict=True):
        part = rows[rows["set"] == kind]
        for label, name in ((0, "low"), (1, "high")):
            points = part[part["label"] == label]
            look = STYLES.point_style(name)
            ax.scatter(
                points["x1"],
                points["x2"],
                s=22 if kind == "train" else 9,
                alpha=0.7,
                linewidths=0,
                label=f"class {label}",
                **look,
            )
        ax.set_xlabel("$x_1$")
        titles.append(f"{'training' if kind == 'train' else 'test'} data, {len(part)} samples")
    axes[0, 0].set_ylabel("$x_2$")
    draw.note(figure, "drawn: the first data set")
    draw.letter(axes, titles)
    draw.shared_legend(figure)
    return figure


def bound(experiment: HsrRegularization, tables: Tables, protocols: Sequence[str]) -> Figure:
    """Fig. 9: λ₁ against λ_sup, all data sets, and the bound's histogram with both thresholds, first data set."""
    points, search = tables["critical_points"], tables["search"]
    figure, axes = draw.new_figure(len(protocols), 2)
    titles = []
    for row, protocol in zip(axes, protocols, strict=True):
        part = points[points["protocol"] == protocol].infer_objects()
        ratio = (part["lambda_sup"] / part["lambda_max"]).median()
        row[0].scatter(
            part["lambda_max"],
            part["lambda_sup"],
            s=9,
            alpha=0.35,
            linewidths=0,
            label=f"median ratio {ratio:.3f}",
            **STYLES.point_style("lambda_sup"),
        )
        draw.log_axis(row[0], "both")
        draw.identity_line(row[0])
        draw.legend(row[0])
        row[0].set_xlabel(r"largest eigenvalue $\lambda_1$")
        row[0].set_ylabel(BOUND)
        seed = part["seed"].min()
        first = search[(search["protocol"] == protocol) & (search["seed"] == seed)].iloc[0]
        draw.histogram(
            row[1],
            part.loc[part["seed"] == seed, "lambda_sup"],
            label="lambda_sup",
            looks=STYLES,
            bins=40,
            name="critical points",
            percentile=None,
        )
        for key, label in (("flat", "low"), ("sharp", "high")):
            row[1].axvline(
                first[f"{key}_threshold"],
                linestyle="--",
                linewidth=1.3,
                color=STYLES.colour(label),
                label=f"{key} seeds: {first[key]} beyond {first[f'{key}_threshold']:.3g}",
            )
        row[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
        row[1].set_xlabel(BOUND)
        row[1].set_ylabel("critical points")
        sets = part["seed"].nunique()
        titles += [
            f"{protocol}: {len(part)} points, {sets} data set{'s' if sets > 1 else ''}",
            f"{protocol}: seed {seed}, {first['unique']} of {first['starts']} starts",
        ]
    counts = [printed_number("hsr_regularization", metric=m) for m in ("unique", "sharp")]
    draw.note(figure, f"the paper's data set: {counts[0]:g} unique points, {counts[1]:g} in each group")
    draw.letter(axes, titles)
    return figure
