"""Places of the papers that errata call right have clauses that hold, and those that pages call
wrong have entries in the errata."""

import json
import re

import pytest

from experiments.paper_audit import papers
from tests.experiments.page_numbers import ID, PLURALS, REFERENCE, page
from tests.experiments.stored import PUBLISHED, verdicts
from tests.experiments.test_page_comparisons import PAGES

GROUPS = {"attention": "Attention", "dag": "DAG", "hsr": "HSR"}
GROUPS |= {"scalar_spectrum": "Scalar spectrum", "ws_bound": "WS bound"}
PARTLY = {("dag", "Theorem", "34"), ("attention", "Theorem", "J.1")}
"""Where the page names the part that holds."""
WRONG = (
    ("README.md", "attention", "wrong as printed** (", ")"),
    ("attention.md", "attention", "with wrong indices (", "loses"),
    ("dag.md", "dag", "[The errata] correct ", ". See"),
    ("scalar_spectrum.md", "scalar_spectrum", "rests on them: a", "**"),
)
"""Page, paper, and the ends of a sentence that lists errors."""


def named(text):
    """(kind, number) of each place that a text names, with those between the ends of a range."""
    found = []
    for kind, names in REFERENCE.findall(text):
        for first, last in re.findall(rf"({ID})(?: to ({ID}))?", names):
            found += [(PLURALS.get(kind, kind), name) for name in between(first, last)]
    # lemmas of the attention paper without the word, in lists only
    for first, last in re.findall(r"(?<![ \w][\w.] )\b([B-D]\.\d+)(?: to ([B-D]\.\d+))?", text):
        found += [("Lemma", name) for name in between(first, last)]
    return [(kind, re.sub(r"\(.*", "", name)) for kind, name in found]


def between(first, last):
    """The numbers from the first to the last.

    >>> between("B.10", "B.12"), between("34(b)", "")
    (['B.10', 'B.11', 'B.12'], ['34(b)'])
    """
    if not last:
        return [first]
    start, stop = (int(name.rpartition(".")[2]) for name in (first, last))
    before = first.rpartition(".")[0]
    dot = "." if before else ""
    return [f"{before}{dot}{k}" for k in range(start, stop + 1)]


def at(place, text):
    """Whether a text names the place or a part of it."""
    kind, name = place
    return any(k == kind and re.fullmatch(rf"{re.escape(name)}(\..*)?", n) for k, n in named(text))


@pytest.mark.parametrize("paper", GROUPS)
def test_places_that_hold_have_clauses_that_hold(paper):
    survives = papers.errata(paper.removesuffix("_spectrum"))["survives"]
    sentences = re.split(r"(?<=[a-z)])\. (?=[A-Z])", survives)
    holds = ". ".join(said for said in sentences if re.search(r"\b(hold|(is|are) right)\b", said))
    claims = verdicts("paper_audit", "claims")
    claims = claims[claims.group == GROUPS[paper]]
    places = [place for place in named(holds) if place[0] not in ("Section", "Appendix")]
    assert len(places) > 5
    for place in places:
        found = set(claims.verdict[[at(place, where) for where in claims["where"]]])
        assert found & {"confirmed", "true by construction"}, place
        assert "refuted" not in found or (paper, *place) in PARTLY, place


def errata(paper):
    entries = json.loads((PUBLISHED / "paper_audit" / "errata.json").read_text(encoding="utf-8"))
    key = paper.removesuffix("_spectrum")
    return [entry["place"] for entry in entries if entry["paper"] == key and entry["id"]]


@pytest.mark.parametrize("name, paper, start, end", WRONG)
def test_errors_that_a_page_lists_have_entries(name, paper, start, end):
    text = page(PAGES / name)
    assert start in text
    listed = named(text.partition(start)[2].partition(end)[0])
    assert len(listed) >= 2
    for place in listed:
        assert any(at(place, entry) for entry in errata(paper)), place
