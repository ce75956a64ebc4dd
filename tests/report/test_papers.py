"""A sixth paper is an entry in papers.toml: pages, anchors and BibTeX follow."""

import json

import pytest

from runner.report.answers import papers
from runner.report.answers.papers import bibtex
from runner.report.output.page import Page
from runner.report.output.start import write_overview

ENTRY = """
["Toy paper"]
anchor = "toy"
key = "toy2026"
author = "Toy, Ann"
cited = "A paper of toys"
title = "Toys"
finding = "Toys are round."
figure = "toys/fig1_round"
report = "toy"
errata = "toy"
"""
SCORES = (
    "metric,width,paper_mean,paper_std,upper_bound,n_seeds,"
    "measured_mean,measured_std,n,verdict,source,values\n"
    'ratio,3,1.5,nan,nan,5,1.5,0.1,5,reproduced,"Toy paper, Table 2","[[42, 1.5]]"\n'
)


@pytest.fixture
def with_toy_paper(tmp_path, monkeypatch):
    listed = papers.PAPERS_FILE.read_text(encoding="utf-8")
    (tmp_path / "papers.toml").write_text(listed + ENTRY, encoding="utf-8")
    monkeypatch.setattr(papers, "PAPERS_FILE", tmp_path / "papers.toml")
    for cached in (papers.known_papers, papers.anchors):
        cached.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    for cached in (papers.known_papers, papers.anchors):
        cached.cache_clear()


def test_every_listed_paper_has_an_anchor_of_its_own():
    names = list(papers.anchors().values())
    assert len(names) == len(set(names)) == len(papers.known_papers())


def test_a_sixth_paper_has_anchors_a_card_and_bibtex(with_toy_paper):
    folder = with_toy_paper / "outputs" / "toys"
    folder.mkdir(parents=True)
    (folder / "scorecard.csv").write_text(SCORES)
    record = {"experiment": "toys", "paper": "Toy paper", "title": "Toys", "files": {}}
    record |= {"settings_key": "k", "written": "2026-01-01T00:00:00Z", "cells": [], "seeds": [42]}
    record |= {"missing": [], "fill_commands": [], "profile": "paper"}
    (folder / "manifest.json").write_text(json.dumps(record))
    page = Page.read(folder)
    assert page is not None
    (row,) = page.rows
    assert row.id.startswith("toy.T2.")
    start = write_overview(folder.parent).read_text()
    assert "Toys are round." in start and "Toy paper" in start
    assert "toy2026" in bibtex("Toy paper")
