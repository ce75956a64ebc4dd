"""Least-squares fits and summaries: each call gives one `Statistic`, one row of stats.csv."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from runner.contract.records import NAN, About, Statistic
from runner.stats.intervals import joined
from runner.stats.samples import lost_of, pairs, sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from runner.stats.ranks import Array


def linear(x: ArrayLike, y: ArrayLike, **about: Unpack[About]) -> Statistic:
    """Least squares y = intercept + slope·x with R², the slope's standard error and its p (t test
    of slope 0)."""
    u, v, notes = pairs(x, y, "linear", about)
    base = Statistic(kind="linear", n_a=u.size, n_b=v.size, lost=lost_of(x, y), **about)
    return _fit(base, u, v, notes)


def log_linear(x: ArrayLike, y: ArrayLike, **about: Unpack[About]) -> Statistic:
    """Least squares log y = a − b x (natural logarithm) with R² of log y.

    slope = d log y / dx = −b (`Statistic.decay` is b), intercept = a. Values y <= 0 have no
    logarithm: they count as lost.
    """
    import numpy as np

    u, v, notes = pairs(x, y, "log_linear", about)
    usable = v > 0
    without = int((~usable).sum())
    if without:
        notes.append(f"{without} of {v.size} values are not positive")
    lost = lost_of(x, y) + without
    base = Statistic(
        kind="log_linear", n_a=v.size - without, n_b=v.size - without, lost=lost, **about
    )
    return _fit(base, u[usable], np.log(v[usable]), notes)


def _fit(base: Statistic, u: Array, v: Array, notes: list[str]) -> Statistic:
    """`base` with the least-squares line of v against u."""
    import numpy as np

    if base.lost:
        return replace(base, note=joined(*notes, "no fit: infinite or missing values"))
    if u.size < 2 or np.unique(u).size < 2:
        return replace(base, note=joined(*notes, "no fit: fewer than two different finite x"))
    from scipy.stats import linregress

    fit = linregress(u, v)
    slope = float(fit.slope)
    intercept = float(fit.intercept)
    spread = float(((v - v.mean()) ** 2).sum())
    r2 = 1 - float(((v - intercept - slope * u) ** 2).sum()) / spread if spread > 0 else NAN
    if spread == 0:
        notes.append("no R²: y is constant")
    if u.size == 2:
        notes.append("two points: the line passes through both")
        return replace(
            base,
            slope=slope,
            intercept=intercept,
            r2=r2,
            method="least squares",
            note=joined(*notes),
        )
    return replace(
        base,
        statistic=slope,
        slope=slope,
        intercept=intercept,
        slope_error=float(fit.stderr),
        r2=r2,
        p=float(fit.pvalue),
        method="least squares",
        note=joined(*notes),
    )


def summary(values: ArrayLike, **about: Unpack[About]) -> Statistic:
    """n, mean, sample std (ddof 1; NaN for one value), population std (ddof 0) and median."""
    x, notes = sample(values, about.get("label_a", "values"), [about.get("note", "")])
    base = Statistic(kind="summary", n_a=x.size, lost=lost_of(values), **about)
    if x.size == 0:
        return replace(base, note=joined(*notes, "no values"))
    import numpy as np

    with np.errstate(invalid="ignore"):
        std = float(x.std(ddof=1)) if x.size > 1 else NAN
        mean = float(x.mean())
        population = float(x.std())
    return replace(
        base,
        statistic=mean,
        mean=mean,
        std=std,
        std_population=population,
        median=float(np.median(x)),
        note=joined(*notes),
    )
