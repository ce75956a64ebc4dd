"""Verdicts on the rows of any paper, from any tables: one table of statements and numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from runner.contract import Claim, Statement, Tables
from runner.stats.intervals import NAN
from runner.stats.measured import values_of, with_table
from runner.stats.numbers import VALUE_COLUMNS, require_keys
from runner.stats.quantities import Functions
from runner.stats.scorecard import scorecard
from runner.stats.statements import judge

COLUMNS = (
    *("row", "place", "verdict", "value", "low", "high", "criterion", "n", "p"),
    *("detectable", "seeds_needed", "parts", "reason"),
)
"""Of the table: the interval is that of 95 % over seeds; the other columns as in claims.csv."""
AGAINST = ("refuted", "not reproduced")
"""Verdicts against a paper."""


def verdicts(
    statements: Iterable[Statement],
    numbers: pd.DataFrame | None,
    tables: Tables,
    functions: Functions | None = None,
) -> pd.DataFrame:
    """One row a statement and a printed number, with `COLUMNS`.

    numbers: of `runner.stats.numbers.read_numbers`, with the columns table, where and quantity.
    """
    rows = [_of_claim(claim) for claim in judge(statements, tables, functions)]
    if numbers is not None:
        numbers = with_table(numbers)
        require_keys(numbers, tables)
        scores = scorecard(values_of(numbers, tables, functions or Functions()), numbers)
        keys = [c for c in numbers if c in scores and c not in VALUE_COLUMNS]
        rows += [_of_score(score, keys) for score in scores.to_dict("records")]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_claim(claim: Claim) -> dict[str, Any]:
    return {
        "row": claim.name,
        "place": claim.where,
        "verdict": claim.verdict,
        "value": claim.statistic,
        "low": claim.low,
        "high": claim.high,
        "criterion": claim.threshold,
        "n": claim.n,
        "p": claim.p,
        "detectable": claim.detectable,
        "seeds_needed": claim.seeds_needed,
        "parts": json.dumps(dict(claim.variants), ensure_ascii=False) if claim.variants else "",
        "reason": claim.detail,
    }


def _of_score(score: dict[Any, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Of a printed number or bound, the interval is that of the difference, 90 %, around our
    mean."""
    printed = score["paper_mean"]
    criterion = f"{printed:g} ± {score['margin']:.3g}"
    if printed != printed:
        printed = score["upper_bound"]
        criterion = f"≤ {printed:g}"
    named = [str(score[k]) if k == "metric" else f"{k}={score[k]}" for k in keys if score[k]]
    return {
        "row": " ".join(named),
        "place": score["source"],
        "verdict": score["verdict"],
        "value": score["measured_mean"],
        "low": printed + score["low"],
        "high": printed + score["high"],
        "criterion": criterion,
        "n": score["n"],
        "p": NAN,
        "detectable": score["detectable"],
        "seeds_needed": score["seeds_needed"],
        "parts": "",
        "reason": score["reason"],
    }


def markdown(table: pd.DataFrame) -> str:
    """The table as Markdown, without the long columns, and how many rows have each verdict."""
    counts = table["verdict"].value_counts()
    counted = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    columns = [column for column in COLUMNS if column not in ("parts", "reason")]
    word = "row" if len(table) == 1 else "rows"
    lines = [f"{len(table)} {word}: {counted}.", "", _line(columns), _line(["---"] * len(columns))]
    lines += [_line(map(_cell, row)) for row in table[columns].itertuples(index=False)]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return str(value).replace("|", "\\|")
