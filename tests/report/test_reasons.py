"""Why a row does not agree with its paper, in words made from its numbers."""

import math

import pandas as pd
import pytest

from runner.report.answers.reasons import why_not
from runner.report.output.page import Page

ROW = {"verdict": "inconclusive", "low": -0.1, "high": 0.4, "margin": 0.2, "n": 5}
SEEN = "with n = 5 a difference above 0.45 would be not reproduced"
ROW |= {"detectable": 0.45, "undecidable": ""}


@pytest.mark.parametrize(
    "changed, ends",
    [
        ({"seeds_needed": 17.0}, f"{SEEN}; about 17 seeds would decide it"),
        ({"seeds_needed": math.inf}, f"{SEEN}; no number of seeds decides it"),
        ({"undecidable": "few"}, f"{SEEN}; no number of seeds decides it: few"),
        ({"seeds_needed": "nan"}, f"margin ± 0.2; {SEEN}"),
    ],
)
def test_a_number_names_interval_margin_and_seeds(changed, ends):
    text = why_not(ROW | changed)
    assert "-0.1 to 0.4, margin ± 0.2" in text and text.endswith(ends)


def test_a_statement_has_its_details_and_any_other_verdict_nothing():
    assert why_not({"verdict": "inconclusive", "detail": "n = 2"}) == "n = 2"
    assert why_not(ROW | {"verdict": "reproduced"}) == ""
    assert why_not(ROW | {"verdict": "not reproduced", "seeds_needed": 9}).endswith(SEEN)


def test_every_row_of_the_reports_that_does_not_agree_says_why(published):
    for path in sorted(published.glob("*/manifest.json")):
        page = Page.read(path.parent)
        for row in page.rows:
            is_open = row.verdict in ("inconclusive", "not reproduced")
            assert bool(row.why) == is_open, row.id
    interval = pd.read_csv(published / "exp6_resnet18" / "scorecard.csv")
    of_open = interval[interval["verdict"] == "inconclusive"]
    assert (of_open["detectable"] > of_open["margin"]).all()
