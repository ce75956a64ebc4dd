"""Saved tables to numbers: averages over seeds, variance between seeds and image sets; tests and
fits for stats.csv."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from runner import stats
from runner.stats import Statistic
from runner.stats.tables import chosen, groups, seed_values

FIRST = 0
"""Number of the papers' set of images."""
ENDS = ("init", "final")
"""Checkpoints before and after training."""


def first(table: pd.DataFrame) -> pd.DataFrame:
    """The rows on the papers' set of images."""
    return chosen(table, images=FIRST)


def at_ends(table: pd.DataFrame) -> pd.DataFrame:
    """The rows before and after training."""
    return table[table["checkpoint"].isin(ENDS)]


def in_percent(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the test accuracy in a column `percent`."""
    return table.assign(percent=100 * table["test_accuracy"])


def per_seed(rows: pd.DataFrame, value: str, by: str = "distance") -> pd.DataFrame:
    """`value` of rows of one variant: a row for each seed, a column for each distance, or for each
    value of another column."""
    return rows.pivot(index="seed", columns=by, values=value)


def label(keys: Sequence[str], values: Sequence[Any]) -> str:
    """The variant as text: "depth=8 arch=plain"."""
    return " ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True))


def over_seeds(table: pd.DataFrame, keys: Sequence[str], value: str) -> pd.DataFrame:
    """keys, mean, std (ddof 1), n over the seeds."""
    found = table.groupby(list(keys), sort=False)[value].agg(["mean", "std", "count"]).reset_index()
    return found.rename(columns={"count": "n"})


def complete(groups_of: Any, found: Any) -> Any:
    """`found` of each group of a table or column, NaN where a value of the group is missing."""
    return found.where(groups_of.count().eq(groups_of.size(), axis=0))


def complete_means(groups_of: Any) -> Any:
    """The mean of each group, NaN where a value of the group is missing."""
    return complete(groups_of, groups_of.mean())


@dataclass(frozen=True)
class Components:
    """Variances of value[seed, images] = mean + seed + images + rest, estimated from a complete
    two-way table.

    Each set of images is measured in every training, so the components follow from the mean squares
    (two-way random effects, one value per cell): seeds = (MS_seeds − MS_rest)/k, images =
    (MS_images − MS_rest)/n, rest = MS_rest, with n seeds and k sets of images. Negative estimates
    are set to 0. NaN below two seeds or two sets.
    """

    mean: float
    seeds: float
    images: float
    rest: float
    n_seeds: int
    n_images: int

    @property
    def within(self) -> float:
        """Variance between sets of images of one network: what all networks share of it, and what
        is its own."""
        return self.images + self.rest


def variance_components(table: pd.DataFrame, value: str) -> Components:
    """Components of `value` over the random sets of images (the papers' own set is left out: it is
    not random)."""
    random = table[table["images"] != FIRST]
    y = random.pivot(index="seed", columns="images", values=value).dropna().to_numpy(dtype=float)
    n, k = y.shape
    mean = math.nan
    if y.size:
        mean = float(y.mean())
    if n < 2 or k < 2:
        return Components(mean, math.nan, math.nan, math.nan, n, k)
    rows = y.mean(1) - mean
    columns = y.mean(0) - mean
    rest = y - mean - rows[:, None] - columns[None, :]
    ms_seeds = k * float(np.sum(rows**2)) / (n - 1)
    ms_images = n * float(np.sum(columns**2)) / (k - 1)
    ms_rest = float(np.sum(rest**2)) / ((n - 1) * (k - 1))
    seeds = max(0.0, (ms_seeds - ms_rest) / k)
    images = max(0.0, (ms_images - ms_rest) / n)
    return Components(mean, seeds, images, ms_rest, n, k)


def long_format(table: pd.DataFrame, keys: Sequence[str], metrics: dict[str, str]) -> pd.DataFrame:
    """Columns keys, metric, seed, value: one row per seed and metric; metrics maps reference names
    to columns."""
    parts = []
    for metric, column in metrics.items():
        part = table[[*keys, "seed"]].copy()
        part["metric"] = metric
        part["value"] = table[column].astype(float)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def gap(table: pd.DataFrame) -> pd.Series[float]:
    """GN-gap Σ‖H^T‖_F / Σ‖H^GN‖_F of each row; NaN where Σ‖H^GN‖_F is 0 or one is infinite."""
    known = (table["gn"] > 0) & (table["gn"] + table["tensor"] < math.inf)
    return (table["tensor"] / table["gn"]).where(known)


def global_gaps(distances: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """GN-gap over all pairs, one row per keys, seed, checkpoint and set of images.

    gap: Σ‖H^T‖_F / Σ‖H^GN‖_F, the ratio of sums that the DAG paper's tables hold. gap_of_pairs:
    mean of Eq. 4 over the pairs, which those with small ‖H^GN‖_F dominate; on the papers' images
    only. NaN where every ‖H^GN‖_F is 0.
    """
    by = [*keys, "seed", "checkpoint", "images"]
    weighted = distances.assign(gap_of_pairs=distances["gap_of_pairs"] * distances["pairs"])
    added = weighted.groupby(by, sort=False)[["gn", "tensor", "gap_of_pairs", "pairs"]]
    sums = complete(added, added.sum()).reset_index()
    sums["gap"] = gap(sums)
    sums["gap_of_pairs"] = sums["gap_of_pairs"] / sums["pairs"]
    return sums.drop(columns=["gn", "tensor", "pairs"])


def between(
    distances: pd.DataFrame,
    value: str,
    *,
    column: str,
    a: str,
    b: str,
    keys: Sequence[str],
    figure: str,
) -> list[Statistic]:
    """Mann–Whitney of the seeds' values of variant a against b, for each combination of the other
    keys."""
    name = f"{value}: {a} against {b}"
    found = []
    for values, part in groups(first(distances), keys):
        x, y = (list(seed_values(part[part[column] == kind], value).values()) for kind in (a, b))
        about = {"name": name, "group": label(keys, values), "figure": figure}
        found.append(stats.mann_whitney(x, y, label_a=a, label_b=b, **about))
    return found


def through_training(
    distances: pd.DataFrame, value: str, *, keys: Sequence[str], figure: str, where: str = ""
) -> list[Statistic]:
    """Wilcoxon of final against init, paired by seed, for each combination of the keys."""
    about = {"name": f"{value}: final against init", "figure": figure, "where": where}
    about |= {"label_a": "final", "label_b": "init"}
    found = []
    for values, part in groups(first(distances), keys):
        init, final = (seed_values(chosen(part, checkpoint=c), value) for c in ENDS)
        seeds = sorted(set(init) & set(final))
        after = [final[seed] for seed in seeds]
        before = [init[seed] for seed in seeds]
        found.append(stats.wilcoxon(after, before, group=label(keys, values), **about))
    return found


def decay_fits(
    distances: pd.DataFrame, value: str, *, keys: Sequence[str], figure: str
) -> list[Statistic]:
    """log value = a − b d by least squares: one fit to the means over seeds, and a summary of the
    seeds' own R².

    keys: variant and checkpoint.
    """
    found = []
    for values, part in groups(first(distances), keys):
        about = {"group": label(keys, values), "figure": figure}
        means = complete_means(part.groupby("distance", sort=False)[value])
        name = f"log {value} against d"
        found.append(stats.log_linear(means.index, means, name=name, **about))
        fits = [fit.r2 for fit in seed_fits(part, value)]
        name = f"R² of log {value} against d, seed by seed"
        found.append(stats.summary(fits, name=name, label_a="R²", **about))
    return found


def seed_fits(part: pd.DataFrame, value: str) -> list[Statistic]:
    """The log-linear fit of each seed, for rows of one variant and checkpoint on one set of
    images."""
    return [
        stats.log_linear(p["distance"], p[value], name=f"seed {seed}")
        for seed, p in part.groupby("seed")
    ]
