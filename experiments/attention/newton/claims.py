"""Theorem J.1 in numbers, the basin of each method, the gamma that recovers, and what a solution costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from experiments.printed import statements
from runner.contract.claim import Claim, Statement
from runner.stats import judge, spearman, summary

if TYPE_CHECKING:
    from experiments.attention.newton import AttentionNewton
    from runner.stats import Statistic

Tables = Mapping[str, pd.DataFrame]
FEWEST = 10  # values below which an order or a correlation says nothing
HALF = 0.5  # share of starts that must reach X* for a distance to lie in the basin


def at_base(setup: AttentionNewton, table: pd.DataFrame, *axes: str) -> pd.DataFrame:
    """Rows at the base point, free along the cell parameters named."""
    base = {
        "tokens": setup.base_tokens,
        "width": setup.base_width,
        "gamma": setup.base_gamma,
        "noise": setup.base_noise,
    }
    for name, value in base.items():
        if name not in axes:
            table = table[table[name] == value]
    return table


def claims(setup: AttentionNewton, tables: Tables) -> list[Claim]:
    """The parts of Theorem J.1, and the order of the full step."""
    says, found = statements("attention_newton"), []
    theorem = tables["theorem"] if "theorem" in tables else pd.DataFrame()
    good = theorem[theorem["status"] == "ok"] if len(theorem) else theorem
    count = f"{len(good)} problems" + (f", {len(theorem) - len(good)} left out" if len(good) < len(theorem) else "")
    if len(good):
        share = float((good["convexity"] / (2 * good["admissible_gamma"])).min())
        close = replace(says["recovery"], high=setup.recovered)
        small = f"|X*| / |X_true| at most {good['norm_share'].max():.1e}: the minimiser is not the data"
        found += [
            judge.exact(says["convexity"], {"": share}, count),
            judge.exact(says["convergence"], {"": float(good["excess"].max())}, count),
            judge.exact(close, {"": float(good["recovery_error"].max())}, f"{count}; {small}"),
        ]
    if "basin" in tables:
        found += recoveries(setup, tables["basin"], says)
        orders = near_orders(tables["basin"], "full")
        median = float(orders.median()) if len(orders) else float("nan")
        detail = f"{len(orders)} problems from the smallest distance"
        few = len(orders) < FEWEST
        found.append(
            judge.claim(says["order"], "no power", median, f"{detail}; at least {FEWEST} needed")
            if few
            else judge.exact(says["order"], {"": median}, detail)
        )
    return found


def recoveries(setup: AttentionNewton, basin: pd.DataFrame, says: Mapping[str, Statement]) -> list[Claim]:
    """Share of the starts of a seed that end at the data, by method, at two distances (base point)."""
    rows = at_base(setup, basin[basin["status"] == "ok"])
    found = []
    for name, distance in (("recovery from a tenth", 0.1), ("recovery from afar", 1.0)):
        part = rows[rows["distance"] == distance]
        sums = part.groupby(["method", "seed"], sort=False)[["recovered", "starts"]].sum()
        shares = (sums["recovered"] / sums["starts"]).groupby("method", sort=False)
        by = judge.bound(says[name], {str(method): list(values) for method, values in shares})
        found.append(replace(by, group="beyond the paper"))
    return found


def near_orders(basin: pd.DataFrame, method: str) -> pd.Series:
    """Observed orders (medians per problem) of the runs from the smallest distance."""
    rows = basin[(basin["method"] == method) & (basin["distance"] == basin["distance"].min())]
    return rows["order"].dropna()


def basin_radius(basin: pd.DataFrame) -> pd.DataFrame:
    """Largest distance from which half of the starts reach X*, per problem and method; 0 where none does."""
    usable = basin[basin["status"] == "ok"].assign(inside=lambda t: t["minimiser"] >= HALF * t["starts"])
    keys = ["tokens", "width", "gamma", "noise", "seed", "problem", "method"]
    rows = usable.assign(radius=usable["distance"].where(usable["inside"], 0.0))
    return rows.groupby(keys, sort=False)["radius"].max().reset_index()


def statistics(setup: AttentionNewton, tables: Tables) -> list[Statistic]:
    """Order by method, and rank correlation of the basin with the size, gamma and the noise."""
    if "basin" not in tables:
        return []
    basin = tables["basin"]
    found = [
        summary(near_orders(basin, method).to_numpy(), name=f"order, {method}", figure="order", label_a=method)
        for method in setup.method
    ]
    radii = basin_radius(basin)
    for method in setup.method:
        for axes in (("tokens", "width"), ("gamma",), ("noise",)):
            rows = at_base(setup, radii[radii["method"] == method], *axes)
            x = rows["tokens"] * rows["width"] if len(axes) == 2 else rows[axes[0]]
            name = "n d" if len(axes) == 2 else axes[0]
            if len(rows) >= FEWEST and x.nunique() > 1:
                found.append(
                    spearman(
                        x.to_numpy(),
                        rows["radius"].to_numpy(),
                        name=f"basin against {name}, {method}",
                        figure="basin",
                        label_a=name,
                        label_b="basin radius",
                    )
                )
    return found


def measured(tables: Tables) -> pd.DataFrame | None:
    """The two numbers of Theorem J.1 that a reference row holds, one value per seed (the worst problem)."""
    if "theorem" not in tables:
        return None
    good = tables["theorem"][tables["theorem"]["status"] == "ok"]
    rows = [
        good.groupby("seed")[column].max().reset_index(name="value").assign(metric=metric)
        for metric, column in (("error_over_epsilon", "excess"), ("recovery_error", "recovery_error"))
    ]
    return pd.concat(rows, ignore_index=True).assign(extreme=True)


def recovering_gamma(setup: AttentionNewton, scan: pd.DataFrame) -> pd.Series:
    """Largest scanned gamma at which a problem is recovered (0 if none), by size, noise, seed and problem."""
    worked = (scan["status"] == "ok") & (scan["error_data"] <= setup.recovered)
    keys = ["tokens", "width", "noise", "seed", "problem"]
    return scan.assign(works=scan["scanned_gamma"].where(worked, 0.0)).groupby(keys)["works"].max()


def notes(setup: AttentionNewton, tables: Tables) -> list[str]:
    """What Theorem J.1 means for recovery, and which method solves the problem from how far."""
    found = []
    if "scan" in tables and len(tables["scan"]):
        scan = tables["scan"]
        clean = at_base(setup, scan, "tokens", "width")
        limit = recovering_gamma(setup, clean)
        admissible = clean.loc[clean["admissible"], "scanned_gamma"]
        works = limit[limit > 0]
        if len(works):
            found.append(
                f"Without noise the data are recovered to {setup.recovered:.0%} up to gamma between {works.min():.0e} "
                f"and {works.max():.0e} ({len(limit) - len(works)} of {len(limit)} problems at no scanned gamma); "
                f"Theorem J.1 asks for {admissible.min():.1e} to {admissible.max():.1e}, where the objective is nearly "
                "gamma |vec X|^2 and its minimiser close to zero. The theorem's convergence is to that point, not to "
                "the data."
            )
        noisy = scan[(scan["noise"] > 0) & (scan["status"] == "ok")]
        for noise, rows in noisy.groupby("noise"):
            best = rows.groupby(["seed", "problem"])["error_data"].min()
            found.append(
                f"With noise {noise:g} in B the best scanned gamma leaves a median error of {best.median():.2g}."
            )
    if "basin" in tables and len(tables["basin"]):
        radii = at_base(setup, basin_radius(tables["basin"]))
        text = ", ".join(f"{m} {radii.loc[radii['method'] == m, 'radius'].median():g}" for m in setup.method)
        found.append(
            f"Median distance (relative to |X_true|) from which half of the starts reach X*, base point: {text}."
        )
        base = at_base(setup, tables["basin"])
        shares = base.groupby("method")[["indefinite_share", "singular_share"]].mean()
        text = ", ".join(f"{method} {share:.0%}" for method, share in shares["indefinite_share"].items())
        found.append(f"Steps with an indefinite Hessian or a direction of negative curvature, base point: {text}.")
    return found
