"""Report of the bounds: which hold, how loose they are, how measured values grow."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.attention.alternatives import HESSIAN
from experiments.attention.bounds import BOUNDS
from experiments.attention.settings import AttentionHessian
from experiments.judged import JudgedAnalysis
from experiments.printed import unchecked
from runner.contract import Figures, Tables
from runner.report.figures import COLOURS, MARKERS, panels
from runner.stats import Statistic, linear
from runner.stats.quantities import Functions
from runner.stats.tables import chosen

SEARCH_NAMES = {
    "gaussian": "random directions",
    "rank one": "aligned rank one",
    "ascent": "gradient ascent",
}
FITTED = ("G.3", "G.4", "H.8", "H.9", "H.10", "I.1", "I.2", "I.3")
"""Bounds whose power of R is compared with a fit, and where they have one, their power of n d."""


FUNCTIONS = Functions()


@FUNCTIONS.remark
def instances(bounds: pd.DataFrame) -> str:
    """How many instances there are, and where the bound is nearest."""
    known = bounds.dropna(subset=["ratio"])
    if known.empty:
        return ""
    worst = known.loc[known["ratio"].idxmax()]
    place = f"n = {worst['tokens']:g}, d = {worst['width']:g}, R = {worst['radius']:g}"
    return f"{known['instances'].sum():.0f} instances; worst at {place} ({worst['search']})"


def statistics(tables: Tables) -> list[Statistic]:
    """Exponents of the measured values in R and in n d, from fits on logarithms, next to those of
    the bounds."""
    if "bounds" not in tables:
        return []
    random = tables["bounds"].query("search == 'gaussian' and status == 'ok' and largest > 0")
    random = random.assign(**{"R": random["radius"], "n d": random["tokens"] * random["width"]})
    fits = []
    for name in FITTED:
        fits.append(_exponent(random, name, "R", ["tokens", "width"], BOUNDS[name].power))
    for name in FITTED:
        power = BOUNDS[name].size_power
        if power:
            fits.append(_exponent(random, name, "n d", ["radius"], power))
    return fits


def _exponent(
    random: pd.DataFrame, name: str, varied: str, fixed: list[str], power: int
) -> Statistic:
    """The fitted exponent of one bound's values in R or n d, with the other sizes fixed."""
    rows = chosen(random, bound=name)
    scale = rows.groupby(fixed)["largest"].transform("max")
    return linear(
        np.log(rows[varied]),
        np.log(rows["largest"] / scale),
        name=f"exponent of {varied}, {name}",
        figure="growth",
        where=BOUNDS[name].place,
        label_a=f"log {varied}",
        label_b="log largest value",
        note=f"the bound has exponent {power}",
    )


def _name(bound: str) -> str:
    """Number and symbol of a bound, as a formula.

    >>> _name("H.4")
    'H.4  Lipschitz $c_{ij}$'
    """
    symbol = BOUNDS[bound].symbol
    words = "Lipschitz " if symbol.startswith("Lipschitz ") else ""
    formula = symbol.removeprefix(words).replace("d2c", "d^2c").replace(" ", r"\,")
    formula = formula.replace("grad", r"\nabla").replace("lambda", r"\lambda")
    formula = re.sub(r"_(min|[a-z]{2})", r"_{\1}", formula)
    formula = re.sub(r"\^(\([^)]*\))", r"^{\1}", formula)
    return f"{bound}  {words}${formula}$"


def _marks(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": ""}


def tightness(bounds: pd.DataFrame) -> Figure:
    """Largest measured / bound of every lemma, for the printed and for the sharper constant."""
    names = [name for name in BOUNDS if name in set(bounds["bound"])]

    def panel(ax: Axes, column: str) -> None:
        searches = enumerate(SEARCH_NAMES.items())
        for i, (search, text) in searches:
            rows = chosen(bounds, search=search, status="ok")
            if rows.empty:
                continue
            largest = rows.groupby("bound")[column].max().reindex(names)
            shift = 0.27 * (i - 1)
            places = np.arange(len(names)) + shift
            ax.plot(largest, places, markersize=5, label=text, **_marks(i))
        ax.axvline(1, color="black", linestyle="--", linewidth=1.2, label="bound attained")

    titles = {"ratio": "constant of the paper", "sharper_ratio": "sharper constant (where proved)"}
    caption = "the largest over all seeds and sizes; the paper's bound is the line at 1"
    x = "largest measured value / bound"
    figure = panels(titles, panel, x=x, log="x", caption=caption, height=5.4)
    ax = figure.axes[0]
    ax.set_yticks(range(len(names)), [_name(name) for name in names])
    ax.invert_yaxis()
    return figure


class AttentionHessianAnalysis(JudgedAnalysis):
    """Figure and fits of `bounds`, if it is stored."""

    experiment: AttentionHessian
    functions = FUNCTIONS
    changes = HESSIAN

    def figures(self) -> Figures:
        if "bounds" not in self.tables:
            return {}
        return {"tightness": partial(tightness, self.tables["bounds"])}

    def statistics(self) -> list[Statistic]:
        return statistics(self.tables)

    def notes(self) -> list[str]:
        return unchecked("attention") if self.tables else []
