"""Report of the recovery: figures on who recovers, for what work, what else is found, certificates
and noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.attention import newton_claims
from experiments.attention.contest import CONTINUED
from experiments.attention.settings import AttentionNewton
from runner.contract import Analysis, Claim
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
from runner.stats import Statistic

OUTCOMES = {"recovered": "the data", "wrong": "a wrong exact solution", "none": "no solution"}


def _look(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "linestyle": DASHES[i % 8]}


NAMES = {
    "full": "Newton",
    "line search": "Newton, line search",
    "truncated CG": "Newton, truncated CG",
    "l-bfgs": "L-BFGS",
    "levenberg-marquardt": "Levenberg–Marquardt",
}


def _name(method: str) -> str:
    """A method as a reader knows it."""
    base = method.removesuffix(CONTINUED)
    return NAMES.get(base, base) + (CONTINUED if base != method else "")


def _size(size: str) -> str:
    """A size as a reader knows it."""
    return f"n × d = {size.replace('x', ' × ')}"


def _method_look(methods: list[str], method: str) -> dict[str, Any]:
    """One colour and marker for a method; its continued variant dashed and hollow."""
    base = method.removesuffix(CONTINUED)
    plain = list(dict.fromkeys(name.removesuffix(CONTINUED) for name in methods))
    i = plain.index(base)
    look: dict[str, Any] = {"color": COLOURS[i % 8], "marker": MARKERS[i % 8], "linestyle": "-"}
    return look | ({"linestyle": "--", "markerfacecolor": "none"} if base != method else {})


def contest(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Share of starts that end within 1 % of the data, polished, against where they began; a panel
    for each size."""
    origins = [*(f"{d:g}" for d in sorted(setup.distance)), "blind"]
    named = table.assign(origin=table["origin"].astype(str))

    def panel(ax: Axes, size: str) -> None:
        for method in setup.method:
            rows = named[(named["size"] == size) & (named["method"] == method)]
            sums = rows.groupby("origin")[["recovered", "starts"]].sum().reindex(origins)
            share = sums["recovered"] / sums["starts"]
            ax.plot(
                range(len(origins)),
                share,
                label=_name(method),
                **_method_look(setup.method, method),
            )
        ax.set_xticks(range(len(origins)), origins)
        ax.set_ylim(-0.03, 1.03)

    titles = {size: _size(size) for size in newton_claims.sizes(table)}
    y = f"share of starts recovered to {setup.recovered:.0%}"
    size: dict[str, Any] = {"width": 1.2 + 2.9 * len(titles), "height": 3.9, "legend_columns": 3}
    size |= {
        "x": "start: |X0 − X_true| / |X_true|, or blind",
        "caption": "starts of all seeds and problems together",
    }
    return panels(titles, panel, y=y, **size)


def cost(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Expected share of problems recovered from blind starts, against the multiply-adds spent on
    them; a column for each method, a row for each size. Grey: the other methods."""
    blind = table[table["origin"].astype(str) == "blind"]
    sizes = newton_claims.sizes(blind)
    bases = list(dict.fromkeys(method.removesuffix(CONTINUED) for method in setup.method))
    shape = {"width": 1.0 + 1.75 * len(bases), "height": 1.0 + 1.9 * len(sizes)}
    figure, axes = new_figure(len(sizes), len(bases), sharex="row", sharey=True, **shape)
    for row, size in zip(axes, sizes, strict=True):
        rows = blind[blind["size"] == size]
        mean = (rows["work"] / rows["starts"]).median()
        budgets = np.geomspace(mean / 10, 1e3 * mean, 60)
        curves = {}
        for method in setup.method:
            part = rows[rows["method"] == method]
            curves[method] = [newton_claims.solved_by(part, budget).mean() for budget in budgets]
        for ax, base in zip(row, bases, strict=True):
            for method, share in curves.items():
                if method.removesuffix(CONTINUED) != base:
                    ax.plot(budgets, share, color="0.85", linewidth=1)
            for method, share in curves.items():
                if method.removesuffix(CONTINUED) == base:
                    kind = "along the ladder of γ" if method != base else "γ = 0"
                    ax.plot(
                        budgets,
                        share,
                        color=COLOURS[0],
                        linestyle="--" if method != base else "-",
                        label=kind,
                    )
            log_axis(ax, "x")
            ax.set_ylim(-0.03, 1.03)
        row[0].set_ylabel(f"{_size(size)}\nshare recovered")
    for ax in axes[-1]:
        ax.set_xlabel("multiply-adds")
    for ax, base in zip(axes[0], bases, strict=True):
        ax.set_title(_name(base))
    note(figure, "mean over the problems of all seeds")
    shared_legend(figure, columns=2)
    return figure


def outcomes(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Where blind starts end after polishing: the data, another X with the same output, or no
    solution."""
    blind = table[table["origin"].astype(str) == "blind"]

    def panel(ax: Axes, size: str) -> None:
        rows = blind[blind["size"] == size]
        total = (
            rows.groupby("method")[["recovered", "wrong", "starts"]]
            .sum()
            .reindex(setup.method[::-1])
        )
        total["none"] = total["starts"] - total["recovered"] - total["wrong"]
        left = np.zeros(len(total))
        for i, (name, text) in enumerate(OUTCOMES.items()):
            share = (total[name] / total["starts"]).to_numpy()
            fill = ("0.85" if name == "none" else COLOURS[i]), ("", "//", "")[i]
            ax.barh(
                range(len(total)),
                share,
                left=left,
                color=fill[0],
                hatch=fill[1],
                edgecolor="white",
                label=text,
            )
            left = left + share
        ax.set_yticks(range(len(total)), list(map(_name, total.index)))
        ax.grid(False)

    titles = {size: _size(size) for size in newton_claims.sizes(table)}
    about: dict[str, Any] = {
        "x": "share of blind starts",
        "caption": "blind starts of all seeds and problems together",
    }
    return panels(
        titles, panel, **about, legend_columns=3, width=2.4 + 2.6 * len(titles), height=4.2
    )


def certificate(setup: AttentionNewton, table: pd.DataFrame, theorem: pd.DataFrame) -> Figure:
    """Convergence of Newton's method around the data, and the radii: certified, and Theorem J.1's
    around its own X*."""
    figure, axes = new_figure(1, 2, width=8.4, height=3.9)
    found = newton_claims.sizes(table)
    for i, size in enumerate(found):
        sums = (
            table[table["size"] == size]
            .groupby("multiple")[["converged", "certified", "starts"]]
            .sum()
        )
        axes[0, 0].plot(sums.index, sums["converged"] / sums["starts"], label=size, **_look(i))
    axes[0, 0].axvspan(min(setup.multiple) / 2, 1, color="0.6", alpha=0.3, label="certified")
    log_axis(axes[0, 0], "x")
    axes[0, 0].set_xlabel("|X0 − X_true| over the certified radius")
    axes[0, 0].set_ylabel("share of starts that reach X_true")
    axes[0, 0].legend(title="n × d", loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2)
    first = table.groupby(["size", "seed", "problem"])["radius_share"].first()
    parts = [("Newton–Kantorovich, around the data", first)]
    if len(theorem):
        parts.append(
            (
                "Theorem J.1, around its X*",
                theorem.set_index(["size", "seed", "problem"])["admitted_share"],
            )
        )
    for i, (label, values) in enumerate(parts):
        for at, size in enumerate(found):
            y = values[values.index.get_level_values("size") == size].to_numpy()
            x = at + np.linspace(-0.2, 0.2, len(y))
            look = {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": "", "alpha": 0.6}
            axes[0, 1].plot(x, y, label=label if at == 0 else None, **look)
    log_axis(axes[0, 1], "y")
    axes[0, 1].set_xticks(range(len(found)), found)
    axes[0, 1].set_xlabel("n × d")
    axes[0, 1].set_ylabel("admitted radius / |X_true|")
    axes[0, 1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.17))
    note(figure, "(a): starts of all seeds together; (b): a mark is a problem")
    letter(axes, ["Newton from spheres around X_true", "radii"])
    return figure


def noise(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """Error of the solution next to the data under noise in B, against the predictions made from J
    at the data."""
    shown = {
        "least squares": ("predicted", "s |J⁻¹|_F / |X|"),
        "with prior": ("with_prior", "(mean s²/(s² + σ²))^½"),
    }

    def panel(ax: Axes, estimator: str) -> None:
        rows, (predicted, text) = table[table["estimator"] == estimator], shown[estimator]
        for i, (axis, part) in enumerate(rows.groupby("axis", sort=False)):
            look = _look(i) | {"linestyle": "", "alpha": 0.5, "markersize": 4}
            ax.plot(part[predicted], part["error"], label=str(axis).replace("_", " "), **look)
        ends = [rows["error"].min(), 10.0]
        ax.plot(ends, ends, color="black", linewidth=1, label="equality")
        ax.set_xlabel(f"predicted: {text}")

    said = "a mark is a problem at one level of noise"
    size: dict[str, Any] = {"sharey": False, "legend_columns": 5, "width": 8.4, "height": 4.2}
    y = "|X − X_true| / |X_true|, measured"
    return panels({name: name for name in shown}, panel, y=y, log="both", caption=said, **size)


def recovery(setup: AttentionNewton, scan: pd.DataFrame) -> Figure:
    """Error of the minimiser followed from the data against gamma: medians and quartiles by size,
    and the theorem's."""
    figure, axes = new_figure(1, 1, width=6.2, height=4.4)
    ax = axes[0, 0]
    for i, size in enumerate(newton_claims.sizes(scan)):
        usable = scan[(scan["size"] == size) & (scan["status"] == "ok") & ~scan["admissible"]]
        spread = usable.groupby("scanned_gamma")["error_data"].quantile([0.25, 0.5, 0.75]).unstack()
        if spread.empty:
            continue
        look = _look(i)
        ax.plot(spread.index, spread[0.5], label=_size(size), **look)
        ax.fill_between(
            spread.index, spread[0.25], spread[0.75], color=look["color"], alpha=0.15, linewidth=0
        )
    admissible = scan.loc[scan["admissible"], "scanned_gamma"]
    ax.axvspan(admissible.min(), admissible.max(), color="0.6", alpha=0.5, label="γ of Theorem J.1")
    ax.axhline(
        setup.recovered, color="black", linestyle=":", linewidth=1.2, label="recovered below"
    )
    log_axis(ax, "both")
    ax.set_xlabel("γ")
    ax.set_ylabel("|X*(γ) − X_true| / |X_true|")
    note(figure, "lines: median over problems, bands: quartiles")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    return figure


def targets(setup: AttentionNewton, table: pd.DataFrame) -> Figure:
    """The trained layer of Experiment 5 of the DAG paper: error of the best blind end of
    Levenberg–Marquardt on each input."""
    figure, axes = new_figure(1, 1, width=4.2, height=3.6)
    ax, views = axes[0, 0], list(dict.fromkeys(table["view"]))
    for at, view in enumerate(views):
        values = table.loc[table["view"] == view, "best_error"].to_numpy()
        look = {"linestyle": "", "marker": "o", "color": COLOURS[at % 8], "alpha": 0.6}
        ax.plot(at + np.linspace(-0.2, 0.2, len(values)), values, **look)
    ax.axhline(setup.recovered, color="black", linestyle=":", linewidth=1.2)
    log_axis(ax, "y")
    ax.set_xticks(range(len(views)), [f"layer at {view}" for view in views])
    ax.set_ylabel("|X − X_true| / |X_true|, least residual")
    note(figure, "a mark is an input; dotted line: recovered below")
    return figure


class AttentionNewtonAnalysis(Analysis):
    """Readings of the studies' tables, as far as they are stored."""

    experiment: AttentionNewton
    bars: ClassVar[str] = (
        "bands: quartiles over problems and seeds (recovery), the range over inputs (targets)"
    )

    def figures(self) -> dict[str, Callable[[], Figure]]:
        setup, tables = self.experiment, self.tables
        drawn: dict[str, Callable[[], Figure]] = {}
        if "contest" in tables:
            drawn["contest"] = lambda: contest(setup, tables["contest"])
            drawn["cost"] = lambda: cost(setup, tables["contest"])
            drawn["outcomes"] = lambda: outcomes(setup, tables["contest"])
        if "balls" in tables:
            theorem = tables.get("theorem", pd.DataFrame())
            drawn["certificate"] = lambda: certificate(setup, tables["balls"], theorem)
        if "noise" in tables:
            drawn["noise"] = lambda: noise(setup, tables["noise"])
        if "scan" in tables:
            drawn["recovery"] = lambda: recovery(setup, tables["scan"])
        if "targets" in tables:
            layer = tables["targets"][tables["targets"]["target"] == newton_claims.LAYER]
            drawn["targets"] = lambda: targets(setup, layer)
        return drawn

    def statistics(self) -> list[Statistic]:
        return newton_claims.statistics(self.tables)

    def claims(self) -> list[Claim]:
        return newton_claims.claims(self.experiment, self.tables)

    def notes(self) -> list[str]:
        return newton_claims.notes(self.tables)
