"""Figures of the bounds: how tight, how they grow, by index case, and the gamma that convexity needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from runner.curvature.closed_form.attention.bounds import BOUNDS
from runner.report.figures import NothingToDraw, letter, log_axis, new_figure, note, shared_legend
from runner.report.plot_style import COLOURS, DASHES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Tables = Mapping[str, pd.DataFrame]
SEARCH_NAMES = {"gaussian": "random directions", "rank one": "aligned rank one", "ascent": "gradient ascent"}
GROWN = ("G.3", "G.4", "H.8", "H.9", "I.2", "I.3")


def _name(bound: str) -> str:
    """Number and symbol of a bound, in the signs that a figure can show."""
    return (
        f"{bound}  {BOUNDS[bound].symbol}".replace("grad^2", "∇²").replace("lambda_min", "λ_min").replace("d2c", "d²c")
    )


def _look(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": DASHES[i]}


def tightness(bounds: pd.DataFrame) -> Figure:
    """Largest measured / bound of every lemma, for the printed and for the sharper constant."""
    figure, axes = new_figure(1, 2, width=8.6, height=5.0, sharey=True)
    names = [name for name in BOUNDS if name in set(bounds["bound"])]
    for ax, column in zip(axes[0], ("ratio", "sharper_ratio"), strict=True):
        for i, (search, text) in enumerate(SEARCH_NAMES.items()):
            rows = bounds[(bounds["search"] == search) & (bounds["status"] == "ok")]
            if rows.empty:
                continue
            largest = rows.groupby("bound")[column].max().reindex(names)
            ax.plot(
                largest,
                np.arange(len(names)) + 0.22 * (i - 1),
                markersize=6,
                **{**_look(i), "linestyle": ""},
                label=text,
            )
        ax.axvline(1, color="black", linestyle="--", linewidth=1.2, label="bound attained")
        log_axis(ax, "x")
        ax.set_xlabel("largest measured value / bound")
    axes[0, 0].set_yticks(range(len(names)), [_name(name) for name in names])
    axes[0, 0].invert_yaxis()
    note(figure, "the largest over all seeds and sizes; the paper's bound is the line at 1")
    letter(axes, ["constant of the paper", "sharper constant (where proved)"])
    shared_legend(figure)
    return figure


def _middle_size(table: pd.DataFrame) -> tuple[int, int]:
    """The measured size nearest to n = d = 4."""
    sizes = set(zip(table["tokens"], table["width"], strict=True))
    n, d = min(sizes, key=lambda size: (abs(size[0] - 4) + abs(size[1] - 4), size))
    return int(n), int(d)


def _lines(ax: Axes, table: pd.DataFrame, by: str) -> None:
    for i, name in enumerate(GROWN):
        rows = table[(table["bound"] == name) & (table["ratio"] > 0)]
        if rows.empty:
            continue
        by_value = rows.groupby(by)["ratio"].max()
        ax.plot(by_value.index, by_value, label=_name(name), **_look(i))


def growth(bounds: pd.DataFrame) -> Figure:
    """Measured / bound against R at one size, and against n d at the smallest R.

    A falling line means that the bound's exponent is too large.
    """
    random = bounds[(bounds["search"] != "ascent") & (bounds["status"] == "ok")]
    if random.empty:
        raise NothingToDraw("expected drawn instances, found none")
    figure, axes = new_figure(1, 2, width=8.2, height=4.0)
    n, d = _middle_size(random)
    at_size = random[(random["tokens"] == n) & (random["width"] == d)]
    _lines(axes[0, 0], at_size, "radius")
    axes[0, 0].set_xlabel("radius R (spectral norm of W, V, X)")
    low = random["radius"].min()
    at_radius = random[random["radius"] == low].assign(size=lambda t: t["tokens"] * t["width"])
    _lines(axes[0, 1], at_radius, "size")
    axes[0, 1].set_xlabel("number of variables n d")
    for ax, values in zip(axes[0], (at_size["radius"], at_radius["size"]), strict=True):
        log_axis(ax, "both")
        ax.set_xticks(sorted(set(values)), [f"{value:g}" for value in sorted(set(values))])
        ax.minorticks_off()
        ax.set_ylabel("largest measured value / bound")
    note(figure, "the largest over all seeds and drawn instances; the paper's bound is 1")
    letter(axes, [f"n = {n}, d = {d}", f"R = {low:g}"])
    shared_legend(figure, columns=3)
    return figure


def index_cases(cases: pd.DataFrame) -> Figure:
    """Largest block norm over R^6 by index case, against the 21 of Lemma I.1 and the sharper 6 + 3 / R^3."""
    figure, axes = new_figure(1, 1, width=5.6, height=3.6)
    ax = axes[0, 0]
    scaled = cases.dropna(subset=["largest"]).assign(scaled=lambda t: t["largest"] / t["radius"] ** 6)
    texts = ("1: i1 = i2 = i0", "2: i1 = i0, i2 ≠ i0", "3: i1 ≠ i0, i2 = i0", "4: i1 ≠ i0, i2 ≠ i0")
    for case in range(1, 5):
        largest = scaled[scaled["case"] == case].groupby("radius")["scaled"].max()
        look = _look(case - 1) | ({"markerfacecolor": "none", "markersize": 8} if case == 3 else {})
        ax.plot(largest.index, largest, label="case " + texts[case - 1], **look)
    radii = np.linspace(scaled["radius"].min(), scaled["radius"].max(), 50)
    ax.plot(radii, np.full_like(radii, 21), color="black", linewidth=1.5, label="21, Lemma I.1")
    ax.plot(radii, 6 + 3 / radii**3, color="black", linestyle=":", linewidth=1.5, label="6 + 3/R³, proved")
    log_axis(ax, "y")
    ax.set_xlabel("radius R (spectral norm of W, V, X)")
    ax.set_ylabel("largest block norm / R⁶")
    note(figure, "the largest over all seeds, sizes and instances")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    return figure


def convexity(table: pd.DataFrame) -> Figure:
    """gamma that makes every drawn Hessian semi-definite against the admissible gamma of Theorem J.1."""
    figure, axes = new_figure(1, 1, width=5.4, height=3.6)
    ax = axes[0, 0]
    shown = table[table["needed_gamma"] > 0]
    for i, (radius, rows) in enumerate(shown.groupby("radius")):
        ax.plot(
            rows["admissible_gamma"], rows["needed_gamma"], label=f"R = {radius:g}", **{**_look(i % 8), "linestyle": ""}
        )
    if len(shown):
        ends = np.array([shown["admissible_gamma"].min(), shown["admissible_gamma"].max()])
        ax.plot(ends, ends, color="black", linestyle="--", linewidth=1.2, label="equal")
    log_axis(ax, "both")
    ax.set_xlabel("γ of Theorem J.1, 42 n d R⁸")
    ax.set_ylabel("γ needed at the instances drawn")
    note(figure, "a mark is the largest of a cell's instances; line: the paper's γ")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    return figure
