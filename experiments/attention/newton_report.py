"""Report of the recovery: figures on who recovers, for what work, what else is found, certificates
and noise."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.attention import newton_claims
from experiments.attention.alternatives import NEWTON
from experiments.attention.contest import CONTINUED
from experiments.attention.settings import AttentionNewton
from runner.contract import Analysis, Claim, Figures
from runner.report.figures import (
    COLOURS,
    DASHES,
    MARKERS,
    letter,
    log_axis,
    new_figure,
    note,
    panels,
    shared_legend,
)
from runner.report.labels import label
from runner.stats.tables import chosen

NAMES = {
    "full": "Newton",
    "line search": "Newton, line search",
    "truncated CG": "Newton, truncated CG",
    "l-bfgs": "L-BFGS",
    "levenberg-marquardt": "Levenberg–Marquardt",
}
"""Methods as a reader knows them."""
DATA = r"X_\mathrm{true}"
START, TRUE = rf"\Vert X_0 - {DATA}\Vert", rf"\Vert {DATA}\Vert"
"""The data, its norm and the distance of a start from it, as formulas."""
OUTCOMES = (
    ("recovered", "the data", COLOURS[0], ""),
    ("wrong", "a wrong exact solution", COLOURS[1], "//"),
    ("none", "no solution", "0.85", ""),
)
"""Column, text, colour and hatch of what a blind start came to."""


def _base(method: str) -> str:
    """The method without its continuation."""
    return method.removesuffix(CONTINUED)


def _is_continued(method: str) -> bool:
    return method.endswith(CONTINUED)


def _name(method: str) -> str:
    name = NAMES.get(_base(method), _base(method))
    if _is_continued(method):
        return name + CONTINUED
    return name


def _size(size: str) -> str:
    """A size as a reader knows it."""
    return f"n × d = {size.replace('x', ' × ')}"


def _look(i: int) -> dict[str, Any]:
    """Colour and marker of the i-th kind."""
    return {"color": COLOURS[i % 8], "marker": MARKERS[i % 8]}


def _method_look(methods: list[str], method: str) -> dict[str, Any]:
    """One colour and marker for a method; its continued variant dashed and hollow."""
    bases = list(dict.fromkeys(map(_base, methods)))
    look = _look(bases.index(_base(method)))
    if _is_continued(method):
        return look | {"linestyle": "--", "markerfacecolor": "none"}
    return look | {"linestyle": "-"}


def _blind(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["origin"].astype(str) == "blind"]


def _of_size(table: pd.DataFrame, size: str) -> pd.DataFrame:
    return chosen(table, size=size)


def contest(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Share of starts that end within 1 % of the data, polished, against where they began; a panel
    for each size."""
    origins = [*(f"{d:g}" for d in sorted(setup.distance)), "blind"]
    named = table.assign(origin=table["origin"].astype(str))

    def panel(ax: Axes, size: str) -> None:
        rows = _of_size(named, size)
        for method in setup.method:
            by_origin = chosen(rows, method=method).groupby("origin")
            sums = by_origin[["recovered", "starts"]].sum().reindex(origins)
            share = sums["recovered"] / sums["starts"]
            look = _method_look(setup.method, method)
            ax.plot(range(len(origins)), share, label=_name(method), **look)
        ax.set_xticks(range(len(origins)), origins)
        ax.set_ylim(-0.03, 1.03)

    titles = {size: _size(size) for size in newton_claims.sizes(table)}
    return panels(
        titles,
        panel,
        x=f"start: ${START}\\,/\\,{TRUE}$",
        y=f"share of starts recovered to {setup.recovered:.0%}",
        caption="starts of all seeds and problems together; blind: a start that does not know the "
        "data",
        width=1.2 + 2.9 * len(titles),
        height=3.9,
        legend_columns=3,
    )


def cost(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Expected share of problems recovered from blind starts, against the multiply-adds spent on
    them; a column for each method, a row for each size."""
    blind = _blind(table)
    sizes = newton_claims.sizes(blind)
    bases = list(dict.fromkeys(map(_base, setup.method)))
    shape = {"width": 1.0 + 1.75 * len(bases), "height": 1.2 + 1.7 * len(sizes)}
    figure, axes = new_figure(len(sizes), len(bases), sharex="row", sharey=True, **shape)
    for row, size in zip(axes, sizes, strict=True):
        budgets, curves = recovered_for(setup, _of_size(blind, size))
        for ax, base in zip(row, bases, strict=True):
            _cost_panel(ax, base, budgets, curves)
        row[0].set_ylabel(f"{_size(size)}\nshare recovered")
    for ax in axes[-1]:
        ax.set_xlabel("multiply-adds")
    for ax, base in zip(axes[0], bases, strict=True):
        ax.set_title(_name(base).replace(", ", ",\n"))
    note(figure, "mean over the problems of all seeds")
    shared_legend(figure, columns=3)
    return figure


def recovered_for(
    setup: AttentionNewton, rows: pd.DataFrame
) -> tuple[np.ndarray, dict[str, list[float]]]:
    """Budgets of multiply-adds, and for each method the mean share of problems that it recovers
    for them."""
    mean = (rows["work"] / rows["starts"]).median()
    budgets = np.geomspace(mean / 10, 1e3 * mean, 60)
    curves = {}
    for method in setup.method:
        part = chosen(rows, method=method)
        curves[method] = [newton_claims.solved_by(part, budget).mean() for budget in budgets]
    return budgets, curves


def _cost_panel(
    ax: Axes, base: str, budgets: np.ndarray, curves: Mapping[str, list[float]]
) -> None:
    """The curves of one method, in front of those of the others."""
    for method, share in curves.items():
        if _base(method) != base:
            ax.plot(budgets, share, color="0.85", linewidth=1, label="the other methods")
    for method, share in curves.items():
        if _base(method) == base:
            kind = "γ = 0"
            line = "-"
            if _is_continued(method):
                kind = "along the ladder of γ"
                line = "--"
            ax.plot(budgets, share, color=COLOURS[0], linestyle=line, label=kind)
    log_axis(ax, "x")
    ax.set_ylim(-0.03, 1.03)


def outcomes(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Where blind starts end after polishing: the data, another X with the same output, or no
    solution."""
    blind = _blind(table)

    def panel(ax: Axes, size: str) -> None:
        sums = _of_size(blind, size).groupby("method")[["recovered", "wrong", "starts"]].sum()
        total = sums.reindex(setup.method[::-1])
        total["none"] = total["starts"] - total["recovered"] - total["wrong"]
        left = np.zeros(len(total))
        for column, text, colour, hatch in OUTCOMES:
            share = (total[column] / total["starts"]).to_numpy()
            ax.barh(
                range(len(total)),
                share,
                left=left,
                label=text,
                color=colour,
                hatch=hatch,
                edgecolor="white",
            )
            left = left + share
        ax.set_yticks(range(len(total)), list(map(_name, total.index)))
        ax.grid(False)

    titles = {size: _size(size) for size in newton_claims.sizes(table)}
    return panels(
        titles,
        panel,
        x="share of blind starts",
        caption="blind starts of all seeds and problems together",
        legend_columns=3,
        width=2.4 + 2.6 * len(titles),
        height=4.2,
    )


def certificate(setup: AttentionNewton, table: pd.DataFrame, theorem: pd.DataFrame) -> Figure:
    """Convergence of Newton's method around the data, and the radii: certified, and Theorem J.1's
    around its own X*."""
    figure, axes = new_figure(1, 2, width=8.4, height=3.9)
    sizes = newton_claims.sizes(table)
    _convergence(axes[0, 0], setup, table, sizes)
    keys = ["size", "seed", "problem"]
    parts = {"Newton–Kantorovich, around the data": table.groupby(keys)["radius_share"].first()}
    if len(theorem):
        parts["Theorem J.1, around its X*"] = theorem.set_index(keys)["admitted_share"]
    _radii(axes[0, 1], parts, sizes)
    note(figure, "(a): starts of all seeds together; (b): a mark is a problem")
    letter(axes, ["Newton from spheres around the data", "radius of the sphere, admitted"])
    return figure


def _convergence(ax: Axes, setup: AttentionNewton, table: pd.DataFrame, sizes: list[str]) -> None:
    for i, size in enumerate(sizes):
        sums = _of_size(table, size).groupby("multiple")[["converged", "starts"]].sum()
        look = _look(i) | {"linestyle": DASHES[i % 8]}
        ax.plot(sums.index, sums["converged"] / sums["starts"], label=_size(size), **look)
    ax.axvspan(min(setup.multiple) / 2, 1, color="0.6", alpha=0.3, label="certified")
    log_axis(ax, "x")
    ax.set_xlabel(f"${START}$ / certified radius")
    ax.set_ylabel("share of starts that reach the data")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)


def _radii(ax: Axes, parts: Mapping[str, pd.Series], sizes: list[str]) -> None:
    for i, (text, values) in enumerate(parts.items()):
        look = _look(i + 3) | {"linestyle": "", "alpha": 0.6}  # other colours than the sizes in (a)
        for at, size in enumerate(sizes):
            y = values[values.index.get_level_values("size") == size].to_numpy()
            x = at + np.linspace(-0.2, 0.2, len(y))
            ax.plot(x, y, label=text if at == 0 else None, **look)
    log_axis(ax, "y")
    ax.set_xticks(range(len(sizes)), [_size(size) for size in sizes])
    ax.set_ylabel(f"admitted radius / ${TRUE}$")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17))


def recovery(setup: AttentionNewton, scan: pd.DataFrame) -> Figure:
    """Error of the minimiser followed from the data against gamma: medians and quartiles by size,
    and the theorem's."""
    figure, axes = new_figure(1, 1, width=6.2, height=4.4)
    ax = axes[0, 0]
    followed = scan[(scan["status"] == "ok") & ~scan["admissible"]]
    for i, size in enumerate(newton_claims.sizes(scan)):
        by_gamma = _of_size(followed, size).groupby("scanned_gamma")["error_data"]
        spread = by_gamma.quantile([0.25, 0.5, 0.75]).unstack()
        if spread.empty:
            continue
        look = _look(i) | {"linestyle": DASHES[i % 8]}
        band = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
        ax.plot(spread.index, spread[0.5], label=_size(size), **look)
        ax.fill_between(spread.index, spread[0.25], spread[0.75], **band)
    admissible = scan.loc[scan["admissible"], "scanned_gamma"]
    ax.axvspan(admissible.min(), admissible.max(), color="0.6", alpha=0.5, label="γ of Theorem J.1")
    _recovered_line(ax, setup, label="recovered below")
    log_axis(ax, "both")
    ax.set_xlabel("regularisation γ")
    ax.set_ylabel(f"error $\\Vert X^*(γ) - {DATA}\\Vert\\,/\\,{TRUE}$")
    note(figure, "lines: median over problems, bands: quartiles")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    return figure


def _recovered_line(ax: Axes, setup: AttentionNewton, **text: Any) -> None:
    ax.axhline(setup.recovered, color="black", linestyle=":", linewidth=1.2, **text)


def targets(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """The trained layer of Experiment 5 of the DAG paper: error of the best blind end of
    Levenberg–Marquardt on each input."""
    figure, axes = new_figure(1, 1, width=4.2, height=3.6)
    ax = axes[0, 0]
    views = list(dict.fromkeys(table["view"]))
    for at, view in enumerate(views):
        values = table.loc[table["view"] == view, "best_error"].to_numpy()
        look = {"linestyle": "", "marker": "o", "color": COLOURS[at % 8], "alpha": 0.6}
        ax.plot(at + np.linspace(-0.2, 0.2, len(values)), values, **look)
    _recovered_line(ax, setup)
    log_axis(ax, "y")
    ax.set_xticks(range(len(views)), [f"layer {label(view)}" for view in views])
    ax.set_ylabel(f"error $\\Vert X - {DATA}\\Vert\\,/\\,{TRUE}$")
    note(figure, "a mark is an input, the end of least residual; dotted line: recovered below")
    return figure


class AttentionNewtonAnalysis(Analysis):
    """Readings of the studies' tables, as far as they are stored."""

    experiment: AttentionNewton
    alternatives = NEWTON

    def figures(self) -> Figures:
        setup = self.experiment
        tables = self.tables
        drawn = {}
        if "contest" in tables:
            drawn["contest"] = partial(contest, setup, tables["contest"])
            drawn["cost"] = partial(cost, setup, tables["contest"])
            drawn["outcomes"] = partial(outcomes, setup, tables["contest"])
        if "balls" in tables:
            theorem = tables.get("theorem", pd.DataFrame())
            drawn["certificate"] = partial(certificate, setup, tables["balls"], theorem)
        if "scan" in tables:
            drawn["recovery"] = partial(recovery, setup, tables["scan"])
        if "targets" in tables:
            layer = chosen(tables["targets"], target=newton_claims.LAYER)
            drawn["targets"] = partial(targets, setup, layer)
        return drawn

    def claims(self) -> list[Claim]:
        return newton_claims.claims(self.experiment, self.tables)

    def notes(self) -> list[str]:
        return newton_claims.notes(self.tables)
