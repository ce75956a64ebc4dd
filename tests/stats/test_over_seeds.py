"""Verdicts on made-up data with known answers."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from runner.contract import CLAIM_VERDICTS, Statement, decide
from runner.stats import Statistic, data_sets, over_seeds
from runner.stats.claims import (
    WHOLE,
    claim,
    incomplete,
    one_draw,
    overall,
    together,
)
from runner.stats.data_sets import LOST, median
from runner.stats.intervals import (
    EQUIVALENCE,
    Difference,
    Sample,
    Values,
    Variance,
    equal,
    outcome_of,
    paired,
    seeds_for_limit,
    seeds_to_compare,
    welch,
)
from runner.stats.score import z_of
from tests.errors import refusal


def says(**limits):
    return Statement(name="s", text="a statement", place="Section 1", **limits)


def test_welch_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 0.3, 6), rng.normal(1.1, 0.9, 9)
    expected = scipy_stats.ttest_ind(a, b, equal_var=False)
    found = welch(Sample.of(a), Sample.of(b))
    assert (found.value / found.error, found.df) == pytest.approx((expected.statistic, expected.df))
    assert found.interval(0.9) == pytest.approx(tuple(expected.confidence_interval(0.9)))


def test_equivalence_holds_its_level_at_the_margin(monkeypatch):
    # it takes nearly all the time
    monkeypatch.setattr("runner.stats.intervals.seeds_to_compare", lambda *_: math.nan)
    rng = np.random.default_rng(1)
    passed = []
    for _ in range(4000):
        ours, theirs = (Sample.of(rng.normal(mean, 0.1, 5)) for mean in (1.25, 1.0))
        passed.append(equal(ours, theirs, 0.25).outcome == "reproduced")
    assert np.mean(passed) == pytest.approx(0.05, abs=0.012)


def test_seeds_needed_decide():
    ours, theirs, margin = Sample(1.1, 0.3, 5), Sample(1.0, 0.05, 5), 0.25
    needed = equal(ours, theirs, margin).seeds_needed
    assert 5 < needed < 100 and needed == seeds_to_compare(ours, theirs, margin, EQUIVALENCE)
    for n, outcome in ((needed, "reproduced"), (needed - 1, "inconclusive")):
        assert equal(replace(ours, n=int(n)), theirs, margin).outcome == outcome
    assert math.isinf(equal(ours, replace(theirs, std=0.5), margin).seeds_needed)
    for mean in (0.75, 1.25):  # on the margin
        exact = Sample(mean, 0.0, 5), Sample(1.0, 0.0, 5)
        assert seeds_to_compare(*exact, margin, EQUIVALENCE) == 2


@pytest.mark.parametrize(
    "mean_std, log, limit",
    [
        ((1.0, 0.5), False, 0.9),
        ((1.0, 0.5), False, 0.0),
        # the interval of a ratio is that of its logarithm: not as wide on both sides
        ((1.0, 0.6), True, 1.3),
        ((1.0, 0.6), True, 0.8),
    ],
)
def test_seeds_for_a_limit(mean_std, log, limit):
    sample = Sample(*mean_std, 5, log=log)
    needed = int(seeds_for_limit(sample, limit, 0.95))
    for n, decided in ((needed, True), (needed - 1, False)):
        low, high = replace(sample, n=n).interval(0.95)
        assert (high < limit or low > limit) == decided


@pytest.mark.parametrize(
    "values, verdict",
    [
        ([1.0, 1.1, 1.2], "confirmed"),
        ([0.1, 0.11, 0.12], "refuted"),
        ([0.7, 0.9, 1.3], "inconclusive"),  # the interval holds the threshold
        ([2.0, 2.0], "inconclusive"),  # too few
    ],
)
def test_bounds(values, verdict):
    found = over_seeds.bound(says(low=0.7), {"": values})
    assert (found.verdict, found.variants) == (verdict, {})
    assert math.isnan(found.seeds_needed) == (verdict != "inconclusive")


@pytest.mark.parametrize(
    "limits, verdict",
    [
        ({"low": 0.0, "strict": True}, "refuted"),
        ({"high": 0.0, "strict": True}, "refuted"),
        ({"low": 0.0}, "confirmed"),
        ({"low": -1.0, "strict": True}, "confirmed"),
    ],
)
def test_a_constant_sample_on_a_limit_is_decided(limits, verdict):
    assert over_seeds.bound(says(**limits), [0.0] * 5).verdict == verdict


def test_a_part_too_many_refutes_only_at_its_share_of_the_level():
    near = [0.61, 0.64, 0.69, 0.62, 0.66]
    _, high = Sample.of(near).interval(0.95)
    assert high < 0.7
    assert over_seeds.bound(says(low=0.7), {"x": near}).verdict == "refuted"
    others = {f"y{i}": [1.0, 1.01, 1.02] for i in range(39)}
    among = over_seeds.bound(says(low=0.7), {"x": near, **others})
    assert among.verdict == among.variants["x"] == "inconclusive"
    assert among.variants["y1"] == "confirmed"


def test_a_number_is_not_confirmed_without_power():
    printed = says(number=0.94, rounding=0.005, n=5)
    found = over_seeds.number(printed, {"": [0.38, 1.02, 1.34, 0.82, 0.15]})
    assert found.verdict == "inconclusive" and found.seeds_needed > 5
    for values, verdict in (
        ([0.93, 0.95, 0.94], "confirmed"),
        ([0.15, 0.17, 0.18], "refuted"),
        ([0.94], "inconclusive"),
        ([], "not run"),
    ):
        assert over_seeds.number(printed, {"": values}).verdict == verdict


@pytest.mark.parametrize(
    "limits, value, verdict",
    [
        ({"number": 785}, 785.0, "confirmed"),
        ({"number": 785}, 784.0, "refuted"),
        ({"low": 0.0, "strict": True}, 0.0, "refuted"),
        ({"low": 0.0}, math.nan, "not run"),
    ],
)
def test_exact_quantities(limits, value, verdict):
    found = over_seeds.exact(says(**limits), {"": value})
    assert (found.verdict, found.variants) == (verdict, {})


def test_exact_quantities_of_parts():
    parts = {"a": 0.5, "b": math.nan}
    assert over_seeds.exact(says(high=1.0), parts).verdict == "inconclusive"
    one = over_seeds.exact(says(high=1.0), parts | {"c": 2.0})
    assert (one.verdict, one.statistic) == ("refuted", 2.0)
    assert one.variants == {"a": "confirmed", "b": "inconclusive", "c": "refuted"}


def sets(words):
    """What each data set says, of a word or its first letters for each."""
    whole = {"y": "yes", "n": "no", "o": "opposite", "i": "inconclusive", "l": LOST}
    return {seed: whole[word] for seed, word in enumerate(words)}


@pytest.mark.parametrize(
    "found, verdict",
    [
        ("yyyyy", "confirmed"),
        ("yyyyn", "confirmed"),
        ("yyyyo", "inconclusive"),  # one of five is no more than 1 − share
        ("yyynn", "inconclusive"),
        ("yynn", "refuted"),  # a tie is half at most
        ("yyyoo", "refuted"),
        ("yyiii", "inconclusive"),
        ("iiiii", "inconclusive"),
        ("ynlll", "inconclusive"),
        ("", "not run"),
    ],
)
def test_votes(found, verdict):
    assert data_sets.verdict_of(says(), sets(found))[0] == verdict


@pytest.mark.parametrize(
    "found, needed",
    [
        ("y", 3),
        ("yyynn", math.inf),
        ("yii", 9),  # three have to be conclusive
        ("ii", math.inf),
        ("ynlll", math.inf),
    ],
)
def test_how_many_data_sets_would_decide(found, needed):
    assert data_sets.needed(says(), sets(found)) == needed


def test_variants_are_marks_of_one_row():
    held = over_seeds.exact(says(high=1.0), {"": 0.5})
    claims = {"fitted": held, "printed": claim(says(high=1.0), "inconclusive")}
    marks = {"fitted": "confirmed", "printed": "inconclusive"}
    for main, verdict in (
        ("fitted", "confirmed"),
        (None, "inconclusive"),
        ("as published", "not run"),
    ):
        found = together(claims, main=main)
        assert (found.verdict, found.variants) == (verdict, marks)
    assert found.detail.startswith("not measured: as published")
    with refusal("at least one variant"):
        together({})


def test_a_variant_whose_parts_differ_is_marked_by_them():
    init = over_seeds.exact(says(high=1.0), {"L=6 init": 0.5, "L=8 init": 2.0})
    final = over_seeds.exact(says(high=1.0), {"": 0.5})
    found = together({"init": init, "final": final}, main="final")
    marks = {"L=6 init": "confirmed", "L=8 init": "refuted"}
    assert found.verdict == "confirmed"
    assert found.variants == marks | {"final": "confirmed"}
    named = together({"printed": init, "fitted": final}, main="fitted").variants
    printed = {f"printed {part}": verdict for part, verdict in marks.items()}
    assert named == printed | {"fitted": "confirmed"}


def test_what_was_not_measured_everywhere_is_not_confirmed():
    held, failed = (over_seeds.exact(says(high=1.0), {"init": v}) for v in (0.5, 2.0))
    assert incomplete(held, []) == held
    found = incomplete(held, ["final"])
    assert found.verdict == "inconclusive" and found.variants["final"] == "not run"
    assert found.detail.startswith("not run: final") and math.isinf(found.seeds_needed)
    assert incomplete(failed, ["final"]).verdict == "refuted"
    nothing = claim(says(high=1.0), "not run")
    assert incomplete(nothing, ["final"]) == nothing


@pytest.mark.parametrize(
    "kept, draws, verdict",
    [
        (0, 59, "refuted"),
        (0, 58, "inconclusive"),
        (1, 60, "inconclusive"),
        (11, 60, "inconclusive"),
        (59, 59, "confirmed"),
        (0, 0, "not run"),
    ],
)
def test_a_result_of_one_draw_is_refuted_only_where_it_is_rare(kept, draws, verdict):
    assert one_draw(kept, draws)[0] == verdict


@pytest.mark.parametrize(
    "verdicts, verdict",
    [
        (["confirmed", "true by construction"], "confirmed"),
        (["true by construction", "true by construction"], "true by construction"),
        (["not run"], "not run"),
        ([], "not run"),
        (["confirmed", "inconclusive", "refuted"], "refuted"),
    ],
)
def test_overall(verdicts, verdict):
    assert overall(verdicts) == verdict


def test_decisions_are_verdicts():
    assert {decide(held) for held in (True, False, None)} <= set(CLAIM_VERDICTS)


def test_a_statement_about_the_papers_own_networks_is_a_fact_for_or_against():
    wide = [0.5, 1.5, 1.0, 0.7, 1.2]
    spread = {"init": wide, "final": [3.0, 3.1, 2.9, 3.0, 3.05]}
    above = says(low=0.9, strict=True)
    undecided = over_seeds.bound(above, spread)
    assert undecided.variants == {"init": "inconclusive", "final": "confirmed"}
    for value, verdict in ((0.908, "confirmed"), (0.9, "refuted"), (0.8, "refuted")):
        found = over_seeds.bound(above, spread, same={"init": value})
        assert found.verdict == verdict  # the other part is confirmed
        assert found.variants["init"] == verdict and found.other_seeds == {"init": "inconclusive"}
        assert f"init: {value:.4g}" in found.detail
        assert "seeds would decide it for others" in found.detail
    assert over_seeds.bound(above, spread, same={"other": 0.0}) == undecided
    both = {"init": wide, "final": wide}  # a fact hides no other part
    assert over_seeds.bound(above, both, same={"init": 1.0}).verdict == "inconclusive"
    ours = over_seeds.bound(replace(above, chosen=True), {"": wide}, same={"": 0.899})
    assert ours.verdict == "inconclusive"  # a criterion that we chose: the interval decides
    alone = over_seeds.bound(above, wide, same={"": 0.908})
    assert (alone.variants, alone.other_seeds) == ({}, {WHOLE: "inconclusive"})
    assert math.isnan(alone.seeds_needed)


def test_on_the_papers_own_networks_the_scatter_of_the_probes_decides():
    """Networks differ by a factor of two, probes by a hundredth: only these are others."""
    exact = np.array([0.5, 0.8, 1.0, 1.2, 1.5])
    near = exact * [1.01, 0.99, 1.0, 1.01, 0.99]

    def number(values, without=None):
        known = None if without is None else {"": without}
        printed = says(number=1.0, rounding=0.005, n=5)
        return over_seeds.number(printed, {"": values}, without_probes=known)

    assert number(near).verdict == "inconclusive"
    found = number(near, exact)
    assert found.verdict == "confirmed" and found.other_seeds == {"statement": "inconclusive"}
    # four of the paper's five networks
    assert number(near[:4], exact[:4]) == number(near[:4])
    assert number(2 * near, 2 * exact).verdict == "refuted"
    log = Values(dict(enumerate(np.log(near))), 1.0, log=True)
    assert number(log, np.log(exact)).verdict == "confirmed"


def test_a_printed_number_beyond_the_margin_on_the_papers_own_networks_is_refuted():
    spread = [0.5, 1.5, 1.0, 0.7, 1.2]
    printed = says(number=1.0, rounding=0.05, n=5)
    assert over_seeds.number(printed, spread).verdict == "inconclusive"
    exact, near, far = (over_seeds.number(printed, spread, same={"": v}) for v in (0.98, 1.2, 1.3))
    assert exact.verdict == "confirmed" and "on the published networks and images; " in exact.detail
    assert near.verdict == "inconclusive"  # within the margin, not the digits
    assert far.verdict == "refuted"


def test_the_scatter_of_few_probes_has_as_many_degrees_of_freedom_as_errors_less_one():
    scatter = math.sqrt(1.5)  # of three errors: the difference of the means has error 1
    values, exact = [100 - scatter, 100, 100 + scatter], [100.0] * 3
    limit = scipy_stats.t.ppf(0.95, 2)  # of a 90 % interval: 2.92
    for share, verdict in ((0.99, "inconclusive"), (1.01, "confirmed")):
        found = over_seeds._by_probes(values, exact, Sample.of(exact), limit * share)
        assert found.verdict == verdict


def evidence(*tests, p_min=0.001, **kept):
    """One test a data set: (p, effect)."""
    about = {"name": "t", "kind": "mann_whitney", "p_min": p_min, **kept}
    return {i: Statistic(p=p, p_holm=p, effect=e, **about) for i, (p, e) in enumerate(tests)}


def by_tests(*tests, sign=1, **kept):
    return data_sets.tested(says(sign=sign), evidence(*tests, **kept))


def test_the_sign_of_a_test_decides():
    found = by_tests(*[(0.001, 0.5)] * 4, (0.01, 0.1))
    assert found.verdict == "confirmed" and found.detail.endswith("4 below 0.01 after Holm")
    assert found.threshold.endswith("effect > 0")
    assert by_tests(*[(0.001, 0.5)] * 3, *[(0.001, -0.5)] * 2).verdict == "refuted"
    either = by_tests(*[(0.001, -0.5)] * 4, sign=0)
    assert either.verdict == "confirmed" and "effect" not in either.threshold
    assert by_tests(*[(0.001, 0.0)] * 4).verdict == "refuted"  # a tie shows neither side


LOST_POINTS = {"lost": 3, "p_least": 0.001, "p_most": 0.001, "effect_most": 0.5}


@pytest.mark.parametrize(
    ("effect_least", "others", "verdict"),
    [
        (0.5, 4, "confirmed"),
        (0.0, 4, "confirmed"),
        (0.0, 3, "inconclusive"),
        (-0.5, 4, "inconclusive"),
    ],
)
def test_missing_points_are_tried_at_their_worst_and_best(effect_least, others, verdict):
    """One data set of several has missing points: with them at their worst it shows the effect,
    none, or the opposite. Four of five have to show it, none the opposite."""
    kept = evidence(*[(0.001, 0.5)] * (others + 1))
    open_test = replace(kept[0], effect_least=effect_least, **LOST_POINTS)
    assert data_sets.tested(says(sign=1), {**kept, 0: open_test}).verdict == verdict


def test_tests_that_cannot_reach_the_level_are_inconclusive():
    found = by_tests(*[(0.0625, 1.0)] * 5, p_min=0.0625)
    assert found.verdict == "inconclusive" and "5 inconclusive" in found.detail
    assert data_sets.tested(says(sign=1), {}).verdict == "not run"


@pytest.mark.parametrize(
    "low, high, verdict",
    [(-0.05, 0.05, "confirmed"), (0.2, 0.3, "refuted"), (-0.05, 0.3, "inconclusive")],
)
def test_shifts_against_limits(low, high, verdict):
    rows = evidence(*[(0.5, 0.0)] * 3, shift=0.0, shift_low=low, shift_high=high)
    assert data_sets.within(says(low=-0.1, high=0.1), rows).verdict == verdict


@pytest.mark.parametrize(
    "method, p, effect, verdict",
    [
        ("unharmed", 0.5, -0.2, "confirmed"),
        ("unharmed", 0.001, -0.9, "refuted"),
        ("unrelated", 0.001, 0.9, "refuted"),
        ("unrelated", 0.001, -0.9, "refuted"),
        ("unrelated", 0.5, 0.9, "confirmed"),
        ("unrelated", 0.5, -0.9, "confirmed"),
    ],
)
def test_absence_is_refuted_by_significance_alone(method, p, effect, verdict):
    rows = evidence(*[(p, effect)] * 5)
    assert getattr(data_sets, method)(says(), rows).verdict == verdict


def test_absence_is_not_confirmed_without_power():
    found = data_sets.unrelated(says(), evidence(*[(0.5, 0.2)] * 5, p_min=0.5))
    assert found.verdict == "inconclusive"


def test_numbers_of_data_sets():
    values = {1: 2.0, 2: 2.0, 3: math.nan}
    assert median(values) == 2.0
    limits = says(high=2.5)
    assert data_sets.compared(limits, values).verdict == "inconclusive"
    assert data_sets.compared(limits, {**values, 3: 1.0}).verdict == "confirmed"


def test_the_part_that_needs_most_seeds_gives_their_number():
    wide, narrow = [0.9, 1.0, 1.25, 0.95], [0.98, 1.02, 1.01, 1.08]
    limit, parts = says(high=1.03), {"wide": wide, "narrow": narrow}
    alone = [over_seeds.bound(limit, {name: values}).seeds_needed for name, values in parts.items()]
    both = over_seeds.bound(limit, parts)
    assert alone[0] != alone[1] and both.verdict == "inconclusive"
    assert both.seeds_needed >= max(alone)


def test_the_limit_that_needs_most_seeds_gives_their_number():
    values = [0.8, 1.0, 1.2, 1.1]
    low, high, both = (
        over_seeds.bound(says(**limits), values).seeds_needed
        for limits in ({"low": 0.9}, {"high": 1.2}, {"low": 0.9, "high": 1.2})
    )
    assert low != high and both == max(low, high)


def test_the_variant_that_needs_most_seeds_gives_their_number():
    claims = {}
    for name, seeds in (("a", 7.0), ("b", 40.0), ("c", 12.0)):
        claims[name] = claim(says(high=1), "inconclusive", seeds_needed=seeds)
    assert together(claims).seeds_needed == 40
    assert together(claims, main="c").seeds_needed == 12


@pytest.mark.parametrize(
    "low, high, outcome",
    [
        (-1.0, 1.0, "reproduced"),
        (-2.0, -1.0, "inconclusive"),  # its end is the margin, which is not beyond it
        (1.0, 2.0, "inconclusive"),
        (-2.0, -1.1, "not reproduced"),
        (1.1, 2.0, "not reproduced"),
        (-1.1, 0.0, "inconclusive"),
        (0.0, 1.1, "inconclusive"),
        (math.nan, math.nan, "inconclusive"),
    ],
)
def test_an_end_on_the_margin_belongs_to_it(low, high, outcome):
    assert outcome_of(low, high, 1.0) == outcome


def test_ratios_are_compared_by_their_logarithms():
    """Ours e times larger or smaller by chance, printed 2, margin a quarter: on the scale of the
    logarithm both errors count alike, and the interval ends at 2 (exp(t s / sqrt(n)) - 1)."""
    steps = np.array([-0.1, -0.05, 0.0, 0.05, 0.1])
    ours = Sample.of(Values(dict(enumerate(math.log(2.0) + steps)), 2.0, log=True))
    theirs = Sample.printed(2.0, math.nan, 5)
    variance, quantile = (steps**2).sum() / 4, scipy_stats.t.ppf(0.95, 4)
    for compared, error in (
        (equal(ours, theirs, 0.5), math.sqrt(variance * 2 / 5)),
        (paired(ours, theirs, 0.5, Variance(0.04, 4)), math.sqrt(0.04 / 5) / 2),
    ):
        ends = [2 * math.expm1(sign * quantile * error) for sign in (-1, 1)]
        assert [compared.low, compared.high] == pytest.approx(ends)
        assert compared.high > -compared.low


def test_z_of_a_ratio_counts_printed_rounding_on_the_scale_of_the_logarithm():
    difference = Difference(0.1, 0.05, 4, ratio_to=2.0)
    assert z_of(difference, math.nan) == pytest.approx(2)
    plain = replace(difference, ratio_to=math.nan)
    for found, rounding in ((difference, 0.01), (plain, 0.02)):
        expected = 0.1 / math.hypot(0.05, rounding / math.sqrt(3))
        assert z_of(found, 0.02) == pytest.approx(expected)
