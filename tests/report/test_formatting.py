"""findings.md in words: what a scorecard would let pass, and the scope of a statement."""

import pandas as pd
import pytest

from runner.contract import Claim
from runner.report.compare import claims_table, scorecard
from runner.report.formatting import findings_text, statement_line
from runner.stats import judge

SEEDS = (42, 43, 44, 45, 46)


def scores(*values: float) -> pd.DataFrame:
    """A scorecard of one printed value for each of ours, all of them 1.0 ± 0.01 in print."""
    keys = range(len(values))
    reference = pd.DataFrame({"metric": "m", "depth": map(str, keys), "mean": "1.0", "std": "0.01", "n_seeds": "5"})
    measured = [
        {"metric": "m", "depth": k, "seed": s, "value": v * (1 + 0.01 * (s - 44))}
        for k, v in zip(keys, values, strict=True)
        for s in SEEDS
    ]
    return scorecard(pd.DataFrame(measured), reference)


def test_findings_say_what_a_scorecard_would_let_pass():
    text = findings_text("x", claims_table(()), scores(1.0, 1.0, 0.9), [])
    assert "3 in the paper: 3 reproduced." in text
    assert "Of 3 that can fail, within their margin were all our values multiplied: 3 at × 1, 3 at × 1.1" in text
    assert "1 at × 1.25" in text  # 0.9 × 1.25 is near, the two others lie on the margin
    assert "1 repeat the values of another row." in text
    assert "The printed spread differs from ours in" in text


def test_findings_without_numbers_speak_of_none():
    assert "Printed numbers" not in findings_text("x", claims_table(()), pd.DataFrame(), [])


@pytest.mark.parametrize(("same", "word"), [({"": 0.908}, True), (None, False)])
def test_a_statement_line_says_of_which_networks(same, word):
    claim = judge.bound(
        "s", {"": [0.5, 1.5, 1.0, 0.7, 1.2]}, low=0.9, statement="R² > 0.9", where="Section 1", same=same
    )
    (row,) = claims_table([claim]).to_dict("records")
    assert ("on the published networks" in statement_line(row)) == word
    assert ("0.908" in statement_line(row)) == word


def test_a_statement_line_says_which_parts_hold_fail_and_are_open():
    found = judge.bound(
        "s",
        {"L=6": [0.8, 1.3, 1.0], "L=8": [0.5, 0.51, 0.52], "L=10": [2.0, 2.1, 2.2]},
        low=1.0,
        statement="s",
        where="",
    )
    (row,) = claims_table([found]).to_dict("records")
    assert "(confirmed: L=10; refuted: L=8; inconclusive: L=6)" in statement_line(row)


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        ("confirmed: a; refuted: b (other seeds)", ""),
        ("confirmed: a; not run: b", " (confirmed: a; not run: b)"),
        ("confirmed: a; true by construction: b", ""),
        ("refuted: a, b", ""),
        ("confirmed: a, b, c, d, e; refuted: f", " (confirmed: 5 of 6; refuted: f)"),
        ("confirmed: a; refuted: b; inconclusive: c (other seeds)", " (confirmed: a; refuted: b)"),
        ("no verdict of ours: a; refuted: b", ""),
        ("", ""),
    ],
)
def test_parts_of_a_statement_are_named_where_they_differ(variants, said):
    row = {"statement": "s", "verdict": "refuted", "statistic": 0.5, "threshold": "> 1", "variants": variants}
    scope = " (on the published networks; other seeds: see claims.csv)" if "other seeds" in variants else ""
    assert statement_line(row) == f"s: 0.5, criterion: > 1{scope}{said}"


def test_statements_of_the_paper_stand_before_ours():
    ours = Claim("a", "ours holds", "extension of the paper", "confirmed")
    theirs = Claim("b", "theirs holds", "Fig. 1", "confirmed")
    text = findings_text("x", claims_table([ours, theirs]), pd.DataFrame(), [])
    assert text.index("theirs holds") < text.index("## Extensions: what held") < text.index("ours holds")


def test_what_cannot_be_compared_is_listed_with_its_reason():
    open_one = Claim("a", "it holds", "Fig. 1", "not comparable", detail="the rate is not printed")
    text = findings_text("x", claims_table([open_one]), pd.DataFrame(), [])
    assert "- it holds (Fig. 1): the rate is not printed" in text and "Not counted" not in text
