"""Report of the bounds: which hold, how loose they are, how measured values grow."""

from __future__ import annotations

import math
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
from experiments.printed import unchecked
from runner.contract import Analysis, Claim, Figures, Statement, Tables, decide
from runner.report.figures import COLOURS, MARKERS, panels
from runner.stats import Statistic, judge, linear
from runner.stats.tables import chosen

SEARCH_NAMES = {
    "gaussian": "random directions",
    "rank one": "aligned rank one",
    "ascent": "gradient ascent",
}
ROUNDING = 1e-9
"""Relative size at which a violated inequality is the rounding of float64 sums."""
FITTED = ("G.3", "G.4", "H.8", "H.9", "H.10", "I.1", "I.2", "I.3")
"""Bounds whose power of R is compared with a fit, and where they have one, their power of n d."""


def worst_rows(bounds: pd.DataFrame) -> pd.DataFrame:
    """The row with the largest ratio of each bound, in the order of the paper."""
    finite = chosen(bounds, status="ok")
    usable = finite.dropna(subset=["ratio"])
    worst = usable.groupby("bound")["ratio"].idxmax()
    rows = usable.loc[worst].set_index("bound")
    names = [name for name in BOUNDS if name in rows.index]
    return rows.reindex(names)


def claims(tables: Tables) -> list[Claim]:
    """One claim for each lemma: the bound holds at every instance tried, the searched ones
    included."""
    if "bounds" not in tables:
        return []
    return [claim_of(name, chosen(tables["bounds"], bound=name)) for name in BOUNDS]


def claim_of(name: str, rows: pd.DataFrame) -> Claim:
    """Whether a bound holds in all its rows of `bounds`."""
    bound = BOUNDS[name]
    statement = Statement(
        name=f"lemma_{name}",
        text=f"{bound.symbol} stays below its bound",
        where=bound.place,
        high=1 + ROUNDING,
        independent=True,
    )
    worst = worst_rows(rows)
    if worst.empty:
        return judge.claim(statement, "not run", detail="no cell measured it")
    row = worst.loc[name].to_dict()
    holds = statement.holds(row["ratio"])
    place = f"n = {row['tokens']}, d = {row['width']}, R = {row['radius']:g} ({row['search']})"
    count = int(rows["instances"].sum())
    detail = f"{count} instances, an ascent among them; worst at {place}"
    if holds and math.isfinite(row["sharper_constant"]):
        detail += "; a constant below the printed one is proved"
    elif holds and name in ("H.9", "H.10"):
        detail += "; the printed bound is proved in the audit"
    broken = int((rows["status"] != "ok").sum())
    if broken:
        detail += f"; {broken} cells not finite"
    verdict = decide(None if holds and broken else holds)
    ratio = float(row["ratio"])
    return judge.claim(statement, verdict, ratio, detail, threshold="measured / bound <= 1")


def statistics(tables: Tables) -> list[Statistic]:
    """Exponents of the measured values in R and in n d, from fits on logarithms, next to those of
    the bounds."""
    if "bounds" not in tables:
        return []
    random = tables["bounds"].query("search == 'gaussian' and status == 'ok' and largest > 0")
    entries = random["tokens"] * random["width"]
    random = random.assign(**{"R": random["radius"], "n d": entries})
    fits = []
    for name in FITTED:
        fits.append(_exponent(random, name, "R", ["tokens", "width"], BOUNDS[name].power))
    for name in FITTED:
        power = BOUNDS[name].size_power
        if power:
            fit = _exponent(random, name, "n d", ["radius"], power)
            fits.append(fit)
    return fits


def _exponent(
    random: pd.DataFrame, name: str, varied: str, fixed: list[str], power: int
) -> Statistic:
    """The fitted exponent of one bound's values in R or n d, with the other sizes fixed."""
    rows = chosen(random, bound=name)
    scale = rows.groupby(fixed)["largest"].transform("max")
    logarithms = np.log(rows["largest"] / scale)
    return linear(
        np.log(rows[varied]),
        logarithms,
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
    spelled = symbol.removeprefix(words).replace("d2c", "d^2c")
    formula = spelled.replace(" ", r"\,")
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
            maxima = rows.groupby("bound")[column].max()
            largest = maxima.reindex(names)
            shift = 0.27 * (i - 1)
            places = np.arange(len(names)) + shift
            ax.plot(largest, places, markersize=5, label=text, **_marks(i))
        ax.axvline(1, color="black", linestyle="--", linewidth=1.2, label="bound attained")

    titles = {"ratio": "constant of the paper", "sharper_ratio": "sharper constant (where proved)"}
    caption = "the largest over all seeds and sizes; the paper's bound is the line at 1"
    x = "largest measured value / bound"
    figure = panels(titles, panel, x=x, log="x", caption=caption, height=5.4)
    ax = figure.axes[0]
    names_of_bounds = [_name(name) for name in names]
    ax.set_yticks(range(len(names)), names_of_bounds)
    ax.invert_yaxis()
    return figure


class AttentionHessianAnalysis(Analysis):
    """Readings of `bounds`, if it is stored."""

    experiment: AttentionHessian
    alternatives = HESSIAN

    def figures(self) -> Figures:
        if "bounds" not in self.tables:
            return {}
        return {"tightness": partial(tightness, self.tables["bounds"])}

    def statistics(self) -> list[Statistic]:
        return statistics(self.tables)

    def claims(self) -> list[Claim]:
        return claims(self.tables)

    def notes(self) -> list[str]:
        return unchecked("attention") if self.tables else []
