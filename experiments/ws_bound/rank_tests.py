"""The tests behind the figures, one row of stats.csv each; every data set (seed) is tested by itself.

Critical points of one data set share that data set, so pooling them over seeds would count the same draw hundreds of
times. What holds over data sets is tested on one value per data set (`… over data sets`), where n is small and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from experiments.ws_bound.analysis import (
    Tables,
    Variant,
    by_seed,
    polished_variants,
    split_low_high,
    unique_points,
    variants,
)
from runner import stats
from runner.stats import Statistic

if TYPE_CHECKING:
    import pandas as pd

    from experiments.ws_bound.settings import WsBound

BINS = 10
"""Equal-count bins of ||RᵀR||² whose smallest bounds trace the lower edge of Fig. 12."""


def statistics(experiment: WsBound, tables: Tables) -> list[Statistic]:
    """Every test of every variant, without Holm's correction."""
    found: list[Statistic] = []
    for variant in polished_variants(experiment, tables):
        points = unique_points(tables, variant)
        narrow = points[points["hidden"] == experiment.portrait_hidden]
        found += [*_ratios(points, variant), *_generalisation(experiment, narrow, variant)]
        if experiment.compared_hidden in set(points["hidden"]):
            found += _widths(experiment, points, variant)
    found += _draws(tables)
    for variant in variants(experiment, tables):
        points = unique_points(tables, variant)
        narrow = points[points["hidden"] == experiment.portrait_hidden]
        if narrow.empty:
            continue
        found += _ratios(points, variant)
        found += _generalisation(experiment, narrow, variant)
        found += _norms(narrow, variant)
        if experiment.compared_hidden in set(points["hidden"]):
            found += _widths(experiment, points, variant)
        found += _lower_edge(narrow, variant)
    return found


def _ratios(points: pd.DataFrame, variant: Variant) -> Iterator[Statistic]:
    for hidden, rows in points.groupby("hidden", sort=True):
        for seed, part in by_seed(rows):
            group = f"{variant.group} seed={seed}"
            about: dict[str, Any] = {"where": "Fig. 2", "figure": variant.figure("fig02"), "group": group}
            yield stats.summary(part["lambda_sup"] / part["lambda_max"], name=f"bound / λ₁, N={hidden}", **about)
            about |= {"where": "Fig. 6", "figure": variant.figure("fig06")}
            yield stats.summary(part["lambda_sup"], name=f"bound, N={hidden}", **about)


def _generalisation(experiment: WsBound, narrow: pd.DataFrame, variant: Variant) -> Iterator[Statistic]:
    """Macro F1 of the points with low against those with high λ_sup."""
    for size in experiment.dataset.test:
        column, means = f"f1_test{size}", []
        about: dict[str, Any] = {
            "where": "Fig. 7",
            "figure": variant.figure("fig07"),
            "label_a": "low",
            "label_b": "high",
        }
        for seed, rows in by_seed(narrow):
            low, high = split_low_high(rows, experiment.low_share)
            means.append((low[column].mean(), high[column].mean()))
            group = f"{variant.group} seed={seed}"
            yield stats.mann_whitney(low[column], high[column], name=f"F1 on {size}, low - high", group=group, **about)
        if not means:
            continue
        first, second = zip(*means, strict=True)
        name = f"mean F1 on {size}, low - high, over data sets"
        yield stats.wilcoxon(first, second, name=name, group=variant.group, **about)


def _draws(tables: Tables) -> Iterator[Statistic]:
    """Mean macro F1 of the low group less that of the high one, one value for each draw of the data."""
    if "draws" not in tables:
        return
    for (stage, size), rows in tables["draws"].groupby(["stage", "test_samples"], sort=True):
        about: dict[str, Any] = {"where": "Fig. 7", "figure": "fig07 draws", "group": f"protocol=fitted {stage}"}
        name = f"mean F1 on {size}, low - high, over draws"
        yield stats.wilcoxon(rows["f1_low"], rows["f1_high"], name=name, label_a="low", label_b="high", **about)


def _norms(narrow: pd.DataFrame, variant: Variant) -> Iterator[Statistic]:
    for column, where, figure in (
        ("V_norm_sq", "Fig. 10", "fig10"),
        ("W_norm_sq", "Fig. 10", "fig10"),
        ("RtR_norm_sq", "Fig. 12", "fig12"),
    ):
        for seed, rows in by_seed(narrow):
            about: dict[str, Any] = {
                "where": where,
                "figure": variant.figure(figure),
                "group": f"{variant.group} seed={seed}",
            }
            yield stats.spearman(rows[column], rows["lambda_sup"], name=f"{column} and bound", **about)


def _widths(experiment: WsBound, points: pd.DataFrame, variant: Variant) -> Iterator[Statistic]:
    """λ_sup of the wider network against the narrower one; a positive shift means that the wider is sharper."""
    wide, narrow = experiment.compared_hidden, experiment.portrait_hidden
    about: dict[str, Any] = {
        "where": "Fig. 11",
        "figure": variant.figure("fig11"),
        "label_a": f"N={wide}",
        "label_b": f"N={narrow}",
    }
    medians = []
    for seed, rows in by_seed(points):
        a, b = (rows.loc[rows["hidden"] == width, "lambda_sup"] for width in (wide, narrow))
        medians.append((a.median(), b.median()))
        group = f"{variant.group} seed={seed}"
        yield stats.mann_whitney(a, b, name=f"bound, N={wide} - N={narrow}", group=group, **about)
    first, second = zip(*medians, strict=True)
    name = f"median bound, N={wide} - N={narrow}, over data sets"
    yield stats.wilcoxon(first, second, name=name, group=variant.group, **about)


def _lower_edge(narrow: pd.DataFrame, variant: Variant) -> Iterator[Statistic]:
    """Whether the smallest λ_sup at a given ||RᵀR||² rises with it: rank correlation over bins of equal counts."""
    for seed, rows in by_seed(narrow):
        centre, edge = lower_edge(rows)
        about: dict[str, Any] = {
            "where": "Fig. 12",
            "figure": variant.figure("fig12"),
            "group": f"{variant.group} seed={seed}",
        }
        yield stats.spearman(centre, edge, name="lower edge of bound over RtR_norm_sq", **about)


def lower_edge(rows: pd.DataFrame) -> tuple[list[float], list[float]]:
    """(median ||RᵀR||², smallest bound) of bins of equal counts, by rising ||RᵀR||²: what is tested and drawn."""
    import numpy as np

    ordered = rows.sort_values("RtR_norm_sq", kind="stable")
    parts = [p for p in np.array_split(np.arange(len(ordered)), BINS) if len(p)]
    centre = [float(ordered["RtR_norm_sq"].iloc[p].median()) for p in parts]
    return centre, [float(ordered["lambda_sup"].iloc[p].min()) for p in parts]
