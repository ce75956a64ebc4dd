"""Rank tests with effect sizes: each call gives one `Statistic`, one row of stats.csv.

Conventions, the same in every row:
- Tests are two-sided. They are exact where n allows, also with ties (the permutation distribution
  of the midranks); `method` says "exact" or "asymptotic".
- Positive effect, shift and difference mean that `a` is larger than `b`.
- `p_min` is the smallest p the test can give at that n. Where it exceeds 0.05 the note says so:
  such a test cannot tell "no difference" from "too few values", and no claim may be refuted by it.
- Infinite and missing values are counted in `lost` and in the note. They are no part of the test,
  and `…_least` and `…_most` say what it would give if all of them were as small, or as large, as
  can be. A fit with any has no result, since a line through what is left is a selection.
- Input that allows no test gives a row of NaN with the reason, never an exception.
- numpy and scipy are imported when a statistic is computed, not when this module is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict, Unpack

from runner.contract.records import NAN, TESTS, About, Statistic
from runner.stats.intervals import lost_text
from runner.stats.samples import bracketed, filled, finite, noted, pairs, power

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from runner.stats.ranks import Array


ALPHA = 0.05
"""Intervals have the level 1 − ALPHA."""
MOST_PAIRS = 300
"""Differences up to which the signed-rank test is exact."""
MOST_ORDERS = 8
"""Pairs up to which all orders are counted."""


class Shift(TypedDict, total=False):
    """The Hodges–Lehmann fields of `Statistic`."""

    shift: float
    shift_low: float
    shift_high: float


def mann_whitney(a: ArrayLike, b: ArrayLike, **about: Unpack[About]) -> Statistic:
    """Two-sided Mann–Whitney U test of two independent samples.

    U = #{a_i > b_j} + ½ #{a_i = b_j}; effect = 2U/(mn) − 1; shift = median of all a_i − b_j with
    the interval by inversion of the test. Exact up to about 50 against 50 values (5 against 200),
    with or without ties; above that the normal approximation with tie and continuity correction.
    """
    (x,), lost_x = finite(a)
    (y,), lost_y = finite(b)
    base = noted(
        Statistic(kind="mann_whitney", n_a=x.size, n_b=y.size, lost=lost_x + lost_y, **about),
        lost_text(lost_x, x.size + lost_x, about.get("label_a", "a")),
        lost_text(lost_y, y.size + lost_y, about.get("label_b", "b")),
    )
    if x.size == 0 or y.size == 0:
        return noted(base, "no test: a sample is empty")

    def extreme(value: float) -> Statistic:
        return _mann_whitney(base, filled(x, lost_x, value), filled(y, lost_y, -value))

    return bracketed(_mann_whitney(base, x, y), extreme)


def _mann_whitney(base: Statistic, x: Array, y: Array) -> Statistic:
    """`base` with the test of x against y, which have no NaN."""
    import numpy as np

    from runner.stats import ranks

    m = x.size
    n = y.size
    doubled = ranks.doubled_ranks(np.concatenate([x, y]))
    tied = np.unique(doubled).size < m + n
    u = int(doubled[:m].sum() - m * (m + 1)) / 2
    exact = ranks.subset_additions(m, n) <= ranks.EXACT_ADDITIONS
    if exact:
        untied = ranks.untied_u_null(m, n)
        null = untied
        seen = int(u)
        if tied:
            null, seen = ranks.tied_u_null(doubled, m)
        p = ranks.two_sided(null, seen)
        p_min = ranks.smallest_two_sided(null)
        k = ranks.interval_rank(untied, ALPHA)
    else:
        from scipy.stats import mannwhitneyu

        p = float(mannwhitneyu(x, y, method="asymptotic").pvalue)
        p_min = ranks.smallest_subset_p(m, n)
        k = ranks.normal_interval_rank(m * n / 2, ranks.tied_deviation(doubled, m, n), ALPHA)
    return replace(
        noted(base, "ties" if tied else "", power(p_min, f"n={m} and {n}"), _few(k)),
        statistic=u,
        p=p,
        p_min=p_min,
        effect=2 * u / (m * n) - 1,
        method=_method(exact),
        **_shift(lambda r: ranks.difference_order(x, y, r), m * n, k),
    )


def wilcoxon(a: ArrayLike, b: ArrayLike | None = None, **about: Unpack[About]) -> Statistic:
    """Two-sided Wilcoxon signed-rank test of the differences a_i − b_i (of a_i against 0 when b is
    None).

    Zero differences are dropped from the test (Wilcoxon's policy) and counted in the note; n_a is
    the number of complete pairs. statistic = W⁺, the rank sum of the positive differences; effect =
    (W⁺ − W⁻)/(W⁺ + W⁻); shift = median of the Walsh averages (d_i + d_j)/2 of all differences,
    zeros included, with the interval by inversion of the test. Exact up to n = 300, with or without
    ties; above that the normal approximation. With five pairs the smallest p is 0.0625. Raises
    ValueError when a and b differ in length.
    """
    import numpy as np

    first = np.asarray(a, dtype=float).ravel()
    second = np.zeros_like(first)
    if b is not None:
        second = np.asarray(b, dtype=float).ravel()
    if first.size != second.size:
        raise ValueError(
            f"wilcoxon {about['name']}: expected paired samples, "
            f"found {first.size} and {second.size} values"
        )
    (d,), lost = finite(first - second)
    base = Statistic(kind="wilcoxon", n_a=d.size, n_b=d.size, lost=lost, **about)
    base = noted(base, lost_text(lost, first.size, "differences"))
    return bracketed(_wilcoxon(base, d), lambda value: _wilcoxon(base, filled(d, lost, value)))


def _wilcoxon(base: Statistic, d: Array) -> Statistic:
    """`base` with the test of the differences d, which have no NaN."""
    import numpy as np

    from runner.stats import ranks

    nonzero = d[d != 0]
    if nonzero.size < d.size:
        base = noted(base, f"{d.size - nonzero.size} zero differences dropped")
    if nonzero.size == 0:
        return noted(base, "no test: no nonzero difference")
    doubled = ranks.doubled_ranks(np.abs(nonzero))
    tied = np.unique(doubled).size < nonzero.size
    positive = int(doubled[nonzero > 0].sum())
    exact = nonzero.size <= MOST_PAIRS
    if exact:
        null = ranks.sign_null(doubled)
        p = ranks.two_sided(null, positive)
        p_min = ranks.smallest_two_sided(null)
    else:
        from scipy.stats import wilcoxon as scipy_wilcoxon

        p = float(scipy_wilcoxon(nonzero, method="asymptotic").pvalue)
        p_min = 2.0 ** (1 - nonzero.size)
    n = d.size
    walsh = n * (n + 1) // 2
    if n <= MOST_PAIRS:
        k = ranks.interval_rank(ranks.sign_null(np.arange(1, n + 1)), ALPHA)
    else:
        k = ranks.normal_interval_rank(walsh / 2, math.sqrt(walsh * (2 * n + 1) / 12), ALPHA)
    return replace(
        noted(base, "ties" if tied else "", power(p_min, f"n={nonzero.size}"), _few(k)),
        statistic=positive / 2,
        p=p,
        p_min=p_min,
        effect=2 * positive / int(doubled.sum()) - 1,
        method=_method(exact),
        **_shift(lambda r: ranks.walsh_order(d, r), walsh, k),
    )


def spearman(x: ArrayLike, y: ArrayLike, **about: Unpack[About]) -> Statistic:
    """Spearman's rank correlation ρ of paired values, two-sided; statistic and effect are ρ.

    p over all n! orders for n <= 8 (exact), by Student's t above. Raises ValueError when x and y
    differ in length.
    """
    import numpy as np

    from runner.stats import ranks

    base, (u, v) = pairs("spearman", x, y, about)
    n = u.size
    if n < 3 or np.unique(u).size == 1 or np.unique(v).size == 1:
        return noted(base, "no test: fewer than three pairs, or a constant sample")
    from scipy.stats import spearmanr

    result = spearmanr(u, v)
    exact = n <= MOST_ORDERS
    if exact:
        p, p_min = ranks.permutation_spearman(u, v)
    else:
        p = float(result.pvalue)
        p_min = 2 / math.factorial(min(n, 100))
    rho = float(result.statistic)
    base = noted(base, power(p_min, f"n={n}"))
    return replace(base, statistic=rho, effect=rho, p=p, p_min=p_min, method=_method(exact))


def holm(p_values: Iterable[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given: p̃_(i) = max_{j<=i} min(1, (k − j +
    1) p_(j)).

    NaN stays NaN and does not count among the k tests.
    """
    p = [float(v) for v in p_values]
    order = sorted((i for i, v in enumerate(p) if not math.isnan(v)), key=lambda i: p[i])
    adjusted = [NAN] * len(p)
    running = 0.0
    for position, i in enumerate(order):
        running = max(running, min(1.0, (len(order) - position) * p[i]))
        adjusted[i] = running
    return adjusted


def correct(statistics: Sequence[Statistic]) -> list[Statistic]:
    """The same rows with p_holm filled in.

    A family is all tests of one kind (see `TESTS`) in one figure, over every group, since a reader
    sees them together. A test that cannot reach 0.05 at its n is left out of the family, and its
    note says so. Tests that name no figure form one family of each kind. Fits and summaries are
    left as they are.
    """
    families: dict[tuple[str, str], list[int]] = {}
    corrected = list(statistics)
    for i, s in enumerate(statistics):
        if s.kind not in TESTS or math.isnan(s.p):
            continue
        if s.has_power:
            families.setdefault((s.figure, s.kind), []).append(i)
        else:
            corrected[i] = noted(s, "left out of the family")
    for (figure, kind), members in families.items():
        family = f"{figure or 'no figure'}, {kind}: {len(members)} tests"
        for i, p in zip(members, holm(statistics[i].p for i in members), strict=True):
            corrected[i] = replace(statistics[i], p_holm=p, family=family)
    return corrected


def _method(exact: bool) -> str:
    return "exact" if exact else "asymptotic"


def _few(k: int) -> str:
    return "" if k else "too few values for a confidence interval"


def _shift(order: Callable[[Sequence[int]], list[float]], pairs_of: int, k: int) -> Shift:
    """Median and (k-th smallest, k-th largest) of the pairwise values; no interval (NaN) for k =
    0."""
    from runner.stats import ranks

    ends = []
    if k:
        ends = [k - 1, pairs_of - k]
    low, high, *interval = order([*ranks.middle_ranks(pairs_of), *ends])
    least, most = interval or (NAN, NAN)
    return {"shift": (low + high) / 2, "shift_low": least, "shift_high": most}
