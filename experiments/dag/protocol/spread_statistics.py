"""Statistics of the spread: rounding, network against data order, further seeds, as rows of stats.csv.

- Rounding: two trainings of one network, data and order differ by the rounding of another device. The same trainings
  from inputs changed in their last digit show how far, seed by seed; the root mean square difference over the seeds is
  the spread that a paired comparison has to allow for (`rounding_std` of the scorecard).
- Crossed: the paper's ± holds the spread over initial networks and data orders together, on one set of images. Every
  network is trained in the order of every seed, measured on the same random sets of images, and the variance is split.
- Further seeds: ten seeds of named streams say how typical the published five are. A printed mean is compared with the
  means of all subsets of as many seeds, and with the 95 % prediction interval. They are no part of a scorecard.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t

from experiments.dag.protocol.inter_layer import PUBLISHED_SEEDS, order_of
from runner.report.score import BIBLIOGRAPHIC, VALUE_COLUMNS, published, text_of
from runner.stats import Statistic
from runner.stats.intervals import Component, components

ABOUT = (
    *("value", "image_variance", "image_df", "paired", "rounding_std", "rounding_df"),
    *("comparable", "calibrated", "constructed", "extreme"),
)
"""Columns of measured values that name no value."""

FEWEST = 3
"""Pairs of trainings, or networks and orders, below which no spread is given."""


def keys_of(measured: pd.DataFrame) -> list[str]:
    """The columns that tell values of one seed apart."""
    return [c for c in measured.columns if c not in (*ABOUT, "seed")]


def moved(own: pd.DataFrame, perturbed: pd.DataFrame) -> pd.DataFrame:
    """keys, seed, value, other and difference of every value that both have; own, perturbed: measured values."""
    keys = [*keys_of(own), "seed"]
    both = own[[*keys, "value"]].merge(
        perturbed[[*keys, "value"]].rename(columns={"value": "other"}), on=keys, how="inner"
    )
    return both.assign(difference=both["other"] - both["value"]).dropna(subset=["difference"])


def grown(own: pd.DataFrame, perturbed: pd.DataFrame) -> pd.DataFrame:
    """keys, mean and spread (ddof 1) over all seeds, rounding_std (root mean square difference) and rounding_df, the
    number of pairs; values with fewer than `FEWEST` pairs are left out."""
    pairs, keys = moved(own, perturbed), keys_of(own)
    squares = pairs.assign(square=pairs["difference"] ** 2).groupby(keys, dropna=False, sort=False)
    found = squares.agg(mean_square=("square", "mean"), n=("seed", "count")).reset_index()
    found = found[found["n"] >= FEWEST]
    found["rounding_std"] = found.pop("mean_square") ** 0.5
    over = own.groupby(keys, dropna=False, sort=False)["value"].agg(mean="mean", spread="std").reset_index()
    return found.rename(columns={"n": "rounding_df"}).merge(over, on=keys, how="left")


def with_rounding(own: pd.DataFrame, perturbed: pd.DataFrame) -> pd.DataFrame:
    """Measured values with `rounding_std` and `rounding_df`; blank where nothing was repeated."""
    keys = keys_of(own)
    spread = grown(own, perturbed)
    return own.merge(spread[[*keys, "rounding_std", "rounding_df"]], on=keys, how="left")


def rounding_rows(own: pd.DataFrame, perturbed: pd.DataFrame, figure: str = "") -> Iterator[Statistic]:
    """One statistic a value (kind "rounding"): std: root mean square difference, statistic: std over the spread."""
    for record in grown(own, perturbed).to_dict("records"):
        spread = float(record["spread"])
        yield Statistic(
            name=f"{record['metric']}: what rounding moves",
            kind="rounding",
            group=label_of(record),
            figure=figure,
            label_a="inputs changed by 1e-7",
            n_a=int(record["rounding_df"]),
            mean=float(record["mean"]),
            std=float(record["rounding_std"]),
            statistic=float(record["rounding_std"]) / spread if spread > 0 else float("nan"),
            method="root mean square difference of paired trainings, over the spread of seeds",
        )


def label_of(record: Mapping[Any, Any], skipped: Sequence[str] = ("metric",)) -> str:
    """'activation=relu checkpoint=final' of the keys of a row that are there."""
    names = [k for k in record if k not in (*skipped, "mean", "spread", "rounding_std", "rounding_df")]
    return " ".join(f"{k}={_number(record[k])}" for k in names if record[k] == record[k] and record[k] != "")


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value == int(value) else value


NAMES = ("network", "order", "images")
SOURCES: Mapping[str, tuple[str, ...]] = {
    "initial network": ("network", "network:images"),
    "data order": ("order", "order:images"),
    "network and order together": ("network:order", "network:order:images"),
    "set of images": ("images",),
}
"""The first three make up the spread of seeds on one set of images, the paper's ±; the last is what it leaves out."""

CONSTANT = 1e-9
"""Values that differ by less than this share are one value: nothing is left to be split."""


def gathered(own: pd.DataFrame, companions: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Values of all trainings with the columns `network` and `order`, their seeds.

    own: values by keys, seed, checkpoint and images of the trainings themselves; companions: of these, by name.
    """
    parts = [own.assign(network=own["seed"], order=own["seed"])]
    for seed in PUBLISHED_SEEDS:
        other = companions.get(order_of(seed))
        if other is not None:
            parts.append(other.assign(network=other["seed"], order=seed))
    return pd.concat(parts, ignore_index=True)


def cubes(values: pd.DataFrame, keys: Sequence[str]) -> Iterator[tuple[dict[str, Any], NDArray[np.float64], list[int]]]:
    """(keys, y[network, order, images], seeds) of every quantity that has a complete square of `FEWEST` seeds or more.

    The square is the largest set of seeds all of whose networks were trained in all of whose orders; the papers' own
    set of images is left out where there are others, since it is not random.
    """
    random = values[values["images"] != 0] if (values["images"] != 0).any() else values
    for found, part in random.groupby(list(keys), sort=False, dropna=False):
        table = part.dropna(subset=["value"]).pivot_table(index=["network", "order"], columns="images", values="value")
        table = table.dropna(axis=1)
        seeds = complete(list(table.index))
        if len(seeds) >= FEWEST and table.shape[1] >= 2:
            y = table.loc[[(a, b) for a in seeds for b in seeds]].to_numpy(float)
            if y.max() - y.min() > CONSTANT * abs(y).max():
                yield dict(zip(keys, found, strict=True)), y.reshape(len(seeds), len(seeds), -1), seeds


def complete(pairs: Sequence[tuple[int, int]]) -> list[int]:
    """The largest set of seeds with every ordered pair among `pairs` (the first of them in lexical order)."""
    from itertools import combinations

    there = set(pairs)
    levels = sorted({a for a, b in there if a == b})
    for size in range(len(levels), 0, -1):
        for chosen in combinations(levels, size):
            if all((a, b) in there for a in chosen for b in chosen):
                return list(chosen)
    return []


def split(y: NDArray[np.float64]) -> list[Component]:
    """Components of one quantity by `SOURCES`, with 95 % intervals."""
    return components(y, NAMES, dict(SOURCES))


def crossed_rows(values: pd.DataFrame, keys: Sequence[str], figure: str = "") -> Iterator[Statistic]:
    """Statistics (kind "variance"), one a source: std and its 95 % interval (shift_low, shift_high), effect = share."""
    for found, y, seeds in cubes(values, keys):
        mean = float(y.mean())
        for c in split(y):
            yield Statistic(
                name=f"{found['metric']}: crossed, {c.source}",
                kind="variance",
                group=label_of(found),
                figure=figure,
                label_a=c.source,
                n_a=y.shape[2] if c.source == "set of images" else len(seeds),
                mean=mean,
                std=c.variance**0.5,
                shift_low=c.low**0.5,
                shift_high=c.high**0.5,
                effect=c.share,
                statistic=c.variance**0.5 / abs(mean) if mean else float("nan"),
                method="three-way random effects, generalised confidence interval of the std",
                note=f"networks and orders of seeds {', '.join(map(str, seeds))}; share of the variance "
                f"[{c.share_low:.2f}, {c.share_high:.2f}]",
            )


FEWEST_FURTHER = 6
"""Seeds below which a subset of five says nothing."""
MOST = 5000
"""Subsets of seeds that are averaged at most."""


def percentile(values: Sequence[float], printed: float, n: int) -> float:
    """Share of the subsets of n values whose mean lies below the printed one, ties by half, in percent."""
    means = [math.fsum(c) / n for c in islice(combinations(values, n), MOST)]
    below = sum(m < printed for m in means) + 0.5 * sum(m == printed for m in means)
    return 100 * below / len(means)


def further_rows(measured: pd.DataFrame, reference: pd.DataFrame, figure: str = "") -> Iterator[Statistic]:
    """One statistic a printed mean (kind "typical"): mean and std of the further seeds, statistic = percentile, p.

    measured: values of the further seeds; reference: the file of printed values, as text. effect: (printed − mean) over
    the standard error of the difference of the means of n_b and of n_a seeds; p: two-sided, by Student's t.
    """
    for row, values in matched(measured, reference):
        number = published(row)
        n, m = len(values), number.n
        mean = math.fsum(values) / n
        std = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
        if std == 0 or n < max(FEWEST_FURTHER, m + 1):
            continue
        z = (number.mean - mean) / (std * math.sqrt(1 / m + 1 / n))
        low, high = (mean + sign * float(t.ppf(0.975, n - 1)) * std * math.sqrt(1 / m + 1 / n) for sign in (-1, 1))
        yield Statistic(
            name=f"{row['metric']}: the printed mean among further seeds",
            kind="typical",
            group=label_of(row_keys(row)),
            figure=figure,
            label_a="further seeds",
            label_b="printed",
            n_a=n,
            n_b=m,
            mean=mean,
            std=std,
            shift=number.mean,
            shift_low=low,
            shift_high=high,
            statistic=percentile(values, number.mean, m),
            effect=z,
            p=2 * float(t.sf(abs(z), n - 1)),
            method="percentile among the means of all subsets; 95 % prediction interval of the mean of n_b seeds",
            note=f"printed {number.mean:g}" + (f" ± {number.std:g}" if not math.isnan(number.std) else ""),
        )


def matched(measured: pd.DataFrame, reference: pd.DataFrame) -> Iterator[tuple[dict[str, str], list[float]]]:
    """(reference row, values over seeds) of every printed mean; keys are compared as the scorecard compares them."""
    found = [{str(k): v for k, v in r.items()} for r in measured.to_dict("records")]
    for record in reference.to_dict("records"):
        row = {str(k): str(v) for k, v in record.items()}
        if math.isnan(published(row).mean):
            continue
        shared = [k for k in row_keys(row) if k in measured.columns] + ["metric"]
        of = [
            float(m["value"])
            for m in found
            if all(not row[k].strip() or text_of(row[k]) == text_of(m[k]) for k in shared)
        ]
        values = [v for v in of if math.isfinite(v)]
        if len(values) >= FEWEST_FURTHER and len({m["seed"] for m in found}) >= len(values):
            yield row, values


def row_keys(row: Mapping[str, str]) -> dict[str, Any]:
    """The entries of a reference row that name its value, except the metric."""
    return {k: v for k, v in row.items() if k not in (*VALUE_COLUMNS, *BIBLIOGRAPHIC, "metric")}


def said(found: Sequence[Statistic]) -> str:
    """The finding in one sentence; '' without further seeds."""
    if not found:
        return ""
    inside = sum(s.shift_low <= s.shift <= s.shift_high for s in found)
    far = max(found, key=lambda s: abs(s.effect))
    return (
        f"Further seeds ({found[0].n_a}, named streams): {inside} of {len(found)} printed means lie where the mean of "
        f"five further seeds falls with 95 %; the farthest is {far.name.split(':')[0]} ({far.group}), {far.note} for "
        f"{far.mean:.4g} ± {far.std:.2g}, at percentile {far.statistic:.0f} of the means of five."
    )
