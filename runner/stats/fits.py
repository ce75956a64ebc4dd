"""Fits and summaries, each one `Statistic`; conventions as in `runner.stats.tests`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from runner.contract.statistic import NAN, About, Statistic
from runner.stats.samples import join, pairs, sample

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from runner.stats.ranks import Array


def linear(
    x: ArrayLike,
    y: ArrayLike,
    *,
    note: str = "",
    **about: Unpack[About],
) -> Statistic:
    """Least squares y = intercept + slope·x with R², the slope's standard error and its p (t test of slope 0)."""
    u, v, notes = pairs(x, y, f"linear {about['name']}", note)
    base = Statistic(kind="linear", n_a=u.size, n_b=v.size, **about)
    return _fit(base, u, v, notes)


def log_linear(
    x: ArrayLike,
    y: ArrayLike,
    *,
    note: str = "",
    **about: Unpack[About],
) -> Statistic:
    """Least squares log y = a − b x (natural logarithm) with R² of log y.

    slope = d log y / dx = −b (`Statistic.decay` is b), intercept = a. Values y <= 0 have no logarithm: they are left
    out, and the note counts them.
    """
    import numpy as np

    u, v, notes = pairs(x, y, f"log_linear {about['name']}", note)
    usable = v > 0
    if not usable.all():
        notes.append(f"{int((~usable).sum())} of {v.size} values are not positive and left out")
    base = Statistic(kind="log_linear", n_a=int(usable.sum()), n_b=int(usable.sum()), **about)
    return _fit(base, u[usable], np.log(v[usable]), notes)


def _fit(base: Statistic, u: Array, v: Array, notes: list[str]) -> Statistic:
    """`base` with the least-squares line of v against u."""
    import numpy as np

    if u.size < 2 or np.unique(u).size < 2 or not (np.isfinite(u).all() and np.isfinite(v).all()):
        return replace(base, note=join(notes, "no fit: fewer than two different finite x"))
    from scipy.stats import linregress

    fit = linregress(u, v)
    slope, intercept = float(fit.slope), float(fit.intercept)
    spread = float(((v - v.mean()) ** 2).sum())
    r2 = 1 - float(((v - intercept - slope * u) ** 2).sum()) / spread if spread > 0 else NAN
    if spread == 0:
        notes.append("no R²: y is constant")
    if u.size == 2:
        notes.append("two points: the line passes through both")
        return replace(base, slope=slope, intercept=intercept, r2=r2, method="least squares", note=join(notes))
    return replace(
        base,
        statistic=slope,
        slope=slope,
        intercept=intercept,
        slope_error=float(fit.stderr),
        r2=r2,
        p=float(fit.pvalue),
        method="least squares",
        note=join(notes),
    )


def summary(
    values: ArrayLike,
    *,
    note: str = "",
    **about: Unpack[About],
) -> Statistic:
    """n, mean, sample std (ddof 1; NaN for one value), population std (ddof 0) and median."""
    x, notes = sample(values, about.get("label_a", "values"), [note])
    base = Statistic(kind="summary", n_a=x.size, **about)
    if x.size == 0:
        return replace(base, note=join(notes, "no values"))
    import numpy as np

    with np.errstate(invalid="ignore"):
        std = float(x.std(ddof=1)) if x.size > 1 else NAN
        mean, population = float(x.mean()), float(x.std())
    return replace(
        base,
        statistic=mean,
        mean=mean,
        std=std,
        std_population=population,
        median=float(np.median(x)),
        note=join(notes),
    )
