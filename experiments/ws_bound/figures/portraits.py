"""Single critical points in detail: Figs. 3, 4, 5 and 8, for the first stored data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.printed import printed_number
from experiments.ws_bound.analysis import Tables, Variant
from experiments.ws_bound.figures.groups import SMALLEST
from experiments.ws_bound.plot_styles import STYLES
from runner.report import figures as draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.ws_bound.settings import WsBound


def first_seed(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the first data set."""
    return rows[rows["seed"] == rows["seed"].min()]


def portrayed(tables: Tables, variant: Variant, side: str) -> pd.DataFrame:
    """The sharpest or flattest points of the first data set."""
    points = first_seed(variant.rows(tables["portraits"]))
    return points[points["point"].str.startswith(side)]


def extremes(tables: Tables, variant: Variant, side: str) -> Figure:
    """Figs. 3 and 4: decision boundary and loss along all eigenvectors of the two sharpest or flattest points."""
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
    low, high = float(lines[every].min().min()), float(lines[every].max().max())
    axes[1, 0].set_ylim(low - 0.05 * (high - low), high)  # one scale for Figs. 3 and 4
    axes[0, 0].set_ylabel(r"input $x_2$")
    axes[1, 0].set_ylabel(r"loss $L(\theta^* + \alpha u_d)$ (nats)")
    bar = figure.colorbar(_direction_colours(lines["direction"].max()), ax=axes[1, -1])
    bar.set_label("eigenvector $d$ (1: largest eigenvalue)")
    draw.letter(axes, titles)
    draw.shared_legend(figure)
    draw.note(figure, "drawn: the first data set; Figs. 3 and 4 share the scale of the loss")
    if side == "flattest":
        smallest = [printed_number("ws_bound", metric=m) for m in SMALLEST]
        draw.note(figure, f"the paper's two: bounds {smallest[0]:g} and {smallest[1]:g}")
    figure.suptitle(f"{variant.protocol}, η = {variant.rate:g}, data set (seed) {points['seed'].iloc[0]}", fontsize=9)
    return figure


def _decision(ax: Axes, grid: pd.DataFrame, samples: pd.DataFrame, name: str) -> None:
    table = grid.pivot(index="x2", columns="x1", values=name)
    ax.contourf(table.columns, table.index, table.to_numpy(), levels=[-1e9, 0, 1e9], colors=["white", "0.8"])
    ax.contour(table.columns, table.index, table.to_numpy(), levels=[0], colors="black", linewidths=1.4)
    for label, colour in ((0, "white"), (1, "black")):
        own = samples[samples["label"] == label]
        ax.scatter(
            own["x1"], own["x2"], s=16, c=colour, edgecolors="black", linewidths=0.7, label=f"class {label}", zorder=3
        )
    ax.set_xlabel(r"input $x_1$ (grey: decided as class 1)")
    ax.set_aspect("equal")
    ax.grid(False)


def _direction_colours(count: int):  # type: ignore[no-untyped-def]
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(Normalize(1, count), colormaps["cividis"])


def _loss_lines(ax: Axes, lines: pd.DataFrame, name: str) -> None:
    colours = _direction_colours(lines["direction"].max())
    for direction, line in reversed(list(lines.groupby("direction", sort=True))):
        sharpest = direction == 1
        ax.plot(
            line["alpha"],
            line[name],
            color="black" if sharpest else colours.to_rgba(direction),
            linewidth=2 if sharpest else 1,
            linestyle="--" if sharpest else "-",
            label=r"along $u_1$" if sharpest else None,
        )
    ax.set_xlabel(r"step $\alpha$ along eigenvector $u_d$")


def dynamics(tables: Tables, variants: Sequence[Variant]) -> Figure:
    """Fig. 5: loss, bound and eigenvalue along the descent to the sharpest and to the flattest point."""
    figure, axes = draw.new_figure(2, len(variants))
    titles = []
    for i, side in enumerate(("sharpest", "flattest")):
        for ax, variant in zip(axes[i], variants, strict=True):
            rows = first_seed(variant.rows(tables["trajectories"]))
            rows = rows[rows["point"] == f"{side}_1"]
            for column, label, name in (
                ("loss", "loss", "loss $L$ (nats)"),
                ("lambda_sup", "lambda_sup", r"bound $\lambda_{\mathrm{sup}}$"),
                ("lambda_max", "lambda_1", r"eigenvalue $\lambda_1$"),
            ):
                look = STYLES.style(label) | {"marker": ""}
                ax.plot(rows["step"], rows[column], label=name, **look)
            ax.axhline(2 / variant.rate, color="0.5", linewidth=1, linestyle=":", label="stability limit 2/η")
            draw.log_axis(ax, "y")
            ax.set_xlabel("step of gradient descent")
            titles.append(f"{side}, {variant.protocol}, η = {variant.rate:g}, seed {rows['seed'].min()}")
        axes[i, 0].set_ylabel("loss, bound, eigenvalue")
    draw.note(figure, "drawn: the first data set")
    draw.letter(axes, titles)
    draw.shared_legend(figure)
    return figure


def hessian(experiment: WsBound, tables: Tables, variant: Variant) -> Figure:
    """Fig. 8: analytic and numerical Hessian of the sharpest point, and their difference; lines bound the blocks."""
    from matplotlib.ticker import MaxNLocator

    rows = first_seed(variant.rows(tables["hessian_entries"]))
    rows = rows[rows["point"] == "sharpest_1"]
    figure, axes = draw.new_figure(1, 3)
    parts = {
        "analytic": rows["analytic"],
        "three-point differences": rows["numerical"],
        "analytic − differences": rows["analytic"] - rows["numerical"],
    }
    edge = int(rows["row"].max()) - experiment.portrait_hidden - 0.5
    for ax, values in zip(axes[0], parts.values(), strict=True):
        matrix = rows.assign(entry=values).pivot(index="row", columns="column", values="entry")
        draw.heatmap(ax, matrix, "entry of $H$", centred=True)
        ax.axhline(edge, color="black", linewidth=1.6)
        ax.axvline(edge, color="black", linewidth=1.6)
        ax.set_xlabel("parameter ($w$, then $v$)")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0, 0].set_ylabel("parameter ($w$, then $v$)")
    own = variant.rows(tables["critical_points"], experiment.portrait_hidden)["hessian_error"].mean()
    theirs = printed_number("ws_bound", metric="hessian_error_mean")
    draw.note(figure, "drawn: the sharpest point of the first data set")
    draw.note(figure, f"mean norm of (c) over all points {own:.2e} at h = {experiment.difference_step:g}")
    draw.note(figure, f"the paper's {theirs:.2e}, step not printed")
    draw.letter(axes, list(parts))
    return figure
