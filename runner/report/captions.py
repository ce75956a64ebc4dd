"""Captions of figures, made from data: what is shown, its note, the settings that it depends on,
the verdicts, and from which cells, seeds and commits. The text for readers who do not see the
figure begins with the verdicts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.contract import assignments
from runner.report.formatting import counts_of, number_line, sentence, statement_line
from runner.report.manifest import commits_of
from runner.report.scope import Scope
from runner.report.tones import outcome_of

if TYPE_CHECKING:
    import pandas as pd


WORST = (
    "refuted",
    "not reproduced",
    "minor error",
    "inconclusive",
    "confirmed",
    "reproduced",
    "exact match",
)
"""Which row a caption spells out: the first of these that there is."""
LONGEST_ALT = 420


@dataclass(frozen=True)
class Caption:
    """text: below the figure. alt: without the figure: finding, what it shows, note."""

    text: str
    alt: str


def caption(
    what: str,
    note: str,
    place: str,
    rows: Mapping[str, pd.DataFrame],
    manifest: Mapping[str, Any],
) -> Caption:
    """The caption of a figure.

    what: what it shows, in words. note: what bars, bands and marks are. place: the paper's figure
    or table that it redraws, "" for none. rows: `claims` and `scorecard` of the report.
    """
    scope = Scope.of(manifest)
    found = finding(place, rows) if scope.is_papers else scope.unjudged(place)
    shown = [what, note]
    settings = ", ".join(assignments(manifest.get("drawn_with", {}).get(place, {})))
    drawn_with = f"Settings of this figure: {settings}" if settings else ""
    text = _joined([*shown, drawn_with, found, _provenance(manifest), scope.shown_only])
    alt = _joined([found, *shown])
    return Caption(text, alt if len(alt) <= LONGEST_ALT else f"{alt[: LONGEST_ALT - 1].rstrip()}…")


def _joined(parts: Sequence[str]) -> str:
    return " ".join(sentence(part) for part in parts if part)


def places(text: str, kinds: str = "Fig|Table") -> set[str]:
    """The figures and tables that a text names. kinds: other things with numbers.

    >>> sorted(places("DAG paper, Tables 6 and N.4; Fig. 12A"))
    ['Fig. 12', 'Table 6', 'Table N.4']
    >>> sorted(places("Theorem 34(a); Lemma B.10, Part 1", "Theorem|Lemma"))
    ['Lemma B.10', 'Theorem 34']
    """
    number = r"(?:[A-Z]\.)?\d+"
    found: set[str] = set()
    for kind, listed in re.findall(
        rf"\b({kinds})\w*\.?\s+({number}[A-D]?(?:(?:,| and)\s+{number}[A-D]?)*)", text
    ):
        word = "Fig." if kind == "Fig" else kind
        found |= {f"{word} {one}" for one in re.findall(number, listed)}
    return found


def finding(place: str, rows: Mapping[str, pd.DataFrame]) -> str:
    """What the judge says of a figure or table of the paper: counts, and the row that matters most
    with its numbers."""
    if not place:
        return ""
    scored, stated = rows_on(place, rows)
    parts = []
    if scored:
        parts.append(f"{_many(len(scored), 'printed number')} of {place}: {counts_of(scored)}")
    if stated:
        parts.append(f"{_many(len(stated), 'statement')} on {place}: {counts_of(stated)}")
    number = _worst(scored)
    statement = _worst(stated)
    if number is not None and WORST.index(number["verdict"]) < WORST.index("inconclusive"):
        parts.append(f"{number['verdict']}: {number_line(number)}")
    if statement is not None:
        parts.append(f"{statement['verdict']}: {statement_line(statement)}")
    return "; ".join(parts)


def rows_on(
    place: str, rows: Mapping[str, pd.DataFrame]
) -> tuple[list[dict[Any, Any]], list[dict[Any, Any]]]:
    """The printed numbers and the paper's statements on a figure or table."""
    stated = _on(place, rows["claims"], "where")
    return _on(place, rows["scorecard"], "source"), [r for r in stated if not r["extension"]]


def outcome_on(place: str, rows: Mapping[str, pd.DataFrame]) -> str:
    """Whether a figure or table of the paper holds, by all its rows; "" where none is judged."""
    scored, stated = rows_on(place, rows)
    return outcome_of(Counter(row["verdict"] for row in (*scored, *stated)))


def _on(place: str, table: pd.DataFrame, column: str) -> list[dict[Any, Any]]:
    """The rows of a table whose place is this figure or table of the paper."""
    rows = table.to_dict("records")
    return [row for row in rows if place in places(str(row.get(column, "")))]


def _worst(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The row that matters most: the first of those with the first verdict of `WORST`."""
    ranked = [row for row in rows if row["verdict"] in WORST]
    return min(ranked, key=lambda row: WORST.index(row["verdict"]), default=None)


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _provenance(manifest: Mapping[str, Any]) -> str:
    seeds = manifest.get("seeds", [])
    cells = manifest.get("cells", [])
    commits = commits_of(manifest) if cells else []
    line = f"Seed {seeds_line(seeds)}"
    if len(seeds) > 1:
        line = f"Seeds {seeds_line(seeds)} (n = {len(seeds)})"
    named = ", ".join(commits[:3])
    if len(commits) > 3:
        named += f" and {len(commits) - 3} more"
    word = "commit" if len(commits) == 1 else "commits"
    return f"{line}; {len(cells)} cells of {word} {named}"


def seeds_line(seeds: Sequence[int]) -> str:
    """42–46 for consecutive seeds, else a list."""
    if len(seeds) > 2:
        first = seeds[0]
        if list(seeds) == list(range(first, first + len(seeds))):
            return f"{first}–{seeds[-1]}"
    return ", ".join(map(str, seeds))
