"""Numerical parts of the rank tests: exact null distributions, rank-inversion intervals, order statistics of pairs.

Imported by `runner.stats` when a test is made, so that naming a statistic costs no scipy.

Exact null distributions are counted by dynamic programming over doubled midranks, which are integers even where
values tie. Choosing m of N = m + n ranks: N·m·S additions, S the sum of all doubled ranks (4·10⁷ at m = n = 50,
about 0.1 s); signs of n ranks: n·S additions. Every term is positive, so the probabilities carry a relative error
of about N machine roundings, also in the tails.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

EXACT_ADDITIONS = 5e7
"""Largest number of additions spent on one exact null distribution; above it the normal approximation serves."""

DIRECT_PAIRS = 4_000_000
"""Largest number of pairwise values held in memory at once (32 MB); above it their order statistics are bisected."""


def doubled_ranks(values: Array) -> NDArray[np.int64]:
    """Twice the midranks 1…N, as integers. Shape (N,)."""
    return np.rint(2 * stats.rankdata(values)).astype(np.int64)


def subset_additions(m: int, n: int) -> float:
    """Additions that `subset_null` needs for m of m + n ranks."""
    total = m + n
    return float(total) * min(m, n) * total * (total + 1)


def subset_null(doubled: NDArray[np.int64], size: int) -> Array:
    """P(sum of `size` doubled ranks drawn without replacement = s), s = 0 … sum(doubled)."""
    chosen = np.zeros((size + 1, int(doubled.sum()) + 1))
    chosen[0, 0] = 1.0
    for rank in doubled:
        chosen[1:, rank:] += chosen[:-1, : chosen.shape[1] - rank].copy()
    return np.asarray(chosen[size] / chosen[size].sum())


@functools.lru_cache(maxsize=64)
def untied_u_null(m: int, n: int) -> Array:
    """P(U = u), u = 0 … m·n, for untied samples of sizes m and n (read-only, cached)."""
    small = min(m, n)
    null = subset_null(np.arange(1, m + n + 1), small)[small * (small + 1) // 2 :][: m * n + 1]
    null.flags.writeable = False
    return null


def tied_u_null(doubled: NDArray[np.int64], m: int) -> tuple[Array, int]:
    """Null of the doubled rank sum of the smaller sample given the ties, and the value seen.

    doubled: doubled midranks of both samples, the first m of them of the first one.
    """
    sample = doubled[:m] if 2 * m <= doubled.size else doubled[m:]
    return subset_null(doubled, sample.size), int(sample.sum())


def sign_null(doubled: NDArray[np.int64]) -> Array:
    """P(sum of the doubled ranks with a positive sign = s) under random signs, s = 0 … sum(doubled)."""
    null = np.zeros(int(doubled.sum()) + 1)
    null[0] = 1.0
    for rank in doubled:
        shifted = np.zeros_like(null)
        shifted[rank:] = null[: null.size - rank]
        null = 0.5 * (null + shifted)
    return null


def two_sided(null: Array, observed: int) -> float:
    """Twice the smaller tail probability of `observed`, at most 1."""
    return float(min(1.0, 2 * min(null[: observed + 1].sum(), null[observed:].sum())))


def smallest_two_sided(null: Array) -> float:
    """The smallest value that `two_sided` can take under `null`."""
    support = np.flatnonzero(null)
    return float(min(1.0, 2 * min(null[support[0]], null[support[-1]])))


def smallest_subset_p(m: int, n: int) -> float:
    """2 / C(m + n, m): the smallest two-sided p of untied samples of sizes m and n."""
    log_count = math.lgamma(m + n + 1) - math.lgamma(m + 1) - math.lgamma(n + 1)
    return min(1.0, 2 * math.exp(-log_count))


def interval_rank(null: Array, alpha: float) -> int:
    """Largest k with 2 P(statistic <= k − 1) <= alpha, 0 if there is none; `null` steps by one from 0.

    The interval from the k-th smallest to the k-th largest pairwise value then covers with at least 1 − alpha.
    """
    return int(np.searchsorted(2 * np.cumsum(null), alpha * (1 + 1e-12), side="right"))


def normal_interval_rank(mean: float, deviation: float, alpha: float) -> int:
    """`interval_rank` by the normal approximation to a statistic with this mean and standard deviation."""
    return max(0, math.floor(mean - stats.norm.isf(alpha / 2) * deviation))


def difference_order(a: Array, b: Array, ranks: Sequence[int]) -> list[float]:
    """The ranks-th smallest (from 0) of all a_i − b_j, exact up to rounding, whatever the number of pairs."""
    if a.size * b.size <= DIRECT_PAIRS:
        pairs = np.subtract.outer(a, b).ravel()
        return [float(v) for v in np.partition(pairs, sorted(set(ranks)))[list(ranks)]]
    a, b = np.sort(a), np.sort(b)

    def count(t: float) -> int:
        return int(np.searchsorted(a, b + t, "right").sum())

    return [_bisect(float(a[0] - b[-1]), float(a[-1] - b[0]), rank, count) for rank in ranks]


def walsh_order(d: Array, ranks: Sequence[int]) -> list[float]:
    """The ranks-th smallest (from 0) of all (d_i + d_j)/2 with i <= j, exact up to rounding."""
    d = np.sort(d)
    if d.size * (d.size + 1) // 2 <= DIRECT_PAIRS:
        i, j = np.triu_indices(d.size)
        return [float(v) for v in np.partition((d[i] + d[j]) / 2, sorted(set(ranks)))[list(ranks)]]

    def count(t: float) -> int:
        every = np.searchsorted(d, 2 * t - d, "right").sum()  # ordered pairs, the diagonal once
        return int(every + np.searchsorted(d, t, "right")) // 2

    return [_bisect(float(d[0]), float(d[-1]), rank, count) for rank in ranks]


def _bisect(low: float, high: float, rank: int, count: Callable[[float], int]) -> float:
    """The smallest t in [low, high] with count(t) > rank, to the spacing of floats at the ends' scale."""
    spacing = np.spacing(max(abs(low), abs(high)))
    while high - low > spacing:
        middle = low + (high - low) / 2
        if middle in (low, high):
            break
        if count(middle) > rank:
            high = middle
        else:
            low = middle
    return high


def middle_ranks(pairs: int) -> list[int]:
    """Ranks (from 0) whose values average to the median of `pairs` values."""
    return [(pairs - 1) // 2, pairs // 2]


def tied_deviation(doubled: NDArray[np.int64], m: int, n: int) -> float:
    """Standard deviation of the Mann–Whitney U of m against n values, corrected for ties."""
    total = m + n
    _, counts = np.unique(doubled, return_counts=True)
    ties = float((counts.astype(float) ** 3 - counts).sum())
    return math.sqrt(m * n / 12 * ((total + 1) - ties / (total * (total - 1))))


def permutation_spearman(x: Array, y: Array) -> tuple[float, float]:
    """(two-sided p, smallest attainable p) of Spearman's ρ over all n! orders of y; for n <= 8."""
    from itertools import permutations

    rx, ry = doubled_ranks(x), doubled_ranks(y)
    products = np.array(list(permutations(ry))) @ rx
    centre = rx.sum() * ry.sum() / rx.size
    distance = np.abs(products - centre)
    observed = abs(float(rx @ ry) - centre)
    return float((distance >= observed - 1e-9).mean()), float((distance >= distance.max() - 1e-9).mean())
