"""Single critical points in detail (Figs. 3, 4, 5, 8, first data set), and where the ends of the
searches lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.printed import printed_number
from experiments.three_layer.drawing import BOUND, STYLES, dots, line, values_with_mean
from experiments.three_layer.ws_bound.analysis import PAPER_ACTIVATION, Variant, where_led
from experiments.three_layer.ws_bound.figures import SMALLEST
from experiments.three_layer.ws_bound.settings import WsBound
from runner.contract import Tables
from runner.report import figures as draw
from runner.report.labels import name as named
from runner.stats.tables import chosen, first_seed

KINDS = ("minimum", "saddle", "infinity", "degenerate", "unfinished")
"""In the order of the bars; named by `experiments.three_layer.polish`."""


def portrayed(tables: Tables, variant: Variant, side: str) -> pd.DataFrame:
    """The sharpest or flattest points of the first data set."""
    points = first_seed(variant.rows(tables["portraits"]))
    return points[points["point"].str.startswith(side)]


def extremes(tables: Tables, variant: Variant, side: str) -> Figure:
    """Figs. 3 and 4: decision boundary and loss along all eigenvectors of the two sharpest or
    flattest points.
    """
    points = portrayed(tables, variant, side)
    figure, axes = draw.new_figure(2, len(points), sharey="row", height=6.6)
    titles = [f"{p.point.replace('_', ' ')}: bound {p.lambda_sup:.2f}" for p in points.itertuples()]
    titles += [rf"loss, $\lambda_1$ = {p.lambda_max:.2f}" for p in points.itertuples()]
    grid = first_seed(variant.rows(tables["boundaries"]))
    samples = first_seed(variant.rows(tables["samples"]))
    lines = first_seed(variant.rows(tables["landscapes"]))
    for column, name in enumerate(points["point"]):
        _decision(axes[0, column], grid, samples, name)
        _loss_lines(axes[1, column], lines, name)
    every = [column for column in lines.columns if column.startswith(("sharpest", "flattest"))]
    low = float(lines[every].min().min())
    high = float(lines[every].max().max())
    axes[1, 0].set_ylim(low - 0.05 * (high - low), high)  # one scale for Figs. 3 and 4
    axes[0, 0].set_ylabel(r"input $x_2$")
    axes[1, 0].set_ylabel(r"loss $L(\theta^* + \alpha u_d)$ (nats)")
    bar = figure.colorbar(_direction_colours(lines["direction"].max()), ax=axes[1, -1])
    bar.set_label("eigenvector $d$ (1: largest eigenvalue)")
    draw.letter(axes, titles)
    draw.shared_legend(figure)
    draw.note(figure, f"{variant.title}, first data set (seed {points['seed'].iloc[0]})")
    draw.note(figure, "Figs. 3 and 4 share the scale of the loss")
    if side == "flattest":
        smallest = [printed_number("ws_bound", metric=m) for m in SMALLEST]
        draw.note(figure, f"the paper's two: bounds {smallest[0]:g} and {smallest[1]:g}")
    return figure


def _decision(ax: Axes, grid: pd.DataFrame, samples: pd.DataFrame, name: str) -> None:
    table = grid.pivot(index="x2", columns="x1", values=name)
    ax.contourf(
        table.columns, table.index, table.to_numpy(), levels=[-1e9, 0, 1e9], colors=["white", "0.8"]
    )
    ax.contour(
        table.columns, table.index, table.to_numpy(), levels=[0], colors="black", linewidths=1.4
    )
    for label, colour in ((0, "white"), (1, "black")):
        own = chosen(samples, label=label)
        ax.scatter(
            own["x1"],
            own["x2"],
            c=colour,
            label=f"class {label}",
            s=16,
            edgecolors="black",
            linewidths=0.7,
            zorder=3,
        )
    ax.set_xlabel(r"input $x_1$ (grey: decided as class 1)")
    ax.set_aspect("equal")
    ax.grid(False)


def _direction_colours(count: int) -> Any:
    return ScalarMappable(Normalize(1, count), colormaps["cividis"])


def _loss_lines(ax: Axes, lines: pd.DataFrame, name: str) -> None:
    colours = _direction_colours(lines["direction"].max())
    for direction, rows in reversed(list(lines.groupby("direction", sort=True))):
        look = {"color": colours.to_rgba(direction), "linewidth": 1}
        if direction == 1:
            look = {"color": "black", "linewidth": 2, "linestyle": "--", "label": "along $u_1$"}
        ax.plot(rows["alpha"], rows[name], **look)
    ax.set_xlabel(r"step $\alpha$ along eigenvector $u_d$")


def dynamics(tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 5: loss, bound and eigenvalue along the descent to the sharpest and to the flattest
    point.
    """
    names = {
        "loss": "loss $L$ (nats)",
        "lambda_sup": BOUND,
        "lambda_max": r"eigenvalue $\lambda_1$",
    }

    def panel(ax: Axes, key: tuple[str, Variant]) -> None:
        rows = first_seed(key[1].rows(tables["trajectories"]))
        rows = chosen(rows, point=f"{key[0]}_1")
        for column, name in names.items():
            ax.plot(rows["step"], rows[column], label=name, **line(column.replace("max", "1")))
        ax.axhline(
            2 / key[1].rate, color="0.5", linewidth=1, linestyle=":", label="stability limit 2/η"
        )

    return draw.panels(
        {
            (side, v): f"{side} point, {v.title}"
            for side in ("sharpest", "flattest")
            for v in variants
        },
        panel,
        x="step of gradient descent",
        y="loss, bound, eigenvalue",
        columns=len(variants),
        log="y",
        caption="drawn: the first data set",
        sharey=False,
    )


def hessian(experiment: WsBound, tables: Tables, variant: Variant) -> Figure:
    """Fig. 8: analytic and numerical Hessian of the sharpest point, their difference (lines bound
    the blocks of w and v), and the size of the difference of every entry.
    """
    every = variant.rows(tables["hessian_entries"])
    rows = first_seed(every)
    rows = chosen(rows, point="sharpest_1")
    parts = {
        "analytic Hessian $H$": rows["analytic"],
        "numerical Hessian (differences)": rows["numerical"],
        "analytic − numerical": rows["analytic"] - rows["numerical"],
    }
    edge = int(rows["row"].max()) - experiment.portrait_hidden - 0.5
    figure, axes = draw.new_figure(2, 2, width=8.0, height=6.6)
    for ax, values in zip(axes.flat, parts.values(), strict=False):
        matrix = rows.assign(entry=values).pivot(index="row", columns="column", values="entry")
        draw.heatmap(ax, matrix, "entry", centred=True)
        ax.axhline(edge, color="black", linewidth=1.6)
        ax.axvline(edge, color="black", linewidth=1.6)
        ax.set_xlabel("parameter (first $w$, then $v$)")
        ax.set_ylabel("parameter")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax = axes[1, 1]
    dots(ax, every["analytic"].abs(), (every["analytic"] - every["numerical"]).abs(), "fitted")
    draw.log_axis(ax, "both")
    ax.set_xlabel("|entry of the analytic Hessian|")
    ax.set_ylabel("|analytic − numerical|")
    own = variant.rows(tables["critical_points"], experiment.portrait_hidden)[
        "hessian_error"
    ].mean()
    theirs = printed_number("ws_bound", metric="hessian_error_mean")
    points = len(every[["seed", "point"]].drop_duplicates())
    draw.note(
        figure,
        f"(a) to (c): the sharpest point of the first data set; (d): {points} points of all data "
        "sets",
    )
    draw.note(
        figure,
        f"mean norm of the difference over all points {own:.2e} at h = "
        f"{experiment.difference_step:g}",
    )
    draw.note(figure, f"the paper's {theirs:.2e}, step not printed")
    draw.letter(axes, [*parts, "difference of every entry"])
    return figure


def critical_points(experiment: WsBound, tables: Tables, chosen: Variant) -> Figure:
    """What becomes of the ends of every search; and the gradient and the bound of the paper's
    network before and after.
    """
    figure, axes = draw.new_figure(2, 2, width=draw.WIDEST, height=6.6)
    axes[0, 1].remove()
    axes[0, 0].set_subplotspec(axes[0, 0].get_gridspec()[0, :])
    _kinds(axes[0, 0], tables)
    left_ax, ax = axes[1]
    narrow = experiment.portrait_hidden
    keys = ["seed", "start"]
    before = chosen.rows(tables["critical_points"], narrow)[[*keys, "lambda_sup"]]
    after = chosen.rows(tables["polished"], narrow)
    left = chosen.rows(tables["gradients"], narrow).merge(after[keys], on=keys)
    left_ax.hist(left["gradient"], bins=40, color=STYLES.colour(chosen.protocol))
    left_ax.set_xlabel(r"$\|\nabla L\|$ where the search stops")
    left_ax.set_ylabel("points, all data sets")
    both = before.merge(after, on=keys, suffixes=("_before", ""))
    both = both[both["kind"] != "unfinished"]
    dots(ax, both["lambda_sup_before"], both["lambda_sup"], "low")
    ends = [both["lambda_sup_before"].min(), both["lambda_sup_before"].max()]
    ax.plot(ends, ends, color="black", linewidth=1)
    draw.log_axis(ax, "both")
    ax.set_xlabel(f"{BOUND} where the search stops")
    ax.set_ylabel(f"{BOUND} after continued descent")
    rank = both["lambda_sup_before"].corr(both["lambda_sup"], method="spearman")
    draw.note(
        figure, f"all data sets; (b), (c): {chosen.title}, N = {narrow}; line in (c): equality"
    )
    kinds = "classification after continued descent"
    left = "gradient left by the stop rule"
    draw.letter([axes[0, 0], left_ax, ax], [kinds, left, f"rank correlation {rank:.2f}"])
    return figure


def _kinds(ax: Axes, tables: Tables) -> None:
    """Shares of the kinds, one bar a search."""
    from runner.report.figures import COLOURS

    shares = {}
    searches = where_led(tables).groupby(["protocol", "activation", "hidden"], sort=False)
    for (protocol, activation, hidden), rows in searches:
        stop = "calibrated" if protocol == "fitted" else protocol
        search = f"{activation}, {stop}"
        if activation != PAPER_ACTIVATION:
            search = named(str(activation))
        shares[f"{search}, N = {hidden}"] = rows["kind"].value_counts(normalize=True)
    left = [0.0] * len(shares)
    for number, kind in enumerate(KINDS):
        width = [float(s.get(kind, 0.0)) for s in shares.values()]
        hatch = ("", "", "///", "...", "")[number]
        ax.barh(
            list(shares),
            width,
            left=left,
            label=kind,
            color=COLOURS[number],
            alpha=0.8,
            hatch=hatch,
        )
        left = [a + b for a, b in zip(left, width, strict=True)]
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.grid(False)
    ax.set_xlabel("share of the distinct end points, all data sets")
    ax.legend(loc="upper left", bbox_to_anchor=(1.02, 1), title="continued downhill:")


def draws(tables: Tables) -> Figure:
    """Fig. 7 over further draws: mean macro F1 of the low group less that of the high one, a dot a
    draw of data and starts; black: their mean with its 95 % interval.
    """
    rows = tables["draws"]
    stages = {"stopped": "where the search stops", "polished": "after continued descent"}

    def panel(ax: Axes, size: int) -> None:
        for place, stage in enumerate(stages):
            part = chosen(rows, stage=stage, test_samples=size)
            values_with_mean(
                ax, (part["f1_low"] - part["f1_high"]).dropna(), place, STYLES.colour("low")
            )
        ax.axhline(0, color="black", linewidth=1)
        ax.set_xticks(range(len(stages)), list(stages.values()))
        ax.set_xlim(-0.5, len(stages) - 0.5)

    titles = {size: f"{size} test samples" for size in sorted(rows["test_samples"].unique())}
    y = "difference in macro F1,\nlow − high bound"
    return draw.panels(titles, panel, y=y, sharey=False, legend_columns=0, width=8.0, height=3.2)
