"""The finite values of samples, how many are lost, and the notes about them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.contract.records import About, Statistic
from runner.stats.intervals import joined, lost_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from runner.stats.ranks import Array


def noted(statistic: Statistic, *notes: str) -> Statistic:
    """A statistic with further notes; those that are empty are left out."""
    return replace(statistic, note=joined(statistic.note, *notes))


def finite(*columns: ArrayLike) -> tuple[list[Array], int]:
    """The rows in which all columns are finite, each column as a flat float64 array, and the number
    of the others."""
    import numpy as np

    rows = np.array([np.asarray(column, dtype=float).ravel() for column in columns])
    kept = np.isfinite(rows).all(axis=0)
    return list(rows[:, kept]), int((~kept).sum())


def pairs(
    kind: str, x: ArrayLike, y: ArrayLike, about: About
) -> tuple[Statistic, tuple[Array, Array]]:
    """A statistic of the pairs of finite values, and these; ValueError for different lengths."""
    import numpy as np

    if np.size(x) != np.size(y):
        raise ValueError(
            f"{kind} {about['name']}: expected paired values, found {np.size(x)} and {np.size(y)}"
        )
    (u, v), lost = finite(x, y)
    base = Statistic(kind=kind, n_a=u.size, n_b=v.size, lost=lost, **about)
    return noted(base, lost_text(lost, np.size(x), "pairs")), (u, v)


def filled(x: Array, lost: int, value: float) -> Array:
    """x with `lost` further values, all equal."""
    import numpy as np

    return np.concatenate([x, np.full(lost, value)])


def bracketed(found: Statistic, extreme: Callable[[float], Statistic]) -> Statistic:
    """`found` with what the test gives if every lost value of `a` (of `b` the reverse) is −inf, and
    if it is inf."""
    if not found.lost:
        return found
    least = extreme(-math.inf)
    most = extreme(math.inf)
    found = replace(found, effect_least=least.effect, p_least=least.p, shift_least=least.shift_low)
    return replace(found, effect_most=most.effect, p_most=most.p, shift_most=most.shift_high)


def power(p_min: float, size: str) -> str:
    """The note of a test that cannot reach 0.05, else ''."""
    return f"cannot reach 0.05 with {size} (smallest p {p_min:.3g})" if p_min >= 0.05 else ""
