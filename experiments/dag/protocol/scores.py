"""Published values, and what the scorecard must know of measured ones: which are paired, what
images, probes and rounding add.

A value is paired where network, data order and records are the published ones (table `origin`): at
init the network and the images alone, afterwards the order of the examples and the training
records, too. Where the images are others than the paper's, each side has drawn one set, so that the
variance between sets enters the difference twice.

Two trainings of one network, data and order differ by the rounding of another device. The same
trainings from inputs changed in their last digit (a companion, `protocol.inter_layer`) show how
far, seed by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from experiments.dag.protocol.summary import (
    complete_means,
    first,
    images_component,
    long_format,
)
from runner.contract import Tables
from runner.report.answers.reference import numbers_of
from runner.stats.intervals import FEWEST_SEEDS
from runner.stats.score import FACTS
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
    values = values.merge(image_spread(table, keys, metrics), on=[*keys, "metric"], how="left")
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
            row = dict(zip(keys, values, strict=True)) | {"metric": metric}
            row["image_variance"] = 0.0
            if c.variance > ROUNDING * c.mean**2:
                row["image_variance"] = 2 * c.variance
            row["image_df"] = float(max(1, c.sets - 1))
            rows.append(row)
    return pd.DataFrame(rows, columns=[*keys, "metric", "image_variance", "image_df"])


def paired(values: pd.DataFrame, tables: Tables, variant: Sequence[str]) -> pd.DataFrame:
    """`values` with the column `paired`, and no variance from images where both sides looked at the
    same ones."""
    if "origin" not in tables:
        return values.assign(paired=False, rounding_std=float("nan"))
    origin = tables["origin"]
    same_order = (origin["order"] == "published") & (origin["train_records"] == OFFICIAL)
    start = origin["initial"] == "published"
    networks = origin[[*variant, "seed"]]
    same = networks.assign(start=start, images=on_papers(origin), training=same_order)
    # a network that is measured in two cells, untrained and trained, is one
    found = values.merge(same.drop_duplicates(), on=[*variant, "seed"], how="left")
    for column in ("start", "images", "training"):
        found[column] = found[column].fillna(value=False).astype(bool)
    init = found["checkpoint"].astype(str) == "init"
    trained_alike = init | found["training"]
    found["paired"] = found["start"] & found["images"] & trained_alike
    # Of untrained networks nothing random is left: the difference itself decides.
    found["rounding_std"] = np.where(found["paired"] & init, 0.0, np.nan)
    if "image_variance" in found:
        found["image_variance"] = found["image_variance"].where(~found["images"], 0.0)
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
    both = paired(values, tables, variant).merge(exact, on=[*keys, "seed"], suffixes=("", "_exact"))
    untrained = both["checkpoint"].astype(str) == "init"
    both = both[both["paired"] & untrained]
    by_keys = (both["value"] - both["value_exact"]).groupby([both[key] for key in keys])
    noise = by_keys.agg(["std", "count"]).reset_index()
    noise["rounding_std"] = 2**0.5 * noise["std"]
    noise["rounding_df"] = noise["count"] - 1.0
    noise = noise[noise["count"] > 2][[*keys, "rounding_std", "rounding_df"]]
    return values.merge(noise, on=keys, how="left")


FEWEST_PAIRS = 3
"""Pairs of trainings below which no spread is given."""


def with_rounding(own: pd.DataFrame, repeated: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Measured values with `rounding_std` (root mean square difference from those of repeated
    trainings) and `rounding_df`, the number of pairs; blank with fewer than `FEWEST_PAIRS`."""
    other = repeated[[*keys, "seed", "value"]].rename(columns={"value": "other"})
    both = own[[*keys, "seed", "value"]].merge(other, on=[*keys, "seed"])
    both = both.assign(square=(both["other"] - both["value"]) ** 2)
    squares = both.groupby(list(keys), dropna=False, sort=False)["square"]
    spread = {"rounding_std": complete_means(squares) ** 0.5, "rounding_df": squares.size()}
    found = pd.DataFrame(spread).reset_index()
    found = found[found["rounding_df"] >= FEWEST_PAIRS]
    if "rounding_std" not in own:
        return own.merge(found, on=list(keys), how="left")
    merged = own.merge(found, on=list(keys), how="left", suffixes=("_known", ""))
    filled = merged["rounding_std"].fillna(merged["rounding_std_known"])
    return merged.assign(rounding_std=filled).drop(columns="rounding_std_known")


def with_columns(table: pd.DataFrame, known: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """The table with what is known of its columns, "X paired" and so on (`score.FACTS`).

    known: rows by metric, which is the name of a column, keys and seed.
    """
    facts = [fact for fact in FACTS if fact in known]
    for column, rows in known.groupby("metric", sort=False):
        named = rows.rename(columns={fact: f"{column} {fact}" for fact in facts})
        wanted = [*keys, "seed", *(f"{column} {fact}" for fact in facts)]
        table = table.merge(named[wanted], on=[*keys, "seed"], how="left")
    return table


def with_scores(
    table: pd.DataFrame,
    columns: Sequence[str],
    keys: Sequence[str],
    tables: Tables,
    variant: Sequence[str],
    repeated: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The table with what the scorecard must know of these columns, on the papers' images.

    keys: what tells its rows apart, with the seed; variant: the keys that a cell's parameters are;
    repeated: the same table of repeated trainings.
    """
    names = {column: column for column in columns}
    known = scored(table, keys, names, tables, variant)
    if repeated is not None:
        known = with_rounding(known, long_format(first(repeated), keys, names), [*keys, "metric"])
    return with_columns(table, known, keys)


def described(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """The rows of networks as a paper describes them, on its images, of which enough seeds are
    measured to judge them; with a row of NaN for a published seed that others leave out."""
    if "images" in table:
        table = first(table).drop(columns="images")
    enough = table[table.groupby(list(keys))["seed"].transform("nunique") >= FEWEST_SEEDS]
    published = pd.DataFrame({"seed": list(PUBLISHED_SEEDS)})
    known = enough[list(keys)].drop_duplicates().merge(published, how="cross")
    return known.merge(enough, on=[*keys, "seed"], how="left")


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
