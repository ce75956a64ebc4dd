"""Captions: what a figure shows, its note and settings, and the judge's finding in words."""

import pandas as pd

from runner.contract import Redrawn, figure_settings
from runner.report import figures
from runner.report.answers.rows import rows_of
from runner.report.figures.annotations import noted
from runner.report.figures.captions import (
    LONGEST_ALT,
    caption,
    finding,
    outcome_on,
    shows,
)
from runner.report.output.commands import figure_commands
from runner.report.output.manifest import read_manifest
from runner.run.config.experiment import preview
from runner.run.config.files import experiment_names

CLAIMS = pd.DataFrame(
    [
        ("confirmed", "R falls", "Fig. 12A", -0.4, "< 0", False),
        ("refuted", "C stays", "Section 5, Figs. 3 and 12", 0.2, "< 0.1", False),
        ("confirmed", "elsewhere", "Fig. 1", 1.0, None, False),
        ("refuted", "ours, at every depth", "Fig. 12", 9.0, None, True),
    ],
    columns=["verdict", "statement", "where", "statistic", "threshold", "extension"],
)
SCORES = pd.DataFrame(
    [("R", 8, 2.0, 2.1, "reproduced"), ("R", 9, 2.0, 4.0, "not reproduced")],
    columns=["metric", "depth", "paper_mean", "measured_mean", "verdict"],
).assign(source="DAG paper, Tables 6 and N.4", reason="", n=5)
ROWS = rows_of(SCORES, CLAIMS.assign(name="s"), "DAG", "x")
MANIFEST = {"seeds": [42, 43, 44], "cells": [{"git_commit": "abc"}, {"git_commit": "def+changes"}]}


def figure_of(place, **about):
    return Redrawn(place, figures.new_figure, **about)


def test_an_outcome_is_of_all_rows_of_a_place_without_extensions():
    assert outcome_on("Fig. 12", ROWS).startswith("does not hold in every row: 1 of 2 judged")
    assert outcome_on("Fig. 1", ROWS) == "holds: 1 of 1 judged rows agree"
    assert outcome_on("Fig. 2", ROWS) == outcome_on("", ROWS) == ""


def test_the_finding_counts_verdicts_and_spells_out_what_went_wrong():
    text = finding(figure_of("Fig. 12"), ROWS)
    assert text.startswith("2 statements on Fig. 12: 1 confirmed, 1 refuted; refuted: C stays")
    assert "0.2" in text
    counts = "2 printed numbers of Table N.4: 1 reproduced, 1 not reproduced; "
    assert finding(figure_of("Table N.4"), ROWS).startswith(
        f"{counts}not reproduced: R, depth 9: 4,"
    )
    assert finding(figure_of("Fig. 2"), ROWS) == finding(figure_of(""), ROWS) == ""
    tables = (table.assign(verdict="inconclusive", name="s") for table in (SCORES, CLAIMS))
    open_rows = rows_of(*tables, "DAG", "x")
    assert "; inconclusive: R falls" in finding(figure_of("Fig. 12"), open_rows)
    assert finding(figure_of("Table N.4"), open_rows).endswith(
        "2 inconclusive"
    )  # the count says it all


def test_a_figure_counts_the_numbers_of_its_own_cells_and_names_the_others():
    figure = figure_of("Table N.4", cells={"depth": [9]})
    assert finding(figure, ROWS).startswith(
        "1 printed number of Table N.4: 1 not reproduced; 1 other, not shown here: 1 reproduced; "
    )
    assert outcome_on("Table N.4", [row for row in ROWS if shows(figure, row)]).endswith(
        "0 of 1 judged rows agree; disagree: 1"
    )
    assert all(shows(figure_of("Table N.4", keys={"metric": ["R"]}), row) for row in ROWS)


def test_what_is_noted_of_a_figure_is_noted_once():
    figure, _ = figures.new_figure()
    assert noted(figure) == ""
    for text in ("every seed a point", "bars: one std", "every seed a point"):
        figures.note(figure, text)
    assert noted(figure) == "every seed a point; bars: one std"


def test_a_caption_has_all_facts_of_its_figure_and_the_alt_text_begins_with_the_finding():
    made = caption("Resonance", "a point a seed", figure_of("Fig. 12"), ROWS, MANIFEST)
    for text in ("Resonance. A point a seed.", "1 refuted", "Seeds 42–44 (n = 3)"):
        assert text in made.text
    assert "2 cells of commits abc, def+changes" in made.text
    assert made.alt.startswith("2 statements on Fig. 12") and len(made.alt) <= LONGEST_ALT
    assert made.alt.endswith("Resonance. A point a seed.")


def test_a_caption_names_the_settings_that_its_figure_is_drawn_with():
    about = {"Fig. 12": {"hidden": 3, "rates": [0.1, 0.2]}, "Fig. 1": {"width": 4}}
    made = caption("Resonance", "", figure_of("Fig. 12"), ROWS, {**MANIFEST, "drawn_with": about})
    assert "Settings of this figure: hidden=3, rates=[0.1,0.2]." in made.text
    assert "width" not in made.text


def test_settings_are_declared_for_figures_that_are_drawn(published):
    for name in experiment_names():
        drawn = set((read_manifest(published / name) or {"places": {}})["places"].values())
        assert set(figure_settings(preview(name))) <= drawn, name
    of_portraits = figure_settings(preview("ws_bound"))["Fig. 3"]
    assert (of_portraits["hidden"], of_portraits["portrait_hidden"]) == ([3], 3)


def test_a_figure_with_settings_has_commands_that_measure_and_draw_it():
    cells = [{"seed": seed} for seed in (42, 43, 47)]
    manifest = {"experiment": "toy", "cells": cells, "scope": {"seeds": [42, 43]}}
    manifest |= {
        "places": {"fig03_x": "Fig. 3"},
        "drawn_with": {"Fig. 3": {"hidden": [3], "shown": 3}},
    }
    words = ["experiment=toy", "shown=3"]
    assert figure_commands(manifest, "fig03_x", words) == {
        "measure": "hess-run -m experiment=toy shown=3 'hidden=[3]' seed=42,43",
        "redraw": "hess-run report experiment=toy shown=3 'hidden=[3]' figure=fig03_x",
    }
    drawn = {"redraw": "hess-run report experiment=toy shown=3 figure=spread"}
    assert figure_commands(manifest, "spread", words) == drawn
