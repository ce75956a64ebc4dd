"""Saved tables to numbers: averages over training seeds, decay fits, variance between seeds and between image sets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FIRST = 0
"""Number of the papers' set of images."""


def first(table: pd.DataFrame) -> pd.DataFrame:
    """The rows on the papers' set of images."""
    return table[table["images"] == FIRST]


def label(keys: Sequence[str], values: Sequence[Any]) -> str:
    """The variant as text: "depth=8 arch=plain"."""
    return " ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True))


def groups(table: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """(values of the keys, rows), in the order in which the values first occur."""
    for values, part in table.groupby(list(keys), sort=False):
        yield (values if isinstance(values, tuple) else (values,)), part


def seed_values(table: pd.DataFrame, value: str) -> dict[int, float]:
    """seed -> value, from rows of one seed each; NaN is left out. Raises ValueError for two rows of one seed."""
    if table["seed"].duplicated().any():
        raise ValueError(f"{value}: expected one row per seed, found several; the keys do not tell them apart")
    kept = table[table[value].notna()]
    return {int(s): float(v) for s, v in zip(kept["seed"], kept[value], strict=True)}


def over_seeds(table: pd.DataFrame, keys: Sequence[str], value: str) -> pd.DataFrame:
    """keys, mean, std (ddof 1), n over the seeds."""
    found = table.groupby(list(keys), sort=False)[value].agg(["mean", "std", "count"]).reset_index()
    return found.rename(columns={"count": "n"})


@dataclass(frozen=True)
class Components:
    """Variances of value[seed, images] = mean + seed + images + rest, estimated from a complete two-way table.

    Each set of images is measured in every training, so the components follow from the mean squares (two-way random
    effects, one value per cell): seeds = (MS_seeds − MS_rest)/k, images = (MS_images − MS_rest)/n, rest = MS_rest,
    with n seeds and k sets of images. Negative estimates are set to 0. NaN below two seeds or two sets.
    """

    mean: float
    seeds: float
    images: float
    rest: float
    n_seeds: int
    n_images: int

    @property
    def within(self) -> float:
        """Variance between sets of images of one network: what all networks share of it, and what is its own."""
        return self.images + self.rest


def variance_components(table: pd.DataFrame, value: str) -> Components:
    """Components of `value` over the random sets of images (the papers' own set is left out: it is not random)."""
    import numpy as np

    grid = table[table["images"] != FIRST].pivot(index="seed", columns="images", values=value).dropna()
    y = grid.to_numpy(dtype=float)
    n, k = y.shape
    mean = float(y.mean()) if y.size else math.nan
    if n < 2 or k < 2:
        return Components(mean, math.nan, math.nan, math.nan, n, k)
    rows, columns = y.mean(1) - mean, y.mean(0) - mean
    rest = y - mean - rows[:, None] - columns[None, :]
    ms_seeds, ms_images = k * float(np.sum(rows**2)) / (n - 1), n * float(np.sum(columns**2)) / (k - 1)
    ms_rest = float(np.sum(rest**2)) / ((n - 1) * (k - 1))
    return Components(mean, max(0.0, (ms_seeds - ms_rest) / k), max(0.0, (ms_images - ms_rest) / n), ms_rest, n, k)


def long_format(table: pd.DataFrame, keys: Sequence[str], metrics: dict[str, str]) -> pd.DataFrame:
    """Columns keys, metric, seed, value: one row per seed and metric; metrics maps reference names to columns."""
    import pandas as pd

    parts = []
    for metric, column in metrics.items():
        part = table[[*keys, "seed"]].copy()
        part["metric"], part["value"] = metric, table[column].astype(float)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def gap(table: pd.DataFrame) -> pd.Series[float]:
    """GN-gap Σ‖H^T‖_F / Σ‖H^GN‖_F of each row; NaN where Σ‖H^GN‖_F is 0."""
    return table["tensor"] / table["gn"].where(table["gn"] > 0)


def global_gaps(distances: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """GN-gap over all pairs, one row per keys, seed, checkpoint and set of images.

    gap: Σ‖H^T‖_F / Σ‖H^GN‖_F, the ratio of sums that the DAG paper's tables hold. gap_of_pairs: mean of Eq. 4 over
    the pairs, which those with small ‖H^GN‖_F dominate; on the papers' images only. NaN where every ‖H^GN‖_F is 0.
    """
    by = [*keys, "seed", "checkpoint", "images"]
    weighted = distances.assign(gap_of_pairs=distances["gap_of_pairs"] * distances["pairs"])
    sums = weighted.groupby(by, sort=False)[["gn", "tensor", "gap_of_pairs", "pairs"]].sum(min_count=1).reset_index()
    sums["gap"] = gap(sums)
    sums["gap_of_pairs"] = sums["gap_of_pairs"] / sums["pairs"]
    return sums.drop(columns=["gn", "tensor", "pairs"])
