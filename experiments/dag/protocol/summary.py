"""Saved tables to numbers: averages over seeds, variance between image sets; tests and
fits for stats.csv."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
    by_keys = table.groupby(list(keys), sort=False)[value]
    return by_keys.agg(["mean", "std", "count"]).reset_index().rename(columns={"count": "n"})


def complete(groups_of: Any, found: Any) -> Any:
    """`found` of each group of a table or column, NaN where a value of the group is missing."""
    return found.where(groups_of.count().eq(groups_of.size(), axis=0))


def complete_means(groups_of: Any) -> Any:
    """The mean of each group, NaN where a value of the group is missing."""
    return complete(groups_of, groups_of.mean())


class Images(NamedTuple):
    """value[seed, images] = mean + seed + images + rest: the mean, the variance of `images`, and
    how many sets there are."""

    mean: float
    variance: float
    sets: int


def images_component(table: pd.DataFrame, value: str) -> Images:
    """Of a complete two-way table over the random sets of images (the papers' own set is left out:
    it is not random).

    Each set of images is measured in every training, so that the variance follows from the mean
    squares (two-way random effects, one value per cell): (MS_images − MS_rest)/n with n seeds, 0
    where that is negative; NaN below two seeds or two sets.
    """
    random = table[table["images"] != FIRST]
    wide = random.pivot(index="seed", columns="images", values=value)
    y = wide.dropna().to_numpy(dtype=float)
    n, k = y.shape
    if n < 2 or k < 2:
        return Images(float(y.mean()) if y.size else math.nan, math.nan, k)
    mean = float(y.mean())
    rows = y.mean(1) - mean
    columns = y.mean(0) - mean
    rest = y - mean - rows[:, None] - columns[None, :]
    ms_images = n * float(np.sum(columns**2)) / (k - 1)
    ms_rest = float(np.sum(rest**2)) / ((n - 1) * (k - 1))
    variance = max(0.0, (ms_images - ms_rest) / n)
    return Images(mean, variance, k)


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
    positive = table["gn"] > 0
    known = positive & (table["gn"] + table["tensor"] < math.inf)
    return (table["tensor"] / table["gn"]).where(known)


def global_gaps(distances: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """gap: Σ‖H^T‖_F / Σ‖H^GN‖_F over all pairs, the ratio of sums that the DAG paper's tables hold,
    one row per keys, seed, checkpoint and set of images."""
    by_keys = distances.groupby([*keys, "seed", "checkpoint", "images"], sort=False)
    added = by_keys[["gn", "tensor"]]
    return complete(added, added.sum()).reset_index().assign(gap=gap).drop(columns=["gn", "tensor"])


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
