"""Which bounds hold, how loose they are, how the measured values grow, and what that says in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from runner.contract import Claim, Statement, decide
from runner.curvature.closed_form.attention.bounds import BOUNDS
from runner.stats import judge, linear

if TYPE_CHECKING:
    from runner.stats import Statistic

Tables = Mapping[str, pd.DataFrame]
ROUNDING = 1e-9
"""Relative size at which a violated inequality is the rounding of float64 sums."""
EXPONENT = {"G.3": 2, "G.4": 4, "H.8": 6, "H.9": 8, "H.10": 10, "I.1": 6, "I.2": 6, "I.3": 8}
"""Power of R in the printed bound."""


def worst_rows(bounds: pd.DataFrame, column: str = "ratio") -> pd.DataFrame:
    """The row with the largest ratio of each bound, in the order of the paper."""
    usable = bounds[bounds["status"] == "ok"].dropna(subset=[column])
    rows = usable.loc[usable.groupby("bound")[column].idxmax()].set_index("bound")
    return rows.reindex([name for name in BOUNDS if name in rows.index])


def claims(tables: Tables) -> list[Claim]:
    """One claim for each lemma: the bound holds at every instance tried, the searched ones included."""
    if "bounds" not in tables:
        return []
    bounds = tables["bounds"]
    worst = worst_rows(bounds)
    found = []
    for name, bound in BOUNDS.items():
        broken = int((bounds.loc[bounds["bound"] == name, "status"] != "ok").sum())
        says = Statement(
            name=f"lemma_{name}", text=f"{bound.symbol} stays below its bound", where=bound.place, high=1 + ROUNDING
        )
        if name not in worst.index:
            found.append(judge.claim(says, "not run", detail="no cell measured it"))
            continue
        row = worst.loc[name].to_dict()
        holds = says.holds(row["ratio"])
        count = int(bounds.loc[bounds["bound"] == name, "instances"].sum())
        place = f"n = {row['tokens']}, d = {row['width']}, R = {row['radius']:g} ({row['search']})"
        detail = f"{count} instances, an ascent among them; worst at {place}"
        if holds and math.isfinite(row["sharper_constant"]):
            detail += "; a constant below the printed one is proved"
        elif holds and name in ("H.9", "H.10"):
            detail += "; tried, not proved"
        if broken:
            detail += f"; {broken} cells not finite"
        verdict = decide(None if holds and broken else holds)
        found.append(judge.claim(says, verdict, float(row["ratio"]), detail, threshold="measured / bound <= 1"))
    return found


def statistics(tables: Tables) -> list[Statistic]:
    """Exponents of the measured values in R and in n d, from fits on logarithms, beside those of the bounds."""
    if "bounds" not in tables:
        return []
    random = tables["bounds"].query("search == 'gaussian' and status == 'ok' and largest > 0")
    found = []
    for name, power in EXPONENT.items():
        rows = random[random["bound"] == name]
        sizes = rows.groupby(["tokens", "width"])["largest"].transform("max")
        found.append(
            linear(
                np.log(rows["radius"]),
                np.log(rows["largest"] / sizes),
                name=f"exponent of R, {name}",
                figure="growth",
                where=BOUNDS[name].place,
                label_a="log R",
                label_b="log largest value",
                note=f"the bound has exponent {power}",
            )
        )
    for name, power in (("H.10", 3), ("I.3", 1)):
        rows = random[random["bound"] == name]
        scale = rows.groupby("radius")["largest"].transform("max")
        found.append(
            linear(
                np.log(rows["tokens"] * rows["width"]),
                np.log(rows["largest"] / scale),
                name=f"exponent of n d, {name}",
                figure="growth",
                where=BOUNDS[name].place,
                label_a="log n d",
                label_b="log largest value",
                note=f"the bound has exponent {power}",
            )
        )
    return found


def measured(tables: Tables) -> pd.DataFrame | None:
    """Largest measured / bound of each lemma and seed, held against 1."""
    if "bounds" not in tables:
        return None
    usable = tables["bounds"].query("status == 'ok'")
    largest = usable.groupby(["bound", "seed"], sort=False)["ratio"].max().reset_index(name="value")
    # equalities such as |h| = R^2 are attained, and rounding must not turn them into violations
    largest["value"] = largest["value"].where(largest["value"] > 1 + ROUNDING, largest["value"].clip(upper=1.0))
    return largest.assign(metric="largest_ratio", extreme=True)


def notes(tables: Tables) -> list[str]:
    """Looseness, the price in gamma, and the accuracy of the closed form."""
    found = []
    if "bounds" in tables and len(tables["bounds"]):
        worst, sharper = worst_rows(tables["bounds"]), worst_rows(tables["bounds"], "sharper_ratio")
        loose = worst["ratio"].sort_values()
        found.append(
            f"Loosest bound: {loose.index[0]}, {1 / loose.iloc[0]:.2g} times the largest value found; attained: "
            + (", ".join(loose.index[loose > 0.99]) or "none")
            + "."
        )
        pairs = [
            f"{name} {1 / worst.loc[name, 'ratio']:.3g} -> {1 / sharper.loc[name, 'sharper_ratio']:.3g}"
            for name in sharper.index
        ]
        if pairs:
            found.append("Looseness at the worst instance, printed -> sharper constant: " + ", ".join(pairs) + ".")
    if "convexity" in tables and len(tables["convexity"]):
        table = tables["convexity"]
        excess = table["admissible_gamma"] / table["needed_gamma"].where(table["needed_gamma"] > 0)
        found.append(
            f"The gamma that Theorem J.1 asks for, 42 n d R^8, is {excess.min():.3g} to {excess.max():.3g} times what "
            f"makes the Hessian semi-definite at the instances drawn; {table['share_indefinite'].mean():.0%} of them "
            "are indefinite."
        )
    if "accuracy" in tables and len(tables["accuracy"]):
        worst_error = tables["accuracy"][["hessian_error", "product_error"]].max()
        found.append(
            f"Closed form against automatic differentiation: largest relative error {worst_error['hessian_error']:.1e} "
            f"(Hessian), {worst_error['product_error']:.1e} (product)."
        )
    return found
