"""Variance components of a fully crossed design with one value a cell, with generalised confidence intervals.

    y[i, j, k] = μ + A_i + B_j + C_k + AB_ij + AC_ik + BC_jk + ABC_ijk

all random. Each component is a linear combination of mean squares (analysis of variance); negative estimates are set to
0. Intervals: each mean square is replaced by MS·df/χ²_df, with many draws of the χ², and the quantiles of the component
are taken (generalised confidence intervals, Weerahandi 1993; coverage is tested in tests/stats/test_components.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

DRAWS = 4000
LEVEL = 0.95


@dataclass(frozen=True)
class Component:
    """Variance of one source ("A", "A:B", …), its share of the sum over all, and the interval of each."""

    source: str
    variance: float
    low: float
    high: float
    share: float
    share_low: float
    share_high: float


def mean_squares(y: Values, names: Sequence[str]) -> dict[str, tuple[float, int]]:
    """Mean square and degrees of freedom of every effect, from the main ones to the highest interaction.

    names: of the axes of y. Raises ValueError for an axis shorter than two, or another number of names.
    """
    import numpy as np

    if y.ndim != len(names) or min(y.shape, default=0) < 2:
        raise ValueError(f"expected two levels or more of {', '.join(names)}, found an array of shape {y.shape}")
    found: dict[str, tuple[float, int]] = {}
    axes = range(y.ndim)
    effects: dict[tuple[int, ...], Values] = {(): np.asarray(y.mean())}
    for size in range(1, y.ndim + 1):
        for kept in combinations(axes, size):
            rest = tuple(a for a in axes if a not in kept)
            effect = y.mean(axis=rest, keepdims=True) if rest else y.copy()
            for smaller in effects:
                if set(smaller) < set(kept):
                    effect = effect - effects[smaller]
            effects[kept] = effect
            df = math.prod(y.shape[a] - 1 for a in kept)
            cells = y.size / effect.size
            found[":".join(names[a] for a in kept)] = (cells * float((effect**2).sum()) / df, df)
    return found


def weights(shape: Sequence[int], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Component -> mean square -> weight: for the effect on axes K, Σ_{M ⊇ K} (−1)^{|M|−|K|} MS_M / Π_{a ∉ K} n_a."""
    axes = range(len(names))
    subsets = [c for size in range(1, len(names) + 1) for c in combinations(axes, size)]
    found = {}
    for kept in subsets:
        cells = math.prod(shape[a] for a in axes if a not in kept)
        above = [m for m in subsets if set(kept) <= set(m)]
        found[":".join(names[a] for a in kept)] = {
            ":".join(names[a] for a in m): (-1.0) ** (len(m) - len(kept)) / cells for m in above
        }
    return found


def components(y: Values, names: Sequence[str], groups: dict[str, Sequence[str]] | None = None) -> list[Component]:
    """The variance components of y (one axis a factor) with 95 % intervals, in the order of `mean_squares`.

    groups: name -> sources whose variances are added up, instead of each source by itself.
    """
    import numpy as np

    squares = mean_squares(y, names)
    by = weights(y.shape, names)
    rng = np.random.default_rng(0)
    drawn = {name: ms * df / rng.chisquare(df, DRAWS) for name, (ms, df) in squares.items()}

    def of(values: dict[str, Values]) -> dict[str, Values]:
        single = {s: np.maximum(0.0, sum(w * values[m] for m, w in by[s].items())) for s in by}
        return {name: np.sum([single[s] for s in of], axis=0) for name, of in (groups or {s: [s] for s in by}).items()}

    point = of({name: np.asarray(ms) for name, (ms, _) in squares.items()})
    spread = of(drawn)
    whole, wholes = sum(point.values()), sum(spread.values())
    tail = (1 - LEVEL) / 2
    found = []
    for name, variance in point.items():
        low, high = np.quantile(spread[name], [tail, 1 - tail])
        shares = np.divide(spread[name], wholes, out=np.zeros(DRAWS), where=np.asarray(wholes) > 0)
        share_low, share_high = np.quantile(shares, [tail, 1 - tail])
        share = float(variance / whole) if whole > 0 else math.nan
        found.append(
            Component(name, float(variance), float(low), float(high), share, float(share_low), float(share_high))
        )
    return found
