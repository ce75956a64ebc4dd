"""What tests, fits and summaries share: clean samples, and notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from runner.stats.ranks import Array


def sample(values: ArrayLike, label: str, notes: list[str]) -> tuple[Array, list[str]]:
    """A flat float64 sample without NaN, and the notes with their number added."""
    import numpy as np

    x = np.asarray(values, dtype=float).ravel()
    missing = int(np.isnan(x).sum())
    return x[~np.isnan(x)], [*notes, f"{missing} of {x.size} {label} missing and left out" if missing else ""]


def pairs(x: ArrayLike, y: ArrayLike, what: str, note: str) -> tuple[Array, Array, list[str]]:
    """Flat float64 pairs without NaN; ValueError for different lengths."""
    import numpy as np

    u, v = np.asarray(x, dtype=float).ravel(), np.asarray(y, dtype=float).ravel()
    if u.size != v.size:
        raise ValueError(f"{what}: expected paired values, found {u.size} and {v.size}")
    complete = ~(np.isnan(u) | np.isnan(v))
    lost = int((~complete).sum())
    return u[complete], v[complete], [note, f"{lost} of {u.size} pairs missing and left out" if lost else ""]


def power(p_min: float, size: str) -> str:
    """The note of a test that cannot reach 0.05, else ''."""
    return f"cannot reach 0.05 with {size} (smallest p {p_min:.3g})" if p_min >= 0.05 else ""


def join(notes: Sequence[str], *more: str) -> str:
    return "; ".join(text for text in (*notes, *more) if text)
