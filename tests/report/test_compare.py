"""Verdicts of the scorecard on values whose answer is known by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from runner.contract import Claim
from runner.report.answers.findings import claims_table
from runner.stats.numbers import read_numbers
from runner.stats.scorecard import scorecard
from tests.errors import refusal

HEADER = "experiment,arch,checkpoint,metric,mean,std,upper_bound,n_seeds,source,note"
VALUES = [1.0, 1.2, 1.1, 0.9, 1.3]
"""Mean 1.1, population standard deviation 0.1414."""


def row(printed, arch="plain", checkpoint="init", metric="gap"):
    """A row of a reference file. printed: mean, standard deviation and bound."""
    return f"e,{arch},{checkpoint},{metric},{printed},5,T 1,"


def measured(metric="gap", values=(1.0, 1.0, 1.0), **keys):
    keys = {"arch": "plain", "checkpoint": "init", **keys}
    return pd.DataFrame(
        {"metric": metric, "seed": range(42, 42 + len(values)), "value": values, **keys}
    )


@pytest.fixture
def reference(tmp_path):
    """Rows of a reference file below a header."""

    def read(*rows, header=HEADER):
        path = tmp_path / "reference.csv"
        path.write_text("\n".join([header, *rows, ""]))
        return read_numbers(path)

    return read


@pytest.fixture
def score(reference):
    """The score of one printed number."""

    def scored(printed, values, reason="", *, calibrated="", not_comparable="", **keys):
        found = measured(values=values, **keys)
        known = reference(row(printed)).assign(calibrated=calibrated, not_comparable=not_comparable)
        return scorecard(found, known, reason).iloc[0]

    return scored


def test_z_is_the_difference_over_the_combined_standard_error(score):
    s = score("1.52,0.2,", VALUES)
    sample = 0.2 * math.sqrt(5 / 4)  # the paper prints the population std
    error = math.sqrt(np.std(VALUES, ddof=1) ** 2 / 5 + sample**2 / 5)
    assert s.standard_error == pytest.approx(error)
    known = math.hypot(error, 0.005 / math.sqrt(3))  # 1.52 is known to ± 0.005
    assert s.z == pytest.approx((1.1 - 1.52) / known)
    assert (s.measured_mean, s.n, s.ratio) == pytest.approx((1.1, 5, 1.1 / 1.52))
    assert s.measured_std == pytest.approx(np.std(VALUES, ddof=1))
    assert s.std_ratio == pytest.approx(np.std(VALUES, ddof=1) / sample) and s.std_p > 0.4


VERDICTS = """
1.0,0.05,| 1.05 1 1.02 0.98 1   |                  | reproduced           |
1.0,0.05,| 2 2.05 1.95 2 2.1    |                  | not reproduced       |
1.0,0.05,| 0.5 1.5 1 0.3 1.9    |                  | inconclusive         |
,,1e-07  | 0 0 0                |                  | true by construction | an exact zero
0.0,,    | 0 0 0                |                  | true by construction | an exact zero
,,1e-07  | 1e-9 2e-9 0          |                  | reproduced           |
,,1e-07  | 5e-8 6e-8 5e-8       |                  | reproduced           |
1.1,0.14,| 1 1.2 1.1 0.9 1.3    | paired=true      | exact match          |
1.1,0.14,| 1 1.2 1.1 0.9 1.3    |                  | reproduced           |
1.1,0.14,| 1 1.2 1.1 0.9 1.31   | paired=true      | exact match          |
1.1,0.15,| 1 1.2 1.1 0.9 1.3    | paired=true      | reproduced           | not every printed digit
1.1,0.14,| 1 1.2 1.1 0.9        | paired=true      | reproduced           |
0.225,,  | 0.2254 0.2254 0.2254 |                  | reproduced           |
0.225,,  | 0.2254 0.2254        |                  | inconclusive         |
0.225,,  | 0.2254               |                  | inconclusive         | no spread is known
1.00,0.6,| 0.2 2 1 0.4 1.5      |                  | inconclusive         |
1.00,0.6,| 0.2 2 1 0.4 1.5      | rounding_std=0   | reproduced           |
1.00,0.6,| 0.4 4 2 0.8 3        | rounding_std=0   | not reproduced       |
1.00,0.6,| 0.9 1.4 0.7 1.1 0.9  | rounding_std=0   | reproduced           |
1.0,0.1, | 1 1                  | reason=short     | not comparable       | short
1.0,0.1, | 1 1                  | not_comparable=other | not comparable   | other
1.0,0.1, | nan nan nan          | reason=short     | not comparable       | short
1.0,,    | nan nan              |                  | inconclusive         | 2 of 2 seeds inf
1.0,,    | 1 nan 1              |                  | inconclusive         | 1 of 3 seeds inf
"""
"""Printed mean, standard deviation and bound; measured values; columns; verdict; in its reason."""


@pytest.mark.parametrize("line", VERDICTS.strip().splitlines())
def test_the_verdict_of_a_number(score, line):
    printed, values, columns, verdict, reason = (part.strip() for part in line.split("|"))
    s = score(printed, [*map(float, values.split())], **dict(c.split("=") for c in columns.split()))
    assert s.verdict == verdict and reason in s.reason


def test_an_interval_needs_more_seeds_where_it_decides_nothing(score):
    verdicts = "reproduced", "not reproduced", "inconclusive"
    for values, verdict in zip(([1.0, 1.1, 1.0], [2.0, 2.1, 1.9], VALUES), verdicts, strict=True):
        s = score("1.0,0.05,", values)
        assert (s.verdict, s.equivalence, s.margin) == (verdict, verdict, 0.25)
        assert (s.seeds_needed > 5) == (verdict == "inconclusive")
    s = score("1.0,0.2,", [1.2])
    assert (s.verdict, s.seeds_needed) == ("inconclusive", 3)


def test_margins_are_fixed_in_the_reference(reference):
    header = HEADER.replace("n_seeds,", "n_seeds,margin,margin_reason,constructed,")
    rows = [
        "e,plain,init,rho,-0.02,,,5,0.02,an exponent near zero,,T 1,",
        "e,plain,init,count,5,,,1,rounding,a count,,T 1,",
        "e,plain,init,starts,3000,,,1,,,an input,T 1,",
    ]
    values = {"rho": [-0.021, -0.019, -0.02], "count": [6.0] * 3, "starts": [3000.0] * 3}
    found = pd.concat(measured(metric, of) for metric, of in values.items())
    scores = scorecard(found, reference(*rows, header=header))
    assert list(scores.verdict) == ["reproduced", "not reproduced", "true by construction"]
    assert list(scores.margin)[:2] == pytest.approx([0.02, 0.5]) and scores.reason[2] == "an input"
    with refusal("expected a number in column margin"):
        reference("e,plain,init,rho,1,,,5,narrow,,,T 1,", header=header)


def test_paired_values_are_compared_within_rounding_alone(score):
    s = score("1.1,0.14,", [1.1, 1.3, 1.2, 1.0, 1.4], paired=True, rounding_std=0.01)
    assert s.verdict == "reproduced" and s.standard_error == pytest.approx(0.01 / math.sqrt(5))
    assert s.significant == "yes" and "paired" in s.reason


def test_images_enter_the_variance(score):
    values = [1.0, 1.01, 1.02, 0.99, 0.98]
    plain = score("1.0,0.02,", values)
    wide = score("1.0,0.02,", values, image_variance=0.04, image_df=9.0)
    assert plain.verdict == "reproduced"
    assert wide.standard_error == pytest.approx(math.hypot(plain.standard_error, 0.2))
    assert wide.df == pytest.approx(9, rel=0.1)
    assert (wide.verdict, wide.image_variance, wide.image_df) == ("inconclusive", 0.04, 9.0)


def test_a_fit_is_never_scored(score):
    s = score("1.0,0.02,", [1.0, 1.01, 0.99], calibrated="chosen by this number")
    assert (s.verdict, s.equivalence) == ("calibrated", "reproduced")
    assert s.reason.startswith("chosen by")


def test_other_criteria(reference):
    places = ("init", "mid", "final")
    values = dict(zip(places, (0.1, 0.6, 0.5), strict=True))
    found = pd.concat(
        measured("d", [v, v + 0.01, v - 0.01], checkpoint=c) for c, v in values.items()
    )

    def scores(*means):
        rows = zip(means, places, strict=True)
        return scorecard(
            found, reference(*(row(f"{mean},0.1,", "plain", c, "d") for mean, c in rows))
        )

    signed = scores(-0.2, 0.3, 0.5)
    assert list(signed.sign_kept) == ["no", "yes", "yes"]
    assert list(signed.order_kept) == [1.0, 0.5, 0.5]
    assert list(scores(0.2, 0.3, 0.5).sign_kept) == [""] * 3
    assert list(signed.in_our_95) == list(signed.in_their_prediction) == ["no", "no", "yes"]


def test_repeated_values_are_said_to_be_no_row_of_their_own(reference):
    values = {"plain": [1.0, 1.1, 0.9], "twin": [1.0, 1.1, 0.9], "other": [1.0, 1.2, 0.9]}
    found = pd.concat(measured(values=v, arch=arch) for arch, v in values.items())
    scores = scorecard(found, reference(*(row("1.0,0.05,", arch) for arch in values)))
    assert ["no independent row" in r for r in scores.reason] == [False, True, False]


def test_digits_that_the_print_lacks_are_no_departure(score):
    """A paired row with every printed digit: rounding between devices is nothing next to that of
    the print."""
    values = np.array([1.5202, 1.5198, 1.5203, 1.5199, 1.5197])
    keys = {"paired": True, "rounding_std": 1e-9, "rounding_df": 5.0}
    s = score("1.52,,", values + 0.003, **keys)
    assert s.verdict == "exact match" and s.standard_error < 1e-9
    assert abs(s.z) < 1.8  # √3 at most; 3e6 standard errors of rounding would be no information
    assert abs(score("1.52,,", values + 0.05, **keys).z) > 10


@pytest.mark.parametrize(
    "text, resolution",
    [("2.5", 0.05), ("2.50", 0.005), ("7.0e-08", 5e-10), ("0.000", 0.0005), ("460", 0.5)],
)
def test_printed_precision(score, text, resolution):
    assert score(f"{text},,", [1.0]).resolution == pytest.approx(resolution)


MORE = "metric,arch,mean,std,upper_bound,n_seeds,"
"""Header with further columns."""


def test_rows_keep_the_way_to_their_number(reference):
    rows = "gap,a,1.0,0.1,,5,as described", "gap,b,1.0,0.1,,5,recovered protocol"
    values = {"a": [2.0, 2.1, 2.2], "b": [1.0, 1.01, 0.99]}
    found = pd.concat(measured(values=v, arch=arch) for arch, v in values.items())
    scores = scorecard(found, reference(*rows, header=f"{MORE}way"))
    assert dict(zip(scores["way"], scores["verdict"], strict=True)) == {
        "as described": "not reproduced",
        "recovered protocol": "reproduced",
    }
    with refusal("expected a way among"):
        reference("gap,a,1.0,0.1,,5,as we like", header=f"{MORE}way")


def test_the_authors_results_give_the_std_that_is_not_printed(reference, tmp_path):
    (tmp_path / "unrounded").mkdir()
    results = "file,place,mean,std\nexp,a/gap,1.001,0.4\n"
    (tmp_path / "unrounded" / "results.csv").write_text(results)
    rows = reference("gap,a,1.0,,,5,exp:a/gap", "gap,b,1.0,,,5,", header=f"{MORE}results")
    values = [1, 1.001, 1.002, 1.003, 1.004]
    found = pd.concat(measured(values=values, arch=arch) for arch in "ab")
    scores = scorecard(found, rows)
    assert list(scores.verdict) == ["inconclusive", "reproduced"]
    assert scores.results_std[0] == 0.4 and "public results" in scores.reason[0]
    assert scores.standard_error[0] == pytest.approx(0.2, rel=1e-3)  # 0.4 √(5/4) / √5
    assert "ours is used" in scores.reason[1]


def test_what_could_have_been_found_and_whether_the_difference_is_significant(score):
    close = score("1.00,0.01,", [1.10, 1.11, 1.09, 1.1, 1.1])
    assert (close.verdict, close.significant) == ("reproduced", "yes")
    assert close.detectable == pytest.approx(0.25 + (close.high - close.low) / 2)
    assert score("1.00,0.01,", [1.001, 0.999, 1.0, 1.0, 1.0]).significant == "no"


def test_a_missing_std_is_stood_in_for_and_said(score):
    s = score("1.31,,", VALUES)
    assert s.standard_error == pytest.approx(np.std(VALUES, ddof=1) * math.sqrt(2 / 5))
    assert s.df == 4 and "ours is used" in s.reason
    s = score("1.31,0.2,", [1.0])
    assert s.standard_error == pytest.approx(0.2 * math.sqrt(5 / 4) * math.sqrt(1 + 1 / 5))
    assert s.df == 4 and "standard deviation is used" in s.reason


def test_upper_bounds(score):
    s = score(",,1e-07", [1.7e-7, 1.8e-7, 1.75e-7])
    assert (s.verdict, s.ratio) == ("not reproduced", pytest.approx(1.75))
    s = score(",,1e-07", [5e-8, 1.4e-7, 9e-8])
    assert s.verdict == "inconclusive" and s.seeds_needed > 3
    two = score(",,1e-07", [5e-8, 6e-8])
    assert (two.verdict, two.seeds_needed) == ("inconclusive", 3)


def test_of_fewer_seeds_than_the_papers_the_networks_are_not_the_same(score):
    some = score("1.00,0.6,", [0.9, 1.4, 0.7], rounding_std="0")
    assert some.verdict == "inconclusive" and some.standard_error > 0.3


def test_seeds_that_are_missing_leave_nothing_decided(reference):
    found, printed = measured(values=[1.0, 1.01, 0.99]), reference(row("1.0,0.1,"))
    assert scorecard(found, printed).verdict[0] == "reproduced"
    lost = scorecard(found, printed, lost="2 of 5 seeds missing (45, 46)").iloc[0]
    assert lost.verdict == "inconclusive" and lost.reason.startswith("2 of 5 seeds missing")
    assert lost.equivalence == "reproduced"


def test_equal_values_keep_no_order(reference):
    rows = reference(row("1.0,0.1,", "a"), row("2.0,0.1,", "b"))
    found = pd.concat(measured(arch=arch) for arch in "ab")
    assert list(scorecard(found, rows).order_kept) == [0, 0]


def test_keys_match_as_numbers_and_blank_keys_match_anything(reference):
    header = HEADER.replace("arch", "depth")
    rows = reference(row("1.0,,", "8"), row("1.0,,", ""), row("1.0,,", "9"), header=header)
    scores = scorecard(measured(depth=8.0).drop(columns="arch"), rows)
    assert list(scores.verdict) == ["reproduced", "reproduced", "not run"]


def test_values_that_keys_do_not_tell_apart_are_never_averaged(reference):
    two = pd.concat(measured(checkpoint=c) for c in ("init", "final"))
    rows = reference(row("1.0,,"), row("2.0,,", checkpoint="final"))
    assert list(scorecard(two, rows).verdict) == ["reproduced", "not reproduced"]
    lacking = scorecard(two.drop(columns="checkpoint"), rows)
    assert set(lacking.verdict) == {"inconclusive"}
    twice = scorecard(pd.concat([measured()] * 2), rows)
    assert twice.reason[0].startswith("several measured values")
    once = scorecard(two[:3].drop(columns="checkpoint"), rows)
    assert set(once.reason) == {"measured values do not say checkpoint"}
    with refusal("missing seed"):
        scorecard(two.drop(columns="seed"), rows)


MALFORMED = """
 | expected names of columns, found an empty file
metric,value | expected a column 'mean', found metric, value
metric,mean,mean | column names repeat
metric,mean;gap,1,2 | row 2: expected 2 fields, found 3
metric,mean;gap,1;gap,about 2 | row 3: expected a number in column mean, found 'about 2'
metric,mean;gap, | row 2: expected a mean or an upper_bound
metric,mean,std;gap,1,-2 | expected std of zero or more
metric,mean,n_seeds;gap,1,2.5 | expected n_seeds as a whole number
metric,mean;gap,inf | expected a finite number
"""
"""Lines of a file, and what is said of it."""


@pytest.mark.parametrize("case", MALFORMED.strip("\n").splitlines())
def test_malformed_files_get_one_line(tmp_path, case):
    path = tmp_path / "bad.csv"
    text, _, message = case.partition(" | ")
    path.write_text(text.replace(";", "\n"))
    with refusal(f"{path}.*{message}"):
        read_numbers(path)
    with refusal("cannot be read"):
        read_numbers(tmp_path / "absent.csv")


def test_claims_table():
    claims = [
        Claim("a", "s", "Fig. 1", "confirmed", 0.5, "< 1"),
        Claim("a", "s", "Fig. 1", "refuted", group="x"),
    ]
    table = claims_table(claims)
    assert list(table.verdict) == ["confirmed", "refuted"]
    assert list(claims_table([]).columns) == list(table.columns)
    with refusal("'a' twice"):
        claims_table([claims[0], claims[0]])
