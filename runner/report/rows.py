"""Rows of scorecard.csv and claims.csv as the pages show them, each with its anchor."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from runner.report.captions import places
from runner.report.formatting import criterion_of
from runner.report.labels import row_label
from runner.report.papers import anchors
from runner.report.reasons import why_not
from runner.report.score import Score, population_std

T = TypeVar("T")
Row = Mapping[str, str]
SCORE_COLUMNS = frozenset(
    (*(column.name for column in fields(Score)), "margin_reason", "constructed")
)
"""Columns of scorecard.csv that are not keys of the value."""
UNSHOWN = frozenset(("values", "seeds_needed", "undecidable"))
"""Of them, those that the pages show in other words."""
CLAIM_COLUMNS = (
    *("name", "statement", "where", "verdict", "statistic", "threshold", "detail", "group"),
    "replication",
)
"""Columns of claims.csv that the pages show as they are."""
EMPTY = (None, "", "nan")
PLACES = "Fig|Table|Theorem|Lemma|Proposition|Corollary"
"""What readers look for in a paper."""
LETTERS = {"Table": "T", "Fig": "F", "Figure": "F", "Eq": "E", "Appendix": "App", "Section": "S"}
"""Kind of a place -> how an anchor begins."""
BEFORE_OTHERS = ("experiment", "arch", "network", "model", "activation")
AFTER_OTHERS = ("width", "checkpoint", "distance", "metric")
"""Keys in an anchor; depth and all others stand between the two."""


def number_rows(table: Iterable[Row], paper: str) -> list[dict[str, Any]]:
    """Rows of the scorecard, each with its anchor, its keys, and the values of the seeds; both
    standard deviations with ddof 0."""
    rows = []
    for row in table:
        keys = {k: v for k, v in row.items() if k not in SCORE_COLUMNS and v not in EMPTY}
        columns = [k for k in row if k in SCORE_COLUMNS - UNSHOWN and row[k] not in EMPTY]
        values: list[list[Any]] = parsed(row.get("values", ""), [])
        about: dict[str, Any] = {
            "id": ".".join((_of_paper(paper), _place(row.get("source", "")), *_words(keys))),
            "keys": keys,
            "label": row_label(keys),
            "why": why_not(row),
            "places": sorted(places(row.get("source", ""), PLACES)),
            "values": [pair for pair in values if pair[1] is not None],
        }
        about |= {column: _number_or_text(row[column]) for column in columns}
        if isinstance(about.get("measured_std"), float):
            about["measured_std"] = population_std(about["measured_std"], about["n"])
        rows.append(about)
    return _unique(rows)


def statement_rows(table: Iterable[Row], paper: str, experiment: str) -> list[dict[str, Any]]:
    """Rows of the claims, each with its anchor."""
    rows = []
    for row in table:
        about: dict[str, Any] = {k: row[k] for k in CLAIM_COLUMNS if row.get(k) not in EMPTY}
        if criterion := criterion_of(row):
            about["threshold"] = criterion
        for key in ("variants", "other_seeds"):
            about[key] = parsed(row.get(key, ""), {})
        about["id"] = ".".join((_of_paper(paper), slug(experiment), slug(row["name"])))
        about["why"] = why_not(row)
        about["places"] = sorted(places(row["where"], PLACES)) if paper else []
        if row.get("extension") == "True":
            about["extension"] = True
        rows.append(about)
    return _unique(rows)


def slug(text: Any) -> str:
    """A word of an anchor: letters, digits and single hyphens; numbers as they are."""
    return re.sub(r"[^\w.+-]+", "-", str(text).strip()).strip("-")


def parsed(text: str, default: T) -> T:
    """The value of a JSON column; `default` for an empty one and for anything of another kind."""
    try:
        found = json.loads(text) if text else default
    except ValueError:
        return default
    return found if isinstance(found, type(default)) else default


def _number_or_text(text: str) -> float | str:
    try:
        value = float(text)
    except ValueError:
        return text
    return value if math.isfinite(value) else text


def _of_paper(paper: str) -> str:
    return anchors().get(paper, slug(paper).lower())


def _place(source: str) -> str:
    """'DAG paper, Table 5' -> 'T5', 'Fig. 2' -> 'F2', 'Appendix C' -> 'AppC'."""
    kinds = "Table|Fig|Figure|Eq|Appendix|Section|Theorem|Prop"
    found = re.search(rf"\b({kinds})\w*\.?\s*([\w.]+)", source)
    if not found:
        return slug(source.rsplit(",", 1)[-1]) or "text"
    return LETTERS.get(found[1], found[1]) + found[2].rstrip(".")


def _words(keys: Row) -> list[str]:
    """The values of the keys, in the order of an anchor."""
    others = sorted(set(keys) - {*BEFORE_OTHERS, *AFTER_OTHERS})
    ordered = (*BEFORE_OTHERS, *others, *AFTER_OTHERS)
    return [slug(keys[key]) for key in ordered if key in keys]


def _unique(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with a number behind an anchor that an earlier row has already."""
    seen: Counter[str] = Counter()
    for row in rows:
        seen[row["id"]] += 1
        if seen[row["id"]] > 1:
            row["id"] += f".{seen[row['id']]}"
    return list(rows)
