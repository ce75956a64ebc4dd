"""Text of reports: counts of verdicts, sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from runner.report.answers.rows import Row
from runner.report.answers.tones import COUNTED
from runner.stats.score import has_one_digit


def sentence(text: str) -> str:
    """A phrase as a sentence."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def place_rows(numbers: Sequence[Row]) -> list[Sequence[str]]:
    """For each table and figure of the paper: how many numbers, their verdicts, and the number that
    differs most. None where every place has one number."""
    places: dict[str, list[Row]] = {}
    for row in numbers:
        places.setdefault(row.place, []).append(row)
    if len(places) == len(numbers):
        return []
    return [
        (place, str(len(rows)), counts_of(rows), _farthest(rows)) for place, rows in places.items()
    ]


def _farthest(rows: Sequence[Row]) -> str:
    """The number that differs most from the published one, in margins; '' for none."""
    counted = [row for row in rows if row.verdict in COUNTED and row.verdict != "exact match"]
    measured = [row for row in counted if row.margins == row.margins]
    if not measured:
        return ""
    row = max(measured, key=lambda row: row.margins)
    return f"{row.what}: {row.measured}, published {row.published} ({row.margins:.2f})"


def counts_of(rows: Iterable[Row]) -> str:
    """'3 confirmed, 1 refuted'."""
    return counts_line(dict(Counter(row.verdict for row in rows).most_common()))


def counts_line(counts: Mapping[str, int]) -> str:
    """'3 confirmed, 1 refuted', or 'none'."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) or "none"


def one_digit(numbers: Iterable[Row]) -> int:
    """How many exact matches are printed with one digit only."""
    exact = [row for row in numbers if row.verdict == "exact match"]
    return sum(has_one_digit(row.number("paper_mean"), row.number("resolution")) for row in exact)
