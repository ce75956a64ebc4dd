"""Tests, fits and variance components of the inter-layer experiments, as rows of stats.csv."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from experiments.dag.protocol.summary import (
    first,
    groups,
    label,
    over_seeds,
    seed_values,
    variance_components,
)
from runner import stats
from runner.stats import Statistic

if TYPE_CHECKING:
    import pandas as pd


def between(
    distances: pd.DataFrame,
    value: str,
    *,
    column: str,
    a: str,
    b: str,
    keys: Sequence[str],
    figure: str,
    where: str = "",
) -> list[Statistic]:
    """Mann–Whitney of the seeds' values of variant a against b, for each combination of the other keys."""
    found = []
    for values, part in groups(first(distances), keys):
        x, y = (list(seed_values(part[part[column] == name], value).values()) for name in (a, b))
        about: stats.About = {"name": f"{value}: {a} against {b}", "group": label(keys, values)}
        about |= {"figure": figure, "where": where, "label_a": a, "label_b": b}
        found.append(stats.mann_whitney(x, y, **about))
    return found


def through_training(
    distances: pd.DataFrame, value: str, *, keys: Sequence[str], figure: str, where: str = ""
) -> list[Statistic]:
    """Wilcoxon of final against init, paired by seed, for each combination of the keys."""
    found = []
    for values, part in groups(first(distances), keys):
        init, final = (seed_values(part[part["checkpoint"] == c], value) for c in ("init", "final"))
        seeds = sorted(set(init) & set(final))
        about: stats.About = {"name": f"{value}: final against init", "group": label(keys, values)}
        about |= {"figure": figure, "where": where, "label_a": "final", "label_b": "init"}
        found.append(stats.wilcoxon([final[s] for s in seeds], [init[s] for s in seeds], **about))
    return found


def decay_fits(
    distances: pd.DataFrame, value: str, *, keys: Sequence[str], figure: str, where: str = ""
) -> list[Statistic]:
    """log value = a − b d by least squares: one fit to the means over seeds, and a summary of the seeds' own R².

    keys: variant and checkpoint.
    """
    found = []
    for values, part in groups(first(distances), keys):
        about = {"group": label(keys, values), "figure": figure, "where": where}
        means = over_seeds(part, ["distance"], value)
        found.append(stats.log_linear(means["distance"], means["mean"], name=f"log {value} against d", **about))
        own = [stats.log_linear(p["distance"], p[value], name="seed").r2 for _, p in part.groupby("seed")]
        found.append(stats.summary(own, name=f"R² of log {value} against d, seed by seed", label_a="R²", **about))
    return found


def seed_fits(part: pd.DataFrame, value: str) -> list[Statistic]:
    """The log-linear fit of each seed, for rows of one variant and checkpoint on one set of images."""
    return [stats.log_linear(p["distance"], p[value], name=f"seed {seed}") for seed, p in part.groupby("seed")]


def variance_rows(table: pd.DataFrame, value: str, *, keys: Sequence[str], figure: str = "") -> list[Statistic]:
    """Standard deviations between training seeds and between sets of images, for each combination of the keys.

    Three rows each (kind "variance"): std is the square root of the component, mean the grand mean, n_a the number of
    levels, statistic = std/|mean|; the third is what neither explains. The papers' ± holds the first alone.
    """
    found = []
    for values, part in groups(table, keys):
        c = variance_components(part, value)
        sources = {
            "training seeds": (c.seeds, c.n_seeds),
            "sets of images": (c.images, c.n_images),
            "seed and images together": (c.rest, c.n_seeds * c.n_images),
        }
        for source, (variance, n) in sources.items():
            known = not math.isnan(variance)
            found.append(
                Statistic(
                    name=f"{value}: spread over {source}",
                    kind="variance",
                    group=label(keys, values),
                    figure=figure,
                    label_a=source,
                    n_a=n,
                    mean=c.mean,
                    std=math.sqrt(variance),
                    statistic=math.sqrt(variance) / abs(c.mean) if known and c.mean else math.nan,
                    method="two-way random effects" if known else "",
                    note="" if known else "needs two seeds and two sets of images",
                )
            )
    return found
