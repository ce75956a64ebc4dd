"""Verdicts of the scorecard on values whose answer is known by hand."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from runner.contract.experiment import Claim
from runner.report import compare

HEADER = "experiment,table,arch,checkpoint,metric,mean,std,upper_bound,n_seeds,source,note\n"


def reference(tmp_path: Path, *rows: str, header: str = HEADER) -> pd.DataFrame:
    path = tmp_path / "reference.csv"
    path.write_text(header + "\n".join(rows) + "\n")
    return compare.read_reference(path)


def measured(metric: str, values, **keys) -> pd.DataFrame:
    return pd.DataFrame({"metric": metric, "seed": range(42, 42 + len(values)), "value": values, **keys})


def score(tmp_path, row: str, values, reason: str = "", **keys):
    keys = {"arch": "plain", "checkpoint": "init", **keys}
    return compare.scorecard(measured("gap", values, **keys), reference(tmp_path, row), reason).iloc[0]


def test_z_is_the_difference_over_the_combined_standard_error(tmp_path):
    values = [1.0, 1.2, 1.1, 0.9, 1.3]
    s = score(tmp_path, "e,1,plain,init,gap,1.52,0.2,,5,T 1,", values)
    sample = 0.2 * math.sqrt(5 / 4)  # the paper prints the population std
    error = math.sqrt(np.std(values, ddof=1) ** 2 / 5 + sample**2 / 5)
    assert s.z == pytest.approx((1.1 - 1.52) / error)
    assert (s.measured_mean, s.n, s.ratio) == pytest.approx((1.1, 5, 1.1 / 1.52))
    assert s.measured_std == pytest.approx(np.std(values, ddof=1))
    assert (abs(s.z) > 3, s.verdict) == (True, "not reproduced")
    assert score(tmp_path, "e,1,plain,init,gap,1.42,0.2,,5,T 1,", values).verdict == "reproduced"


def test_rounding_of_the_printed_digits_counts_as_reproduced(tmp_path):
    row = "e,1,plain,init,gap,0.225,,,5,T 1,"
    assert score(tmp_path, row, [0.2254, 0.2254]).verdict == "reproduced"
    off = score(tmp_path, row, [0.2256, 0.2256])
    assert (off.verdict, off.standard_error) == ("not reproduced", 0)
    assert math.isnan(off.z)


@pytest.mark.parametrize(
    ("text", "others", "resolution"),
    [
        ("2.5", ["2.59", "2.78"], 0.005),
        ("0.025", ["0.0068", "0.35", "0.0011"], 0.0005),
        ("7e-08", ["6.7e-08", "4.1e-09"], 5e-10),
        ("0.0", ["0.0", "0.058", "0.246", "0.618"], 0.0005),
        ("1.0", ["0.95", "0.01", "0.08", "0.56"], 0.005),
        ("460", [], 0.5),
        ("57.5", [], 0.05),
        ("10.0", ["45.1", "11.7"], 0.05),
    ],
)
def test_printed_precision(tmp_path, text, others, resolution):
    rows = [f"e,1,plain,init{i},gap,{t},,,5,T 1," for i, t in enumerate([text, *others])]
    scores = compare.scorecard(measured("gap", [1.0], arch="x", checkpoint="y"), reference(tmp_path, *rows))
    assert scores.resolution[0] == pytest.approx(resolution)


def test_other_tables_do_not_sharpen_the_precision(tmp_path):
    rows = [
        "e,1,plain,init,gap,2.5,,,5,T 1,",
        "e,2,plain,init,gap,2.512,,,5,T 2,",
        "e,1,plain,init,R,2.512,,,5,T 1,",
    ]
    scores = compare.scorecard(measured("gap", [2.54], arch="plain", checkpoint="init"), reference(tmp_path, *rows))
    assert list(scores.verdict) == ["reproduced", "undecided", "not measured"]


def test_a_missing_std_is_stood_in_for_and_said(tmp_path):
    values = [1.0, 1.2, 1.1, 0.9, 1.3]
    s = score(tmp_path, "e,1,plain,init,gap,1.31,,,5,T 1,", values)
    assert s.standard_error == pytest.approx(np.std(values, ddof=1) * math.sqrt(2 / 5))
    assert "ours stands in" in s.reason
    s = score(tmp_path, "e,1,plain,init,gap,1.31,0.2,,5,T 1,", [1.0])
    assert s.standard_error == pytest.approx(0.2 * math.sqrt(5 / 4) * math.sqrt(1 + 1 / 5))
    assert "paper's std stands in" in s.reason


def test_one_seed_without_any_std_is_undecided(tmp_path):
    s = score(tmp_path, "e,1,plain,init,gap,1.31,,,,T 1,", [1.0])
    assert (s.verdict, s.n_seeds) == ("undecided", 1)
    assert "no std on either side" in s.reason
    assert score(tmp_path, "e,1,plain,init,gap,1.31,,,,T 1,", [1.312]).verdict == "reproduced"


def test_upper_bounds(tmp_path):
    row = "e,1,plain,init,gap,,,1e-07,5,T 1,"
    assert score(tmp_path, row, [5e-8, 9e-8]).verdict == "within bound"
    s = score(tmp_path, row, [5e-8, 3e-7])
    assert (s.verdict, s.ratio) == ("above bound", pytest.approx(1.75))


def test_not_comparable_is_never_scored(tmp_path):
    s = score(tmp_path, "e,1,plain,init,gap,1.0,0.1,,5,T 1,", [1.0, 1.0], reason="surrogate data")
    assert (s.verdict, s.reason, s.n) == ("not comparable", "surrogate data", 2)
    assert math.isnan(s.z)
    own = score(tmp_path, "e,1,plain,init,gap,1.0,0.1,,5,T 1,", [1.0, 1.0], reason="short", comparable="")
    assert own.verdict == "reproduced"


def test_absent_and_lost_values(tmp_path):
    assert score(tmp_path, "e,1,other,init,gap,1.0,,,5,T 1,", [1.0]).verdict == "not measured"
    s = score(tmp_path, "e,1,plain,init,gap,1.0,,,5,T 1,", [math.nan, math.nan])
    assert (s.verdict, s.reason) == ("not measured", "2 seeds without a value")
    s = score(tmp_path, "e,1,plain,init,gap,1.0,,,5,T 1,", [1.0, math.nan, 1.0])
    assert (s.verdict, s.n) == ("reproduced", 2)
    assert "1 of 3 seeds without a value" in s.reason


def test_keys_match_as_numbers_and_blank_keys_match_anything(tmp_path):
    header = HEADER.replace("arch", "depth")
    ref = reference(tmp_path, "e,1,8,init,gap,1.0,,,5,T 1,", "e,1,,init,gap,1.0,,,5,T 1,", header=header)
    scores = compare.scorecard(measured("gap", [1.0], depth=8.0, checkpoint="init"), ref)
    assert list(scores.verdict) == ["reproduced", "reproduced"]


def test_values_that_keys_do_not_tell_apart_are_never_averaged(tmp_path):
    two = pd.concat([measured("gap", [1.0], arch="plain", checkpoint=c) for c in ("init", "final")])
    rows = ["e,1,plain,init,gap,1.0,,,5,T 1,", "e,1,plain,final,gap,2.0,,,5,T 1,"]
    assert list(compare.scorecard(two, reference(tmp_path, *rows)).verdict) == ["reproduced", "undecided"]
    lacking = compare.scorecard(two.drop(columns="checkpoint"), reference(tmp_path, *rows))
    assert set(lacking.verdict) == {"undecided"}
    twice = pd.concat([measured("gap", [1.0], arch="plain", checkpoint="init")] * 2)
    assert compare.scorecard(twice, reference(tmp_path, *rows)).reason[0].startswith("several measured values")
    once = compare.scorecard(two[:1].drop(columns="checkpoint"), reference(tmp_path, *rows))
    assert set(once.reason) == {"measured values do not say checkpoint"}
    with pytest.raises(ValueError, match="missing seed"):
        compare.scorecard(two.drop(columns="seed"), reference(tmp_path, *rows))


def test_counts_have_every_verdict(tmp_path):
    rows = ["e,1,plain,init,gap,1.0,,,5,T 1,", "e,1,plain,final,gap,2.0,,,5,T 1,"]
    scores = compare.scorecard(measured("gap", [1.0], arch="plain", checkpoint="init"), reference(tmp_path, *rows))
    counts = compare.summarise(scores)
    assert tuple(counts) == compare.VERDICTS
    assert (counts["reproduced"], counts["not measured"], sum(counts.values())) == (1, 1, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a column 'metric', found an empty file"),
        ("metric,value\n", "expected a column 'mean', found metric, value"),
        ("metric,mean,mean\n", "column names repeat"),
        ("metric,mean\ngap,1,2\n", "row 2: expected 2 fields, found 3"),
        ("metric,mean\ngap,1\ngap,about 2\n", "row 3: expected a number in column mean, found 'about 2'"),
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
        compare.read_reference(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="cannot be read"):
        compare.read_reference(tmp_path / "absent.csv")


def test_claims_table():
    claims = [
        Claim("a", "s", "Fig. 1", "confirmed", 0.5, "< 1"),
        Claim("a", "s", "Fig. 1", "refuted", group="x"),
    ]
    table = compare.claims_table(claims)
    assert list(table.verdict) == ["confirmed", "refuted"]
    assert list(compare.claims_table([]).columns) == list(table.columns)
    with pytest.raises(ValueError, match="'a' twice"):
        compare.claims_table([claims[0], claims[0]])
