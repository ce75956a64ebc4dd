"""report.md: a summary, published numbers and statements by verdict in tables, and limitations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.contract import is_extension
from runner.report.labels import row_label
from runner.stats.variants import variants_of

if TYPE_CHECKING:
    import pandas as pd

NAMED = 4
"""Variants of a statement that its row names; of more it gives their number."""
SPLIT = ("confirmed", "refuted", "minor error", "inconclusive", "not run")
"""Verdicts by which variants are named."""
ORDER = ("refuted", "minor error", "not reproduced", "inconclusive", "confirmed", "not comparable")
"""Verdicts of the rows of a table, in their order; all others are counted."""
LONGEST = 60
"""Rows of a table; the rest is in the CSV files."""


def report_text(
    title: str,
    summary: str,
    claims: pd.DataFrame,
    scorecard: pd.DataFrame,
    notes: Sequence[str] = (),
    limitations: Sequence[str] = (),
    validation: Sequence[str] = (),
) -> str:
    """Markdown of a report.

    Parameters
    ----------
    summary
        The hand-written summary; without one the notes of the analysis follow the counts.
    limitations
        Sentences on missing cells, stand-in data and changed settings.
    validation
        Sentences on numerical checks of the cells.
    """
    scored = [{str(k): v for k, v in row.items()} for row in scorecard.to_dict("records")]
    stated = [{str(k): v for k, v in row.items()} for row in claims.to_dict("records")]
    papers = [row for row in stated if not is_extension(str(row.get("where") or ""))]
    extensions = [row for row in stated if is_extension(str(row.get("where") or ""))]
    counts = [f"{len(scored)} published numbers: {_counts(scored)}."] if scored else []
    counts += [f"{len(papers)} statements of the paper: {_counts(papers)}."] if papers else []
    counts += [f"{len(extensions)} extensions (not in the paper): {_counts(extensions)}."] if extensions else []
    found = [row for row in scored if row["verdict"] in ("not reproduced", "inconclusive")]
    left = Counter(str(row["reason"]) for row in scored if row["verdict"] == "not comparable")
    reasons = [f"Not comparable ({count}): {reason}." for reason, count in left.items()]
    parts = [
        f"# {title}\n",
        f"{summary}\n" if summary else "",
        f"{' '.join(counts)}\n" if counts else "",
        "" if summary else _list("Notes", notes),
        _table("Published numbers that are not reproduced, or inconclusive", NUMBERS, map(number_row, _sorted(found))),
        _table("Statements of the paper", STATEMENTS, map(statement_row, _sorted(papers))),
        _table("Extensions (not in the paper)", STATEMENTS, map(statement_row, _sorted(extensions))),
        _list("Limitations", [*reasons, *limitations]),
        _list("Numerical validation", validation),
    ]
    return "\n".join(part for part in parts if part)


NUMBERS = ("published number", "place", "published", "measured", "verdict", "reason")
STATEMENTS = ("statement", "place", "measured", "criterion", "verdict")


def number_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A published number as a row of a table."""
    columns = list(row)
    keys = columns[: columns.index("paper_mean")] if "paper_mean" in columns else []
    name = row_label({key: row[key] for key in keys if _word(row[key])})
    printed = shown(row.get("paper_mean")) or f"at most {shown(row.get('upper_bound'))}"
    reason = "; ".join(text for text in (str(row.get("reason") or ""), _needed(row)) if text)
    spread = [f" ± {shown(row.get(key), 2)}" if shown(row.get(key)) else "" for key in ("paper_std", "measured_std")]
    ours = shown(row.get("measured_mean"))
    return name, str(row.get("source") or ""), printed + spread[0], ours + spread[1], str(row["verdict"]), reason


def statement_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """A statement as a row of a table."""
    variants = str(row.get("variants") or "")
    verdict = f"{row['verdict']}{_split(variants)}"
    verdict += " (published networks; other seeds: claims.csv)" if "other seeds" in variants else ""
    verdict += f"; {_needed(row)}" if _needed(row) else ""
    criterion = str(row.get("threshold") or "").replace("<=", "≤").replace(">=", "≥")
    if row["verdict"] == "not comparable":
        criterion = str(row.get("detail") or "")
    return str(row["statement"]), str(row.get("where") or ""), shown(row.get("statistic")), criterion, verdict


def statement_line(row: Mapping[str, Any]) -> str:
    """A statement in one line, for captions."""
    statement, where, measured, criterion, _ = statement_row(row)
    text = f"{statement} ({where})" if where else statement
    return f"{text}: {measured} (criterion: {criterion})" if measured and criterion else text


def number_line(row: Mapping[str, Any]) -> str:
    """A published number in one line, for captions."""
    name, _, printed, ours, _, reason = number_row(row)
    return f"{name}: {ours}, published {printed}{f' ({reason})' if reason else ''}"


def shown(value: Any, digits: int = 3) -> str:
    """A number with this many significant digits; '' for anything else."""
    return f"{value:.{digits}g}" if isinstance(value, int | float) and value == value else ""


def _split(text: str) -> str:
    """Which variants of a statement have which verdict, where they differ; other seeds are left to the table."""
    by = variants_of(text)
    parts = {verdict: [name for name in by.get(verdict, []) if "other seeds" not in name] for verdict in SPLIT}
    parts = {verdict: names for verdict, names in parts.items() if names}
    if len(parts) < 2:
        return ""
    total = sum(len(names) for names in parts.values())
    named = {v: ", ".join(names) if len(names) <= NAMED else f"{len(names)} of {total}" for v, names in parts.items()}
    return f" ({'; '.join(f'{names} {verdict}' for verdict, names in named.items())})"


def _needed(row: Mapping[str, Any]) -> str:
    needed = row.get("seeds_needed")
    if not isinstance(needed, float) or needed != needed:
        return ""
    return "more seeds would not decide it" if needed == float("inf") else f"about {needed:.0f} seeds would decide it"


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted((row for row in rows if row["verdict"] in ORDER), key=lambda row: ORDER.index(row["verdict"]))


def _table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [[" ".join(text.split()).replace("|", "\\|") for text in row] for row in rows]
    if not cells:
        return ""
    lines = [columns, ["---"] * len(columns), *cells[:LONGEST]]
    more = f"\n\n{len(cells) - LONGEST} more rows are in the CSV files." if len(cells) > LONGEST else ""
    return f"## {heading}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + more + "\n"


def _list(heading: str, lines: Sequence[str]) -> str:
    return f"## {heading}\n\n" + "\n".join(f"- {line}" for line in lines) + "\n" if lines else ""


def _word(value: Any) -> bool:
    return value not in ("", None) and value == value


def _counts(rows: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in Counter(str(row["verdict"]) for row in rows).most_common())
