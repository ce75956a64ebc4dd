"""Shares, expected costs and ratios that claims, notes and figures share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable

OURS = "levenberg-marquardt"


def sizes(table: pd.DataFrame) -> list[str]:
    """Sizes by number of variables."""

    def variables(size: str) -> tuple[int, str]:
        n, d = (int(part) for part in size.split("x"))
        return n * d, size

    return sorted(set(table["size"]), key=variables)


def by_size(table: pd.DataFrame, part: str, whole: str) -> dict[str, list[float]]:
    """size -> the share part/whole of each seed's sums; seeds without a whole are left out."""
    found: dict[str, list[float]] = {}
    for size in sizes(table):
        sums = table[table["size"] == size].groupby("seed")[[part, whole]].sum()
        sums = sums[sums[whole] > 0]
        if len(sums):
            found[size] = list(sums[part] / sums[whole])
    return found


def solved_by(rows: pd.DataFrame, budget: float | Iterable[float], cost: str = "work") -> pd.Series:
    """Expected share 1 - (1 - p)^(budget / mean cost of a start) of the problems recovered from blind starts for a
    budget of multiply-adds, or of seconds where `cost` names them; p: share of a problem's starts that recover it.
    Starts are tried until the budget is spent."""
    rate = rows["recovered"] / rows["starts"]
    tries = np.asarray(budget, dtype=float) / (rows[cost] / rows["starts"])
    return 1 - (1 - rate) ** tries


def in_seconds(contest: pd.DataFrame, prices: pd.DataFrame, how: str) -> pd.DataFrame:
    """`contest` with a column `seconds`: its multiply-adds at the price that the same seed and size measured for the
    method, the least seconds over work of the repeats. Rows without a price are left out."""
    keys = ["size", "seed", "step"]
    rows = prices[prices["how"] == how].rename(columns={"method": "step"})
    price = (rows["cpu_seconds"] / rows["work"]).groupby([rows[key] for key in keys]).min()
    steps = contest.assign(step=contest["method"].str.removesuffix(", continued"))
    found = steps.join(price.rename("price"), on=keys).dropna(subset=["price"])
    return found.assign(seconds=found["work"] * found["price"])


def lead(blind: pd.DataFrame, cost: str = "work") -> dict[str, list[float]]:
    """method -> by seed, mean over sizes and problems: what Levenberg-Marquardt's starts recover less what the method
    does for the same work, or in the same time."""
    keys = ["size", "seed", "problem"]
    budget = blind[blind["method"] == OURS].set_index(keys)
    found = {}
    for method, rows in blind.groupby("method", sort=False):
        if method == OURS:
            continue
        other = rows.set_index(keys)
        spent = budget.loc[other.index, cost]
        ahead = solved_by(budget.loc[other.index], spent, cost) - solved_by(other, spent, cost)
        found[str(method)] = list(ahead.groupby("seed").mean())
    return found


def ball_ratios(certificate: pd.DataFrame, theorem: pd.DataFrame) -> dict[str, float]:
    """size -> smallest ratio over its problems of the certified radius to that of Theorem J.1, both over |X_true|."""
    keys = ["size", "seed", "problem"]
    ours = certificate.groupby(keys)["radius_share"].first()
    theirs = theorem.set_index(keys)["admitted_share"]
    ratio = (ours / theirs).dropna()
    return {size: float(ratio.xs(size, level="size").min()) for size in sizes(certificate) if size in ratio.index}


def ratio_by_axis(noise: pd.DataFrame, predicted: str) -> dict[str, list[float]]:
    """axis -> by seed, the median ratio of the measured error to a prediction."""
    ratio = noise.assign(ratio=noise["error"] / noise[predicted])
    medians = ratio.groupby(["axis", "seed"], sort=False)["ratio"].median()
    return {str(axis): list(part) for axis, part in medians.groupby("axis", sort=False)}


def recovering_gamma(scan: pd.DataFrame, recovered: float) -> pd.Series:
    """Largest scanned gamma at which a problem is recovered (0 if none), by size, seed and problem."""
    worked = (scan["status"] == "ok") & (scan["error_data"] <= recovered)
    return (
        scan.assign(works=scan["scanned_gamma"].where(worked, 0.0)).groupby(["size", "seed", "problem"])["works"].max()
    )
