"""Published values, and measured ones as the scorecard compares them: which are paired, and what
images add.

A value is paired where network, data order and records are the published ones (table `origin`): at
init the network and the images alone, afterwards the order of the examples and the training
records, too. Where the images are others than the paper's, each side has drawn one set, so that the
variance between sets enters the difference twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from experiments.dag.protocol.summary import first, images_component, long_format
from runner.contract import Tables
from runner.report.answers.reference import numbers_of
from runner.stats.intervals import FEWEST_SEEDS
from runner.stats.tables import chosen, groups
from runner.training.streams import PUBLISHED_SEEDS

OFFICIAL = "official"
ROUNDING = 1e-20
"""Relative variance below which what images add is the rounding of sums."""


def scored(
    table: pd.DataFrame,
    keys: Sequence[str],
    metrics: Mapping[str, str],
    tables: Tables,
    variant: Sequence[str],
) -> pd.DataFrame:
    """Values on the papers' images, one row per seed, with the columns that `compare.scorecard`
    asks for.

    table: rows by keys, seed and `images`; metrics: name in the reference file -> column; variant:
    the keys that a cell's parameters are.
    """
    values = long_format(first(table), keys, dict(metrics))
    spread = image_spread(table, keys, metrics)
    values = values.merge(spread, on=[*keys, "metric"], how="left")
    return paired(values, tables, variant)


def image_spread(
    table: pd.DataFrame, keys: Sequence[str], metrics: Mapping[str, str]
) -> pd.DataFrame:
    """keys, metric, image_variance, image_df: twice the variance between sets of images, and its
    degrees of freedom.

    A variance of 0 where there are fewer than two random sets.
    """
    rows = []
    for metric, column in metrics.items():
        for values, part in groups(table, keys):
            c = images_component(part, column)
            row_keys = dict(zip(keys, values, strict=True))
            row = row_keys | {"metric": metric}
            row["image_variance"] = 0.0
            if c.variance > ROUNDING * c.mean**2:
                row["image_variance"] = 2 * c.variance
            freedom = max(1, c.sets - 1)
            row["image_df"] = float(freedom)
            rows.append(row)
    columns = [*keys, "metric", "image_variance", "image_df"]
    return pd.DataFrame(rows, columns=columns)


def paired(values: pd.DataFrame, tables: Tables, variant: Sequence[str]) -> pd.DataFrame:
    """`values` with the column `paired`, and no variance from images where both sides looked at the
    same ones."""
    if "origin" not in tables:
        return values.assign(paired=False, rounding_std=float("nan"))
    origin = tables["origin"]
    in_order = origin["order"] == "published"
    same_order = in_order & (origin["train_records"] == OFFICIAL)
    start = origin["initial"] == "published"
    networks = origin[[*variant, "seed"]]
    same = networks.assign(start=start, images=on_papers(origin), training=same_order)
    # a network that is measured in two cells, untrained and trained, is one
    found = values.merge(same.drop_duplicates(), on=[*variant, "seed"], how="left")
    for column in ("start", "images", "training"):
        known = found[column].fillna(value=False)
        found[column] = known.astype(bool)
    init = found["checkpoint"].astype(str) == "init"
    trained_alike = init | found["training"]
    found["paired"] = found["start"] & found["images"] & trained_alike
    # Of untrained networks nothing random is left: the difference itself decides.
    certain = found["paired"] & init
    found["rounding_std"] = np.where(certain, 0.0, np.nan)
    if "image_variance" in found:
        variance = found["image_variance"]
        found["image_variance"] = variance.where(~found["images"], 0.0)
    return found.drop(columns=["start", "images", "training"])


def probes(
    values: pd.DataFrame, exact: pd.DataFrame, tables: Tables, variant: Sequence[str]
) -> pd.DataFrame:
    """`values` from random probes, with the spread of the probes for untrained networks that are
    the published ones.

    exact: the same values without probes. Of those networks only the probes are others: each side's
    estimates scatter about the exact values, and ours say by how much, so that one seed's
    difference has √2 times that standard deviation (`rounding_std`).
    """
    keys = [c for c in values.columns if c not in ("value", "seed")]
    same = paired(values, tables, variant)
    both = same.merge(exact, on=[*keys, "seed"], suffixes=("", "_exact"))
    untrained = both["checkpoint"].astype(str) == "init"
    both = both[both["paired"] & untrained]
    error = both["value"] - both["value_exact"]
    by_keys = error.groupby([both[key] for key in keys])
    noise = by_keys.agg(["std", "count"]).reset_index()
    noise["rounding_std"] = 2**0.5 * noise["std"]
    noise["rounding_df"] = noise["count"] - 1.0
    several = noise[noise["count"] > 2]
    noise = several[[*keys, "rounding_std", "rounding_df"]]
    return values.merge(noise, on=keys, how="left")


def described(values: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Values of networks as a paper describes them, one row per seed, where enough seeds are
    measured to judge them; NaN for a published seed that others leave out."""
    seeds = values.pivot(index=["metric", *keys], columns="seed", values="value")
    enough = seeds[seeds.count(axis=1) >= FEWEST_SEEDS]
    by_keys = enough.reindex(columns=list(PUBLISHED_SEEDS)).reset_index()
    rows = by_keys.melt(["metric", *keys], var_name="seed")
    return rows.assign(paired=False)


def published_start(tables: Tables, **keys: object) -> bool:
    """Whether untrained networks of these keys are the published ones, all five of each, on the
    papers' images."""
    if "origin" not in tables:
        return False
    origin = chosen(tables["origin"], **keys)
    start = origin["initial"] == "published"
    all_five = set(origin["seed"]) == set(PUBLISHED_SEEDS)
    return all_five and bool((start & on_papers(origin)).all())


def with_own(table: pd.DataFrame, tables: Tables, variant: Sequence[str]) -> pd.DataFrame:
    """The table with the column `same`: whether a row is of an untrained network that is the
    published one on the papers' images, all five of each; and `paired` (see above).

    What is measured on it has no chance in it: it is the number that the paper saw.
    """
    same = pd.Series(False, index=table.index)
    for values, rows in groups(table, variant):
        keys = dict(zip(variant, values, strict=True))
        all_five = set(rows["seed"]) == set(PUBLISHED_SEEDS)
        if all_five and published_start(tables, **keys):
            same[rows.index] = rows["checkpoint"].astype(str) == "init"
    networks = paired(table[[*variant, "seed", "checkpoint"]], tables, variant)
    return table.assign(same=same, paired=networks["paired"].to_numpy())


def on_papers(origin: pd.DataFrame) -> pd.Series[bool]:
    """Whether networks are measured on the papers' images."""
    return origin["test_records"].astype(str).str.startswith(OFFICIAL)


KEYS = ("depth", "d_u", "distance", "probes", "branch_depth")
"""Keys of reference files that are whole numbers."""


def printed(name: str) -> pd.DataFrame:
    """The printed numbers of an experiment, with mean, std and the whole-number keys as numbers."""
    numbers = numbers_of(name)
    if numbers is None:
        raise ValueError(f"{name}: expected printed values in experiments/reference, found none")
    table = numbers.read()
    for column in ("mean", "std", "upper_bound", *KEYS):
        if column in table.columns:
            table[column] = pd.to_numeric(table[column], errors="coerce")
    return table
