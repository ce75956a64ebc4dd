"""What Sections IV and VI say of the decision boundaries, of the loss around a point, and of the form of the bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from experiments.contours import contour_length
from experiments.ws_bound.analysis import Tables
from experiments.ws_bound.case import Case, Made
from runner.contract import Claim
from runner.stats import judge
from runner.stats.evidence import by_seed

if TYPE_CHECKING:
    import pandas as pd


def views(c: Case, tables: Tables) -> Made:
    """Figs. 3 and 4: the two sharpest points of a data set against its two flattest."""
    for name, table, size in (
        ("sharply peaked", "landscapes", largest_rise),
        ("distorted boundaries", "boundaries", boundary_length),
    ):
        rows = c.variant.rows(tables[table]) if table in tables else None
        if rows is not None and len(rows):
            yield c.mark, c.evidence.compared(c.says[name], by_seed(rows, partial(_sharp_over_flat, size=size)))


def _sharp_over_flat(rows: pd.DataFrame, size: Callable[[pd.DataFrame, str], float]) -> float:
    """Mean size over the sharpest points, over that of the flattest; NaN where one side has none."""
    means = []
    for side in ("sharpest", "flattest"):
        found = [size(rows, column) for column in rows if column.startswith(side) and rows[column].notna().all()]
        means.append(sum(found) / len(found) if found else math.nan)
    return means[0] / means[1] if means[1] > 0 else math.nan


def largest_rise(rows: pd.DataFrame, column: str) -> float:
    """L(θ* + α u_d) − L(θ*) at the ends of the lines, the largest over directions and sides."""
    reach, middle = rows["alpha"].abs().max(), rows["alpha"].abs().min()
    ends = rows.loc[rows["alpha"].abs() == reach, column].max()
    return float(ends - rows.loc[rows["alpha"].abs() == middle, column].mean())


def boundary_length(rows: pd.DataFrame, column: str) -> float:
    """Euclidean length of the decision boundary in the stored square, in units of the input."""
    import torch

    grid = rows.pivot(index="x2", columns="x1", values=column)
    step = float(grid.columns[1] - grid.columns[0])
    return step * float(contour_length(torch.from_numpy(grid.to_numpy(float, copy=True))))


def form(c: Case) -> Made:
    """After Proposition 1 and in Section VI: how the bound hangs on the degeneracy and on the traces."""
    yield c.mark, c.evidence.compared(c.says["tighter the more degenerate"], by_seed(c.narrow, _looseness_and_rank))
    yield c.mark, _trace(c)
    why = "at a given trace the bound is μ + √(D − 1) σ with σ² = tr H²/D − μ²: it rises with tr H² wherever σ > 0"
    yield c.mark, judge.constructed(c.says["squared trace raises the bound"], why)
    why = "Chebyshev's inequality alone bounds the largest of D values by μ + √D σ, and √(D − 1) < √D"
    yield c.mark, judge.constructed(c.says["tighter than Chebyshev's"], why)


def _looseness_and_rank(rows: pd.DataFrame) -> float:
    """Spearman's ρ of λ₁²/tr H², 1 for a Hessian of rank one, and λ_sup/λ₁."""
    degenerate = rows["lambda_max"] ** 2 / rows["trace_of_square"]
    return float(degenerate.corr(rows["lambda_sup"] / rows["lambda_max"], method="spearman"))


def _trace(c: Case) -> Claim:
    """tr H raises μ and lowers σ whatever the network; which of the two wins at the points, at a given tr H²."""
    d = _parameters(c.narrow)
    mean = c.narrow["trace"] / d
    slope = 1 - (d - 1) ** 0.5 * mean / (c.narrow["trace_of_square"] / d - mean**2) ** 0.5
    why = "it raises μ and lowers σ; together, at a given tr H², a larger trace lowers the bound at "
    return judge.constructed(c.says["trace acts both ways"], f"{why}{int((slope < 0).sum())} of {len(slope)} points")


def _parameters(rows: pd.DataFrame) -> float:
    """D, from λ_sup + λ_inf = 2 tr H/D."""
    return float(round((2 * rows["trace"] / (rows["lambda_sup"] + rows["lambda_inf"])).median()))
