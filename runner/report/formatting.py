"""Text of reports: report.md with its tables by verdict."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner.report.labels import row_label
from runner.report.reasons import why_not
from runner.report.scope import Scope
from runner.report.score import has_one_digit, population_std
from runner.stats.intervals import joined

if TYPE_CHECKING:
    import pandas as pd

    from runner.report.findings import Findings


Row = Mapping[str, Any]
PAPERS = Scope()
"""The paper's own run."""
MOST_NAMED = 4
"""Variants of a statement that its row names; of more it gives their number."""
SPLIT = ("confirmed", "refuted", "minor error", "inconclusive", "not run")
"""Verdicts by which variants are named."""
ORDER = ("refuted", "minor error", "not reproduced", "inconclusive", "confirmed", "not comparable")
"""Verdicts of the rows of a table, in their order; all others are counted."""
MOST_ROWS = 60
"""Rows of a table; the rest is in the CSV files."""


def report_text(
    title: str,
    summary: str,
    found: Findings,
    limitations: Sequence[str] = (),
    validation: Sequence[str] = (),
    scope: Scope = PAPERS,
) -> str:
    """Markdown of a report.

    Parameters
    ----------
    title
        Title of the experiment.
    summary
        The hand-written summary; without one the notes of the analysis follow the counts.
    found
        Answers of the analysis.
    limitations
        Sentences on missing cells and on what the report is not.
    validation
        Sentences on numerical checks of the cells.
    scope
        What the report is. Outside the paper's it begins with the reason, and lists only the
        statements that keep a verdict.
    """
    scored = _rows(found.scorecard) if scope.is_papers else []
    stated = [row for row in _rows(found.claims) if scope.keeps(bool(row.get("independent")))]
    papers = [row for row in stated if not row["extension"]]
    extensions = [row for row in stated if row["extension"]]
    numbers = [row for row in scored if row["verdict"] in ("not reproduced", "inconclusive")]
    left = Counter(str(row["reason"]) for row in scored if row["verdict"] == "not comparable")
    of_paper, aside = _of_paper(scope)
    reasons = [f"Not comparable ({count}): {reason}." for reason, count in left.items()]
    lead = " ".join(filter(None, (summary, sentence(scope.not_judged))))
    parts = [
        f"# {title}\n",
        f"{lead}\n" if lead else "",
        _counts(scored, papers, extensions, scope),
        "" if summary else _list("Notes", found.notes),
        markdown_table("Published numbers by table and figure", PLACES, place_rows(scored)),
        _table(
            "Published numbers that are not reproduced, or inconclusive",
            NUMBERS,
            number_row,
            numbers,
            scope,
        ),
        _table(f"Statements{of_paper}", STATEMENTS, statement_row, papers, scope),
        _table(f"Extensions{aside}", STATEMENTS, statement_row, extensions, scope),
        _list("Limitations", [*reasons, *limitations]),
        _list("Numerical validation", validation),
    ]
    return "\n".join(part for part in parts if part)


def _of_paper(scope: Scope) -> tuple[str, str]:
    """What follows "statements" and "extensions" where there is a paper."""
    return (" of the paper", " (not in the paper)") if scope.paper else ("", "")


def _rows(table: pd.DataFrame) -> list[Row]:
    return table.rename(columns=str).to_dict("records")


def sentence(text: str) -> str:
    """A phrase as a sentence."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def _counts(
    scored: Sequence[Row], papers: Sequence[Row], extensions: Sequence[Row], scope: Scope
) -> str:
    """How many numbers and statements have which verdict."""
    of_paper, aside = _of_paper(scope)
    kinds = (
        (scored, "published numbers"),
        (
            papers,
            f"statements{of_paper}"
            if scope.is_papers
            else "statements that do not depend on the protocol",
        ),
        (extensions, f"extensions{aside}"),
    )
    counts = [f"{len(rows)} {what}: {counts_of(rows)}." for rows, what in kinds if rows]
    exact = [row for row in scored if row["verdict"] == "exact match"]
    short = sum(has_one_digit(row["paper_mean"], row["resolution"]) for row in exact)
    if short:
        counts.insert(1, f"Of the exact matches {short} are printed with one digit only.")
    return f"{' '.join(counts)}\n" if counts else ""


def _table(
    heading: str,
    columns: Sequence[str],
    row_of: Callable[[Row], tuple[str, ...]],
    rows: Sequence[Row],
    scope: Scope,
) -> str:
    """A table of rows that have a verdict; a second one has a column of its own."""
    shown = _sorted(rows)
    if not scope.replicated:
        return markdown_table(heading, columns, map(row_of, shown))
    second = [(*row_of(row), str(row.get("replication") or "")) for row in shown]
    return markdown_table(heading, (*columns, scope.replicated), second)


PLACES = ("place", "numbers", "verdicts", "farthest from the published value (difference / margin)")
NUMBERS = ("published number", "place", "published", "measured", "verdict", "reason")
STATEMENTS = ("statement", "place", "measured", "criterion", "verdict")


def place_rows(scored: Sequence[Row]) -> list[Sequence[str]]:
    """For each table and figure of the paper: how many numbers, their verdicts, and the number that
    differs most. None where every place has one number."""
    places: dict[str, list[Row]] = {}
    for row in scored:
        places.setdefault(str(row.get("source") or ""), []).append(row)
    if len(places) == len(scored):
        return []
    return [
        (place, str(len(rows)), counts_of(rows), _farthest(rows)) for place, rows in places.items()
    ]


def _farthest(rows: Sequence[Row]) -> str:
    """The number that differs most from the published one, in margins; '' for none."""
    counted = [row for row in rows if row["verdict"] in COUNTED]
    differing = [row for row in counted if row["verdict"] != "exact match"]
    measured = [row for row in differing if float(row.get("margin") or 0) > 0]
    if not measured:
        return ""
    row = max(measured, key=_in_margins)
    name, _, printed, ours, *_ = number_row(row)
    return f"{name}: {ours}, published {printed} ({_in_margins(row):.2f})"


def _in_margins(row: Row) -> float:
    return abs(float(row["measured_mean"]) - float(row["paper_mean"])) / float(row["margin"])


def number_name(row: Row) -> str:
    """The name of a published number: its metric and settings, in words."""
    keys: dict[str, Any] = {}
    for column, value in row.items():
        if column == "paper_mean":
            return row_label(keys)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if _word(value):
            keys[column] = value
    return row_label({})


def number_row(row: Row) -> tuple[str, ...]:
    """A published number as a row of a table."""
    name = number_name(row)
    printed = shown(row.get("paper_mean")) or f"at most {shown(row.get('upper_bound'))}"
    return (
        name,
        str(row.get("source") or ""),
        printed + _spread(row.get("paper_std")),
        shown(row.get("measured_mean")) + _spread(_population(row)),
        str(row["verdict"]),
        joined(str(row.get("reason") or ""), why_not(row)),
    )


def _population(row: Row) -> float | None:
    """Our standard deviation with ddof 0, as the published one is."""
    std = row.get("measured_std")
    n = row.get("n")
    both = shown(std) and shown(n)
    if both:
        return population_std(float(row["measured_std"]), float(row["n"]))
    return None


def _spread(std: Any) -> str:
    return f" ± {shown(std, 2)}" if shown(std) else ""


def criterion_of(row: Row) -> str:
    """The criterion of a statement, and whether its limits are ours; '' where there is none.

    >>> criterion_of({"threshold": "<= 1.25", "chosen": True})
    '≤ 1.25 (our limit)'
    """
    criterion = str(row.get("threshold") or "").replace("<=", "≤").replace(">=", "≥")
    chosen = str(row.get("chosen")) == "True"
    return f"{criterion} (our limit)" if criterion and chosen else criterion


def statement_row(row: Row) -> tuple[str, ...]:
    """A statement as a row of a table."""
    verdict = f"{row['verdict']}{_split(row.get('variants') or {})}"
    if row.get("other_seeds"):
        verdict += " (published networks; other seeds: claims.csv)"
    if why_not(row):
        verdict += f"; {why_not(row)}"
    criterion = criterion_of(row)
    if row["verdict"] == "not comparable":
        criterion = str(row.get("detail") or "")
    return (
        str(row["statement"]),
        str(row.get("where") or ""),
        shown(row.get("statistic")),
        criterion,
        verdict,
    )


def statement_line(row: Row) -> str:
    """A statement in one line, for captions."""
    statement, where, measured, criterion, _ = statement_row(row)
    text = f"{statement} ({where})" if where else statement
    return f"{text}: {measured} (criterion: {criterion})" if measured and criterion else text


def number_line(row: Row) -> str:
    """A published number in one line, for captions."""
    name, _, printed, ours, _, reason = number_row(row)
    line = f"{name}: {ours}, published {printed}"
    return f"{line} ({reason})" if reason else line


def shown(value: Any, digits: int = 3) -> str:
    """A number with this many significant digits; '' for anything else."""
    if isinstance(value, int | float) and value == value:
        return f"{value:.{digits}g}"
    return ""


def _split(variants: Mapping[str, str]) -> str:
    """Which variants of a statement have which verdict, where they differ."""
    parts: dict[str, list[str]] = {}
    for name, verdict in variants.items():
        if verdict in SPLIT:
            parts.setdefault(verdict, []).append(name)
    if len(parts) < 2:
        return ""
    total = sum(map(len, parts.values()))
    lines = []
    for verdict in sorted(parts, key=SPLIT.index):
        names = parts[verdict]
        named = ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} of {total}"
        lines.append(f"{named} {verdict}")
    return f" (variants: {'; '.join(lines)})"


def _sorted(rows: Iterable[Row]) -> list[Row]:
    listed = [row for row in rows if row["verdict"] in ORDER]
    return sorted(listed, key=lambda row: ORDER.index(row["verdict"]))


def markdown_table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A heading and a table below it; '' without rows."""
    cells = [[*map(_cell, row)] for row in rows]
    if not cells:
        return ""
    lines = [f"## {heading}", ""]
    for line in (columns, ["---"] * len(columns), *cells[:MOST_ROWS]):
        lines.append(f"| {' | '.join(line)} |")
    if len(cells) > MOST_ROWS:
        lines += ["", f"{len(cells) - MOST_ROWS} more rows are in the CSV files."]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """A text in one line, with what a table would read as markup escaped."""
    return re.sub(r"([|]|(?<=[{,])[*])", r"\\\1", " ".join(text.split()))


def _list(heading: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return "\n".join([f"## {heading}", "", *(f"- {line}" for line in lines)]) + "\n"


def _word(value: Any) -> bool:
    return value not in ("", None) and value == value


def counts_of(rows: Iterable[Row]) -> str:
    counts = Counter(str(row["verdict"]) for row in rows)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())


COUNTED = (
    "exact match",
    "reproduced",
    "not reproduced",
    "inconclusive",
    "confirmed",
    "refuted",
    "minor error",
)
