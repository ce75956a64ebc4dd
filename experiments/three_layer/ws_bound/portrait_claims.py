"""Claims on single points in detail: Figs. 3 to 5."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from experiments.three_layer.contours import contour_length
from experiments.three_layer.study import Made, Reading
from experiments.three_layer.ws_bound.analysis import Case
from runner.contract import Claim
from runner.stats import judge
from runner.stats.judge import by_seed
from runner.stats.tables import chosen


def paths(c: Case) -> Made:
    """Fig. 5: the bound along the descents to the sharpest and to the flattest point."""
    paths = c.rows("trajectories")
    if paths.empty:
        return
    yield c.mark, c.compared("bound follows eigenvalue", paths, _following)
    sharpest = chosen(paths, point="sharpest_1")
    ends = by_seed(sharpest, _at_the_end).values()
    listed = ", ".join(f"{value:.3g}" for value in ends)
    why = (
        "the path is the one of some 330 with the largest bound at its end; bound at the end over "
        f"the start {listed}"
    )
    rises = c.statement("bound rises on the way to the sharpest point")
    yield c.mark, judge.constructed(rises, why)
    # the paper says that the loss falls without a rise of the bound: no step may rise
    flattest = chosen(paths, point="flattest_1")
    yield c.mark, _one_path(c, flattest, lambda rows: float(_over_start(rows).max()))
    yield f"{c.mark} at the end", _one_path(c, flattest, _at_the_end)


def _one_path(c: Case, paths: pd.DataFrame, read: Reading) -> Claim:
    """The paper shows the path of one data set: it is refuted where hardly any data set has such a
    path."""
    statement = c.statement("bound does not rise on the way to the flattest point")
    values = by_seed(paths, read)
    made = c.evidence.compared(statement, values)
    kept = sum(statement.holds(value) for value in values.values())
    verdict, text = judge.one_draw(kept, len(values))
    needed = math.inf if verdict == "inconclusive" else math.nan
    return replace(made, verdict=verdict, detail=f"{text}; {made.detail}", seeds_needed=needed)


def _over_start(rows: pd.DataFrame) -> pd.Series:
    """The bound along the way over that at the start."""
    bound = rows.sort_values("step")["lambda_sup"]
    return bound / bound.iloc[0]


def _at_the_end(rows: pd.DataFrame) -> float:
    return float(_over_start(rows).iloc[-1])


def _following(rows: pd.DataFrame) -> float:
    """Median over the paths of the correlation of log λ_sup and log λ₁ along a path."""
    positive = rows["lambda_sup"] > 0
    kept = rows[positive & (rows["lambda_max"] > 0)]
    correlations = []
    for _, part in kept.groupby("point"):
        if len(part) > 2:
            bound = np.log(part["lambda_sup"])
            eigenvalue = np.log(part["lambda_max"])
            correlation = np.corrcoef(bound, eigenvalue)
            correlations.append(float(correlation[0, 1]))
    series = pd.Series(correlations, dtype=float)
    return float(series.median())


def views(c: Case) -> Made:
    """Figs. 3 and 4: the two sharpest points of a data set against its two flattest."""
    for name, table, size in (
        ("sharply peaked", "landscapes", largest_rise),
        ("distorted boundaries", "boundaries", boundary_length),
    ):
        rows = c.rows(table)
        if len(rows):
            ratio = partial(_sharp_over_flat, size=size)
            yield c.mark, c.compared(name, rows, ratio)


def _sharp_over_flat(rows: pd.DataFrame, size: Callable[[pd.DataFrame, str], float]) -> float:
    """Mean size over the sharpest points, over that of the flattest; NaN where one side has
    none."""
    means = []
    for side in ("sharpest", "flattest"):
        sizes = []
        for name in rows:
            if name.startswith(side) and rows[name].notna().all():
                sizes.append(size(rows, name))
        means.append(sum(sizes) / len(sizes) if sizes else math.nan)
    if means[1] > 0:
        return means[0] / means[1]
    return math.nan


def largest_rise(rows: pd.DataFrame, column: str) -> float:
    """L(θ* + α u_d) − L(θ*) at the ends of the lines, the largest over directions and sides."""
    reach = rows["alpha"].abs().max()
    middle = rows["alpha"].abs().min()
    distance = rows["alpha"].abs()
    ends = rows.loc[distance == reach, column].max()
    inner = rows.loc[rows["alpha"].abs() == middle, column]
    return float(ends - inner.mean())


def boundary_length(rows: pd.DataFrame, column: str) -> float:
    """Euclidean length of the decision boundary in the stored square, in units of the input."""
    import torch

    grid = rows.pivot(index="x2", columns="x1", values=column)
    columns = grid.columns
    step = float(columns[1] - columns[0])
    values = grid.to_numpy(float, copy=True)
    return step * float(contour_length(torch.from_numpy(values)))
