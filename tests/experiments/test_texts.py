"""Every sentence of the papers' texts that states something has its row, or a reason why not; and
every printed statement of ours is one of them."""

import re

import pandas as pd
import pytest

from experiments.paper_audit.papers import clauses, keys
from experiments.printed import KINDS, Said, said, statement_rows, statements, unchecked
from runner import results
from runner.report.answers.papers import known_papers
from runner.report.answers.reference import files, numbers_of
from runner.report.answers.summary import summary
from tests import ROOT
from tests.experiments.paper_audit.places import covered, inventory

PAPERS = sorted(path.parent.name for path in files("texts"))
EXPERIMENTS = ROOT / "experiments"
NAMES = {path.stem for path in (EXPERIMENTS.parent / "conf" / "experiment").glob("*.yaml")}
SUMMARIES = sorted(path for path in EXPERIMENTS.rglob("*.md") if path.stem in NAMES)
AUDITS = {"scalar_spectrum": "scalar"}
"""Name of a text -> its name in the audit, where the two differ."""
AUDITED = [paper for paper in PAPERS if AUDITS.get(paper, paper) in keys()]


def tables(place):
    """Numbers of the tables that a place names."""
    return {number for kind, number in covered(place) if kind == "Table"}


def printed_in(experiment, metric):
    """Numbers of the tables with values of a metric of an experiment."""
    rows = numbers_of(experiment).read()
    sources = rows[rows["metric"] == metric]["source"]
    return set().union(*map(tables, sources))


def decided(paper, s):
    """Whether what a statement points at is there."""
    if s.kind == "claim":
        return s.row in statements(s.experiment)
    if s.kind == "number":
        rows = numbers_of(s.experiment).read()
        rows = rows[rows["metric"] == s.row]
        printed = {float(v) for v in rows["mean"] if v.strip()}
        return float(s.value) in printed if s.value else len(rows) > 0
    if s.kind == "table":
        return printed_in(s.experiment, s.row) >= tables(s.place) > set()
    if s.kind == "audit":
        return s.row in {clause.id for clause in clauses(AUDITS.get(paper, paper))}
    reason = s.kind in ("not checked", "left out") and not s.experiment and not s.value
    return reason and len(s.row.split()) > 2


def test_the_text_of_every_paper_is_listed():
    assert sorted(entry["report"] for entry in known_papers().values()) == PAPERS


@pytest.mark.parametrize("paper", PAPERS)
def test_every_statement_of_a_text_is_decided_somewhere(paper):
    for s in said(paper):
        assert s.kind in KINDS and decided(paper, s), s
        assert s.place and s.statement, s
    assert len(set(said(paper))) == len(said(paper))


@pytest.mark.parametrize("paper", AUDITED)
def test_every_place_of_a_paper_has_a_row(paper):
    """Sections, footnotes, figures, tables, numbered statements and equations: somebody read
    them."""
    key = AUDITS.get(paper, paper)
    named = {place for s in said(paper) for place in covered(s.place)}
    named |= {("Abstract", "") for s in said(paper) if "Abstract" in s.place}
    expected = {*inventory(key), *inventory(key, "sections.csv")}
    assert len(expected) > 80 and not expected - named


@pytest.mark.parametrize("paper", AUDITED)
def test_every_clause_of_the_audit_is_one_of_a_text(paper):
    listed = {s.row for s in said(paper) if s.kind == "audit"}
    assert listed == {clause.id for clause in clauses(AUDITS.get(paper, paper))}


@pytest.mark.parametrize("paper", ["dag"])  # the others have no tables of numbers
def test_every_number_of_a_table_has_a_row(paper):
    listed = {}
    for s in said(paper):
        if s.kind in ("table", "number"):
            listed.setdefault((s.experiment, s.row), set()).update(tables(s.place))
    assert listed
    for experiment in {s.experiment for s in said(paper) if s.kind in ("claim", "number", "table")}:
        for metric in set(numbers_of(experiment).read()["metric"]):
            found = printed_in(experiment, metric)
            assert found <= listed.get((experiment, metric), set()), (experiment, metric)


def test_every_printed_statement_is_one_of_a_text():
    """The other way round: no row of claims speaks of a paper without standing in the list of its
    text."""
    listed = {(s.experiment, s.row) for paper in PAPERS for s in said(paper)}
    lost = [key for key, s in statement_rows().items() if not s.extension and key not in listed]
    assert not lost


@pytest.mark.parametrize(
    "kind, experiment, row, right",
    [
        ("left out", "", "a definition of terms", True),
        ("left out", "", "a definition", False),
        ("left out", "exp1_deep", "a definition of terms", False),
        ("not checked", "", "", False),
        ("of another kind", "", "a definition of terms", False),
        ("claim", "exp1_deep", "a definition of terms", False),
    ],
)
def test_what_no_check_decides_has_a_reason(kind, experiment, row, right):
    assert decided("dag", Said("Section 2", "R is a norm", kind, experiment, row)) is right


def test_what_is_not_checked_is_said_with_its_reason():
    (line,) = unchecked("ws_bound")
    assert "distorted boundaries" in line and "only the two sharpest and flattest" in line


@pytest.mark.parametrize("path", SUMMARIES, ids=lambda path: path.stem)
def test_every_summary_takes_its_numbers_from_the_published_results(path, published):
    claims, scorecard = (
        pd.read_csv(published / path.stem / f"{table}.csv") for table in ("claims", "scorecard")
    )
    text = summary(path.read_text(encoding="utf-8"), claims, scorecard, results.load(path.stem))
    assert len(text.split()) > 10 and not re.search(r"\bnan\b", text) and "{" not in text
