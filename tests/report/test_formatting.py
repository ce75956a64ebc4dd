"""report.md: the summary with its numbers, tables by verdict, the scope of a statement."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from runner.contract import Claim, Statement
from runner.report.answers.findings import claims_table
from runner.report.answers.formatting import place_rows
from runner.report.answers.labels import row_label
from runner.report.answers.rows import number_row, population, read_table, rows_of, statement_row
from runner.report.answers.summary import summary
from runner.report.output.manifest import TYPES
from runner.report.output.page import Page
from runner.report.output.rendering import render
from runner.report.output.write import with_json
from runner.stats import over_seeds
from runner.stats.scorecard import scorecard
from tests.errors import refusal


def text_of(summary, claims, scorecard, notes=()):
    """report.md in the paper's scope."""
    about = {"experiment": "x", "paper": "DAG", "summary": summary, "notes": list(notes)}
    manifest = {key: kind() for key, kind in TYPES.items()} | about
    rows = rows_of(scorecard, claims, "DAG", "x")
    return render("report.md", page=Page(Path(), manifest, rows))


SEEDS = (42, 43, 44, 45, 46)


def scores(*values):
    """A scorecard of one printed value for each of ours, all of them 1.0 ± 0.01 in print."""
    keys = range(len(values))
    reference = pd.DataFrame(
        {"metric": "m", "depth": map(str, keys), "mean": "1.0", "std": "0.01", "n_seeds": "5"}
    )
    measured = [
        {"metric": "m", "depth": k, "seed": s, "value": v * (1 + 0.01 * (s - 44))}
        for k, v in zip(keys, values, strict=True)
        for s in SEEDS
    ]
    return scorecard(pd.DataFrame(measured), reference)


def test_a_summary_has_its_numbers_from_the_results():
    holds = Claim("a", "it holds", "Fig. 1", "confirmed", 0.51234)
    claims = claims_table([holds, Claim("b", "ours", "", "refuted", extension=True)])
    rows = {"seed": [1, 2, 2, 1], "d": [0, 0, 4, 4], "R": [2, 9, 3, 2], "gn": [1, 3, 1, 1]}

    def filled(text):
        return summary(text, claims, scores(1.0, 1.0, 0.9), {"t": pd.DataFrame(rows)})

    text = "{{ number('m', depth=2) }} and {{ number('m', 'paper_mean', depth=2) }}; "
    text += "{{ statement('a') | fixed(1) }}, {{ verdict('a') }}; {{ numbers() }}, "
    text += "{{ numbers('reproduced') }}, {{ statements() }}"
    assert filled(text) == "0.9 and 1; 0.5, confirmed; 3, 3, 1"
    text = "{{ numbers(depth=2) }}, {{ numbers(depth=5) }}, {{ mean('t', 'R', seed=1) }}"
    assert filled(text) == "1, 0, 2"
    text = "{{ mean('t', 'R', d=0, over='gn') }}, {{ mean('t', 'R', d=0, over={'d': 4}) }}"
    assert filled(text) == "2.5, 2.2"  # a mean of ratios, a ratio of means
    text = "{{ means('t', 'R', by=['d']) | min }}, {{ values('t', 'R', d=0) | max }}, "
    text += "{{ means('t', 'R', by=['seed'], over={'d': 4}, d=0) }}, "
    text += "{{ values('t', 'R', over='gn', d=4) | min }}"
    assert filled(text) == "2.5, 9, [1.0, 3.0], 2"
    for wrong in ("{{ number('n') }}", "{{ number('m') }}", "{{ statement('c') }}"):
        with refusal("expected one row"):
            filled(wrong)
    with refusal("expected rows with"):
        filled("{{ mean('t', 'R', d=3) }}")
    with refusal("at most 150 words"):
        filled("word " * 151)


def test_a_report_lists_what_is_not_reproduced_with_its_reason():
    text = text_of("All is well.", claims_table(()), scores(1.0, 2.0), ["a detail"])
    assert text.startswith(
        "# x\n\nAll is well.\n\n2 published numbers: 1 reproduced, 1 not reproduced."
    )
    assert "| m, depth 1 |" in text and "| m, depth 0 |" not in text and "a detail" not in text
    assert "a detail" in text_of("", claims_table(()), scores(1.0), ["a detail"])
    assert "published number" not in text_of("", claims_table(()), pd.DataFrame(), [])


def test_places_name_the_number_that_is_farthest():
    verdicts = ["reproduced", "reproduced", "exact match"]
    rows = pd.DataFrame({"metric": "R", "depth": [1.0, 2.0, 3.0], "paper_mean": 1.0})
    rows = rows.assign(measured_mean=[1.01, 0.9, 9.0], margin=0.25, verdict=verdicts)
    rows = rows.assign(source="Table 5", reason="").to_dict("records")
    rows = [number_row(row, "DAG") for row in rows]
    (found,) = place_rows(rows)
    assert found[:3] == ("Table 5", "3", "2 reproduced, 1 exact match")
    assert "depth 2" in found[3] and found[3].endswith(": 0.9, published 1 (0.40)")
    assert place_rows(rows[:1]) == []


@pytest.mark.parametrize("same, word", [({"": 0.908}, True), (None, False)])
def test_a_statement_says_of_which_networks(same, word):
    says = Statement(name="s", text="R² > 0.9", place="Section 1", low=0.9)
    claim = over_seeds.bound(says, {"": [0.5, 1.5, 1.0, 0.7, 1.2]}, same=same)
    (row,) = claims_table([claim]).to_dict("records")
    shown = statement_row(row, "DAG", "x")
    assert ("published networks" in shown.verdict_in_words) == word
    assert (shown.measured == "0.908") == word


SIX = dict.fromkeys("abcde", "confirmed") | {"L=8, plain": "refuted"}


@pytest.mark.parametrize(
    "variants, other_seeds, said",
    [
        ({"a": "confirmed"}, {"a": "refuted"}, " (published networks; other seeds: claims.csv)"),
        ({"a": "confirmed", "b": "not run"}, {}, " (variants: a confirmed; b not run)"),
        ({"a": "confirmed", "b": "true by construction"}, {}, ""),
        ({"a": "refuted", "b": "refuted"}, {}, ""),
        (SIX, {}, " (variants: 5 of 6 confirmed; L=8, plain refuted)"),
        ({}, {}, ""),
    ],
)
def test_variants_of_a_statement_are_named_where_they_differ(variants, other_seeds, said):
    row = {"name": "n", "statement": "s", "verdict": "refuted", "statistic": 0.5}
    row |= {"threshold": ">= 1"}
    row |= {"variants": variants, "other_seeds": other_seeds}
    shown = statement_row(row, "DAG", "x")
    assert (shown.what, shown.place, shown.measured, shown.published) == ("s", "", "0.5", "≥ 1")
    assert shown.verdict_in_words == f"refuted{said}"


def test_variants_survive_the_file_whatever_their_parts_are_called(tmp_path):
    parts = {"L=8, plain": "confirmed", "init; confirmed: x": "refuted"}
    table = with_json(claims_table([Claim("a", "s", "Fig. 1", "refuted", variants=parts)]))
    table.to_csv(tmp_path / "claims.csv", index=False)
    (row,) = rows_of(pd.DataFrame(), read_table(tmp_path / "claims.csv"), "DAG", "x")
    assert row.record["variants"] == parts and row.record["other_seeds"] == {}


def test_statements_of_the_paper_come_before_extensions_and_refuted_ones_first():
    rows = [
        Claim("a", "ours", "", "confirmed", extension=True),
        Claim("b", "theirs", "Fig. 1", "confirmed"),
        Claim("c", "a | b", "Fig. 2", "refuted"),
        Claim("d", "open", "Fig. 3", "not comparable", detail="no rate"),
    ]
    text = text_of("", claims_table(rows), pd.DataFrame(), [])
    words = "| a \\| b |", "| theirs |", "| open | Fig. 3 |  | no rate |", "| ours |"
    places = [text.index(word) for word in words]
    assert places == sorted(places)


def test_labels_put_the_quantity_first():
    row = {"experiment": "e", "depth": "8", "metric": "R_d0", "probes": ""}
    assert row_label(row) == "R at distance 0, depth 8"


def test_standard_deviations_are_shown_as_papers_print_them():
    """Of 1, 2, 3: ddof 1 gives 1, ddof 0 the root of 2/3."""
    row = {"metric": "R", "paper_mean": 2.0, "paper_std": 0.82, "measured_mean": 2.0}
    row |= {"measured_std": 1.0, "n": 3, "verdict": "exact match"}
    shown = number_row(row, "DAG")
    assert (shown.published, shown.measured) == ("2 ± 0.82", "2 ± 0.82")
    assert population(row) == pytest.approx(math.sqrt(2 / 3))


def test_a_limit_of_ours_is_marked():
    for chosen, shown in ((True, "≤ 1.25 (our limit)"), (False, "≤ 1.25")):
        says = Statement(name="s", text="constant", place="Section 1", high=1.25, chosen=chosen)
        (row,) = claims_table([over_seeds.bound(says, {"": [1.0, 1.1, 1.2]})]).to_dict("records")
        assert statement_row(row, "DAG", "x").published == shown


def test_exact_matches_of_one_digit_are_counted():
    table = scores(1.0, 1.0, 1.2)
    table["verdict"] = ["exact match", "exact match", "reproduced"]
    table["paper_mean"], table["resolution"] = [0.04, 0.12, 3.0], [0.005, 0.005, 0.5]
    assert "Of the exact matches 1 are printed with one" in text_of("", claims_table(()), table)


def test_rows_of_the_files_are_those_of_the_tables(tmp_path):
    """Of a copied report, and for `hess-run why`, rows are made from the files."""
    claims = claims_table([Claim("a", "ours", "", "confirmed", 0.25, chosen=True, extension=True)])
    table = scores(1.0, 2.0)
    with_json(table).to_csv(tmp_path / "scorecard.csv", index=False, na_rep="nan")
    with_json(claims).to_csv(tmp_path / "claims.csv", index=False, na_rep="nan")
    files = [read_table(tmp_path / f"{name}.csv") for name in ("scorecard", "claims")]
    made, read = rows_of(table, claims, "DAG", "x"), rows_of(*files, "DAG", "x")
    assert [repr(replace(row, record={})) for row in made] == [
        repr(replace(row, record={})) for row in read
    ]
    assert [row.kind for row in read] == ["number", "number", "extension"]
