"""Statistics against scipy, against enumeration of every arrangement, and against their own
promises."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from scipy import stats as reference

from runner import stats
from runner.stats import ranks
from tests.errors import refusal

mann_whitney = partial(stats.mann_whitney, name="t")
wilcoxon = partial(stats.wilcoxon, name="t")
spearman = partial(stats.spearman, name="t")
linear = partial(stats.linear, name="t")
log_linear = partial(stats.log_linear, name="t")
summary = partial(stats.summary, name="t")


def doubled_ranks(values):
    return np.rint(2 * reference.rankdata(values)).astype(int)


def two_sided(sums, seen):
    """p of a rank sum among those of every arrangement."""
    return min(1.0, 2 * min((sums <= seen).mean(), (sums >= seen).mean()))


def enumerate_mann_whitney(a, b):
    """Two-sided p over every way of choosing the first sample; ties included."""
    doubled = doubled_ranks(np.concatenate([a, b]))
    sums = np.array([sum(c) for c in itertools.combinations(doubled, len(a))])
    return two_sided(sums, doubled[: len(a)].sum())


def enumerate_wilcoxon(d):
    d = d[d != 0]
    rank = doubled_ranks(np.abs(d))
    sums = np.array(list(itertools.product((0, 1), repeat=len(d)))) @ rank
    return two_sided(sums, rank[d > 0].sum())


@pytest.mark.parametrize("m, n", [(1, 1), (3, 4), (5, 5), (8, 30), (40, 45), (4, 200)])
def test_mann_whitney_exact_is_scipys(m, n):
    rng = np.random.default_rng(m * 100 + n)
    a, b = rng.normal(0.5, 1, m), rng.normal(0, 1, n)
    ours, theirs = mann_whitney(a, b), reference.mannwhitneyu(a, b, method="exact")
    assert (ours.method, ours.statistic) == ("exact", theirs.statistic)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-10)
    assert ours.p_min == pytest.approx(min(1, 2 / math.comb(m + n, m)), rel=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_mann_whitney_with_ties_is_enumeration(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 4, 3 + seed), rng.integers(1, 5, 5)
    ours = mann_whitney(a, b)
    assert ours.p == pytest.approx(enumerate_mann_whitney(a, b), rel=1e-12)
    assert ours.statistic == reference.mannwhitneyu(a, b).statistic
    assert (ours.method, "ties" in ours.note) == ("exact", True)
    assert ours.p >= ours.p_min


def test_mann_whitney_large_is_scipys_approximation():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.1, 1, 400).round(2), rng.normal(0, 1, 300).round(2)
    ours, theirs = mann_whitney(a, b), reference.mannwhitneyu(a, b, method="asymptotic")
    assert ours.method == "asymptotic"
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-12)


def test_mann_whitney_signs_and_swap():
    a, b = [3.0, 4, 5, 9, 10], [1.0, 2, 3.5, 4.5]
    one, two = mann_whitney(a, b), mann_whitney(b, a)
    assert one.effect == pytest.approx(2 * 17 / 20 - 1)
    swapped = (-two.effect, -two.shift, -two.shift_high)
    assert (one.effect, one.shift, one.shift_low) == pytest.approx(swapped)
    assert one.p == two.p
    assert one.shift == np.median(np.subtract.outer(a, b))


def check_interval(found, p):
    """A shift inside the interval is not rejected at 5 %, one just outside is."""
    for edge, inward in ((found.shift_low, 1e-9), (found.shift_high, -1e-9)):
        assert p(edge - inward) <= 0.05 < p(edge + inward)


@pytest.mark.parametrize("m", [6, 40])
def test_shift_interval_inverts_the_test(m):
    rng = np.random.default_rng(m)
    a, b = rng.normal(1, 1, m), rng.normal(0, 1, m + 2)

    def p_of_two(shift):
        return reference.mannwhitneyu(a - shift, b, method="exact").pvalue

    def p_of_pairs(shift):
        return reference.wilcoxon(a - shift, method="exact").pvalue

    check_interval(mann_whitney(a, b), p_of_two)
    check_interval(wilcoxon(a), p_of_pairs)


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


def walsh(d):
    """The mean of each pair of values, each with itself included."""
    i, j = np.triu_indices(d.size)
    return np.sort((d[i] + d[j]) / 2)


def test_walsh_order_statistics():
    d = np.random.default_rng(2).normal(0.3, 2, 120).round(3)
    every = walsh(d)
    wanted = [0, 5, every.size // 2, every.size - 1]
    assert ranks.walsh_order(d, wanted) == list(every[wanted])


@pytest.mark.parametrize("n", [4, 5, 9, 30])
def test_wilcoxon_exact_is_scipys(n):
    rng = np.random.default_rng(n)
    a, b = rng.normal(0.4, 1, n), rng.normal(0, 1, n)
    ours, theirs = wilcoxon(a, b), reference.wilcoxon(a, b, method="exact")
    assert (ours.method, ours.n_a) == ("exact", n)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-10)
    assert min(ours.statistic, n * (n + 1) / 2 - ours.statistic) == theirs.statistic
    assert ours.shift == pytest.approx(np.median(walsh(a - b)))


def test_wilcoxon_with_ties_and_zeros_is_enumeration():
    d = np.array([0, 1, 1, -1, 2, 2, 3, 0, -2, 4, 5])
    ours = wilcoxon(d)
    assert ours.p == pytest.approx(enumerate_wilcoxon(d), rel=1e-12)
    assert "2 zero differences dropped" in ours.note and "ties" in ours.note


def test_five_pairs_cannot_reach_significance():
    s = wilcoxon([2, 3, 4, 5, 6.5], [1, 1, 1, 1, 1.0])
    assert s.p == s.p_min == 0.0625
    assert "cannot reach 0.05 with n=5" in s.note
    assert not s.has_power
    assert math.isnan(s.shift_low) and "too few values for a confidence interval" in s.note


def test_spearman():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=40), rng.normal(size=40)
    ours, theirs = spearman(x, y), reference.spearmanr(x, y)
    assert (ours.statistic, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    small = spearman([1, 2, 3, 4], [2, 1, 3, 4])
    orders = itertools.permutations([2, 1, 3, 4])
    rhos = [reference.spearmanr([1, 2, 3, 4], order).statistic for order in orders]
    assert small.p == pytest.approx(np.mean(np.abs(rhos) >= 0.8 - 1e-12))
    assert small.p_min == pytest.approx(2 / 24)
    assert "cannot reach" in small.note
    for pair in (([2, 2, 2], [1, 2, 3]), ([1, 2, 3], [2, 2, 2])):
        assert "constant sample" in spearman(*pair).note


def test_a_logarithmic_fit():
    x = np.arange(8.0)
    y = 3 * np.exp(-0.25 * x)
    fit = log_linear(x, y)
    assert (fit.decay, fit.intercept, fit.r2) == pytest.approx((0.25, math.log(3), 1))
    without = log_linear(x, np.where(x == 3, 0, y))
    assert without.lost == 1 and math.isnan(without.decay)
    assert "1 of 8 values are not positive" in without.note


def test_a_linear_fit_is_scipys():
    x = np.arange(8.0)
    y = 2 - 0.5 * x + np.random.default_rng(5).normal(size=8)
    theirs, ours = reference.linregress(x, y), linear(x, y)
    assert (ours.slope, ours.p) == pytest.approx((theirs.slope, theirs.pvalue))
    assert (ours.r2, ours.slope_error) == pytest.approx((theirs.rvalue**2, theirs.stderr))


def test_a_line_through_two_points_has_no_error_and_no_p():
    found = linear([1.0, 3.0], [2.0, 6.0])
    assert (found.slope, found.intercept) == pytest.approx((2, 0))
    assert "two points" in found.note
    assert np.isnan([found.p, found.slope_error, found.statistic]).all()


def test_summary():
    s = summary([1, 2, 4, math.nan])
    assert (s.n_a, s.mean, s.median) == (3, pytest.approx(7 / 3), 2)
    deviations = [np.std([1, 2, 4], ddof=ddof) for ddof in (1, 0)]
    assert [s.std, s.std_population] == pytest.approx(deviations)
    assert "1 of 4 values infinite or missing" in s.note
    assert math.isnan(summary([3]).std)
    assert summary([]).note == "no values"


@pytest.mark.parametrize("a", [[], [math.nan], [1.0], [math.nan, math.inf]])
@pytest.mark.parametrize("b", [[], [math.nan], [2.0], [-math.inf]])
def test_input_that_allows_no_test_gives_a_row_and_never_raises(a, b):
    s = mann_whitney(a, b)
    assert s.note
    assert math.isnan(s.p) or not np.isnan(a).all()


PAIRED = [wilcoxon, spearman, linear, log_linear]


@pytest.mark.parametrize("call", PAIRED)
@pytest.mark.parametrize(
    "value", [[], [math.nan] * 3, [1.0], [2.0, 2, 2], [math.inf] * 3, [-1.0, -2, -3]]
)
def test_degenerate_pairs_never_raise(call, value):
    s = call(value, [0.0] * len(value))
    assert s.n_a <= len(value) and s.note


@pytest.mark.parametrize("call", PAIRED)
def test_unpaired_lengths_are_refused(call):
    with refusal(r"t: expected paired .* found 2 and 3"):
        call([1, 2], [1, 2, 3])


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    adjusted = stats.holm([0.5, math.nan, 0.9])
    assert adjusted == pytest.approx([1.0, math.nan, 1.0], nan_ok=True)
    assert stats.holm([]) == []


def test_correction_is_within_a_figure_and_kind_over_all_groups():
    def test(p, figure, group="", kind="wilcoxon", p_min=0.01):
        return stats.Statistic(name="t", kind=kind, figure=figure, group=group, p=p, p_min=p_min)

    rows = [
        test(0.01, "7", "a"),
        test(0.04, "7", "b"),
        test(0.04, "11"),
        test(0.03, "7", kind="mann_whitney"),
        test(0.0625, "7", "c", p_min=0.0625),
        test(0.03, "7", kind="log_linear"),
    ]
    corrected = stats.correct(rows)
    assert [r.p_holm for r in corrected[:4]] == pytest.approx([0.02, 0.04, 0.04, 0.03])
    assert corrected[0].family == "7, wilcoxon: 2 tests"
    assert all(math.isnan(r.p_holm) and not r.family for r in corrected[4:])
    assert "left out of the family" in corrected[4].note and not corrected[5].note
    assert [r.p for r in corrected] == [r.p for r in rows]


@pytest.mark.parametrize("n, method", [(31, "exact"), (300, "exact"), (301, "asymptotic")])
def test_wilcoxon_is_exact_up_to_300_pairs(n, method):
    differences = np.where(np.arange(n) % 3, 1.0, -1.0) * np.arange(1, n + 1)
    found, theirs = wilcoxon(differences), reference.wilcoxon(differences, method=method)
    assert found.method == method
    assert found.p == pytest.approx(float(theirs.pvalue), rel=1e-6)
