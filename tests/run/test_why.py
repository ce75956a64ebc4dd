"""`hess-run why`: places of the papers and the names that it prints."""

import json
from pathlib import Path

import pytest

from runner.contract import SettingError
from runner.report.output.commands import figure_commands, run_words
from runner.report.output.page import Page
from runner.run.answer_lines import lines
from runner.run.forecast import price_of
from runner.run.places import judgement, place_name
from runner.run.why import why
from runner.store.archive import report_folders
from tests.errors import refusal


def test_a_table_is_answered_by_a_sentence_and_its_rows(command, published):
    first, *rows = command.output("why", "table 5").splitlines()
    assert first.startswith("DAG paper: Table 5 holds: ")
    number = rows[rows.index("      dag.T5.gelu.final.gap_global") - 1].split("  ")
    assert [one.strip() for one in number if one] == [
        *("GN gap, GELU, after training", "0.345 ± 0.012", "0.345 ± 0.012", "exact match")
    ]
    wrong = rows.index("      all-five.paper_audit.dag.s53.column")
    assert rows[wrong - 1].endswith("minor error")
    assert rows[wrong + 1].startswith("      the paper says: column Delta shows")
    assert "found no row on Table 99" in command.refusal("why", "Table 99")
    assert "expected a paper (WS bound, HSR" in command.refusal("why", "Fig. 3 of Bach")


def test_a_figure_is_answered_by_its_file_command_and_settings(published, tmp_path):
    (answer,) = why("Fig.3 of WS", tmp_path)
    record = answer.record()
    assert record["measure"] == {"ws_bound": "hess-run -m experiment=ws_bound seed=42,43,44,45,46"}
    assert "ws.ws_bound.distorted-boundaries" in [row["id"] for row in record["rows"]]
    assert len(record["figures"]) == 2
    for figure in record["figures"]:
        name = Path(figure["file"]).stem
        assert Path(figure["file"]).is_file() and figure["experiment"] == "ws_bound"
        settings = "'hidden=[3]' portrait_hidden=3 'rate=[0.1]' portrait_rate=0.1"
        assert figure["draw"] == f"hess-run report experiment=ws_bound figure={name}"
        assert settings in figure["measure"] and " cell" in figure["cost"]
        assert figure["redraw"].startswith("hess-run report experiment=ws_bound ")
        assert settings in figure["redraw"]
        assert figure["redraw"].endswith(f" figure={name}")
    shown = "\n".join(lines([answer]))
    assert figure["file"] in shown and figure["measure"] in shown and figure["redraw"] in shown
    assert "hess-run list ws_bound" in shown
    (answer,) = why("DAG Fig. 6", tmp_path)
    assert answer.record()["figures"] and "no row is judged" in answer.title


def test_a_figure_names_the_command_that_measures_as_few_cells_as_it_needs():
    needs = {"fig3_fitted": {"cells": {"protocol": ["fitted"]}, "one_seed": True}}
    record = {
        "places": {"fig3_fitted": "Fig. 3"},
        "drawn_with": {"Fig. 3": {"hidden": [3]}},
        "cells": [{"seed": seed} for seed in (42, 43)],
        "needs": needs,
    }
    made = figure_commands(record, "fig3_fitted", ["experiment=x"])
    assert made["measure"] == "hess-run experiment=x 'protocol=[fitted]' 'hidden=[3]' seed=42"
    needs["fig3_fitted"]["one_seed"] = False
    made = figure_commands(record, "fig3_fitted", ["experiment=x", "hidden=[5]"])
    words = "experiment=x 'hidden=[5]' 'protocol=[fitted]'"
    assert made["measure"] == f"hess-run -m {words} seed=42,43"
    assert made["redraw"] == f"hess-run report {words} figure=fig3_fitted"
    words, seeds = ["experiment=ws_bound", "part=[search]", "protocol=[fitted]"], [42]
    one = price_of([*words, "activation=[sigmoid]", "hidden=[3]"], seeds)
    assert one.startswith("1 cell, about ") and " of one core" in one
    assert price_of(["experiment=ws_bound", "nothing=1"], seeds) == ""


PLACES = """
table 5 | Table 5 |
Tab. 5 | Table 5 |
Figure 3 | Fig. 3 |
Fig.3 | Fig. 3 |
fig 12A | Fig. 12 |
Table n.3 | Table N.3 |
Theorem 34(a) | Theorem 34 |
Thm. 2 in the HSR paper | Theorem 2 | HSR
DAG Table 5 | Table 5 | DAG
Figure 3 of the WS-bound paper | Fig. 3 | WS bound
Table 5 of DAG | Table 5 | DAG
DAG paper, Table 5 | Table 5 | DAG
ws fig. 2 | Fig. 2 | WS bound
scalar spectrum, Lemma B10 | Lemma B.10 | Scalar spectrum
Section 5.1 | Section 5.1 |
section VI-A of HSR | Section VI-A | HSR
Experiment 3 | Experiment 3 |
DAG Exp. 1b | Experiment 1b | DAG
Remark 38 | Remark 38 |
Eq. (2) of DAG | Eq. 2 | DAG
Appendix N.2 of DAG | Appendix N.2 | DAG
"""
"""What a reader writes, the place, and the paper where it is named."""


@pytest.mark.parametrize("line", PLACES.strip().splitlines())
def test_places_are_understood_as_readers_write_them(line):
    text, place, paper = (part.strip() for part in line.split("|"))
    named = place_name(text)
    assert (named.place, named.paper) == (place, paper)


def test_files_and_rows_are_no_places():
    for text in ("outputs/fig 3.png", "fig03_sharpest.png", "dag.T5", "exp3_gn_gap", "lemma"):
        assert place_name(text) is None


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_every_name_that_why_prints_is_one_that_it_takes(every, published, monkeypatch, tmp_path):
    """Rows, beginnings of rows, places, figures, experiments, settings and cells of all reports."""
    pages = [page for page in map(Page.read, report_folders(tmp_path)) if page is not None]
    monkeypatch.setattr("runner.run.why.report_folders", lambda outputs: [p.folder for p in pages])
    monkeypatch.setattr("runner.run.why.Page.read", {p.folder: p for p in pages}.get)
    rows = {row.id: (page, row) for page in pages for row in page.rows}
    names = {name: f"{name}: " for name in rows}
    for name, (_, row) in rows.items():
        names[name.rpartition(".")[0]] = ""
        for place in row.places:
            names[f"{row.paper} paper, {place}"] = f"{row.paper} paper: {place}"
    for page in pages:
        names |= {page.name: f"{page.name}: ", page.manifest["settings_key"]: f"{page.name}: "}
        names |= {figure.name: f"{figure.name}.png: " for figure in page.figures}
        cell = page.manifest["cells"][0]["id"]
        names |= {cell: f"cell {cell} of {page.name}"}
    assert len(rows) > 1000 and len(names) > 1500
    for name, begin in list(names.items())[::every]:
        assert why(name, tmp_path)[0].title.startswith(begin), name


NONE = ": no row is judged. Not counted: 2 calibrated, 1 minor error."
OPEN = (
    " holds as far as it is decided: 1 of 4 judged rows agree; inconclusive: 3. "
    "Not counted: 2 not run."
)


@pytest.mark.parametrize(
    "verdicts, sentence",
    [
        ({"calibrated": 2, "minor error": 1}, NONE),
        ({"reproduced": 1, "inconclusive": 3, "not run": 2}, OPEN),
    ],
)
def test_the_answer_counts_what_agrees(verdicts, sentence):
    assert judgement("Fig. 1", verdicts) == f"Fig. 1{sentence}"


def test_a_row_that_does_not_agree_says_why_below_its_name(published, tmp_path):
    (answer,) = why("Table 8", tmp_path)
    record = answer.record()
    opened = [row for row in record["rows"] if row["verdict"] == "inconclusive"]
    assert opened and opened == [row for row in record["rows"] if row["reason"]]
    shown = lines([answer])
    for row in opened:
        reason = shown[shown.index(f"      {row['id']}") + 1].strip()
        assert reason == row["reason"]
        assert "would be not reproduced" in reason or " cells are not measured (seed" in reason
    (one,) = why(opened[0]["id"], tmp_path)
    assert one.record()["why"] == opened[0]["reason"]


@pytest.mark.parametrize(
    ("place", "experiment", "row"),
    [
        ("Experiment 3", "exp3_gn_gap", "dag.T5.gelu.final.gap_global"),
        ("Experiment 1b", "exp1b_spectral_norm", "dag.TN.2.plain_sn.8.published.init.rho_max"),
        ("Section 5.1", "exp1_resonance", "dag.exp1_deep.rise-of-R"),
        ("Remark 38", "exp1_resonance", "dag.exp1_resonance.decay-after-training"),
        ("Eq. 2 of DAG", "paper_audit", "all-five.paper_audit.dag.eq2"),
    ],
)
def test_sections_remarks_equations_and_experiments_are_places(
    place, experiment, row, published, tmp_path
):
    answers = [one.record() for one in why(place, tmp_path) if one.title.startswith("DAG")]
    (record,) = answers
    rows = {one["id"]: one for one in record["rows"]}
    assert experiment in record["measure"] and rows[row]["claim"] and rows[row]["verdict"]
    assert "dag.T4.relu.init.gap_global" not in rows  # of Experiment 3b
    with refusal("found no row on Section 99", SettingError):
        why("Section 99", tmp_path)


def test_the_command_of_a_report_names_profile_changes_and_folder():
    folder = Path("elsewhere/ws_bound")
    manifest = {"experiment": "ws_bound", "profile": "quick", "changed": "tight=1.2"}
    words = ["experiment=ws_bound", "profile=quick", "tight=1.2", "outputs=elsewhere"]
    assert run_words(folder / "quick", manifest) == words
    paper = {"experiment": "ws_bound", "profile": "paper"}
    assert run_words(folder, paper) == [words[0], words[-1]]


def test_a_figure_names_the_cells_that_are_not_measured(published, tmp_path):
    (answer,) = why(str(published / "exp6_resnet18" / "figures" / "fig7_resonance.png"), tmp_path)
    manifest = json.loads((published / "exp6_resnet18" / "manifest.json").read_text())
    shown = lines([answer])
    for cell in manifest["missing"]:
        assert any(line.strip() == cell for line in shown)
    assert bool(manifest["missing"]) == any(line.startswith("  missing ") for line in shown)
