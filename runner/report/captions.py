"""Captions of figures, made from data: what is shown, on which axes, what can be read off, what the judge says, and
from which cells, seeds and commits. For those who do not see the figure the finding comes first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.contract import is_extension
from runner.report.drawing import Drawing
from runner.report.formatting import number_line, statement_line
from runner.report.provenance import commits_of

if TYPE_CHECKING:
    import pandas as pd

WORST = ("refuted", "not reproduced", "minor error", "inconclusive", "confirmed", "reproduced", "exact match")
"""Which row a caption spells out: the first of these that there is."""
LONGEST_ALT = 420


@dataclass(frozen=True)
class Caption:
    """text: below the figure. alt: without the figure: finding, axes, ends of the lines."""

    text: str
    alt: str


def caption(
    name: str,
    what: str,
    drawing: Drawing,
    rows: Mapping[str, pd.DataFrame],
    manifest: Mapping[str, Any],
    *,
    bars: str = "",
) -> Caption:
    """The caption of a figure.

    what: what it shows, in words. rows: `claims` and `scorecard` of the report. bars: what bars and bands show, said
    where `what` does not.
    """
    found = finding(place_of(name, what), rows)
    said = re.search(r"±|\b(std|band|bars?|quartiles?|interval|range)\b", what) is not None
    parts = [
        what or name.replace("_", " "),
        f"Bars and bands: {bars}" if bars and drawing.has_bars and not said else "",
        drawing.note,
        found,
        _provenance(manifest),
    ]
    alt = _joined([found, drawing.axes, drawing.reading, what or name.replace("_", " ")])
    return Caption(_joined(parts), alt if len(alt) <= LONGEST_ALT else f"{alt[: LONGEST_ALT - 1].rstrip()}…")


def _joined(parts: Sequence[str]) -> str:
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('. ')}." for part in parts if part)


def place_of(name: str, what: str = "") -> str:
    """The paper's figure or table that a figure redraws, '' where there is none.

    >>> place_of("figN1_resonance"), place_of("table2_dynamics"), place_of("spread", "Fig. 7: all"), place_of("spread")
    ('Fig. N.1', 'Table 2', 'Fig. 7', '')
    """
    found = re.match(r"(fig|table)([A-Z]?)0*(\d+)(?=_|$)", name)
    if found:
        return f"{'Fig.' if found[1] == 'fig' else 'Table'} {found[2] + '.' if found[2] else ''}{found[3]}"
    return next(iter(sorted(places(what.partition(":")[0]))), "") if ":" in what else ""


def places(text: str) -> set[str]:
    """The figures and tables that a text names.

    >>> sorted(places("DAG paper, Tables 6 and N.4; Fig. 12A"))
    ['Fig. 12', 'Table 6', 'Table N.4']
    """
    number = r"(?:[A-Z]\.)?\d+"
    found: set[str] = set()
    for kind, listed in re.findall(rf"\b(Fig|Table)\w*\.?\s+({number}[A-D]?(?:(?:,| and)\s+{number}[A-D]?)*)", text):
        found |= {f"{'Fig.' if kind == 'Fig' else kind} {one}" for one in re.findall(number, listed)}
    return found


def finding(place: str, rows: Mapping[str, pd.DataFrame]) -> str:
    """What the judge says of a figure or table of the paper: counts, and the row that matters most with its numbers."""
    if not place:
        return ""
    scored = [row for row in rows["scorecard"].to_dict("records") if place in places(str(row.get("source", "")))]
    told = [row for row in rows["claims"].to_dict("records") if not is_extension(str(row.get("where", "")))]
    said = [row for row in told if place in places(str(row.get("where", "")))]
    parts = [f"{_many(len(scored), 'printed number')} of {place}: {_counts(scored)}"] if scored else []
    parts += [f"{_many(len(said), 'statement')} on {place}: {_counts(said)}"] if said else []
    for kind, members, line in (("number", scored, number_line), ("statement", said, statement_line)):
        ranked = sorted((row for row in members if row["verdict"] in WORST), key=lambda r: WORST.index(r["verdict"]))
        if ranked and (kind == "statement" or WORST.index(ranked[0]["verdict"]) < WORST.index("inconclusive")):
            parts.append(f"{ranked[0]['verdict']}: {line(ranked[0])}")
    return "; ".join(parts)


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in Counter(str(r["verdict"]) for r in rows).most_common())


def _provenance(manifest: Mapping[str, Any]) -> str:
    seeds, cells = manifest.get("seeds", []), manifest.get("cells", [])
    commits = commits_of(manifest) if cells else []
    parts = [f"Seeds {seeds_line(seeds)} (n = {len(seeds)})" if len(seeds) > 1 else f"Seed {seeds_line(seeds)}"]
    parts += [f"{len(cells)} cells of {'commit' if len(commits) == 1 else 'commits'} {', '.join(commits[:3])}"]
    parts[-1] += f" and {len(commits) - 3} more" if len(commits) > 3 else ""
    return "; ".join(parts)


def seeds_line(seeds: Sequence[int]) -> str:
    """42–46 for consecutive seeds, else a list."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}–{seeds[-1]}"
    return ", ".join(map(str, seeds))
