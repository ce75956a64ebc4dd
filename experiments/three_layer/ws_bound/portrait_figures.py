"""Single critical points in detail (Figs. 3, 4, 5, 8, first data set), and where the ends of the
searches lead.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.printed import printed_number
from experiments.three_layer.drawing import BOUND, STYLES, Look, dots, line, values_with_mean
from experiments.three_layer.polish import KINDS
from experiments.three_layer.settings import STOP_RULES
from experiments.three_layer.ws_bound.analysis import PAPER_ACTIVATION, Case, where_led
from experiments.three_layer.ws_bound.figures import SMALLEST
from runner.contract import Tables
from runner.report import figures as draw
from runner.report.answers.labels import name as named
from runner.report.figures import COLOURS
from runner.stats.tables import chosen, first_seed


def portrayed(case: Case, side: str) -> pd.DataFrame:
    """The sharpest or flattest points of the first data set."""
    points = first_seed(case.rows("portraits"))
    return points[points["point"].str.startswith(side)]


def extremes(case: Case, side: str) -> Figure:
    """Figs. 3 and 4: decision boundary and loss along all eigenvectors of the two sharpest or
    flattest points.
    """
    points = portrayed(case, side)
    figure, axes = draw.new_figure(2, len(points), sharey="row", height=6.6)
    titles = [f"{p.point.replace('_', ' ')}: bound {p.lambda_sup:.2f}" for p in points.itertuples()]
    titles += [rf"loss, $\lambda_1$ = {p.lambda_max:.2f}" for p in points.itertuples()]
    grid = first_seed(case.rows("boundaries"))
    samples = first_seed(case.rows("samples"))
    lines = first_seed(case.rows("landscapes"))
    directions = ScalarMappable(Normalize(1, lines["direction"].max()), colormaps["cividis"])
    for column, name in enumerate(points["point"]):
        _decision(axes[0, column], grid, samples, name)
        _loss_lines(axes[1, column], lines, name, directions)
    losses = lines.filter(regex="^(sharpest|flattest)")
    low = float(losses.min().min())
    high = float(losses.max().max())
    margin = 0.05 * (high - low)
    axes[1, 0].set_ylim(low - margin, high)  # one scale for Figs. 3 and 4
    axes[0, 0].set_ylabel(r"input $x_2$")
    axes[1, 0].set_ylabel(r"loss $L(\theta^* + \alpha u_d)$ (nats)")
    bar = figure.colorbar(directions, ax=axes[1, -1])
    bar.set_label("eigenvector $d$ (1: largest eigenvalue)")
    figure.suptitle(case.title)
    draw.letter(axes, titles)
    draw.shared_legend(figure)
    draw.note(figure, f"{case.title}, first data set (seed {points['seed'].iloc[0]})")
    draw.note(figure, "Figs. 3 and 4 share the scale of the loss")
    if side == "flattest":
        smallest = [printed_number("ws_bound", metric=metric) for metric in SMALLEST]
        draw.note(figure, f"the paper's two: bounds {smallest[0]:g} and {smallest[1]:g}")
    return figure


def _decision(ax: Axes, grid: pd.DataFrame, samples: pd.DataFrame, name: str) -> None:
    table = grid.pivot(index="x2", columns="x1", values=name)
    plane = (table.columns, table.index, table.to_numpy())
    ax.contourf(*plane, levels=[-1e9, 0, 1e9], colors=["white", "0.8"])
    ax.contour(*plane, levels=[0], colors="black", linewidths=1.4)
    look: Look = {"s": 16, "edgecolors": "black", "linewidths": 0.7, "zorder": 3}
    classes = ((0, "white"), (1, "black"))
    for label, colour in classes:
        of_class = chosen(samples, label=label)
        ax.scatter(of_class["x1"], of_class["x2"], c=colour, label=f"class {label}", **look)
    ax.set_xlabel(r"input $x_1$ (grey: decided as class 1)")
    ax.set_aspect("equal")
    ax.grid(False)


def _loss_lines(ax: Axes, lines: pd.DataFrame, name: str, colours: ScalarMappable) -> None:
    by_direction = list(lines.groupby("direction", sort=True))
    for direction, rows in reversed(by_direction):
        look: Look = {"color": colours.to_rgba(direction), "linewidth": 1}
        if direction == 1:
            look = {"color": "black", "linewidth": 2, "linestyle": "--", "label": "along $u_1$"}
        ax.plot(rows["alpha"], rows[name], **look)
    ax.set_xlabel(r"step $\alpha$ along eigenvector $u_d$")


def dynamics(cases: Sequence[Case]) -> Figure:
    """Fig. 5: loss, bound and eigenvalue along the descent to the sharpest and to the flattest
    point.
    """
    names = {
        "loss": "loss $L$ (nats)",
        "lambda_sup": BOUND,
        "lambda_max": r"eigenvalue $\lambda_1$",
    }

    def panel(ax: Axes, key: tuple[str, Case]) -> None:
        side, case = key
        rows = chosen(first_seed(case.rows("trajectories")), point=f"{side}_1")
        for column, name in names.items():
            ax.plot(rows["step"], rows[column], label=name, **line(column.replace("max", "1")))
        look: Look = {
            "color": "0.5",
            "linewidth": 1,
            "linestyle": ":",
            "label": "stability limit 2/η",
        }
        ax.axhline(2 / case.rate, **look)

    titles = {}
    for side in ("sharpest", "flattest"):
        for case in cases:
            titles[side, case] = f"{side} point, {case.title}"
    return draw.panels(
        titles,
        panel,
        x="step of gradient descent",
        y="loss, bound, eigenvalue",
        columns=len(cases),
        log="y",
        caption="drawn: the first data set",
        sharey=False,
    )


def hessian(case: Case) -> Figure:
    """Fig. 8: analytic and numerical Hessian of the sharpest point, their difference (lines bound
    the blocks of w and v), and the size of the difference of every entry.
    """
    experiment = case.experiment
    every = case.rows("hessian_entries")
    every = every.assign(difference=every["analytic"] - every["numerical"])
    rows = chosen(first_seed(every), point="sharpest_1")
    parts = {
        "analytic": "analytic Hessian $H$",
        "numerical": "numerical Hessian (differences)",
        "difference": "analytic − numerical",
    }
    last_row = int(rows["row"].max())
    edge = last_row - experiment.portrait_hidden - 0.5
    figure, axes = draw.new_figure(2, 2, width=8.0, height=6.6)
    panels = zip(axes.flat, parts, strict=False)
    for ax, part in panels:
        entries = rows.pivot(index="row", columns="column", values=part)
        draw.heatmap(ax, entries, "entry", centred=True)
        ax.axhline(edge, color="black", linewidth=1.6)
        ax.axvline(edge, color="black", linewidth=1.6)
        ax.set_xlabel("parameter (first $w$, then $v$)")
        ax.set_ylabel("parameter")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
    ax = axes[1, 1]
    analytic = every["analytic"].abs()
    difference_of_entries = every["difference"].abs()
    dots(ax, analytic, difference_of_entries, "fitted")
    draw.log_axis(ax, "both")
    ax.set_xlabel("|entry of the analytic Hessian|")
    ax.set_ylabel("|analytic − numerical|")
    ours = case.rows("critical_points", experiment.portrait_hidden)["hessian_error"].mean()
    theirs = printed_number("ws_bound", metric="hessian_error_mean")
    points = len(every[["seed", "point"]].drop_duplicates())
    draw.note(
        figure,
        f"(a) to (c): the sharpest point of the first data set; (d): {points} points of all data "
        "sets",
    )
    draw.note(
        figure,
        f"mean norm of the difference over all points {ours:.2e} at h = "
        f"{experiment.difference_step:g}",
    )
    draw.note(figure, f"the paper's {theirs:.2e}, step not printed")
    draw.letter(axes, [*parts.values(), "difference of every entry"])
    return figure


def critical_points(case: Case) -> Figure:
    """What becomes of the ends of every search; and the gradient and the bound of the paper's
    network before and after.
    """
    figure, axes = draw.new_figure(2, 2, width=draw.WIDEST, height=6.6)
    axes[0, 1].remove()
    axes[0, 0].set_subplotspec(axes[0, 0].get_gridspec()[0, :])
    _kinds(axes[0, 0], case.tables)
    gradients, bounds = axes[1]
    narrow = case.experiment.portrait_hidden
    keys = ["seed", "start"]
    after = case.rows("polished", narrow)
    left = case.rows("gradients", narrow).merge(after[keys], on=keys)
    gradients.hist(left["gradient"], bins=40, color=STYLES.colour(case.protocol))
    gradients.set_xlabel(r"$\|\nabla L\|$ where the search stops")
    gradients.set_ylabel("points, all data sets")
    before = case.rows("critical_points", narrow)[[*keys, "lambda_sup"]]
    both = before.merge(after, on=keys, suffixes=("_before", ""))
    both = both[both["kind"] != "unfinished"]
    stopped = both["lambda_sup_before"]
    dots(bounds, stopped, both["lambda_sup"], "low")
    ends = [stopped.min(), stopped.max()]
    bounds.plot(ends, ends, color="black", linewidth=1)
    draw.log_axis(bounds, "both")
    bounds.set_xlabel(f"{BOUND} where the search stops")
    bounds.set_ylabel(f"{BOUND} where it leads downhill")
    rank = stopped.corr(both["lambda_sup"], method="spearman")
    draw.note(figure, f"all data sets; (b), (c): {case.title}, N = {narrow}; line in (c): equality")
    titles = ["where the points lead downhill", "gradient left by the stop rule"]
    draw.letter([axes[0, 0], gradients, bounds], [*titles, f"rank correlation {rank:.2f}"])
    return figure


HATCHES = ("", "", "///", "...", "")


def _kinds(ax: Axes, tables: Tables) -> None:
    """Shares of the kinds, one bar a search."""
    shares = {}
    led = where_led(tables["polished"])
    searches = led.groupby(["protocol", "activation", "hidden"], sort=False)
    for (protocol, activation, hidden), rows in searches:
        search = f"{activation}, {STOP_RULES[str(protocol)]}"
        if activation != PAPER_ACTIVATION:
            search = named(str(activation))
        shares[f"{search}, N = {hidden}"] = rows["kind"].value_counts(normalize=True)
    table = pd.DataFrame(shares).reindex(KINDS).fillna(0.0)
    left = 0.0 * table.iloc[0]
    looks = zip(KINDS, COLOURS, HATCHES, strict=False)
    for kind, colour, hatch in looks:
        look: Look = {"color": colour, "alpha": 0.8, "hatch": hatch}
        ax.barh(list(table), table.loc[kind], left=left, label=kind, **look)
        left = left + table.loc[kind]
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
    rows = rows.assign(gain=rows["f1_low"] - rows["f1_high"])
    stages = {"stopped": "where the search stops", "polished": "where it leads downhill"}

    def panel(ax: Axes, size: int) -> None:
        for place, stage in enumerate(stages):
            of_stage = chosen(rows, stage=stage, test_samples=size)
            values_with_mean(ax, of_stage["gain"].dropna(), place, STYLES.colour("low"))
        ax.axhline(0, color="black", linewidth=1)
        ax.set_xticks(range(len(stages)), list(stages.values()))
        ax.set_xlim(-0.5, len(stages) - 0.5)

    titles = {size: f"{size} test samples" for size in sorted(rows["test_samples"].unique())}
    y = "difference in macro F1,\nlow − high bound"
    return draw.panels(titles, panel, y=y, sharey=False, legend_columns=0, width=8.0, height=3.2)
