"""findings.md: statements and numbers by verdict, from a report's verdicts and the experiment's notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.contract import is_extension
from runner.report.sharpness import FACTORS, sharpness
from runner.stats.variants import variants_of

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 12
"""Rows that a list names one by one; the rest is counted."""

NAMED = 4
"""Parts of a statement that its line names; of more it gives their number."""


PARTS = {
    "confirmed": ("confirmed",),
    "refuted": ("refuted", "minor error"),
    "inconclusive": ("inconclusive",),
    "not run": ("not run",),
}
"""Word for the parts of a statement by their verdicts."""


EXTENSIONS = {
    "what held": ("confirmed",),
    "what did not": ("refuted", "minor error"),
    "what is open": ("inconclusive",),
    "what cannot be compared": ("not comparable",),
}
"""Heading of statements of ours by their verdicts."""


def findings_text(
    title: str, claims: pd.DataFrame, scorecard: pd.DataFrame, notes: Sequence[str], trust: Sequence[str] = ()
) -> str:
    """Markdown: counts, statements and numbers by verdict, the notes, and what the cells' certificates say."""
    scored = scorecard.to_dict("records")
    said: list[Mapping[str, Any]] = []
    ours: list[Mapping[str, Any]] = []
    for c in claims.to_dict("records"):
        (ours if is_extension(str(c.get("where") or "")) else said).append(c)
    parts = [f"# {title}\n"]
    if notes:
        parts.append(_section("In short", [str(note) for note in notes], len(notes)))
    numbers = _counts(r["verdict"] for r in scored)
    if scored:
        parts.append(f"## Printed numbers\n\n{len(scored)} in the paper: {numbers}.{_power(scorecard)}\n")
    parts.append(_section("What held", [statement_line(c) for c in said if c["verdict"] == "confirmed"]))
    lost = [statement_line(c) for c in said if c["verdict"] == "refuted"]
    lost += [number_line(r) for r in scored if r["verdict"] == "not reproduced"]
    parts.append(_section("What did not", lost, 4 * LONGEST))
    slips = [statement_line(c) for c in said if c["verdict"] == "minor error"]
    parts.append(_section("What is off in print, and nothing rests on it", slips))
    open_ = [statement_line(c) for c in said if c["verdict"] in ("inconclusive",)]
    open_ += [number_line(r) for r in scored if r["verdict"] == "inconclusive"]
    parts.append(_section("What is open", open_))
    unfixed = [f"{c['statement']} ({c['where']}): {c['detail']}" for c in said if c["verdict"] == "not comparable"]
    parts.append(_section("What cannot be compared, for something that the paper does not print", unfixed, 4 * LONGEST))
    rest = [c for c in said if c["verdict"] in ("true by construction", "not run")]
    if rest:
        many = "statement" if len(rest) == 1 else "statements"
        parts.append(f"Not counted: {_counts(c['verdict'] for c in rest)} {many}.\n")
    for heading, verdicts in EXTENSIONS.items():
        lines = [statement_line(c) for c in ours if c["verdict"] in verdicts]
        parts.append(_section(f"Extensions: {heading}", lines, 2 * LONGEST))
    parts.append(_section("Are the numbers right", list(trust)))
    return "\n".join(part for part in parts if part)


def _power(scorecard: pd.DataFrame) -> str:
    """What the scorecard would still let pass, how many rows repeat others, and the test of the printed spread."""
    found = sharpness(scorecard).set_index("what")
    if not len(found):
        return ""
    passes = {f: found.loc[f"passes at × {f:g}"] for f in FACTORS[:3]}
    text = ", ".join(f"{row['value']:.0f} at × {f:g}" for f, row in passes.items())
    text = f" Of {passes[1.0]['of']:.0f} that can fail, within their margin were all our values multiplied: {text}."
    if "rows not independent" in found.index and found.loc["rows not independent", "value"]:
        text += f" {found.loc['rows not independent', 'value']:.0f} repeat the values of another row."
    if "std differs" in found.index:
        row = found.loc["std differs"]
        text += f" The printed spread differs from ours in {row['value']:.0f} of {row['of']:.0f} (F test at 5 %)."
    return text


def _section(heading: str, lines: Sequence[str], longest: int = LONGEST) -> str:
    if not lines:
        return ""
    more = [f"- and {len(lines) - longest} more, in claims.csv and scorecard.csv"] if len(lines) > longest else []
    return "\n".join([f"## {heading}\n", *(f"- {line}" for line in lines[:longest]), *more]) + "\n"


def statement_line(claim: Mapping[str, Any]) -> str:
    """A row of the claims: the statement with its place, what was measured, and what it was held against."""
    text = f"{claim['statement']} ({claim['where']})" if claim.get("where") else str(claim["statement"])
    measured = f": {_shown(claim['statistic'])}" if _shown(claim.get("statistic")) else ""
    against = f", criterion: {claim['threshold']}" if measured and claim.get("threshold") else ""
    marks = str(claim.get("variants") or "")
    scope = " (on the published networks; other seeds: see claims.csv)" if "other seeds" in marks else ""
    return f"{text}{measured}{against}{scope}{_where(marks)}{_needed(claim)}"


def _where(marks: str) -> str:
    """Of a statement that not all parts agree on: which hold, fail and are open. Those of other seeds are in the table.

    A statement that fails at one of four depths must not read as if it failed at all of them.
    """
    by = variants_of(marks)
    parts = {
        word: [name for v in verdicts for name in by.get(v, []) if "other seeds" not in name]
        for word, verdicts in PARTS.items()
    }
    parts = {word: names for word, names in parts.items() if names}
    if len(parts) < 2:
        return ""
    total = sum(len(names) for names in parts.values())
    said = (f"{word}: {', '.join(n) if len(n) <= NAMED else f'{len(n)} of {total}'}" for word, n in parts.items())
    return f" ({'; '.join(said)})"


def number_line(row: Mapping[str, Any]) -> str:
    """A row of the scorecard: which value, ours and the printed one, and the reason of the verdict."""
    skipped = ("experiment", "table", "note", "source", "margin_reason")
    keys = list(row)[: list(row).index("paper_mean")] if "paper_mean" in row else []
    name = " ".join(str(row[k]) for k in keys if k not in skipped and _word(row[k]))
    printed = _shown(row.get("paper_mean")) or f"at most {_shown(row.get('upper_bound'))}"
    reason = (
        f" ({row['reason']})"
        if _word(row.get("reason"))
        else " (unexplained)"
        if row["verdict"] != "inconclusive"
        else ""
    )
    return f"{name}: {_shown(row.get('measured_mean'))}, printed {printed}{reason}{_needed(row)}"


def _needed(row: Mapping[str, Any]) -> str:
    needed = row.get("seeds_needed")
    if not isinstance(needed, float) or needed != needed:
        return ""
    return "; no number of seeds would decide it" if needed == float("inf") else f"; {needed:.0f} seeds would decide it"


def _word(value: Any) -> bool:
    return value not in ("", None) and value == value


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) and value == value else ""


def _counts(verdicts: Iterable[str]) -> str:
    count: dict[str, int] = {}
    for verdict in verdicts:
        count[verdict] = count.get(verdict, 0) + 1
    return ", ".join(f"{n} {verdict}" for verdict, n in count.items())
