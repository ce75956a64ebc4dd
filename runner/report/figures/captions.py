"""Captions of figures, made from data: what is shown, its note, the settings that it depends on,
the verdicts, and from which cells, seeds and commits. The text for readers who do not see the
figure begins with the verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.contract import Redrawn, assignments, seeds_line
from runner.report.answers.formatting import counts_of, sentence
from runner.report.answers.rows import Row, key_text
from runner.report.answers.scope import Scope
from runner.report.answers.tones import COUNTED, outcome_of
from runner.report.collect import commits_of

LONGEST_ALT = 420


@dataclass(frozen=True)
class Caption:
    """text: below the figure. alt: without the figure: finding, what it shows, note."""

    text: str
    alt: str


def caption(
    what: str,
    note: str,
    figure: Redrawn,
    rows: Sequence[Row],
    manifest: Mapping[str, Any],
) -> Caption:
    """The caption of a figure.

    what: what it shows, in words. note: what bars, bands and marks are. rows: of the report.
    """
    scope = Scope.of(manifest)
    place = figure.place
    found = f"as {place}, {scope.how}; {scope.not_judged}" if place else scope.not_judged
    if scope.is_papers:
        found = finding(figure, rows)
    shown = [what, note]
    settings = ", ".join(assignments(manifest.get("drawn_with", {}).get(place, {})))
    drawn_with = f"Settings of this figure: {settings}" if settings else ""
    text = _joined([*shown, drawn_with, found, _provenance(manifest), scope.shown_only])
    alt = _joined([found, *shown])
    return Caption(text, alt if len(alt) <= LONGEST_ALT else f"{alt[: LONGEST_ALT - 1].rstrip()}…")


def _joined(parts: Sequence[str]) -> str:
    return " ".join(sentence(part) for part in parts if part)


def rows_on(place: str, rows: Iterable[Row]) -> list[Row]:
    """The printed numbers and the paper's statements on a figure, table or theorem."""
    return [row for row in rows if place in row.places and not row.is_extension]


def shows(figure: Redrawn, row: Row) -> bool:
    """Whether a figure shows a row of its place: not a printed number of other cells."""
    return all(
        row.keys.get(name) in (None, *map(key_text, values))
        for name, values in {**figure.cells, **figure.keys}.items()
    )


def finding(figure: Redrawn, rows: Iterable[Row]) -> str:
    """What the judge says of a figure or table of the paper: counts, and the row that matters most
    with its numbers."""
    place = figure.place
    found = rows_on(place, rows)
    scored = [row for row in found if row.is_number and shows(figure, row)]
    others = [row for row in found if not shows(figure, row)]
    stated = [row for row in found if not row.is_number]
    parts = []
    if scored:
        parts.append(f"{_many(len(scored), 'printed number')} of {place}: {counts_of(scored)}")
    if others:
        parts.append(f"{_many(len(others), 'other')}, not shown here: {counts_of(others)}")
    if stated:
        parts.append(f"{_many(len(stated), 'statement')} on {place}: {counts_of(stated)}")
    number = _worst(scored)
    statement = _worst(stated)
    if number is not None and COUNTED.index(number.verdict) < COUNTED.index("inconclusive"):
        parts.append(f"{number.verdict}: {number.line}")
    if statement is not None:
        parts.append(f"{statement.verdict}: {statement.line}")
    return "; ".join(parts)


def outcome_on(place: str, rows: Iterable[Row]) -> str:
    """Whether a place of the paper holds, by all its rows; "" where none is judged."""
    return outcome_of(Counter(row.verdict for row in rows_on(place, rows)))


def _worst(rows: Sequence[Row]) -> Row | None:
    """The row that matters most: the first of those with the worst verdict."""
    ranked = [row for row in rows if row.verdict in COUNTED]
    return min(ranked, key=lambda row: COUNTED.index(row.verdict), default=None)


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
