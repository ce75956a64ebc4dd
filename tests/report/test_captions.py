"""Captions: what axes and lines of a figure say, its note, and the judge's finding in words."""

import pandas as pd
import pytest

from runner.contract import figure_settings
from runner.report import figures
from runner.report.captions import (
    LONGEST_ALT,
    Drawing,
    caption,
    finding,
    place_of,
    places,
    plain_label,
    read_drawing,
)
from runner.run.config import experiment_names, preview

CLAIMS = pd.DataFrame(
    [
        {
            "verdict": "confirmed",
            "statement": "R falls",
            "where": "Fig. 12A",
            "statistic": -0.4,
            "threshold": "< 0",
        },
        {
            "verdict": "refuted",
            "statement": "C stays",
            "where": "Section 5, Figs. 3 and 12",
            "statistic": 0.2,
        },
        {"verdict": "confirmed", "statement": "elsewhere", "where": "Fig. 1", "statistic": 1.0},
        {
            "verdict": "refuted",
            "statement": "ours, at every depth",
            "where": "extension of Fig. 12",
            "statistic": 9.0,
        },
    ]
)
SCORES = pd.DataFrame(
    [
        {
            "metric": "R",
            "depth": 8,
            "paper_mean": 2.0,
            "measured_mean": 2.1,
            "verdict": "reproduced",
        },
        {
            "metric": "R",
            "depth": 9,
            "paper_mean": 2.0,
            "measured_mean": 4.0,
            "verdict": "not reproduced",
        },
    ]
).assign(source="DAG paper, Tables 6 and N.4", reason="", n=5)
ROWS = {"claims": CLAIMS, "scorecard": SCORES}
MANIFEST = {"seeds": [42, 43, 44], "cells": [{"git_commit": "abc"}, {"git_commit": "def+changes"}]}


@pytest.mark.parametrize(
    "name, what, place",
    [
        ("fig02_bound_and_eigenvalue", "", "Fig. 2"),
        ("figN1_resonance", "Fig. 9: not this", "Fig. N.1"),
        ("table2_dynamics", "", "Table 2"),
        ("figure_of_speech", "", ""),
        ("spread", "Fig. 7: bounds", "Fig. 7"),
        ("spread", "bounds as in Fig. 7", ""),
    ],
)
def test_a_figure_knows_the_one_that_it_redraws(name, what, place):
    assert place_of(name, what) == place


def test_places_are_read_in_all_their_spellings():
    assert places("Section 5.3 (b), Fig. 5; Tables 8 and N.8, Figure 12D") == {
        *("Fig. 5", "Table 8", "Table N.8", "Fig. 12")
    }


def test_the_finding_counts_verdicts_and_spells_out_what_went_wrong():
    text = finding("Fig. 12", ROWS)
    assert (
        text.startswith("2 statements on Fig. 12: 1 confirmed, 1 refuted; refuted: C stays")
        and "0.2" in text
    )
    text = finding("Table N.4", ROWS)
    assert text.startswith(
        "2 printed numbers of Table N.4: 1 reproduced, 1 not reproduced; "
        "not reproduced: R, depth 9: 4,"
    )
    assert finding("Fig. 2", ROWS) == finding("", ROWS) == ""
    open_rows = {name: table.assign(verdict="inconclusive") for name, table in ROWS.items()}
    assert "; inconclusive: R falls" in finding("Fig. 12", open_rows)
    assert finding("Table N.4", open_rows).endswith(
        "2 inconclusive"
    )  # numbers: the count says it all


def test_a_drawing_says_its_axes_lines_and_where_they_begin_and_end():
    figure, axes = figures.new_figure(1, 2)
    for ax, title in zip(axes[0], ("shallow", "deep"), strict=True):
        ax.errorbar([0, 1, 2], [4.0, 2.0, 1.0], yerr=0.1, label="init")
        ax.plot([0, 1, 2], [1.0, 1.0, float("nan")], label=r"$\lambda_1$")
        ax.set_title(title)
        ax.set_xlabel("distance $d$\np = 0.01")
    axes[0, 0].set_ylabel(r"resonance $\|H\|_F$")
    axes[0, 0].set_yscale("log")
    drawing = read_drawing(figure)
    assert drawing.axes.startswith("2 panels: resonance ‖H‖_F (logarithmic) against distance d")
    assert (
        drawing.axes.endswith("against distance d") and drawing.has_bars
    )  # the legend's lines are in the reading
    assert "In panel shallow: " in drawing.reading
    assert "init: 4 at 0, 1 at 2" in drawing.reading and "λ_1: 1 at 0, 1 at 1" in drawing.reading
    assert plain_label(r"$\partial w$, $\quad x$") == "∂w, quad x"
    assert plain_label(r"$\Sigma\|H^T\|_F$, $L$") == "Σ‖H^T‖_F, L"


def test_points_and_empty_panels_can_be_read_too():
    figure, axes = figures.new_figure(1, 2)
    assert read_drawing(figure) == Drawing()
    axes[0, 0].scatter([1, 2, 3], [1, 2, 3])
    figures.note(figure, "every seed a point")
    assert read_drawing(figure).note == "every seed a point"
    assert read_drawing(figure).reading == "3 points" and not read_drawing(figure).has_bars


def test_a_caption_has_all_facts_of_its_figure_and_the_alt_text_begins_with_the_finding():
    drawing = Drawing("R against d", "init: 4 at 0, 1 at 2", True, "a point a seed")
    made = caption("fig12_x", "Resonance", drawing, ROWS, MANIFEST, bars="± std over seeds")
    for text in (
        "Resonance. Bars and bands: ± std over seeds",
        "1 refuted",
        "Seeds 42–44 (n = 3)",
        "A point a seed.",
    ):
        assert text in made.text
    assert "2 cells of commits abc, def+changes" in made.text and "init: 4 at 0" not in made.text
    assert "R against d. Init: 4 at 0, 1 at 2." in made.alt
    assert made.alt.startswith("2 statements on Fig. 12") and len(made.alt) <= LONGEST_ALT
    said = caption(
        "fig12_x", "Mean and quartiles", drawing, ROWS, MANIFEST, bars="± std over seeds"
    )
    assert "± std" not in said.text


def test_a_caption_names_the_settings_that_its_figure_is_drawn_with():
    about = {"Fig. 12": {"hidden": 3, "rates": [0.1, 0.2]}, "Fig. 1": {"width": 4}}
    drawing = Drawing(axes="", reading="", note="", has_bars=False)
    made = caption("fig12_x", "Resonance", drawing, ROWS, MANIFEST, drawn_with=about)
    assert "Settings of this figure: hidden=3, rates=[0.1,0.2]." in made.text
    assert "width" not in made.text


def test_settings_are_declared_for_figures_that_are_drawn(published):
    for name in experiment_names():
        drawn = {place_of(path.stem) for path in published.glob(f"{name}/figures/*.png")}
        assert set(figure_settings(preview(name))) <= drawn, name
    assert "portrait_hidden" in figure_settings(preview("ws_bound"))["Fig. 3"]
