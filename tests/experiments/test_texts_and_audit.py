"""The other way round: what the audit checks of a paper stands in the list of its text."""

import pytest

from experiments.paper_audit.papers import clauses
from experiments.printed import said
from tests.experiments.paper_audit.places import covered, inventory

AUDITS = {"scalar_spectrum": "scalar"}
"""Name of a text -> its name in the audit, where the two differ."""
SERIES = ("Lemma E.4", "Definition E.5")
"""Places of the attention paper whose right terms have one line."""
LISTED = ["attention", "hsr", "scalar_spectrum", "ws_bound"]


def unlisted(paper):
    """Ids of clauses that no line of the text points at."""
    lines = [s for s in said(paper) if s.kind == "audit"]
    ids = {s.row for s in lines}
    for clause in clauses(AUDITS.get(paper, paper)):
        in_series = clause.place.startswith(SERIES) and not clause.root
        if clause.id not in ids and not in_series:
            yield clause.id


@pytest.mark.parametrize("paper", LISTED)
def test_every_clause_is_a_line_of_its_text(paper):
    assert not list(unlisted(paper))


def unnamed(paper, lines):
    """Numbered statements and equations of the paper that no line names."""
    named = {place for s in lines for place in covered(s.place)}
    return [place for place in inventory(AUDITS.get(paper, paper)) if place not in named]


@pytest.mark.parametrize("paper", LISTED)
def test_every_numbered_statement_is_named_in_its_text(paper):
    assert not unnamed(paper, said(paper))


def test_a_text_that_lost_a_line_is_noticed():
    lines = [s for s in said("hsr") if "Proposition 2" not in s.place]
    assert unnamed("hsr", lines) == [("Proposition", "2"), ("Eq", "62")]
