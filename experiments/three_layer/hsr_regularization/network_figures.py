"""Figs. 10, 11, 13 and 15 for the first stored data set: single descents and networks in detail."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.three_layer.drawing import EIGENVALUE, Look, band, line
from experiments.three_layer.hsr_regularization.settings import NAMES
from runner.contract import Tables
from runner.report import figures as draw
from runner.stats.tables import chosen, first_seed

FLAT = 1e-4
"""A fall along u_D below this share of the rise along u_1 is called flat."""
WHERE = {"infinity": "at infinity", "unfinished": "not reached"}
"""Kind of the nearest stationary point -> words of a title."""


def _first(tables: Tables, name: str, protocol: str) -> pd.DataFrame:
    return first_seed(chosen(tables[name], protocol=protocol)).infer_objects()


def dynamics(tables: Tables, protocol: str) -> Figure:
    """Fig. 10: median and 10-90 % band of the loss and of λ₁ over the starts of each group."""
    rows = _first(tables, "dynamics", protocol)
    quantities = {"loss": "loss $L$", "lambda_max": EIGENVALUE}

    def panel(ax: Axes, key: tuple[str, str]) -> None:
        group, quantity = key
        for method, name in NAMES.items():
            part = chosen(rows, group=group, quantity=quantity, method=method)
            band(ax, part["step"], part["q50"], part["q10"], part["q90"], method, name)
        draw.log_axis(ax)
        ax.set_ylabel(quantities[quantity])

    titles = {key: f"{key[0]} seeds" for key in product(("flat", "sharp"), quantities)}
    caption = (
        "drawn: the first data set; lines: median over the starts of a group, bands: 10 to 90 %"
    )
    return draw.panels(
        titles,
        panel,
        x="step",
        columns=2,
        caption=caption,
        sharex=True,
        sharey=False,
        width=draw.WIDEST,
    )


def along_u1(tables: Tables, protocol: str) -> Figure:
    """Fig. 11: loss along u₁ at the ends from sharp seeds, median and 10-90 % band over starts."""
    rows = _first(tables, "profiles", protocol)
    rows = chosen(rows, kind="sharp group", at="stopped")

    def panel(ax: Axes, method: str) -> None:
        part = chosen(rows, method=method)
        band(ax, part["offset"], part["q50"], part["q10"], part["q90"], method, NAMES[method])
        ax.set_ylim(bottom=min(0.0, float(rows["q10"].min())))

    return draw.panels(
        NAMES,
        panel,
        x="step $t$ along $u_1$",
        y="rise of the loss\n" + r"$L(\theta + t u_1) - L(\theta)$",
        columns=3,
        legend_columns=0,
        caption="drawn: sharp seeds of the first data set; lines: median over the starts, bands: "
        "10 to 90 %",
        width=draw.WIDEST,
        height=5.0,
    )


def saddle_check(tables: Tables, protocol: str, at: str) -> Figure:
    """Fig. 13: loss along u₁ (left) and u_D (right) at the end of each method whose λ_D is at the
    tip of the lower whisker, flat seeds. The clear saddle that the paper shows for A-SAM would rise
    on the left and fall on the right by at least 1 % of that rise.

    at: "stopped", at the ends themselves, where a slope is left; or "nearest", at the points
    without gradient nearest to them. Every direction has one scale for all methods.
    """
    rows = chosen(_first(tables, "profiles", protocol), kind="whisker tip", at=at)
    near = _first(tables, "nearest", protocol)
    looks = {"u_1": line("lambda_1"), "u_D": line("lambda_sup")}

    def panel(ax: Axes, key: tuple[str, str]) -> str:
        method, direction = key
        of_method = chosen(rows, method=method)
        part = chosen(of_method, direction=direction)
        ax.plot(part["offset"], part["q50"], **looks[direction])
        ax.axhline(0, color="0.6", linewidth=0.8, zorder=1)  # below a line on the same height
        if part.empty:
            return f"{NAMES[method]}: none"
        if direction == "u_D":
            return f"{NAMES[method]}\n{_fall(of_method)}"
        ends = chosen(near, method=method)
        kind = ends.loc[ends["start"].isin(part["start"]), "nearest_kind"].iloc[0]
        return f"{NAMES[method]}\nnearest stationary point: {WHERE.get(kind, kind)}"

    figure = draw.panels(
        dict.fromkeys(product(NAMES, looks), ""),
        panel,
        columns=2,
        legend_columns=0,
        width=8.0,
        height=11.0,
        sharex=True,
        sharey=False,
    )
    for column, (direction, which) in enumerate((("u_1", "largest"), ("u_D", "smallest"))):
        axes = figure.axes[column::2]
        low, high = zip(*(ax.get_ylim() for ax in axes), strict=True)
        for ax in axes:
            ax.set_ylim(min(low), max(high))
            ax.set_ylabel(rf"$L(\theta + t\,{direction}) - L(\theta)$")
        axes[-1].set_xlabel(f"step $t$ along ${direction}$, {which} eigenvalue")
    place = "where the method stops"
    if at == "nearest":
        place = "at the nearest point without gradient"
    figure.suptitle(place)
    draw.note(figure, f"drawn: one end of each method, {place}, flat seeds of the first data set")
    return figure


def _fall(rows: pd.DataFrame) -> str:
    """How far the loss falls along u_D, next to its rise along u_1."""
    fall = max(0.0, -float(chosen(rows, direction="u_D")["q50"].min()))
    rise = float(chosen(rows, direction="u_1")["q50"].max())
    if fall < FLAT * rise:
        return f"flat: falls by less than {100 * FLAT:g} % of that rise"
    return f"falls by {fall:.1g}, {100 * fall / rise:.1g} % of the rise along $u_1$"


def boundaries(tables: Tables, protocol: str) -> Figure:
    """Fig. 15: p(x) without regularisation and with HSR from the same starts, those of the sharpest
    points.
    """
    rows = _first(tables, "boundaries", protocol)
    data = _first(tables, "data", protocol)
    starts = list(dict.fromkeys(rows["start"]))
    train = chosen(data, set="train")
    images = []

    def panel(ax: Axes, key: tuple[str, int]) -> None:
        method, start = key
        grid = chosen(rows, method=method, start=start).pivot(index="x2", columns="x1", values="p")
        plane = (grid.columns, grid.index, grid.to_numpy())
        images.append(ax.contourf(*plane, levels=20, cmap="PuOr_r", vmin=0, vmax=1))
        ax.contour(*plane, levels=[0.5], colors="black", linewidths=1.4)
        look: Look = {"s": 9, "facecolors": "white", "edgecolors": "black", "linewidths": 0.6}
        for kind, marker in ((0, "o"), (1, "^")):
            points = chosen(train, label=kind)
            ax.scatter(points["x1"], points["x2"], marker=marker, label=f"class {kind}", **look)
        ax.grid(False)
        ax.locator_params(nbins=3)
        ax.set_aspect("equal")
        ax.set_xlim(grid.columns[0], grid.columns[-1])
        ax.set_ylim(grid.index[0], grid.index[-1])

    names = {"gd": "plain", "hsr": NAMES["hsr"]}
    titles = {}
    for method, start in product(names, starts):
        titles[method, start] = f"{names[method]}, start {start}"
    figure = draw.panels(
        titles,
        panel,
        x="$x_1$",
        y="$x_2$",
        columns=len(starts),
        width=0.8 + 2.2 * len(starts),
        height=4.6,
        sharex=True,
    )
    shown = "drawn: the first data set, the starts of its sharpest points; black: p = 1/2"
    draw.note(figure, shown)
    image = cast(Any, images[-1])
    figure.colorbar(image, ax=figure.axes, shrink=0.7, label="probability $p$ of class 1")
    return figure
