"""Verdicts of the scorecard on values whose answer is known by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from runner.contract import Claim
from runner.report import compare
from runner.report.reference import read_reference
from tests.errors import refusal

HEADER = "experiment,table,arch,checkpoint,metric,mean,std,upper_bound,n_seeds,source,note\n"


def reference(tmp_path, *rows, header=HEADER):
    path = tmp_path / "reference.csv"
    path.write_text(header + "\n".join(rows) + "\n")
    return read_reference(path)


def measured(metric, values, **keys):
    return pd.DataFrame(
        {"metric": metric, "seed": range(42, 42 + len(values)), "value": values, **keys}
    )


def score(tmp_path, row, values, reason="", **keys):
    keys = {"arch": "plain", "checkpoint": "init", **keys}
    return compare.scorecard(
        measured("gap", values, **keys), reference(tmp_path, row), reason
    ).iloc[0]


def test_z_is_the_difference_over_the_combined_standard_error(tmp_path):
    values = [1.0, 1.2, 1.1, 0.9, 1.3]
    s = score(tmp_path, "e,1,plain,init,gap,1.52,0.2,,5,T 1,", values)
    sample = 0.2 * math.sqrt(5 / 4)  # the paper prints the population std
    error = math.sqrt(np.std(values, ddof=1) ** 2 / 5 + sample**2 / 5)
    assert s.standard_error == pytest.approx(error)
    assert s.z == pytest.approx(
        (1.1 - 1.52) / math.hypot(error, 0.005 / math.sqrt(3))
    )  # 1.52 is known to ± 0.005
    assert (s.measured_mean, s.n, s.ratio) == pytest.approx((1.1, 5, 1.1 / 1.52))
    assert s.measured_std == pytest.approx(np.std(values, ddof=1))
    assert s.std_ratio == pytest.approx(np.std(values, ddof=1) / sample) and s.std_p > 0.4


@pytest.mark.parametrize(
    "values, verdict",
    [
        ([1.05, 1.0, 1.02, 0.98, 1.0], "reproduced"),
        ([2.0, 2.05, 1.95, 2.0, 2.1], "not reproduced"),
        ([0.5, 1.5, 1.0, 0.3, 1.9], "inconclusive"),  # |z| is small: that is no agreement
    ],
)
def test_the_interval_of_the_difference_decides(tmp_path, values, verdict):
    s = score(tmp_path, "e,1,plain,init,gap,1.0,0.05,,5,T 1,", values)
    assert (s.verdict, s.equivalence, s.margin) == (verdict, verdict, 0.25)
    assert (s.seeds_needed > 5) == (verdict == "inconclusive")


def test_one_seed_that_is_inconclusive_asks_for_the_fewest(tmp_path):
    s = score(tmp_path, "e,1,plain,init,gap,1.0,0.2,,5,T 1,", [1.2])
    assert (s.verdict, s.seeds_needed) == ("inconclusive", 3)


MARGIN = HEADER.replace("n_seeds,", "n_seeds,margin,margin_reason,constructed,")


def test_margins_are_fixed_in_the_reference(tmp_path):
    rows = [
        "e,1,plain,init,rho,-0.02,,,5,0.02,an exponent near zero,,T 1,",
        "e,1,plain,init,count,5,,,1,rounding,a count,,T 1,",
        "e,1,plain,init,starts,3000,,,1,,,an input,T 1,",
    ]
    found = pd.concat(
        measured(m, v, arch="plain", checkpoint="init")
        for m, v in (
            ("rho", [-0.021, -0.019, -0.02]),
            ("count", [6.0, 6.0, 6.0]),
            ("starts", [3000.0, 3000.0, 3000.0]),
        )
    )
    scores = compare.scorecard(found, reference(tmp_path, *rows, header=MARGIN))
    assert list(scores.verdict) == ["reproduced", "not reproduced", "true by construction"]
    assert list(scores.margin)[:2] == pytest.approx([0.02, 0.5]) and scores.reason[2] == "an input"
    with refusal("expected a number in column margin"):
        reference(tmp_path, "e,1,plain,init,rho,1,,,5,narrow,,,T 1,", header=MARGIN)


def test_structural_zeros_are_by_construction(tmp_path):
    bound, zero = "e,1,plain,init,gap,,,1e-07,5,T 1,", "e,1,plain,init,gap,0.0,,,5,T 1,"
    for row in (bound, zero):
        s = score(tmp_path, row, [0.0, 0.0, 0.0])
        assert (s.verdict, s.reason) == ("true by construction", "an exact zero of the code")
    assert score(tmp_path, bound, [1e-9, 2e-9, 0.0]).verdict == "reproduced"


def test_identical_is_every_printed_digit_of_the_same_networks(tmp_path):
    values = [1.0, 1.2, 1.1, 0.9, 1.3]  # population std 0.1414
    row = "e,1,plain,init,gap,1.1,0.14,,5,T 1,"
    assert score(tmp_path, row, values, paired=True).verdict == "exact match"
    assert score(tmp_path, row, values).verdict == "reproduced"
    assert score(tmp_path, row, [*values[:4], 1.31], paired=True).verdict == "exact match"
    other = score(tmp_path, row.replace("0.14", "0.15"), values, paired=True)
    assert other.verdict == "reproduced" and "not every printed digit" in other.reason
    assert score(tmp_path, row, values[:4], paired=True).verdict != "exact match"  # fewer seeds


def test_paired_values_are_compared_within_rounding_alone(tmp_path):
    row = "e,1,plain,init,gap,1.1,0.14,,5,T 1,"
    s = score(tmp_path, row, [1.1, 1.3, 1.2, 1.0, 1.4], paired=True, rounding_std=0.01)
    assert s.verdict == "reproduced" and s.standard_error == pytest.approx(0.01 / math.sqrt(5))
    assert s.significant == "yes" and "paired" in s.reason


def test_images_enter_the_variance(tmp_path):
    row, values = "e,1,plain,init,gap,1.0,0.02,,5,T 1,", [1.0, 1.01, 1.02, 0.99, 0.98]
    plain = score(tmp_path, row, values)
    wide = score(tmp_path, row, values, image_variance=0.04, image_df=9.0)
    assert plain.verdict == "reproduced"
    assert wide.standard_error == pytest.approx(math.hypot(plain.standard_error, 0.2))
    assert wide.df == pytest.approx(9, rel=0.1)
    assert (wide.verdict, wide.image_variance, wide.image_df) == ("inconclusive", 0.04, 9.0)


def test_a_fit_is_never_scored(tmp_path):
    s = score(
        tmp_path,
        "e,1,plain,init,gap,1.0,0.02,,5,T 1,",
        [1.0, 1.01, 0.99],
        calibrated="chosen by this number",
    )
    assert (s.verdict, s.equivalence) == ("calibrated", "reproduced") and s.reason.startswith(
        "chosen by"
    )


def test_other_criteria(tmp_path):
    rows = [
        f"e,1,plain,{c},d,{v},0.1,,5,T 1,"
        for c, v in (("init", -0.2), ("mid", 0.3), ("final", 0.5))
    ]
    found = pd.concat(
        measured("d", [v, v + 0.01, v - 0.01], arch="plain", checkpoint=c)
        for c, v in (("init", 0.1), ("mid", 0.6), ("final", 0.5))
    )
    scores = compare.scorecard(found, reference(tmp_path, *rows))
    assert list(scores.sign_kept) == ["no", "yes", "yes"]
    assert list(scores.order_kept) == [1.0, 0.5, 0.5]
    positive = [row.replace(",-0.2,", ",0.2,") for row in rows]
    assert list(compare.scorecard(found, reference(tmp_path, *positive)).sign_kept) == [""] * 3
    assert list(scores.in_our_95) == ["no", "no", "yes"]
    assert list(scores.in_their_prediction) == ["no", "no", "yes"]


def test_repeated_values_are_said_to_be_no_row_of_their_own(tmp_path):
    rows = [f"e,1,{a},init,gap,1.0,0.05,,5,T 1," for a in ("plain", "twin", "other")]
    values = {"plain": [1.0, 1.1, 0.9], "twin": [1.0, 1.1, 0.9], "other": [1.0, 1.2, 0.9]}
    found = pd.concat(measured("gap", v, arch=a, checkpoint="init") for a, v in values.items())
    scores = compare.scorecard(found, reference(tmp_path, *rows))
    assert ["no independent row" in r for r in scores.reason] == [False, True, False]


def test_rounding_of_the_printed_digits_is_not_enough_without_a_spread(tmp_path):
    row = "e,1,plain,init,gap,0.225,,,5,T 1,"
    assert score(tmp_path, row, [0.2254, 0.2254, 0.2254]).verdict == "reproduced"
    assert score(tmp_path, row, [0.2254, 0.2254]).verdict == "inconclusive"
    s = score(tmp_path, row, [0.2254])
    assert (s.verdict, s.reason) == ("inconclusive", "no spread is known on either side")


def test_digits_that_the_print_lacks_are_no_departure(tmp_path):
    """A paired row with every printed digit: rounding between devices is nothing beside that of the
    print."""
    values = [1.5202, 1.5198, 1.5203, 1.5199, 1.5197]
    keys = {"paired": True, "rounding_std": 1e-9, "rounding_df": 5.0}
    s = score(tmp_path, "e,1,plain,init,gap,1.52,,,5,T 1,", [v + 0.003 for v in values], **keys)
    assert s.verdict == "exact match" and s.standard_error < 1e-9
    assert (
        abs(s.z) < 1.8
    )  # √3 at most, where 3e6 standard errors of rounding would be no information
    off = score(tmp_path, "e,1,plain,init,gap,1.52,,,5,T 1,", [v + 0.05 for v in values], **keys)
    assert abs(off.z) > 10


@pytest.mark.parametrize(
    "text, resolution",
    [("2.5", 0.05), ("2.50", 0.005), ("7.0e-08", 5e-10), ("0.000", 0.0005), ("460", 0.5)],
)
def test_printed_precision(tmp_path, text, resolution):
    assert score(tmp_path, f"e,1,plain,init,gap,{text},,,5,T 1,", [1.0]).resolution == (
        pytest.approx(resolution)
    )


def with_columns(tmp_path, names, *rows):
    """A scorecard of one metric under further columns of the reference file."""
    header = f"metric,case,mean,std,upper_bound,n_seeds,{names}"
    path = tmp_path / "more.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_ways_are_counted_apart(tmp_path):
    path = with_columns(
        tmp_path,
        "way",
        "gap,a,1.0,0.1,,5,as described",
        "gap,b,1.0,0.1,,5,recovered protocol",
    )
    values = [
        {"metric": "gap", "case": c, "seed": i, "value": v}
        for c, all_values in (("a", [2.0, 2.1, 2.2]), ("b", [1.0, 1.01, 0.99]))
        for i, v in enumerate(all_values)
    ]
    scores = compare.scorecard(pd.DataFrame(values), read_reference(path))
    counts = compare.by_way(scores)
    assert list(counts) == ["as described", "recovered protocol"]
    assert counts["as described"]["not reproduced"] == 1
    assert counts["recovered protocol"]["reproduced"] == 1
    path.write_text(path.read_text().replace("as described", "as we like"))
    with refusal("expected a way among"):
        read_reference(path)


def test_the_authors_results_give_the_std_that_is_not_printed(tmp_path):
    folder = tmp_path / "unrounded"
    folder.mkdir()
    (folder / "results.csv").write_text("file,place,mean,std\nexp,a/gap,1.001,0.4\n")
    path = with_columns(tmp_path, "results", "gap,a,1.0,,,5,exp:a/gap", "gap,b,1.0,,,5,")
    values = [
        {"metric": "gap", "case": case, "seed": i, "value": 1 + 0.001 * i}
        for case in "ab"
        for i in range(5)
    ]
    scores = compare.scorecard(pd.DataFrame(values), read_reference(path))
    assert list(scores.verdict) == ["inconclusive", "reproduced"]
    assert scores.results_std[0] == 0.4 and "public results" in scores.reason[0]
    assert scores.standard_error[0] == pytest.approx(0.2, rel=1e-3)  # 0.4 √(5/4) / √5
    assert "ours is used" in scores.reason[1]


def test_what_could_have_been_found_and_whether_the_difference_is_significant(tmp_path):
    close = score(tmp_path, "e,1,plain,init,gap,1.00,0.01,,5,T 1,", [1.10, 1.11, 1.09, 1.1, 1.1])
    assert (close.verdict, close.significant) == ("reproduced", "yes")
    half = (close.high - close.low) / 2
    assert close.detectable == pytest.approx(0.25 + half)
    same = score(tmp_path, "e,1,plain,init,gap,1.00,0.01,,5,T 1,", [1.001, 0.999, 1.0, 1.0, 1.0])
    assert same.significant == "no"


def test_nothing_random_is_left_of_the_same_untrained_networks(tmp_path):
    """The spread over seeds is no part of the comparison, in either direction."""
    values = [0.2, 2.0, 1.0, 0.4, 1.5]
    row = "e,1,plain,init,gap,1.00,0.6,,5,T 1,"
    assert score(tmp_path, row, values).verdict == "inconclusive"
    assert score(tmp_path, row, values, rounding_std="0").verdict == "reproduced"
    assert (
        score(tmp_path, row, [2 * v for v in values], rounding_std="0").verdict == "not reproduced"
    )


def test_a_missing_std_is_stood_in_for_and_said(tmp_path):
    values = [1.0, 1.2, 1.1, 0.9, 1.3]
    s = score(tmp_path, "e,1,plain,init,gap,1.31,,,5,T 1,", values)
    assert s.standard_error == pytest.approx(np.std(values, ddof=1) * math.sqrt(2 / 5))
    assert s.df == 4
    assert "ours is used" in s.reason
    s = score(tmp_path, "e,1,plain,init,gap,1.31,0.2,,5,T 1,", [1.0])
    assert s.standard_error == pytest.approx(0.2 * math.sqrt(5 / 4) * math.sqrt(1 + 1 / 5))
    assert "standard deviation is used" in s.reason and s.df == 4


def test_upper_bounds(tmp_path):
    row = "e,1,plain,init,gap,,,1e-07,5,T 1,"
    assert score(tmp_path, row, [5e-8, 6e-8, 5e-8]).verdict == "reproduced"
    s = score(tmp_path, row, [1.7e-7, 1.8e-7, 1.75e-7])
    assert (s.verdict, s.ratio) == ("not reproduced", pytest.approx(1.75))
    s = score(tmp_path, row, [5e-8, 1.4e-7, 9e-8])
    assert s.verdict == "inconclusive" and s.seeds_needed > 3
    two = score(tmp_path, row, [5e-8, 6e-8])
    assert (two.verdict, two.seeds_needed) == ("inconclusive", 3)


def test_not_comparable_is_never_scored(tmp_path):
    s = score(tmp_path, "e,1,plain,init,gap,1.0,0.1,,5,T 1,", [1.0, 1.0], reason="surrogate data")
    assert (s.verdict, s.reason, s.n) == ("not comparable", "surrogate data", 2)
    assert math.isnan(s.z)
    own = score(
        tmp_path, "e,1,plain,init,gap,1.0,0.1,,5,T 1,", [1.0, 1.0], reason="short", comparable=""
    )
    assert (own.verdict, own.reason) == ("not comparable", "short")
    own = score(tmp_path, "e,1,plain,init,gap,1.0,0.1,,5,T 1,", [1.0, 1.0], comparable="other")
    assert (own.verdict, own.reason) == ("not comparable", "other")


def test_one_value_that_cannot_be_compared_is_enough(tmp_path):
    row = "e,1,plain,init,gap,1.0,0.1,,5,T 1,"
    own = score(tmp_path, row, [1.0] * 5, comparable=["", "", "shortened", "", ""])
    assert (own.verdict, own.reason) == ("not comparable", "shortened")
    lost = score(tmp_path, row, [math.nan] * 5, reason="surrogate data")
    assert lost.verdict == "not comparable" and lost.reason.endswith("surrogate data")


def test_of_fewer_seeds_than_the_papers_the_networks_are_not_the_same(tmp_path):
    row = "e,1,plain,init,gap,1.00,0.6,,5,T 1,"
    values = [0.9, 1.4, 0.7, 1.1, 0.9]
    assert score(tmp_path, row, values, rounding_std="0").verdict == "reproduced"
    some = score(tmp_path, row, values[:3], rounding_std="0")
    assert some.verdict == "inconclusive" and some.standard_error > 0.3


def test_seeds_that_are_missing_leave_nothing_decided(tmp_path):
    ref = reference(tmp_path, "e,1,plain,init,gap,1.0,0.1,,5,T 1,")
    found = measured("gap", [1.0, 1.01, 0.99], arch="plain", checkpoint="init")
    assert compare.scorecard(found, ref).verdict[0] == "reproduced"
    lost = compare.scorecard(found, ref, lost="2 of 5 seeds missing (45, 46)").iloc[0]
    assert lost.verdict == "inconclusive" and lost.reason.startswith("2 of 5 seeds missing")
    assert lost.equivalence == "reproduced"


def test_equal_values_keep_no_order(tmp_path):
    rows = [f"e,1,{a},init,gap,{mean},0.1,,5,T 1," for a, mean in (("a", 1.0), ("b", 2.0))]
    found = pd.concat([measured("gap", [1.5] * 3, arch=a, checkpoint="init") for a in "ab"])
    assert list(compare.scorecard(found, reference(tmp_path, *rows)).order_kept) == [0, 0]


def test_absent_and_lost_values(tmp_path):
    assert score(tmp_path, "e,1,other,init,gap,1.0,,,5,T 1,", [1.0]).verdict == "not run"
    s = score(tmp_path, "e,1,plain,init,gap,1.0,,,5,T 1,", [math.nan, math.nan])
    assert (s.verdict, s.reason) == ("inconclusive", "2 of 2 seeds infinite or missing")
    s = score(tmp_path, "e,1,plain,init,gap,1.0,,,5,T 1,", [1.0, math.nan, 1.0])
    assert (s.verdict, s.n) == ("inconclusive", 2)
    assert s.reason.startswith("1 of 3 seeds infinite or missing")


def test_keys_match_as_numbers_and_blank_keys_match_anything(tmp_path):
    header = HEADER.replace("arch", "depth")
    ref = reference(
        tmp_path, "e,1,8,init,gap,1.0,,,5,T 1,", "e,1,,init,gap,1.0,,,5,T 1,", header=header
    )
    scores = compare.scorecard(measured("gap", [1.0] * 3, depth=8.0, checkpoint="init"), ref)
    assert list(scores.verdict) == ["reproduced", "reproduced"]


def test_values_that_keys_do_not_tell_apart_are_never_averaged(tmp_path):
    two = pd.concat(
        [measured("gap", [1.0] * 3, arch="plain", checkpoint=c) for c in ("init", "final")]
    )
    rows = ["e,1,plain,init,gap,1.0,,,5,T 1,", "e,1,plain,final,gap,2.0,,,5,T 1,"]
    assert list(compare.scorecard(two, reference(tmp_path, *rows)).verdict) == [
        "reproduced",
        "not reproduced",
    ]
    lacking = compare.scorecard(two.drop(columns="checkpoint"), reference(tmp_path, *rows))
    assert set(lacking.verdict) == {"inconclusive"}
    twice = pd.concat([measured("gap", [1.0] * 3, arch="plain", checkpoint="init")] * 2)
    assert (
        compare.scorecard(twice, reference(tmp_path, *rows))
        .reason[0]
        .startswith("several measured values")
    )
    once = compare.scorecard(two[:3].drop(columns="checkpoint"), reference(tmp_path, *rows))
    assert set(once.reason) == {"measured values do not say checkpoint"}
    with refusal("missing seed"):
        compare.scorecard(two.drop(columns="seed"), reference(tmp_path, *rows))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected a column 'metric', found an empty file"),
        ("metric,value\n", "expected a column 'mean', found metric, value"),
        ("metric,mean,mean\n", "column names repeat"),
        ("metric,mean\ngap,1,2\n", "row 2: expected 2 fields, found 3"),
        (
            "metric,mean\ngap,1\ngap,about 2\n",
            "row 3: expected a number in column mean, found 'about 2'",
        ),
        ("metric,mean\ngap,\n", "row 2: expected a mean or an upper_bound"),
        ("metric,mean,std\ngap,1,-2\n", "expected std of zero or more"),
        ("metric,mean,n_seeds\ngap,1,2.5\n", "expected n_seeds as a whole number"),
        ("metric,mean\ngap,inf\n", "expected a finite number"),
    ],
)
def test_malformed_files_get_one_line(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError) as error:
        read_reference(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    with refusal("cannot be read"):
        read_reference(tmp_path / "absent.csv")


def test_claims_table():
    claims = [
        Claim("a", "s", "Fig. 1", "confirmed", 0.5, "< 1"),
        Claim("a", "s", "Fig. 1", "refuted", group="x"),
    ]
    table = compare.claims_table(claims)
    assert list(table.verdict) == ["confirmed", "refuted"]
    assert list(compare.claims_table([]).columns) == list(table.columns)
    with refusal("'a' twice"):
        compare.claims_table([claims[0], claims[0]])
