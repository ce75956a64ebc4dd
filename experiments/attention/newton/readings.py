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


def solved_by(rows: pd.DataFrame, work: float | Iterable[float]) -> pd.Series:
    """Expected share 1 - (1 - p)^(work / mean work of a start) of the problems recovered from blind starts for `work`
    multiply-adds, p the share of a problem's starts that recover it: starts are tried until the work is spent."""
    rate = rows["recovered"] / rows["starts"]
    tries = np.asarray(work, dtype=float) / (rows["work"] / rows["starts"])
    return 1 - (1 - rate) ** tries


def lead(blind: pd.DataFrame) -> dict[str, list[float]]:
    """method -> by seed, mean over sizes and problems: what Levenberg-Marquardt's starts recover less what the method
    does for the same work."""
    keys = ["size", "seed", "problem"]
    budget = blind[blind["method"] == OURS].set_index(keys)
    found = {}
    for method, rows in blind.groupby("method", sort=False):
        if method == OURS:
            continue
        other = rows.set_index(keys)
        work = budget.loc[other.index, "work"]
        ahead = solved_by(budget.loc[other.index], work) - solved_by(other, work)
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
