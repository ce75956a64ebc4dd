"""Figures of the recovery: iterates, basins, outcomes, the minimiser over gamma, order and cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from experiments.attention.newton.claims import at_base, near_orders
from runner.report.figures import letter, log_axis, new_figure, shared_legend
from runner.report.looks import COLOURS, DASHES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.attention.newton import AttentionNewton

Tables = Mapping[str, pd.DataFrame]
OUTCOMES = {
    "minimiser": ("reached X*", ""),
    "equal_minimum": ("same loss elsewhere", "//"),
    "other_minimum": ("other minimum", ".."),
    "saddle": ("saddle", "xx"),
    "stalled": ("stalled", "++"),
    "not_finite": ("not finite", "oo"),
    "not_converged": ("not converged", "\\\\"),
}


def _look(i: int) -> dict[str, Any]:
    shift = 3 * (i // 8)  # a ninth line differs from the first in marker and dashes
    return {"color": COLOURS[i % 8], "marker": MARKERS[(i + shift) % 8], "linestyle": DASHES[(i + shift) % 8]}


def iterates(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Relative error to X* by step at the base point: one start of the first seed, a panel for each distance."""
    rows = at_base(setup, table)
    rows = rows[rows["seed"] == rows["seed"].min()]
    distances = sorted(rows["distance"].unique())
    figure, axes = new_figure(1, len(distances), width=1.0 + 3.7 * len(distances), height=3.9, sharey=True)
    for ax, distance in zip(axes[0], distances, strict=True):
        for i, method in enumerate(setup.method):
            path = rows[(rows["distance"] == distance) & (rows["method"] == method)].sort_values("step")
            ax.plot(path["step"] + 1, path["error"], label=method, markevery=max(1, len(path) // 15), **_look(i))
            bad = path[path["status"].isin(["indefinite", "singular"])]
            ax.plot(
                bad["step"] + 1,
                bad["error"],
                linestyle="",
                marker="o",
                markersize=9,
                markerfacecolor="none",
                markeredgecolor="black",
                label="indefinite or singular",
            )
        log_axis(ax, "both")
        ax.set_xlabel("step + 1")
    axes[0, 0].set_ylabel("|X − X*| / |X*|")
    letter(axes, [f"start at distance {d:g}" for d in distances])
    shared_legend(figure)
    return figure


def _share(ax: Axes, rows: pd.DataFrame, label: str, i: int) -> None:
    total = rows.groupby("distance")[["minimiser", "starts"]].sum()
    if len(total):
        ax.plot(total.index, total["minimiser"] / total["starts"], label=label, **_look(i))


def basin(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Share of starts that reach X* against distance: by method, and for the line search by size, gamma, noise."""
    usable = table[table["status"] == "ok"]
    figure, axes = new_figure(2, 2, width=8.8, height=6.4, sharey=True)
    for i, method in enumerate(setup.method):
        _share(axes[0, 0], at_base(setup, usable[usable["method"] == method]), method, i)
    shown = "line search" if "line search" in setup.method else setup.method[0]
    rows = usable[usable["method"] == shown]
    sizes = at_base(setup, rows, "tokens", "width")
    pairs = sorted(set(zip(sizes["tokens"], sizes["width"], strict=True)), key=lambda s: (s[0] * s[1], s))
    for i, (n, d) in enumerate(pairs):
        _share(axes[0, 1], sizes[(sizes["tokens"] == n) & (sizes["width"] == d)], f"n = {n}, d = {d}", i)
    for ax, axis, sign in ((axes[1, 0], "gamma", "γ"), (axes[1, 1], "noise", "noise")):
        varied = at_base(setup, rows, axis)
        for i, value in enumerate(sorted(varied[axis].unique())):
            _share(ax, varied[varied[axis] == value], f"{sign} = {value:g}", i)
    for ax in axes.ravel():
        log_axis(ax, "x")
        ax.set_ylim(-0.05, 1.05)
        ax.set_xlabel("|X0 − X*| / |X_true|")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    for ax in axes[:, 0]:
        ax.set_ylabel("share of starts reaching X*")
    letter(axes, ["by method", f"{shown}, by size", f"{shown}, by γ", f"{shown}, by noise in B"])
    return figure


def outcomes(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Where the starts of each method end, by distance, at the base point."""
    rows = at_base(setup, table[table["status"] == "ok"])
    figure, axes = new_figure(1, len(setup.method), width=0.8 + 2.3 * len(setup.method), height=3.6, sharey=True)
    for ax, method in zip(axes[0], setup.method, strict=True):
        total = rows[rows["method"] == method].groupby("distance")[[*OUTCOMES, "starts"]].sum()
        below = np.zeros(len(total))
        for i, (name, (text, hatch)) in enumerate(OUTCOMES.items()):
            share = (total[name] / total["starts"]).to_numpy()
            fill = "0.8" if name == "not_converged" else COLOURS[i]
            ax.bar(
                range(len(total)),
                share,
                bottom=below,
                color=fill,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.5,
                label=text,
            )
            below = below + share
        ax.set_xticks(range(len(total)), [f"{d:g}" for d in total.index], rotation=45)
        ax.set_xlabel("|X0 − X*| / |X_true|")
        ax.grid(False)
    axes[0, 0].set_ylabel("share of starts")
    letter(axes, list(setup.method))
    shared_legend(figure, columns=4)
    return figure


def _scan_lines(ax: Axes, rows: pd.DataFrame, by: list[tuple[str, pd.DataFrame]]) -> None:
    for i, (label, part) in enumerate(by):
        usable = part[(part["status"] == "ok") & ~part["admissible"]]
        spread = usable.groupby("scanned_gamma")["error_data"].quantile([0.25, 0.5, 0.75]).unstack()
        if spread.empty:
            continue
        look = _look(i)
        ax.plot(spread.index, spread[0.5], label=label, **look)
        ax.fill_between(spread.index, spread[0.25], spread[0.75], color=look["color"], alpha=0.15, linewidth=0)
    admissible = rows.loc[rows["admissible"], "scanned_gamma"]
    if len(admissible):
        ax.axvspan(admissible.min(), admissible.max(), color="0.6", alpha=0.5, label="γ of Theorem J.1")


def recovery(setup: AttentionNewton, scan: pd.DataFrame) -> Figure:
    """Error of the minimiser against gamma: by noise at the base size, by size without noise; medians and quartiles."""
    figure, axes = new_figure(1, 2, width=8.8, height=4.4, sharey=True)
    noisy = at_base(setup, scan, "noise")
    groups = [(f"noise {value:g}", noisy[noisy["noise"] == value]) for value in sorted(noisy["noise"].unique())]
    _scan_lines(axes[0, 0], noisy, groups)
    base = at_base(setup, scan)
    first = base[~base["admissible"]].groupby("scanned_gamma")["predicted"].median()
    axes[0, 0].plot(
        first.index, first, color="black", linewidth=1.0, linestyle=(0, (1, 1)), label="first order, no noise"
    )
    sizes = at_base(setup, scan, "tokens", "width")
    pairs = sorted(set(zip(sizes["tokens"], sizes["width"], strict=True)), key=lambda s: (s[0] * s[1], s))
    groups = [(f"n = {n}, d = {d}", sizes[(sizes["tokens"] == n) & (sizes["width"] == d)]) for n, d in pairs]
    _scan_lines(axes[0, 1], sizes, groups)
    for ax in axes[0]:
        ax.axhline(setup.recovered, color="black", linestyle=":", linewidth=1.2, label="recovered below")
        log_axis(ax, "both")
        ax.set_xlabel("γ")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    axes[0, 0].set_ylabel("|X*(γ) − X_true| / |X_true|")
    letter(axes, [f"n = {setup.base_tokens}, d = {setup.base_width}, by noise", "by size, without noise"])
    return figure


def order(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Observed order of convergence by method, every problem a point, from the smallest distance."""
    figure, axes = new_figure(1, 1, width=5.2, height=3.6)
    ax = axes[0, 0]
    ticks = []
    for i, method in enumerate(setup.method):
        orders = np.sort(near_orders(table, method).to_numpy())
        spread = 0.3 * (np.mod(np.arange(orders.size) * 0.618034, 1) - 0.5)
        look = _look(i)
        ax.plot(
            i + spread, np.clip(orders, -0.5, 4), linestyle="", marker=look["marker"], color=look["color"], alpha=0.5
        )
        if orders.size:
            ax.plot([i - 0.3, i + 0.3], [np.median(orders)] * 2, color="black", linewidth=2)
        ticks.append(f"{method}\nn = {orders.size}")
    for value, text in ((1, "linear"), (1.5, "order 3/2"), (2, "quadratic")):
        ax.axhline(value, color="0.5", linestyle=":", linewidth=1)
        ax.text(len(ticks) - 0.45, value + 0.02, text, va="bottom", fontsize=8)
    ax.set_xticks(range(len(ticks)), ticks)
    ax.set_xlim(-0.6, len(ticks) + 0.15)
    ax.set_ylabel(f"observed order (start at {table['distance'].min():g})")
    return figure


def work_per_run(rows: pd.DataFrame, counts: pd.Series, method: str) -> pd.Series:
    """Multiply-adds of one run: steps and products or evaluations of `basin` times the counts of `cost`."""
    if method == "l-bfgs":
        return rows["work"] * (counts["value"] + counts["gradient"])
    per_step = counts["gradient"] + counts["value"]
    if method == "truncated CG":
        return rows["steps"] * per_step + rows["work"] * counts["product"]
    return rows["steps"] * (per_step + counts["hessian"] + counts["cholesky"])


def cost(setup: AttentionNewton, table: pd.DataFrame, parts: pd.DataFrame) -> Figure:
    """Steps, and multiply-adds to X*, against the number of variables, from the second-smallest distance."""
    figure, axes = new_figure(1, 2, width=8.0, height=3.9)
    distance = sorted(table["distance"].unique())[min(1, table["distance"].nunique() - 1)]
    rows = at_base(setup, table[table["distance"] == distance], "tokens", "width").dropna(subset=["steps"])
    for i, method in enumerate(setup.method):
        steps: dict[int, Any] = {}
        work: dict[int, Any] = {}
        for (n, d), part in rows[rows["method"] == method].groupby(["tokens", "width"]):
            found = parts[(parts["tokens"] == n) & (parts["width"] == d)]
            if len(found):
                counts = found.groupby("part")["multiply_adds"].first()
                steps.setdefault(n * d, []).extend(part["steps"])
                work.setdefault(n * d, []).extend(work_per_run(part, counts, method))
        for ax, values in zip(axes[0], (steps, work), strict=True):
            sizes = sorted(values)
            ax.plot(sizes, [np.median(values[size]) for size in sizes], label=method, **_look(i))
    for ax, text in zip(axes[0], ("median steps to X*", "median multiply-adds to X*"), strict=True):
        log_axis(ax, "both")
        sizes = sorted(set(rows["tokens"] * rows["width"]))
        ax.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
        ax.minorticks_off()
        ax.set_xlabel("number of variables n d")
        ax.set_ylabel(text)
    letter(axes, [f"steps, from distance {distance:g}", "direct solves not counting eigenvalues"])
    shared_legend(figure)
    return figure
