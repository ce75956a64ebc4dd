"""Verdicts on made-up data with known answers."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from runner.contract import CLAIM_VERDICTS, Statement, decide
from runner.report.score import z_of
from runner.stats import Statistic, judge
from runner.stats.claims import LOST, WHOLE
from runner.stats.intervals import (
    Difference,
    Part,
    Pseudovalues,
    Sample,
    outcome_of,
    seeds_for_limit,
    seeds_to_compare,
    welch,
)
from runner.stats.judge import Evidence, by_seed, median
from runner.stats.statements import read_statements
from tests.errors import refusal


def statement(**limits):
    return Statement(name="s", text="a statement", where="Section 1", **limits)


def test_welch_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(1, 0.3, 6), rng.normal(1.1, 0.9, 9)
    expected = scipy_stats.ttest_ind(a, b, equal_var=False)
    found = welch(Sample.of(a), Sample.of(b))
    assert found.z == pytest.approx(expected.statistic)
    assert found.df == pytest.approx(expected.df)
    assert found.interval(0.9) == pytest.approx(tuple(expected.confidence_interval(0.9)))


def test_equivalence_holds_its_level_at_the_margin(monkeypatch):
    monkeypatch.setattr(
        "runner.stats.intervals.seeds_to_compare", lambda *_: math.nan
    )  # it takes nearly all the time
    rng = np.random.default_rng(1)
    passed = []
    for _ in range(4000):
        ours, theirs = (Sample.of(rng.normal(mean, 0.1, 5)) for mean in (1.25, 1.0))
        passed.append(judge.equal(ours, theirs, 0.25).outcome == "reproduced")
    assert np.mean(passed) == pytest.approx(0.05, abs=0.012)


def test_seeds_needed_decide():
    ours, theirs, margin = Sample(1.1, 0.3, 5), Sample(1.0, 0.05, 5), 0.25
    needed = judge.equal(ours, theirs, margin).seeds_needed
    assert 5 < needed < 100 and needed == seeds_to_compare(ours, theirs, margin, judge.EQUIVALENCE)
    enough, short = (Sample(1.1, 0.3, int(n)) for n in (needed, needed - 1))
    assert judge.equal(enough, theirs, margin).outcome == "reproduced"
    assert judge.equal(short, theirs, margin).outcome == "inconclusive"
    assert math.isinf(judge.equal(Sample(1.1, 0.3, 5), Sample(1.0, 0.5, 5), margin).seeds_needed)
    for mean in (0.75, 1.25):  # on the margin
        assert (
            seeds_to_compare(Sample(mean, 0.0, 5), Sample(1.0, 0.0, 5), margin, judge.EQUIVALENCE)
            == 2
        )


@pytest.mark.parametrize("limit", [0.9, 0.0])
def test_seeds_for_a_limit(limit):
    needed = int(seeds_for_limit(Sample(1.0, 0.5, 5), limit, 0.95))
    low, _ = Sample(1.0, 0.5, needed).interval(0.95)
    assert low > limit > Sample(1.0, 0.5, needed - 1).interval(0.95)[0]


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
    found = judge.bound(statement(low=0.7), {"": values})
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
    assert judge.bound(statement(**limits), [0.0] * 5).verdict == verdict


@pytest.mark.parametrize("limit", [1.3, 0.8])
def test_seeds_for_a_limit_of_a_ratio(limit):
    """The interval of a ratio is that of its logarithm: not as wide on both sides."""
    ratio = Sample(1.0, 0.6, 5, log=True)
    needed = int(seeds_for_limit(ratio, limit, 0.95))
    for n, outside in ((needed, True), (needed - 1, False)):
        low, high = replace(ratio, n=n).interval(0.95)
        assert (high < limit or low > limit) == outside


def test_a_part_too_many_refutes_only_at_its_share_of_the_level():
    near = [0.61, 0.64, 0.69, 0.62, 0.66]
    _, high = Sample.of(near).interval(0.95)
    assert high < 0.7
    alone = judge.bound(statement(low=0.7), {"x": near})
    among = judge.bound(
        statement(low=0.7), {f"x{i}": near if i == 0 else [1.0, 1.01, 1.02] for i in range(40)}
    )
    assert alone.verdict == "refuted" and among.verdict == "inconclusive"
    assert [among.variants[f"x{i}"] for i in (0, 1)] == ["inconclusive", "confirmed"]


def test_a_number_is_not_confirmed_without_power():
    printed = statement(number=0.94, rounding=0.005, n=5)
    plateau = [0.38, 1.02, 1.34, 0.82, 0.15]
    found = judge.number(printed, {"": plateau})
    assert found.verdict == "inconclusive" and found.seeds_needed > 5
    assert judge.number(printed, {"": [0.93, 0.95, 0.94]}).verdict == "confirmed"
    assert judge.number(printed, {"": [0.15, 0.17, 0.18]}).verdict == "refuted"
    assert judge.number(printed, {"": [0.94]}).verdict == "inconclusive"
    assert judge.number(printed, {"": []}).verdict == "not run"


def test_exact_quantities():
    alone = judge.exact(statement(number=785), {"": 785.0})
    assert (alone.verdict, alone.variants) == ("confirmed", {})
    assert judge.exact(statement(number=785), {"": 784.0}).verdict == "refuted"
    one = judge.exact(statement(high=1.0), {"a": 0.5, "b": math.nan, "c": 2.0})
    assert (one.verdict, one.statistic) == ("refuted", 2.0)
    assert one.variants == {"a": "confirmed", "b": "inconclusive", "c": "refuted"}
    assert judge.exact(statement(high=1.0), {"a": 0.5, "b": math.nan}).verdict == "inconclusive"
    assert judge.exact(statement(low=0.0, strict=True), {"": 0.0}).verdict == "refuted"
    assert judge.exact(statement(low=0.0), {"": math.nan}).verdict == "not run"


RULE = judge.DataSetRule(share=0.8, least=3)


@pytest.mark.parametrize(
    "found, verdict",
    [
        (["yes"] * 5, "confirmed"),
        (["yes"] * 4 + ["no"], "confirmed"),
        (["yes"] * 4 + ["opposite"], "inconclusive"),  # one of five is no more than 1 − share
        (["yes"] * 3 + ["no"] * 2, "inconclusive"),
        (["yes", "yes", "no", "no"], "refuted"),  # a tie is half at most
        (["yes"] * 3 + ["opposite"] * 2, "refuted"),
        (["yes", "yes", "inconclusive", "inconclusive", "inconclusive"], "inconclusive"),
        (["inconclusive"] * 5, "inconclusive"),
        ([], "not run"),
    ],
)
def test_votes(found, verdict):
    assert judge.verdict_of_data_sets(dict(enumerate(found)), RULE)[0] == verdict


def test_how_many_data_sets_would_decide():
    assert judge.data_sets_needed({0: "yes"}, RULE) == 3
    assert math.isinf(judge.data_sets_needed(dict(enumerate(["yes"] * 3 + ["no"] * 2)), RULE))
    one_of_three = {0: "yes", 1: "inconclusive", 2: "inconclusive"}  # three have to be conclusive
    assert judge.data_sets_needed(one_of_three, RULE) == 9
    assert math.isinf(judge.data_sets_needed({0: "inconclusive", 1: "inconclusive"}, RULE))
    lost = dict(enumerate(["yes", "no", LOST, LOST, LOST]))
    assert judge.verdict_of_data_sets(lost, RULE)[0] == "inconclusive"
    assert math.isinf(judge.data_sets_needed(lost, RULE))


def test_variants_are_marks_of_one_row():
    claims = {
        "fitted": judge.exact(statement(high=1.0), {"": 0.5}),
        "printed": judge.claim(statement(high=1.0), "inconclusive"),
    }
    found = judge.together(claims, main="fitted")
    assert (found.verdict, found.variants) == (
        "confirmed",
        {"fitted": "confirmed", "printed": "inconclusive"},
    )
    assert judge.together(claims).verdict == "inconclusive"
    absent = judge.together(claims, main="as published")
    assert (absent.verdict, absent.variants) == ("not run", found.variants)
    assert absent.detail.startswith("not measured: as published")
    with refusal("at least one variant"):
        judge.together({})


def test_a_variant_whose_parts_differ_is_marked_by_them():
    parts = {"L=6 init": 0.5, "L=8 init": 2.0}
    claims = {
        "init": judge.exact(statement(high=1.0), parts),
        "final": judge.exact(statement(high=1.0), {"": 0.5}),
    }
    found = judge.together(claims, main="final")
    assert found.verdict == "confirmed" and found.variants == {
        "L=6 init": "confirmed",
        "L=8 init": "refuted",
        "final": "confirmed",
    }
    named = judge.together({"printed": claims["init"], "fitted": claims["final"]}, main="fitted")
    assert named.variants == {
        "printed L=6 init": "confirmed",
        "printed L=8 init": "refuted",
        "fitted": "confirmed",
    }


def test_what_was_not_measured_everywhere_is_not_confirmed():
    held, failed = (judge.exact(statement(high=1.0), {"init": v}) for v in (0.5, 2.0))
    assert judge.incomplete(held, []) == held
    found = judge.incomplete(held, ["final"])
    assert found.verdict == "inconclusive" and found.variants["final"] == "not run"
    assert found.detail.startswith("not run: final") and math.isinf(found.seeds_needed)
    assert judge.incomplete(failed, ["final"]).verdict == "refuted"
    nothing = judge.claim(statement(high=1.0), "not run")
    assert judge.incomplete(nothing, ["final"]) == nothing


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
    assert judge.one_draw(kept, draws)[0] == verdict


def test_overall():
    assert judge.overall(["confirmed", "true by construction"]) == "confirmed"
    assert judge.overall(["true by construction", "true by construction"]) == "true by construction"
    assert judge.overall(["not run"]) == "not run" and judge.overall([]) == "not run"
    assert judge.overall(["confirmed", "inconclusive", "refuted"]) == "refuted"
    assert {decide(h) for h in (True, False, None)} <= set(CLAIM_VERDICTS)


def test_statements_are_read_from_a_file(tmp_path):
    path = tmp_path / "x.csv"
    header = "name,statement,where,low,high,number,rounding,std,n,strict,reason\n"
    path.write_text(
        header
        + 'a,"R² > 0.91, always",Fig. 3,0.91,,,,,,yes,\nb,about 5,Sec. 5,,,5,0.5,,5,,read so\n'
    )
    found = read_statements(path)
    assert found["a"].threshold == "> 0.91" and found["a"].strict
    assert found["b"].threshold == "5 ± 0.5" and (found["b"].n, found["b"].reason) == (5, "read so")
    path.write_text(header + "a,x,y,1,,2,,,,,\n")
    with refusal("limits or a number, found both"):
        read_statements(path)
    path.write_text(header + "a,x,y,one,,,,,,,\n")
    with refusal("row 2: expected a number in column low"):
        read_statements(path)
    path.write_text(header + "a,x,y,,,,,,,,\n" * 2)
    with refusal("expected one row for 'a'"):
        read_statements(path)
    path.write_text("name,verdict\na,b\n")
    with refusal("expected the columns"):
        read_statements(path)


def test_a_statement_about_the_papers_own_networks_is_a_fact_for_or_against():
    spread = {"init": [0.5, 1.5, 1.0, 0.7, 1.2], "final": [3.0, 3.1, 2.9, 3.0, 3.05]}
    above = statement(low=0.9, strict=True)
    assert judge.bound(above, spread).variants == {"init": "inconclusive", "final": "confirmed"}
    for value, verdict in ((0.908, "confirmed"), (0.9, "refuted"), (0.8, "refuted")):
        found = judge.bound(above, spread, same={"init": value})
        assert found.verdict == verdict  # the other part is confirmed
        assert found.variants["init"] == verdict and found.other_seeds == {"init": "inconclusive"}
        assert (
            f"init: {value:.4g}" in found.detail
            and "seeds would decide it for others" in found.detail
        )
    assert judge.bound(above, spread, same={"other": 0.0}) == judge.bound(above, spread)
    both = dict.fromkeys(("init", "final"), spread["init"])  # a fact hides no other part
    assert judge.bound(above, both, same={"init": 1.0}).verdict == "inconclusive"
    ours = judge.bound(replace(above, sharp=False), {"": both["init"]}, same={"": 0.899})
    assert ours.verdict == "inconclusive"  # a criterion that we chose: the interval decides
    alone = judge.bound(above, spread["init"], same={"": 0.908})
    assert (alone.variants, alone.other_seeds) == ({}, {WHOLE: "inconclusive"})
    assert math.isnan(alone.seeds_needed)


def test_on_the_papers_own_networks_the_scatter_of_the_probes_decides():
    """Networks differ by a factor of two, probes by a hundredth: only these are others."""
    says = statement(number=1.0, rounding=0.005, n=5)
    exact = [0.5, 0.8, 1.0, 1.2, 1.5]
    near = [v * f for v, f in zip(exact, (1.01, 0.99, 1.0, 1.01, 0.99), strict=True)]
    assert judge.number(says, {"": near}).verdict == "inconclusive"
    found = judge.number(says, {"": near}, without_probes={"": exact})
    assert found.verdict == "confirmed" and found.other_seeds == {"statement": "inconclusive"}
    far = [2 * v for v in near]
    doubled = [2 * v for v in exact]
    few = judge.number(says, {"": near[:4]}, without_probes={"": exact[:4]})
    assert few == judge.number(says, {"": near[:4]})  # four of the paper's five networks
    assert judge.number(says, {"": far}, without_probes={"": doubled}).verdict == "refuted"
    log = Pseudovalues([math.log(v) for v in near], 1.0, log=True)
    without = {"": [math.log(v) for v in exact]}
    assert judge.number(says, {"": log}, without_probes=without).verdict == "confirmed"


def test_a_printed_number_beyond_the_margin_on_the_papers_own_networks_is_refuted():
    spread = [0.5, 1.5, 1.0, 0.7, 1.2]
    says = statement(number=1.0, rounding=0.05, n=5)
    assert judge.number(says, spread).verdict == "inconclusive"
    exact = judge.number(says, spread, same={"": 0.98})  # every printed digit
    assert exact.verdict == "confirmed" and "on the published networks and images; " in exact.detail
    assert (
        judge.number(says, spread, same={"": 1.2}).verdict == "inconclusive"
    )  # within the margin, not the digits
    assert judge.number(says, spread, same={"": 1.3}).verdict == "refuted"


def test_the_scatter_of_few_probes_has_as_many_degrees_of_freedom_as_errors_less_one():
    scatter = math.sqrt(1.5)  # of three errors: the difference of the means has error 1
    values = [100 - scatter, 100, 100 + scatter]
    theirs = Sample.of([100.0] * 3)
    limit = scipy_stats.t.ppf(0.95, 2)  # of a 90 % interval: 2.92
    for margin, verdict in ((limit * 0.99, "inconclusive"), (limit * 1.01, "confirmed")):
        assert judge._by_probes(values, [100.0] * 3, theirs, margin).verdict == verdict


SAYS = Statement(name="s", text="t", where="Fig. 1")


def evidence(*tests, p_min=0.001, **kept):
    """One test a data set: (p, effect)."""
    rows = {
        ("t", f"protocol=fitted seed={i}"): Statistic(
            name="t", kind="mann_whitney", p=p, p_holm=p, effect=effect, p_min=p_min, **kept
        )
        for i, (p, effect) in enumerate(tests)
    }
    rows["t", "protocol=fitted activation=tanh seed=0"] = Statistic(
        name="t", kind="mann_whitney", p=0.9, p_min=0.001
    )
    return Evidence(judge.DataSetRule(0.8, 3), 0.01, "protocol=fitted", rows)


def test_only_tests_of_the_variant_are_counted():
    assert list(evidence((0.001, 0.5), (0.2, 0.1)).of_seeds("t")) == [0, 1]


def test_the_sign_of_a_test_decides():
    found = evidence(*[(0.001, 0.5)] * 4, (0.01, 0.1)).tested(SAYS, "t", sign=1)
    assert found.verdict == "confirmed" and found.detail.endswith("4 below 0.01 after Holm")
    assert (
        evidence(*[(0.001, 0.5)] * 3, *[(0.001, -0.5)] * 2).tested(SAYS, "t", sign=1).verdict
        == "refuted"
    )
    either = evidence(*[(0.001, -0.5)] * 4).tested(SAYS, "t", sign=0)
    assert (either.verdict, "effect" in either.threshold) == ("confirmed", False)
    assert found.threshold.endswith("effect > 0")
    assert (
        evidence(*[(0.001, 0.0)] * 4).tested(SAYS, "t", sign=1).verdict == "refuted"
    )  # a tie shows neither side


def test_tests_that_cannot_reach_the_level_are_inconclusive():
    found = evidence(*[(0.0625, 1.0)] * 5, p_min=0.0625).tested(SAYS, "t", sign=1)
    assert found.verdict == "inconclusive" and "5 inconclusive" in found.detail
    assert Evidence(judge.DataSetRule(), 0.01).tested(SAYS, "t", sign=1).verdict == "not run"


def test_shifts_against_limits():
    def within(low, high):
        rows = evidence(*[(0.5, 0.0)] * 3, shift=0.0, shift_low=low, shift_high=high)
        limits = Statement(name="s", text="t", where="w", low=-0.1, high=0.1)
        return rows.within(limits, "t").verdict

    assert (within(-0.05, 0.05), within(0.2, 0.3), within(-0.05, 0.3)) == (
        "confirmed",
        "refuted",
        "inconclusive",
    )


def test_absence_is_refuted_by_significance_alone():
    assert evidence(*[(0.5, -0.2)] * 5).unharmed(SAYS, "t").verdict == "confirmed"
    assert evidence(*[(0.001, -0.9)] * 5).unharmed(SAYS, "t").verdict == "refuted"
    for effect in (0.9, -0.9):
        assert evidence(*[(0.001, effect)] * 5).unrelated(SAYS, "t").verdict == "refuted"
        assert evidence(*[(0.5, effect)] * 5).unrelated(SAYS, "t").verdict == "confirmed"
    without_power = evidence(*[(0.5, 0.2)] * 5, p_min=0.5)
    assert without_power.unrelated(SAYS, "t").verdict == "inconclusive"


def test_numbers_of_data_sets():
    table = pd.DataFrame({"seed": [1, 1, 2, 3], "x": [1.0, 3.0, 2.0, math.nan]})
    values = by_seed(table, lambda rows: float(rows["x"].mean()))
    assert values[1] == values[2] == 2.0 and median(values) == 2.0
    limits = Statement(name="s", text="t", where="w", high=2.5)
    assert evidence().compared(limits, values).verdict == "inconclusive"
    assert evidence().compared(limits, {**values, 3: 1.0}).verdict == "confirmed"


def test_the_part_that_needs_most_seeds_gives_their_number():
    wide, narrow = [0.9, 1.0, 1.25, 0.95], [0.98, 1.02, 1.01, 1.08]
    parts = {"wide": wide, "narrow": narrow}
    alone = {
        name: judge.bound(statement(high=1.03), {name: values}).seeds_needed
        for name, values in parts.items()
    }
    both = judge.bound(statement(high=1.03), parts)
    assert alone["wide"] != alone["narrow"] and both.verdict == "inconclusive"
    assert both.seeds_needed >= max(alone.values())


def test_the_limit_that_needs_most_seeds_gives_their_number():
    values = [0.8, 1.0, 1.2, 1.1]
    sides = [
        judge.bound(statement(**limit), values).seeds_needed
        for limit in ({"low": 0.9}, {"high": 1.2})
    ]
    both = judge.bound(statement(low=0.9, high=1.2), values).seeds_needed
    assert sides[0] != sides[1] and both == max(sides)


def test_the_variant_that_needs_most_seeds_gives_their_number():
    claims = {
        name: judge.claim(statement(high=1), "inconclusive", seeds_needed=seeds)
        for name, seeds in (("a", 7.0), ("b", 40.0), ("c", 12.0))
    }
    assert judge.together(claims).seeds_needed == 40
    assert judge.together(claims, main="c").seeds_needed == 12


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
    values = [math.log(2.0) + step for step in (-0.1, -0.05, 0.0, 0.05, 0.1)]
    ours = Sample.of(Pseudovalues(values, 2.0, log=True))
    theirs = Sample.printed(2.0, math.nan, 5)
    compared = judge.equal(ours, theirs, 0.5)
    error = math.sqrt(sum((v - math.log(2.0)) ** 2 for v in values) / 4 * (2 / 5))
    half = scipy_stats.t.ppf(0.95, 4) * error
    assert compared.low == pytest.approx(2 * math.expm1(-half))
    assert compared.high == pytest.approx(2 * math.expm1(half)) and compared.high > -compared.low
    alone = judge.paired(ours, theirs, 0.5, Part(0.04, 4))
    half = scipy_stats.t.ppf(0.95, 4) * math.sqrt(0.04 / 5) / 2
    assert (alone.low, alone.high) == pytest.approx((2 * math.expm1(-half), 2 * math.expm1(half)))


def test_z_of_a_ratio_counts_printed_rounding_on_the_scale_of_the_logarithm():
    difference = Difference(0.1, 0.05, 4, ratio_to=2.0)
    assert z_of(difference, 0.02) == pytest.approx(0.1 / math.hypot(0.05, 0.01 / math.sqrt(3)))
    assert z_of(difference, math.nan) == pytest.approx(2)
    plain = replace(difference, ratio_to=math.nan)
    assert z_of(plain, 0.02) == pytest.approx(0.1 / math.hypot(0.05, 0.02 / math.sqrt(3)))
