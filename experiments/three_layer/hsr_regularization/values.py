"""What the comparison of methods measured, as the judge reads it (Section VI, Figs. 9-15)."""

from __future__ import annotations

import math

import pandas as pd

from experiments.three_layer.hsr_regularization.analysis import (
    POLISHED,
    WIDE,
    WIDE_RADIUS,
    mark_of,
)
from experiments.three_layer.hsr_regularization.settings import NAMES, HsrRegularization
from experiments.three_layer.study import listed_kinds, share_of_kinds, signed_rank
from runner.contract import Tables
from runner.stats.quantities import Functions
from runner.stats.tables import chosen

CLEAR = 0.01
"""A point counts as a clear saddle where the loss falls on both sides by this part of what λ₁ gives
at that distance, to leading order where −λ_D/λ₁ is as large."""
FUNCTIONS = Functions()
FUNCTIONS.remark(signed_rank)
FUNCTIONS.quantity("kind", "nearest_kind")(share_of_kinds)


# ------------------------------------------------------------------ the search


@FUNCTIONS.remark
def counts(rows: pd.DataFrame) -> str:
    """What the search finds, mean over data sets."""
    means = rows[["starts", "converged", "unique", "sharp"]].mean()
    return (
        f"fitted, mean over data sets: {means['converged']:.0f} of {means['starts']:.0f} starts "
        f"converge, {means['unique']:.0f} unique, {means['sharp']:.0f} sharp"
    )


def pairs_as_printed(rows: pd.DataFrame) -> pd.DataFrame:
    """Pairs of a method and plain descent that meet the printed stop rule again, mean over data
    sets, by rate of the search and method."""
    return rows[rows["method"] != "gd"].groupby(["search_rate", "method"])["pairs"].mean().unstack()


@FUNCTIONS.quantity("pairs")
def most_pairs(rows: pd.DataFrame) -> float:
    """The largest number of pairs, of any rate and method."""
    return float(pairs_as_printed(rows).max(axis=None))


@FUNCTIONS.remark
def as_printed(rows: pd.DataFrame) -> str:
    """What the printed stop rule leaves to compare: search at any rate, training at the printed
    one."""
    lines = []
    means = rows.groupby("search_rate")[["starts", "converged", "unique", "chosen"]].mean()
    for (rate, found), (_, pairs) in zip(
        means.iterrows(), pairs_as_printed(rows).iterrows(), strict=True
    ):
        lines.append(
            f"γ = {rate:g}: {found['converged']:.0f} of {found['starts']:.0f} starts converge, "
            f"{found['unique']:.0f} unique; of {found['chosen']:.0f} sharp ones both plain "
            "descent and a method meet the stop rule again at the printed γ₁ from "
            f"{pairs.min():.1f} to {pairs.max():.1f}"
        )
    return f"{'; '.join(lines)}; means over data sets"


@FUNCTIONS.remark
def kinds(rows: pd.DataFrame) -> str:
    """Where the ends of the methods lead."""
    return (
        f"{len(rows)} ends of the methods, downhill: {listed_kinds(rows['kind'])}; nearest point "
        f"without gradient: {listed_kinds(rows['nearest_kind'])}"
    )


def where_the_search_led(points: pd.DataFrame) -> str:
    """The same of the points of the search, for the findings."""
    return (
        f"Points of the search, downhill: {listed_kinds(points['led_kind'])}; the stop rule leaves "
        f"a gradient of {points['gradient'].median():.2g} in the median, "
        f"{points['gradient_ratio'].median():.2g} of the first."
    )


def points_of_search(table: pd.DataFrame) -> pd.DataFrame:
    """Bounds where the search stops, and where its points lead downhill."""
    led = table[table["led_kind"] != "unfinished"]
    parts = []
    for rows, prefix, mark in ((table, "", ""), (led, "led_", f" {POLISHED}")):
        bound = rows[f"{prefix}lambda_sup"]
        ratio = bound / rows[f"{prefix}lambda_max"]
        parts.append(rows.assign(bound=bound, ratio=ratio, mark=rows["protocol"] + mark))
    return pd.concat(parts, ignore_index=True)


# ------------------------------------------------------------------ descents and lines


@FUNCTIONS.quantity("q50")
def largest_ratio(rows: pd.DataFrame) -> float:
    """Of the medians of two methods at one step."""
    table = rows.pivot_table(index="step", columns="method", values="q50")
    return float((table.max(axis=1) / table.min(axis=1)).max())


@FUNCTIONS.remark
def each_alone(rows: pd.DataFrame) -> str:
    """The same of each method and plain descent, the largest over data sets."""
    listed = []
    for method in [m for m in NAMES if m in set(rows["method"]) - {"gd"}]:
        both = rows[rows["method"].isin(("gd", method))]
        largest = max(largest_ratio(of_seed) for _, of_seed in both.groupby("seed"))
        listed.append(f"{NAMES[method]} {largest:.3g}")
    return f"of one method and plain descent at most {', '.join(listed)}"


@FUNCTIONS.quantity("q50")
def slowest_fall(rows: pd.DataFrame) -> float:
    """Last over first median loss, the largest over the methods."""
    wide = rows.pivot_table(index="step", columns="method", values="q50").sort_index()
    return float((wide.iloc[-1] / wide.iloc[0]).max())


def line_ends(profiles: pd.DataFrame) -> pd.DataFrame:
    """Quantiles over the starts of the loss at the higher end of each line."""
    rows = chosen(profiles, kind="sharp group", at="stopped")
    ends = rows[rows["offset"].abs() == rows.groupby("seed")["offset"].transform(_reach)]
    long = ends.melt(["seed", "protocol", "method"], ["q50", "q90"], "level", "loss")
    return long.groupby(["seed", "protocol", "method", "level"], as_index=False)["loss"].max()


def _reach(offsets: pd.Series[float]) -> float:
    return float(offsets.abs().max())


@FUNCTIONS.quantity("loss")
def over_flattest_other(rows: pd.DataFrame) -> float:
    """Loss at the end of the line, HSR's over the smallest of the others."""
    ends = rows.set_index("method")["loss"]
    return float(ends.get("hsr", math.nan) / ends.drop("hsr", errors="ignore").min())


@FUNCTIONS.quantity("loss")
def steepest_over_descent(rows: pd.DataFrame) -> float:
    """Loss at the end of the line, the largest of the three methods over plain descent's; NaN where
    one is missing."""
    ends = rows.set_index("method")["loss"]
    if len(ends) < 4:
        return math.nan
    return float(ends.drop("gd").max() / ends["gd"])


# ------------------------------------------------------------------ ends


@FUNCTIONS.quantity("lambda_max", "mean", "std")
def weaker_tie(rows: pd.DataFrame) -> float:
    """The smaller Spearman's ρ of λ₁ with mean and with standard deviation of the spectrum."""
    return float(rows[["mean", "std"]].corrwith(rows["lambda_max"], method="spearman").min())


@FUNCTIONS.quantity("lambda_max")
def in_order(rows: pd.DataFrame) -> float:
    """1 where λ₁ is smallest under HSR and largest under plain descent, else 0; NaN where one is
    missing."""
    medians = rows.groupby("method")["lambda_max"].median()
    if {"hsr", "trace", "gd"} <= set(medians.dropna().index):
        return float(medians["hsr"] < medians["trace"] < medians["gd"])
    return math.nan


@FUNCTIONS.remark
def medians_of_methods(rows: pd.DataFrame) -> str:
    """λ₁ of each method, over all data sets."""
    medians = rows.groupby("method")["lambda_max"].median()
    known = medians[medians.index.isin(NAMES)]
    listed = ", ".join(f"{NAMES[str(method)]} {value:.3g}" for method, value in known.items())
    return f"medians over all data sets: {listed}"


def whisker_tip(values: pd.Series) -> float:
    """Smallest value within 1.5 interquartile ranges of the lower quartile."""
    low = values.quantile(0.25)
    high = values.quantile(0.75)
    return float(values[values >= low - 1.5 * (high - low)].min())


@FUNCTIONS.quantity("lambda_min", "saddle")
def at_the_tip(rows: pd.DataFrame) -> float:
    """How clear a saddle the point at the tip of λ_D's whisker is."""
    tip = chosen(rows, lambda_min=whisker_tip(rows["lambda_min"]))
    return float(tip["saddle"].iloc[0]) if len(tip) else math.nan


def saddles(ends: pd.DataFrame, nearest: pd.DataFrame, half_range: float) -> pd.DataFrame:
    """How clear a saddle each end from a flat seed is: how far the loss falls on both sides along
    u_D, slope taken out, over what λ₁ gives at the same distance; of polished ends 1 where the
    nearest point without gradient is a saddle, else 0, and `lambda_min` is that where they stopped.
    """
    flat = chosen(ends, group="flat")
    stopped = flat[flat["reading"] != POLISHED]
    rise = 0.5 * stopped["lambda_max"] * half_range**2
    stopped = stopped.assign(saddle=stopped["saddle_depth"] / rise)
    keys = ["protocol", "seed", "method", "group", "start"]
    first = chosen(flat, first=True)[[*keys, "lambda_min"]]
    polished = chosen(flat, reading=POLISHED)[[*keys, "mark", "wide"]]
    near = nearest.merge(first, on=keys).merge(polished, on=keys)
    near = near.assign(saddle=(near["nearest_kind"] == "saddle").astype(float))
    columns = [*keys, "mark", "wide", "lambda_min", "saddle"]
    both = pd.concat([stopped[columns], near[columns]], ignore_index=True)
    return both.assign(clear=(both["saddle"] >= CLEAR).astype(float))


# ------------------------------------------------------------------ tables


def judged(tables: Tables, tests: pd.DataFrame, experiment: HsrRegularization) -> Tables:
    """The tables with the columns that statements read. mark: the variant, as verdicts name it;
    wide: its ending where A-SAM has the wide radius."""
    found = dict(tables)
    if len(tests):
        found["tests"] = tests
    if "endpoints" in tables:
        found["endpoints"] = _marked(tables["endpoints"], experiment)
        if "nearest" in tables:
            about = (tables["nearest"], experiment.line_half_range)
            found["saddles"] = saddles(found["endpoints"], *about)
    if "critical_points" in tables:
        found["points"] = points_of_search(tables["critical_points"])
    if "profiles" in tables:
        found["line_ends"] = line_ends(tables["profiles"])
    if "draws" in tables:
        draws = tables["draws"]
        wide = draws["a"].isin(WIDE.values()) | draws["b"].isin(WIDE.values())
        mark = wide.map({True: "fitted draws with wide radius", False: "fitted"})
        found["draws"] = draws.assign(gain=draws["f1"], mark=mark)
        if len(tests):
            by_seed = tests["quantity"].eq("f1") & tests["mark"].eq("fitted")
            found["tests"] = tests.assign(mark=tests["mark"].mask(by_seed, "fitted seed by seed"))
    return found


def _marked(ends: pd.DataFrame, experiment: HsrRegularization) -> pd.DataFrame:
    first = experiment.reading[0]
    marks = [mark_of(*keys, first) for keys in zip(ends["protocol"], ends["reading"], strict=True)]
    return ends.assign(
        mark=marks,
        first=ends["reading"] == first,
        wide=ends["method"].map(dict.fromkeys(WIDE.values(), WIDE_RADIUS)).fillna(""),
        share=ends["lambda_min"].abs() / ends["lambda_max"],
        width=ends["lambda_max"] - ends["lambda_min"],
    )
