"""The finite values of samples, how many are lost, and the notes about them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.contract.records import About, Statistic
from runner.stats.intervals import lost_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from runner.stats.ranks import Array


def sample(values: ArrayLike, label: str, notes: list[str]) -> tuple[Array, list[str]]:
    """The finite values as a flat float64 array, and the notes with the number of the others
    added."""
    import numpy as np

    x = np.asarray(values, dtype=float).ravel()
    return x[np.isfinite(x)], [*notes, lost_text(lost_of(x), x.size, label)]


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


def lost_of(*columns: ArrayLike) -> int:
    """Number of rows in which one of the columns is infinite or missing."""
    import numpy as np

    finite = np.isfinite([np.asarray(column, dtype=float).ravel() for column in columns])
    return int((~finite.all(axis=0)).sum())


def pairs(x: ArrayLike, y: ArrayLike, kind: str, about: About) -> tuple[Array, Array, list[str]]:
    """The pairs of finite values as flat float64 arrays, and notes; ValueError for different
    lengths."""
    import numpy as np

    u = np.asarray(x, dtype=float).ravel()
    v = np.asarray(y, dtype=float).ravel()
    if u.size != v.size:
        raise ValueError(
            f"{kind} {about['name']}: expected paired values, found {u.size} and {v.size}"
        )
    complete = np.isfinite(u) & np.isfinite(v)
    notes = [about.get("note", ""), lost_text(lost_of(u, v), u.size, "pairs")]
    return u[complete], v[complete], notes


def power(p_min: float, size: str) -> str:
    """The note of a test that cannot reach 0.05, else ''."""
    return f"cannot reach 0.05 with {size} (smallest p {p_min:.3g})" if p_min >= 0.05 else ""
