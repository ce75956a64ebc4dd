"""Statistics against scipy, against enumeration of every arrangement, and against their own
promises."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats as reference

from runner import stats
from runner.stats import ranks
from tests.errors import refusal


def enumerate_mann_whitney(a, b):
    """Two-sided p over every way of choosing the first sample; ties included."""
    pooled = np.concatenate([a, b])
    doubled = np.rint(2 * reference.rankdata(pooled)).astype(int)
    sums = np.array([sum(c) for c in itertools.combinations(doubled, len(a))])
    seen = doubled[: len(a)].sum()
    return min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))


def enumerate_wilcoxon(d):
    d = d[d != 0]
    rank = np.rint(2 * reference.rankdata(np.abs(d))).astype(int)
    sums = np.array(list(itertools.product((0, 1), repeat=len(d)))) @ rank
    seen = rank[d > 0].sum()
    return min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))


@pytest.mark.parametrize("m, n", [(1, 1), (3, 4), (5, 5), (8, 30), (40, 45), (4, 200)])
def test_mann_whitney_exact_is_scipys(m, n):
    rng = np.random.default_rng(m * 100 + n)
    a, b = rng.normal(0.5, 1, m), rng.normal(0, 1, n)
    ours, theirs = stats.mann_whitney(a, b, name="t"), reference.mannwhitneyu(a, b, method="exact")
    assert ours.method == "exact"
    assert ours.statistic == theirs.statistic
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-10)
    assert ours.p_min == pytest.approx(min(1, 2 / math.comb(m + n, m)), rel=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_mann_whitney_with_ties_is_enumeration(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 4, 3 + seed), rng.integers(1, 5, 5)
    ours = stats.mann_whitney(a, b, name="t")
    assert ours.p == pytest.approx(enumerate_mann_whitney(a, b), rel=1e-12)
    assert ours.statistic == reference.mannwhitneyu(a, b).statistic
    assert (ours.method, "ties" in ours.note) == ("exact", True)
    assert ours.p >= ours.p_min


def test_mann_whitney_large_is_scipys_approximation():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.1, 1, 400).round(2), rng.normal(0, 1, 300).round(2)
    ours = stats.mann_whitney(a, b, name="t")
    assert ours.method == "asymptotic"
    assert ours.p == pytest.approx(
        reference.mannwhitneyu(a, b, method="asymptotic").pvalue, rel=1e-12
    )


def test_mann_whitney_signs_and_swap():
    a, b = [3.0, 4, 5, 9, 10], [1.0, 2, 3.5, 4.5]
    one, two = stats.mann_whitney(a, b, name="t"), stats.mann_whitney(b, a, name="t")
    assert one.effect == pytest.approx(2 * 17 / 20 - 1)
    assert (one.effect, one.shift, one.shift_low) == pytest.approx(
        (-two.effect, -two.shift, -two.shift_high)
    )
    assert one.p == two.p
    assert one.shift == np.median(np.subtract.outer(a, b))


@pytest.mark.parametrize("m", [6, 40])
def test_shift_interval_inverts_the_test(m):
    """A shift inside the interval is not rejected at 5 %, one just outside is."""
    rng = np.random.default_rng(m)
    a, b = rng.normal(1, 1, m), rng.normal(0, 1, m + 2)
    s = stats.mann_whitney(a, b, name="t")
    step = 1e-9
    for edge, outward in ((s.shift_low, -1), (s.shift_high, 1)):
        inside = reference.mannwhitneyu(a - edge + outward * step, b, method="exact").pvalue
        outside = reference.mannwhitneyu(a - edge - outward * step, b, method="exact").pvalue
        assert outside <= 0.05 < inside
    s = stats.wilcoxon(a, name="t")
    for edge, outward in ((s.shift_low, -1), (s.shift_high, 1)):
        inside, outside = (
            reference.wilcoxon(a - edge + k * outward * step, method="exact").pvalue
            for k in (1, -1)
        )
        assert outside <= 0.05 < inside


@pytest.mark.parametrize("m, n", [(20, 30), (45, 45)])
def test_the_normal_interval_agrees_with_the_exact_one(m, n):
    exact = ranks.interval_rank(ranks.untied_u_null(m, n), 0.05)
    deviation = ranks.tied_deviation(ranks.doubled_ranks(np.arange(m + n)), m, n)
    assert abs(ranks.normal_interval_rank(m * n / 2, deviation, 0.05) - exact) <= 1


def test_deviation_with_ties_is_that_of_every_arrangement():
    doubled = ranks.doubled_ranks(np.array([0.0, 0, 1, 1, 1, 2, 3, 5]))
    sums = [sum(c) / 2 for c in itertools.combinations(doubled, 3)]
    assert ranks.tied_deviation(doubled, 3, 5) == pytest.approx(np.std(sums), rel=1e-12)


def test_pairwise_order_statistics():
    rng = np.random.default_rng(1)
    a, b = rng.normal(3, 1, 700).round(2), rng.lognormal(0, 1, 500)
    every = np.sort(np.subtract.outer(a, b).ravel())
    wanted = [0, 17, every.size // 2, every.size - 1]
    assert ranks.difference_order(a, b, wanted) == list(every[wanted])


def test_walsh_order_statistics():
    d = np.random.default_rng(2).normal(0.3, 2, 120).round(3)
    i, j = np.triu_indices(d.size)
    every = np.sort((d[i] + d[j]) / 2)
    wanted = [0, 5, every.size // 2, every.size - 1]
    assert ranks.walsh_order(d, wanted) == list(every[wanted])


@pytest.mark.parametrize("n", [4, 5, 9, 30])
def test_wilcoxon_exact_is_scipys(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.4, 1, n), rng.normal(0, 1, n)
    ours, theirs = stats.wilcoxon(a, b, name="t"), reference.wilcoxon(a, b, method="exact")
    assert (ours.method, ours.n_a) == ("exact", n)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-10)
    assert min(ours.statistic, n * (n + 1) / 2 - ours.statistic) == theirs.statistic
    i, j = np.triu_indices(n)
    assert ours.shift == pytest.approx(np.median((a - b)[i] / 2 + (a - b)[j] / 2))


def test_wilcoxon_with_ties_and_zeros_is_enumeration():
    d = np.array([0, 1, 1, -1, 2, 2, 3, 0, -2, 4, 5])
    ours = stats.wilcoxon(d, name="t")
    assert ours.p == pytest.approx(enumerate_wilcoxon(d), rel=1e-12)
    assert "2 zero differences dropped" in ours.note
    assert "ties" in ours.note


def test_five_pairs_cannot_reach_significance():
    s = stats.wilcoxon([2, 3, 4, 5, 6.5], [1, 1, 1, 1, 1.0], name="t")
    assert s.p == s.p_min == 0.0625
    assert "cannot reach 0.05 with n=5" in s.note
    assert not s.has_power
    assert math.isnan(s.shift_low) and "too few values for a confidence interval" in s.note


def test_spearman():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=40), rng.normal(size=40)
    theirs = reference.spearmanr(x, y)
    ours = stats.spearman(x, y, name="t")
    assert (ours.statistic, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    small = stats.spearman([1, 2, 3, 4], [2, 1, 3, 4], name="t")
    rhos = [
        reference.spearmanr([1, 2, 3, 4], q).statistic for q in itertools.permutations([2, 1, 3, 4])
    ]
    assert small.p == pytest.approx(np.mean(np.abs(rhos) >= 0.8 - 1e-12))
    assert small.p_min == pytest.approx(2 / 24)
    assert "cannot reach" in small.note
    for pair in (([2, 2, 2], [1, 2, 3]), ([1, 2, 3], [2, 2, 2])):
        assert "constant sample" in stats.spearman(*pair, name="t").note


def test_fits():
    x = np.arange(8.0)
    fit = stats.log_linear(x, 3 * np.exp(-0.25 * x), name="t")
    assert (fit.decay, fit.intercept, fit.r2) == pytest.approx((0.25, math.log(3), 1))
    without = stats.log_linear(x, np.where(x == 3, 0, 3 * np.exp(-0.25 * x)), name="t")
    assert math.isnan(without.decay) and "1 of 8 values are not positive" in without.note
    rng = np.random.default_rng(5)
    y = 2 - 0.5 * x + rng.normal(size=8)
    theirs, ours = reference.linregress(x, y), stats.linear(x, y, name="t")
    assert (ours.slope, ours.p, ours.r2) == pytest.approx(
        (theirs.slope, theirs.pvalue, theirs.rvalue**2)
    )
    assert ours.slope_error == pytest.approx(theirs.stderr)


def test_summary():
    s = stats.summary([1, 2, 4, math.nan], name="t")
    assert (s.n_a, s.mean, s.median) == (3, pytest.approx(7 / 3), 2)
    assert (s.std, s.std_population) == pytest.approx(
        (np.std([1, 2, 4], ddof=1), np.std([1, 2, 4]))
    )
    assert "1 of 4 values infinite or missing" in s.note
    assert math.isnan(stats.summary([3], name="t").std)
    assert stats.summary([], name="t").note == "no values"


@pytest.mark.parametrize("a", [[], [math.nan], [1.0], [math.nan, math.inf]])
@pytest.mark.parametrize("b", [[], [math.nan], [2.0], [-math.inf]])
def test_input_that_allows_no_test_gives_a_row_and_never_raises(a, b):
    s = stats.mann_whitney(a, b, name="t")
    assert s.note
    if not np.isfinite(a).any() and not np.isinf(a).any():
        assert math.isnan(s.p)


@pytest.mark.parametrize("call", [stats.wilcoxon, stats.spearman, stats.linear, stats.log_linear])
@pytest.mark.parametrize(
    "value", [[], [math.nan] * 3, [1.0], [2.0, 2, 2], [math.inf] * 3, [-1.0, -2, -3]]
)
def test_degenerate_pairs_never_raise(call, value):
    s = call(value, [0.0] * len(value), name="t")
    assert s.n_a <= len(value)
    assert s.note


@pytest.mark.parametrize("call", [stats.wilcoxon, stats.spearman, stats.linear, stats.log_linear])
def test_unpaired_lengths_are_refused(call):
    with refusal(r"t: expected paired .* found 2 and 3"):
        call([1, 2], [1, 2, 3], name="t")


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    adjusted = stats.holm([0.5, math.nan, 0.9])
    assert adjusted[0] == adjusted[2] == 1.0
    assert math.isnan(adjusted[1])
    assert stats.holm([]) == []


def test_correction_is_within_a_figure_and_kind_over_all_groups():
    def test(p, figure, group="", kind="wilcoxon", p_min=0.01):
        return stats.Statistic(name="t", kind=kind, figure=figure, group=group, p=p, p_min=p_min)

    rows = [
        test(0.01, "7", "a"),
        test(0.04, "7", "b"),
        test(0.04, "11"),
        test(0.03, "7", kind="mann_whitney"),
    ]
    rows += [test(0.0625, "7", "c", p_min=0.0625), test(0.03, "7", kind="log_linear")]
    corrected = stats.correct(rows)
    assert [r.p_holm for r in corrected[:4]] == pytest.approx([0.02, 0.04, 0.04, 0.03])
    assert corrected[0].family == "7, wilcoxon: 2 tests"
    assert all(math.isnan(r.p_holm) and not r.family for r in corrected[4:])
    assert "left out of the family" in corrected[4].note and not corrected[5].note
    assert [r.p for r in corrected] == [r.p for r in rows]


@pytest.mark.parametrize("n, method", [(31, "exact"), (300, "exact"), (301, "asymptotic")])
def test_wilcoxon_is_exact_up_to_300_pairs(n, method):
    differences = np.where(np.arange(n) % 3, 1.0, -1.0) * np.arange(1, n + 1)
    found = stats.wilcoxon(differences, name="t")
    assert found.method == method
    assert found.p == pytest.approx(
        float(reference.wilcoxon(differences, method=method).pvalue), rel=1e-6
    )


def test_a_line_through_two_points_has_no_error_and_no_p():
    found = stats.linear([1.0, 3.0], [2.0, 6.0], name="t")
    assert (
        found.slope == pytest.approx(2)
        and found.intercept == pytest.approx(0)
        and "two points" in found.note
    )
    assert math.isnan(found.p) and math.isnan(found.slope_error) and math.isnan(found.statistic)
