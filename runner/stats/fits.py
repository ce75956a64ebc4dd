"""Least-squares fits and summaries: each call gives one `Statistic`, one row of stats.csv."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from runner.contract.records import NAN, About, Statistic
from runner.stats.intervals import lost_text
from runner.stats.samples import finite, noted, pairs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from runner.stats.ranks import Array


def linear(x: ArrayLike, y: ArrayLike, **about: Unpack[About]) -> Statistic:
    """Least squares y = intercept + slope·x with R², the slope's standard error and its p (t test
    of slope 0)."""
    return _fit(*pairs("linear", x, y, about))


def log_linear(x: ArrayLike, y: ArrayLike, **about: Unpack[About]) -> Statistic:
    """Least squares log y = a − b x (natural logarithm) with R² of log y.

    slope = d log y / dx = −b (`Statistic.decay` is b), intercept = a. Values y <= 0 have no
    logarithm: they count as lost.
    """
    import numpy as np

    base, (u, v) = pairs("log_linear", x, y, about)
    usable = v > 0
    n = int(usable.sum())
    if n < v.size:
        base = noted(base, f"{v.size - n} of {v.size} values are not positive")
    base = replace(base, n_a=n, n_b=n, lost=base.lost + v.size - n)
    return _fit(base, (u[usable], np.log(v[usable])))


def _fit(base: Statistic, points: tuple[Array, Array]) -> Statistic:
    """`base` with the least-squares line of points (x, y)."""
    import numpy as np

    u, v = points
    if base.lost:
        return noted(base, "no fit: infinite or missing values")
    if u.size < 2 or np.unique(u).size < 2:
        return noted(base, "no fit: fewer than two different finite x")
    from scipy.stats import linregress

    fit = linregress(u, v)
    slope = float(fit.slope)
    intercept = float(fit.intercept)
    spread = float(((v - v.mean()) ** 2).sum())
    r2 = NAN
    if spread > 0:
        r2 = 1 - float(((v - intercept - slope * u) ** 2).sum()) / spread
    else:
        base = noted(base, "no R²: y is constant")
    base = replace(base, slope=slope, intercept=intercept, r2=r2, method="least squares")
    if u.size == 2:
        return noted(base, "two points: the line passes through both")
    return replace(base, statistic=slope, slope_error=float(fit.stderr), p=float(fit.pvalue))


def summary(values: ArrayLike, **about: Unpack[About]) -> Statistic:
    """n, mean, sample std (ddof 1; NaN for one value), population std (ddof 0) and median."""
    import numpy as np

    (x,), lost = finite(values)
    base = Statistic(kind="summary", n_a=x.size, lost=lost, **about)
    base = noted(base, lost_text(lost, x.size + lost, about.get("label_a", "values")))
    if x.size == 0:
        return noted(base, "no values")
    with np.errstate(invalid="ignore"):
        return replace(
            base,
            statistic=float(x.mean()),
            mean=float(x.mean()),
            std=float(x.std(ddof=1)) if x.size > 1 else NAN,
            std_population=float(x.std()),
            median=float(np.median(x)),
        )
