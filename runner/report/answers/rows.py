"""One row for a published number or a statement, as every part of a report shows it.

A report makes its rows from its tables; `read_table` reads these from the files of a report that
is there (`hess-run why`, a copied report).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.report.answers.labels import row_label
from runner.report.answers.papers import anchors
from runner.report.answers.reasons import why_not
from runner.stats.intervals import joined
from runner.stats.score import Score, population_std
from runner.store import tables

if TYPE_CHECKING:
    import pandas as pd

Record = Mapping[str, Any]
ALL = "all five"
"""The name under which experiments on every paper stand."""
SCORE_COLUMNS = frozenset(
    (*(column.name for column in fields(Score)), "margin_reason", "constructed")
)
"""Columns of scorecard.csv that are not keys of the value."""
JSON_COLUMNS = ("variants", "other_seeds", "values")
"""Columns that hold JSON: part -> verdict; pairs (seed, value)."""
MOST_NAMED = 4
"""Variants of a statement that its row names; of more it gives their number."""
SPLIT = ("confirmed", "refuted", "minor error", "inconclusive", "not run")
"""Verdicts by which variants are named."""
PLACES = "Fig|Table|Theorem|Lemma|Proposition|Corollary"
"""What readers look for in a paper."""
LETTERS = {"Table": "T", "Fig": "F", "Figure": "F", "Eq": "E", "Appendix": "App", "Section": "S"}
"""Kind of a place -> how an anchor begins."""
BEFORE_OTHERS = ("experiment", "arch", "network", "model", "activation")
AFTER_OTHERS = ("width", "checkpoint", "distance", "metric")
"""Keys in an anchor; depth and all others stand between the two."""


@dataclass(frozen=True)
class Row:
    """A published number or a statement, with its verdict.

    id: its anchor. kind: number, statement or extension. what: it is, in words. place: in the
    paper; places: the figures, tables and theorems there; paper: that it is about. published: the
    printed number, or the criterion of a statement. measured, verdict: in words. why: it does not
    agree. keys: of a number. record: every column of its table.
    """

    id: str
    kind: str
    what: str
    place: str
    places: tuple[str, ...]
    paper: str
    published: str
    measured: str
    verdict: str
    why: str
    keys: Mapping[str, str]
    record: Record

    @property
    def is_number(self) -> bool:
        return self.kind == "number"

    @property
    def is_extension(self) -> bool:
        return self.kind == "extension"

    def number(self, column: str) -> float:
        """A column that holds a number; NaN where there is none."""
        value = self.record.get(column)
        return math.nan if value in (None, "") else float(value)

    @property
    def replication(self) -> str:
        return _text(self.record.get("replication"))

    @property
    def reason(self) -> str:
        """The reason of a number's verdict, and why it is no other."""
        return joined(_text(self.record.get("reason")), self.why)

    @property
    def verdict_in_words(self) -> str:
        """The verdict of a statement with those of its parts, and why it is none."""
        verdict = f"{self.verdict}{_split(self.record.get('variants') or {})}"
        if self.record.get("other_seeds"):
            verdict += " (published networks; other seeds: claims.csv)"
        return f"{verdict}; {self.why}" if self.why else verdict

    @property
    def line(self) -> str:
        """The row in one line, for captions."""
        if self.is_number:
            line = f"{self.what}: {self.measured}, published {self.published}"
            return f"{line} ({self.reason})" if self.reason else line
        text = f"{self.what} ({self.place})" if self.place else self.what
        if self.measured and self.published:
            return f"{text}: {self.measured} (criterion: {self.published})"
        return text

    @property
    def margins(self) -> float:
        """How many margins the measured value lies from the published one; NaN without a margin."""
        margin = self.number("margin")
        if not margin > 0:
            return math.nan
        return abs(self.number("measured_mean") - self.number("paper_mean")) / margin


def rows_of(
    scorecard: pd.DataFrame, claims: pd.DataFrame, paper: str, experiment: str
) -> list[Row]:
    """The rows of a report: numbers, then statements, each with an anchor of its own."""
    numbers = [number_row(row, paper) for row in scorecard.rename(columns=str).to_dict("records")]
    stated = claims.rename(columns=str).to_dict("records")
    return _unique([*numbers, *(statement_row(row, paper, experiment) for row in stated)])


def read_table(path: Path) -> pd.DataFrame:
    """A table that an analysis gave, as it was before it was written; an empty one where there is
    no such file."""
    import pandas as pd

    if not path.is_file():
        return pd.DataFrame()
    table = tables.read(path)
    for column in filter(table.__contains__, JSON_COLUMNS):
        table[column] = [json.loads(text) if _given(text) else {} for text in table[column]]
    return table


def number_row(record: Record, paper: str) -> Row:
    """The row of a published number; standard deviations with ddof 0, as papers print them."""
    keys = {k: key_text(v) for k, v in record.items() if k not in SCORE_COLUMNS and _given(v)}
    source = _text(record.get("source"))
    printed = shown(record.get("paper_mean")) or f"at most {shown(record.get('upper_bound'))}"
    return Row(
        id=".".join((_of_paper(paper), _place(source), *_words(keys))),
        kind="number",
        what=row_label(keys),
        place=source,
        places=_places(source, paper),
        paper=paper,
        published=printed + _spread(record.get("paper_std")),
        measured=shown(record.get("measured_mean")) + _spread(population(record)),
        verdict=str(record["verdict"]),
        why=why_not(record),
        keys=keys,
        record=record,
    )


def statement_row(record: Record, paper: str, experiment: str) -> Row:
    """The row of a statement."""
    where = _text(record.get("where"))
    criterion = criterion_of(record)
    if record["verdict"] == "not comparable":
        criterion = _text(record.get("detail"))
    return Row(
        id=".".join((_of_paper(paper), slug(experiment), slug(record["name"]))),
        kind="extension" if record.get("extension") else "statement",
        what=str(record["statement"]),
        place=where,
        places=_places(where, paper),
        paper=where.partition(",")[0] if paper == ALL else paper,
        published=criterion,
        measured=shown(record.get("statistic")),
        verdict=str(record["verdict"]),
        why=why_not(record),
        keys={},
        record=record,
    )


def criterion_of(record: Record) -> str:
    """The criterion of a statement, and whether its limits are ours; '' where there is none.

    >>> criterion_of({"threshold": "<= 1.25", "chosen": True})
    '≤ 1.25 (our limit)'
    """
    criterion = _text(record.get("threshold")).replace("<=", "≤").replace(">=", "≥")
    return f"{criterion} (our limit)" if criterion and record.get("chosen") else criterion


def population(record: Record) -> float | None:
    """Our standard deviation with ddof 0, as the published one is."""
    std, n = record.get("measured_std"), record.get("n")
    if shown(std) and shown(n):
        return population_std(float(record["measured_std"]), float(record["n"]))
    return None


def shown(value: Any, digits: int = 3) -> str:
    """A number with this many significant digits; '' for anything else."""
    if isinstance(value, int | float) and value == value:
        return f"{value:.{digits}g}"
    return ""


def with_error(value: float, error: float) -> str:
    """A number with its error; '' for NaN.

    >>> with_error(1.23456, 0.0123), with_error(2.0, 0.0)
    ('1.235 ± 0.012', '2')
    """
    text = shown(value, 4)
    return f"{text} ± {float(shown(error, 2)):g}" if text and shown(error) and error else text


def places(text: str, kinds: str = PLACES) -> set[str]:
    """The figures, tables and theorems that a text names. kinds: of things with numbers.

    >>> sorted(places("DAG paper, Tables 6 and N.4; Fig. 12A"))
    ['Fig. 12', 'Table 6', 'Table N.4']
    >>> sorted(places("Theorem 34(a); Lemma B.10, Part 1"))
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


def slug(text: Any) -> str:
    """A word of an anchor: letters, digits and single hyphens; numbers as they are."""
    return re.sub(r"[^\w.+-]+", "-", str(text).strip()).strip("-")


def _places(text: str, paper: str) -> tuple[str, ...]:
    return tuple(sorted(places(text))) if paper else ()


def _given(value: Any) -> bool:
    return value not in (None, "", "nan") and value == value


def key_text(value: Any) -> str:
    """A value of a key; a whole number without decimals."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)


def _text(value: Any) -> str:
    return str(value) if _given(value) else ""


def _spread(std: Any) -> str:
    return f" ± {shown(std, 2)}" if shown(std) else ""


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


def _of_paper(paper: str) -> str:
    return anchors().get(paper, slug(paper).lower())


def _place(source: str) -> str:
    """'DAG paper, Table 5' -> 'T5', 'Fig. 2' -> 'F2', 'Appendix C' -> 'AppC'."""
    kinds = "Table|Fig|Figure|Eq|Appendix|Section|Theorem|Prop"
    found = re.search(rf"\b({kinds})\w*\.?\s*([\w.]+)", source)
    if not found:
        return slug(source.rsplit(",", 1)[-1]) or "text"
    return LETTERS.get(found[1], found[1]) + found[2].rstrip(".")


def _words(keys: Mapping[str, str]) -> list[str]:
    """The values of the keys, in the order of an anchor."""
    others = sorted(set(keys) - {*BEFORE_OTHERS, *AFTER_OTHERS})
    ordered = (*BEFORE_OTHERS, *others, *AFTER_OTHERS)
    return [slug(keys[key]) for key in ordered if key in keys]


def _unique(rows: Sequence[Row]) -> list[Row]:
    """Rows with a number behind an anchor that an earlier row has already."""
    seen: Counter[str] = Counter()
    unique = []
    for row in rows:
        seen[row.id] += 1
        count = seen[row.id]
        unique.append(replace(row, id=f"{row.id}.{count}") if count > 1 else row)
    return unique
