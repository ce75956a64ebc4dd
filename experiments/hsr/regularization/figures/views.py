"""Figs. 10, 11, 13 and 15 for the first stored data set: single descents and networks in detail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from experiments.hsr.plot_styles import STYLES
from experiments.hsr.regularization.analysis import NAMES, Tables
from runner.report import figures as draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _first(tables: Tables, name: str, protocol: str) -> pd.DataFrame:
    rows = tables[name]
    rows = rows[rows["protocol"] == protocol]
    return rows[rows["seed"] == rows["seed"].min()].infer_objects()


def _bands(ax: Axes, rows: pd.DataFrame, x: str, method: str, low: str, high: str) -> None:
    look = STYLES.style(method) | {"marker": ""}
    ax.plot(rows[x], rows["q50"], label=NAMES[method], **look)
    ax.fill_between(rows[x], rows[low], rows[high], color=look["color"], alpha=0.15, linewidth=0)


def dynamics(tables: Tables, protocol: str) -> Figure:
    """Fig. 10: median and 10-90 % band of the loss and of λ₁ over the starts of each group."""
    rows = _first(tables, "dynamics", protocol)
    figure, axes = draw.new_figure(2, 2, width=8.6, sharex=True)
    titles = []
    for row, group in zip(axes, ("flat", "sharp"), strict=True):
        for ax, quantity, text in zip(
            row, ("loss", "lambda_max"), ("loss $L$", r"largest eigenvalue $\lambda_1$"), strict=True
        ):
            part = rows[(rows["group"] == group) & (rows["quantity"] == quantity)]
            for method in NAMES:
                _bands(ax, part[part["method"] == method], "step", method, "q10", "q90")
            ax.set_yscale("log")
            ax.set_ylabel(text)
            titles.append(f"{group} seeds")
    for ax in axes[1]:
        ax.set_xlabel("step")
    draw.note(figure, "drawn: the first data set; lines: median over the starts of a group, bands: 10 to 90 %")
    draw.letter(axes, titles)
    draw.shared_legend(figure)
    return figure


def along_u1(tables: Tables, protocol: str) -> Figure:
    """Fig. 11: loss along u₁ at the ends from sharp seeds, median and 10-90 % band over starts."""
    rows = _first(tables, "profiles", protocol)
    rows = rows[(rows["kind"] == "sharp group") & (rows["at"] == "stopped")]
    figure, axes = draw.new_figure(1, len(NAMES), width=12.6, sharey=True)
    for ax, method in zip(axes[0], NAMES, strict=True):
        _bands(ax, rows[rows["method"] == method], "offset", method, "q10", "q90")
        ax.set_ylim(bottom=min(0.0, float(rows["q10"].min())))
        ax.set_xlabel("$t$ along $u_1$")
    axes[0, 0].set_ylabel(r"$L(\theta + t u_1) - L(\theta)$")
    draw.note(figure, "drawn: sharp seeds of the first data set; lines: median over the starts, bands: 10 to 90 %")
    draw.letter(axes, list(NAMES.values()))
    return figure


def saddle_check(tables: Tables, protocol: str, at: str) -> Figure:
    """Fig. 13: loss along u₁ and u_D where λ_D is at the tip of its lower whisker, from flat seeds.

    at: "stopped", at the ends themselves, where a slope is left; or "nearest", at the points without gradient nearest
    to them. Every direction has one scale for all methods.
    """
    rows = _first(tables, "profiles", protocol)
    rows = rows[(rows["kind"] == "whisker tip") & (rows["at"] == at)]
    near = _first(tables, "nearest", protocol)
    figure, axes = draw.new_figure(2, len(NAMES), width=12.6, height=4.8, sharex=True, sharey="row")
    titles = []
    for line, direction, look in zip(axes, ("u_1", "u_D"), ("lambda_1", "lambda_inf"), strict=True):
        for ax, method in zip(line, NAMES, strict=True):
            part = rows[(rows["method"] == method) & (rows["direction"] == direction)]
            ax.plot(part["offset"], part["q50"], **(STYLES.style(look) | {"marker": ""}))
            ax.axhline(0, color="0.6", linewidth=0.8, zorder=1)  # below a line that lies on it
            found = near[(near["method"] == method) & near["start"].isin(part["start"])]
            kind = f": {found['nearest_kind'].iloc[0]}" if at == "nearest" and len(found) else ""
            titles.append(f"{NAMES[method]}, ${direction}${kind if len(part) else ': none'}")
        line[0].set_ylabel(rf"$L(\theta + t {direction}) - L(\theta)$")
    for ax in axes[1]:
        ax.set_xlabel("$t$")
    draw.note(figure, "drawn: one end of each method, flat seeds of the first data set")
    draw.letter(axes, titles)
    return figure


def boundaries(tables: Tables, protocol: str) -> Figure:
    """Fig. 15: p(x) without regularisation and with HSR from the same starts, those of the sharpest points."""
    rows, data = _first(tables, "boundaries", protocol), _first(tables, "data", protocol)
    starts = list(dict.fromkeys(rows["start"]))
    figure, axes = draw.new_figure(2, len(starts), width=0.8 + 2.5 * len(starts), height=5.4, sharex=True, sharey=True)
    train = data[data["set"] == "train"]
    titles = []
    image = None
    for line, method in zip(axes, ("gd", "hsr"), strict=True):
        for ax, start in zip(line, starts, strict=True):
            part = rows[(rows["method"] == method) & (rows["start"] == start)]
            grid = part.pivot(index="x2", columns="x1", values="p")
            image = ax.contourf(grid.columns, grid.index, grid.to_numpy(), levels=20, cmap="PuOr_r", vmin=0, vmax=1)
            ax.contour(grid.columns, grid.index, grid.to_numpy(), levels=[0.5], colors="black", linewidths=1.4)
            for kind, marker in ((0, "o"), (1, "^")):
                points = train[train["label"] == kind]
                ax.scatter(
                    points["x1"],
                    points["x2"],
                    s=9,
                    marker=marker,
                    facecolors="white",
                    edgecolors="black",
                    linewidths=0.6,
                )
            ax.grid(False)
            ax.set(aspect="equal", xlim=(grid.columns[0], grid.columns[-1]), ylim=(grid.index[0], grid.index[-1]))
            titles.append(f"{'plain' if method == 'gd' else NAMES[method]}, start {start}")
        line[0].set_ylabel("$x_2$")
    for ax in axes[1]:
        ax.set_xlabel("$x_1$")
    draw.note(figure, "drawn: the first data set, the starts of its sharpest points; black: p = 1/2")
    figure.colorbar(cast(Any, image), ax=axes.ravel().tolist(), shrink=0.7, label="$p$ of class 1")
    draw.letter(axes, titles)
    return figure
