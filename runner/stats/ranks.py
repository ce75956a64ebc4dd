"""Numerical parts of the rank tests: exact null distributions, rank-inversion intervals, order
statistics of pairs.

Imported by `runner.stats` when a test is made, so that naming a statistic costs no scipy.

Exact null distributions are counted by dynamic programming over doubled midranks, which are
integers even where values tie. Choosing m of N = m + n ranks: N·m·S additions, S the sum of all
doubled ranks (4·10⁷ at m = n = 50, about 0.1 s); signs of n ranks: n·S additions. Every term is
positive, so the probabilities carry a relative error of about N machine roundings, also in the
tails. Without ties scipy's exact tests give the same p; with ties they ignore them (Mann–Whitney:
p off by up to 0.17 at 5 against 5) or count every arrangement, which ends at about 20 values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

EXACT_ADDITIONS = 5e7
"""Largest number of additions spent on one exact null distribution; above it the normal
approximation serves."""


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
    null = subset_null(np.arange(1, m + n + 1), small)
    null = null[small * (small + 1) // 2 :][: m * n + 1]
    null.flags.writeable = False
    return null


def tied_u_null(doubled: NDArray[np.int64], m: int) -> tuple[Array, int]:
    """Null of the doubled rank sum of the smaller sample given the ties, and the value seen.

    doubled: doubled midranks of both samples, the first m of them of the first one.
    """
    sample = doubled[:m] if 2 * m <= doubled.size else doubled[m:]
    return subset_null(doubled, sample.size), int(sample.sum())


def sign_null(doubled: NDArray[np.int64]) -> Array:
    """P(sum of the doubled ranks with a positive sign = s) under random signs, s = 0 …
    sum(doubled)."""
    null = np.zeros(int(doubled.sum()) + 1)
    null[0] = 1.0
    for rank in doubled:
        shifted = np.zeros_like(null)
        shifted[rank:] = null[: null.size - rank]
        null = 0.5 * (null + shifted)
    return null


def two_sided(null: Array, observed: int) -> float:
    """Twice the smaller tail probability of `observed`, at most 1."""
    below = null[: observed + 1].sum()
    above = null[observed:].sum()
    return float(min(1.0, 2 * min(below, above)))


def smallest_two_sided(null: Array) -> float:
    """The smallest value that `two_sided` can take under `null`."""
    support = np.flatnonzero(null)
    return float(min(1.0, 2 * min(null[support[0]], null[support[-1]])))


def smallest_subset_p(m: int, n: int) -> float:
    """2 / C(m + n, m): the smallest two-sided p of untied samples of sizes m and n."""
    log_count = math.lgamma(m + n + 1) - math.lgamma(m + 1) - math.lgamma(n + 1)
    return min(1.0, 2 * math.exp(-log_count))


def interval_rank(null: Array, alpha: float) -> int:
    """Largest k with 2 P(statistic <= k − 1) <= alpha, 0 if there is none; `null` steps by one from
    0.

    The interval from the k-th smallest to the k-th largest pairwise value then covers with at least
    1 − alpha.
    """
    return int(np.searchsorted(2 * np.cumsum(null), alpha * (1 + 1e-12), side="right"))


def normal_interval_rank(mean: float, deviation: float, alpha: float) -> int:
    """`interval_rank` by the normal approximation to a statistic with this mean and standard
    deviation."""
    return max(0, math.floor(mean - stats.norm.isf(alpha / 2) * deviation))


def difference_order(a: Array, b: Array, ranks: Sequence[int]) -> list[float]:
    """The ranks-th smallest (from 0) of all a_i − b_j."""
    return _order(np.subtract.outer(a, b).ravel(), ranks)


def walsh_order(d: Array, ranks: Sequence[int]) -> list[float]:
    """The ranks-th smallest (from 0) of all (d_i + d_j)/2 with i <= j."""
    i, j = np.triu_indices(d.size)
    return _order((d[i] + d[j]) / 2, ranks)


def _order(values: Array, ranks: Sequence[int]) -> list[float]:
    return [float(v) for v in np.partition(values, sorted(set(ranks)))[list(ranks)]]


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

    rx = doubled_ranks(x)
    ry = doubled_ranks(y)
    products = np.array(list(permutations(ry))) @ rx
    centre = rx.sum() * ry.sum() / rx.size
    distance = np.abs(products - centre)
    observed = abs(float(rx @ ry) - centre)
    p = float((distance >= observed - 1e-9).mean())
    return p, float((distance >= distance.max() - 1e-9).mean())
