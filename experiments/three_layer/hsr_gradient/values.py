"""What the study of the bound's gradient measured, as the judge reads it (Section V, Figs. 2-7)."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pandas as pd

from runner.contract import Tables
from runner.stats.quantities import CURVES, Functions
from runner.stats.tables import chosen

LAST_DECADES = 2
"""Steps of the recorded path, from its end, over which an exponent in |delta| is taken."""
CONFIDENT = 0.01
"""|delta| below which a sample counts as estimated with high confidence (Section V-A)."""
NUMERICAL = "numerical"
"""Three-point differences, the curve "Num." of Fig. 2."""
SIZE = ["varied", "samples", "dimension"]
FUNCTIONS = Functions()


# ------------------------------------------------------------------ times


@FUNCTIONS.quantity("seconds", "last")
def exponent(rows: pd.DataFrame) -> float:
    """Of the size in the time, over the last doublings, where calls no longer cost."""
    last = rows[rows["last"]]
    return CURVES["power"](last["size"].to_numpy(float), last["seconds"].to_numpy(float))


@FUNCTIONS.remark
def local_exponents(rows: pd.DataFrame) -> str:
    """Exponents between consecutive sizes, of mean seconds."""
    means = rows.groupby("size")["seconds"].mean()
    slopes = []
    for (size, time), (larger, longer) in pairwise(means.items()):
        slopes.append(f"{math.log(longer / time) / math.log(larger / size):.2g}")
    if not slopes:
        return "one size"
    sizes = f"{means.index[0]:g} to {means.index[-1]:g}"
    return f"between consecutive sizes from {sizes}: {', '.join(slopes)}"


def sized(cost: pd.DataFrame, octaves: int) -> pd.DataFrame:
    """Times of the forms that were measured, with the size that is varied and whether it is one of
    the last doublings."""
    timed = chosen(cost, status="ok")
    size = timed["samples"].where(timed["varied"] == "samples", timed["dimension"])
    timed = timed.assign(size=size)
    from_end = timed.groupby(["seed", "varied", "form"])["size"].rank(ascending=False)
    return timed.assign(last=from_end <= octaves + 1)


def gains(timed: pd.DataFrame) -> pd.DataFrame:
    """Time of the differences over that of each form, by seed and size; `lead`: time of the double
    sum over that of the fastest other form of the gradient."""
    seconds = timed.pivot_table(index=["seed", *SIZE], columns="form", values="seconds")
    numerical = seconds.pop(NUMERICAL)
    lead = seconds["double sum"] / seconds.drop(columns="double sum").min(axis=1)
    ratios = seconds.rdiv(numerical, axis=0).assign(lead=lead)
    return ratios.melt(ignore_index=False, value_name="gain").dropna().reset_index()


# ------------------------------------------------------------------ samples


@FUNCTIONS.quantity("error", "norm")
def carried(rows: pd.DataFrame) -> float:
    """Share of the samples with |delta| < `CONFIDENT` in the sum of the norms of all contributions:
    the median over networks, of those that have such samples."""
    squares = rows.assign(square=rows["norm"] ** 2)
    norms = squares.groupby(["start", "sample", "error"])["square"].sum() ** 0.5
    samples = norms.rename("norm").reset_index()
    sure = samples[samples["error"] < CONFIDENT].groupby("start")["norm"].sum()
    return float((sure / samples.groupby("start")["norm"].sum()).dropna().median())


@FUNCTIONS.quantity("error", "norm")
def rising(rows: pd.DataFrame) -> float:
    """Share of the networks in which the norm of a sample's part rises with |delta|."""
    return float((_ties(rows) > 0).mean())


@FUNCTIONS.quantity("error", "norm")
def middle_tie(rows: pd.DataFrame) -> float:
    """Median over networks of Spearman's ρ of |delta| and the norm."""
    return float(_ties(rows).median())


def _ties(rows: pd.DataFrame) -> pd.Series[float]:
    networks = rows.groupby(["seed", "start"])
    return pd.Series([n["error"].corr(n["norm"], method="spearman") for _, n in networks])


@FUNCTIONS.quantity("error", "norm")
def last_exponent(rows: pd.DataFrame) -> float:
    """Proposition 1 is about a limit: the smallest exponent of a norm in |delta| over the last
    recorded decades."""
    slopes = []
    for _, path in rows.groupby(["start", "of"]):
        path = path.sort_values("error")
        first = path.iloc[0]
        last = path.iloc[LAST_DECADES]
        if first["norm"] > 0 and last["norm"] > 0:
            fall = math.log(last["norm"] / first["norm"])
            slopes.append(fall / math.log(last["error"] / first["error"]))
    return min(slopes) if slopes else math.nan


@FUNCTIONS.quantity("covariance", "q50")
def rise(rows: pd.DataFrame) -> float:
    """Median norm at the largest over that at the smallest |covariance|."""
    size = rows["covariance"].abs()
    middle = rows["q50"]
    return float(middle[size == size.max()].mean() / middle[size == size.min()].mean())


# ------------------------------------------------------------------ descent on the bound


def spectrum_columns(table: pd.DataFrame) -> list[str]:
    """The columns of the eigenvalues, largest first."""
    names = [name for name in table if re.fullmatch(r"lambda_[0-9]+", name)]
    return sorted(names, key=lambda name: int(name.removeprefix("lambda_")))


def descents(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each start: 1 where, from the first to the last step, the bound, the largest
    eigenvalue, or the range of all falls, the lower bound rises, or the smallest eigenvalue nears 0
    from below, else 0; NaN where a value is infinite or missing."""
    least = table[spectrum_columns(table)[-1]]
    table = table.assign(width=table["lambda_1"] - least, least=least, off_zero=least.abs())
    columns = ["lambda_sup", "lambda_1", "width", "off_zero", "lambda_inf", "least"]
    steps = table.sort_values("step").set_index(["seed", "start"])[columns]
    by_start = steps.groupby(level=["seed", "start"])
    first = by_start.head(1).sort_index()
    change = by_start.tail(1).sort_index() - first
    falls = (change < 0).astype(float).where(np.isfinite(change))
    rises = (change > 0).astype(float).where(np.isfinite(change))
    from_below = falls["off_zero"] * (first["least"] <= 0)
    return falls.assign(lambda_inf=rises["lambda_inf"], least=from_below).reset_index()


# ------------------------------------------------------------------ sizes of known networks

CLASSES = 1000


def vgg16() -> int:
    """13 convolutions of 3 x 3 with biases, three full layers, after Simonyan and Zisserman.

    >>> vgg16()
    138357544
    """
    channels = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    convolutions = sum((9 * a + 1) * b for a, b in pairwise(channels))
    full = (512 * 7 * 7, 4096, 4096, CLASSES)
    return convolutions + sum((a + 1) * b for a, b in pairwise(full))


def resnet18() -> int:
    """Stem, eight blocks of two 3 x 3 convolutions with batch norm, projections where the width
    changes, a head.

    >>> resnet18()
    11689512
    """

    def convolution(a: int, b: int, size: int) -> int:
        return size**2 * a * b + 2 * b  # no bias, but scale and shift of its batch norm

    count = convolution(3, 64, 7)
    width = 64
    for wider in (64, 128, 256, 512):
        for _ in range(2):
            count += convolution(width, wider, 3) + convolution(wider, wider, 3)
            count += convolution(width, wider, 1) if width != wider else 0
            width = wider
    return count + (width + 1) * CLASSES


def known_networks() -> pd.DataFrame:
    """Parameters of networks as their authors give them."""
    counts = {"VGG16": vgg16(), "ResNet18": resnet18()}
    return pd.DataFrame({"network": list(counts), "parameters": list(counts.values())})


# ------------------------------------------------------------------ tables


def judged(tables: Tables, octaves: int) -> Tables:
    """The tables with those that statements read."""
    found = {**tables, "known_networks": known_networks()}
    if "cost" in tables:
        found["cost"] = sized(tables["cost"], octaves)
        found["gains"] = gains(found["cost"])
    if "difference_norms" in tables:
        norms = tables["difference_norms"]
        found["difference_norms"] = norms.assign(
            relative=norms["difference_norm"] / norms["gradient_norm"]
        )
    if "terms" in tables:
        terms = tables["terms"]
        found["terms"] = terms.assign(excess=terms["std_term"] - terms["mean_term"])
    if "narrowed" in tables:
        narrowed = tables["narrowed"]
        least = narrowed[["upper_falls_by", "lower_rises_by"]].min(axis=1)
        found["narrowed"] = narrowed.assign(least=least)
    if "bound_descent" in tables:
        found["descents"] = descents(tables["bound_descent"])
    return found
