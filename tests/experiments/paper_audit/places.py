"""Places of a paper: what a `place` string covers, and the machine-made inventory of numbered
statements."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from experiments.paper_audit.papers import clauses, errata

KINDS = (
    "Theorem",
    "Proposition",
    "Corollary",
    "Remark",
    "Definition",
    "Lemma",
    "Example",
    "Algorithm",
    "Fact",
    "Assumption",
    "Eq",
    "Table",
    "Figure",
    "Fig",
    "Footnote",
    "Section",
    "Appendix",
)
NUMBER = r"(?:[A-Z]\.)?\d+(?:\.\d+)*|(?:[IVX]+|[A-Z])-[A-Z]\b|[IVX]+\b|[A-Z]\b"
PATTERN = re.compile(
    rf"\b({'|'.join(KINDS)})(?:s|ies)?\.?\s+((?:{NUMBER})(?:\s*(?:,|and|to|-|–)\s*(?:{NUMBER}))*)"
)


def covered(place: str) -> Iterator[tuple[str, str]]:
    """(kind, number) of every place that a place string names, ranges filled.

    >>> list(covered("Theorem 4, Eqs. 28-30"))
    [('Theorem', '4'), ('Eq', '28'), ('Eq', '29'), ('Eq', '30')]
    >>> list(covered("Propositions 58 and 62; Lemma C.9, Part 1"))
    [('Proposition', '58'), ('Proposition', '62'), ('Lemma', 'C.9')]
    >>> list(covered("Appendix N; Fig. N.2, caption"))
    [('Appendix', 'N'), ('Fig', 'N.2')]
    >>> list(covered("Section IV-A; Appendices B-B, C"))
    [('Section', 'IV-A'), ('Appendix', 'B-B'), ('Appendix', 'C')]
    """
    for kind, text in PATTERN.findall(place.replace("Appendices", "Appendix")):
        parts = re.split(rf"({NUMBER})", text)
        previous = ""
        for separator, number in zip(parts[:-1:2], parts[1::2], strict=True):
            if separator.strip() in ("to", "-", "–"):
                yield from ((kind, n) for n in _between(previous, number))
            else:
                yield kind, number
                if number[0].isdigit() and "." in number:  # "Theorem 7.1" is a part of Theorem 7
                    yield kind, number.partition(".")[0]
            previous = number


def _between(first: str, last: str) -> list[str]:
    """Numbers after `first` up to `last`, of one series: "28", "30" or "C.1", "C.4"."""
    head, _, low = first.rpartition(".")
    prefix, _, high = last.rpartition(".")
    if head != prefix or not (low.isdigit() and high.isdigit()):
        return [last]
    dot = f"{head}." if head else ""
    return [f"{dot}{n}" for n in range(int(low) + 1, int(high) + 1)]


def inventory(key: str, name: str = "inventory.csv") -> list[tuple[str, str]]:
    """(kind, number) of the numbered statements and equations of one paper, from inventory.csv; of
    its sections, footnotes, figures and tables, from sections.csv."""
    with Path(__file__).with_name(name).open(encoding="utf-8", newline="") as file:
        return [(row["kind"], row["number"]) for row in csv.DictReader(file) if row["paper"] == key]


def missing(key: str) -> list[str]:
    """Places of the inventory that neither a formula, an erratum, nor an unchecked entry names."""
    texts = errata(key)
    named = [clause.place for clause in clauses(key)]
    named += [entry["place"] for entry in (*texts["erratum"], *texts["unchecked"])]
    have = {place for text in named for place in covered(text)}
    return [f"{kind} {number}" for kind, number in inventory(key) if (kind, number) not in have]
