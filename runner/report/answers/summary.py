"""The hand-written summary of a report, with its numbers.

A summary is a Jinja template next to the experiment's settings, <experiment>.md:

    {{ number("gap", activation="gelu") }}            our mean of a published number
    {{ number("gap", "paper_mean", depth=8) }}        another column of its row
    {{ statement("slope") }}, {{ verdict("slope") }}  a statement: what was measured, the verdict
    {{ numbers("exact match") }}                      how many; without a verdict: how many count
    {{ numbers("reproduced", checkpoint="init") }}    how many of the rows with these keys
    {{ statements("refuted") }}                       likewise of statements
    {{ mean("distances", "R", distance=0) }}          mean of a column of a merged table
    {{ mean("distances", "R", over="C") }}            mean of a ratio (see `mean_of`)
    {{ means("merge", "gap", by=["depth"]) | max }}   of the means of groups of rows
    {{ values("theorem", "share") | max }}            of the values of a column, or of its ratios

A summary is left out where cells are missing, unless it contains `PARTIAL`. Numbers are shown with
three significant digits; `{{ … | fixed(1) }}` gives decimals.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import Experiment
from runner.report.answers.tones import COUNTED
from runner.stats.numbers import text_of

if TYPE_CHECKING:
    import pandas as pd


PARTIAL = "{# shown for partial results, too #}"
MOST_WORDS = 150
"""Words of a summary."""


def summary_path(name: str, experiment: Experiment) -> Path | None:
    """The summary's file, where there is one."""
    file = getattr(sys.modules[type(experiment).__module__], "__file__", None)
    path = None
    if file:
        path = Path(file).resolve().with_name(f"{name}.md")
    return path if path is not None and path.is_file() else None


def summary(
    text: str,
    claims: pd.DataFrame,
    scorecard: pd.DataFrame,
    tables: Mapping[str, pd.DataFrame] | None = None,
) -> str:
    """A summary with its numbers. Raises ValueError for a row that there is not, or several, and
    for too many words.

    tables: merged over cells and seeds, for `mean`.
    """
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        undefined=StrictUndefined, finalize=_shown, autoescape=False, keep_trailing_newline=False
    )
    environment.filters["fixed"] = _fixed
    environment.globals |= Answers(claims, scorecard, tables or {}).functions()
    words = environment.from_string(text).render().split()
    if len(words) > MOST_WORDS:
        raise ValueError(f"summary: expected at most {MOST_WORDS} words, found {len(words)}")
    return " ".join(words)


class Answers:
    """What a template can ask of the tables of a report; the module's docstring has examples."""

    def __init__(
        self, claims: pd.DataFrame, scorecard: pd.DataFrame, tables: Mapping[str, pd.DataFrame]
    ) -> None:
        self._claims = claims.to_dict("records")
        self._scores = scorecard.to_dict("records")
        self._tables = tables

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Name in a template -> function."""
        names = ("number", "numbers", "statement", "verdict", "statements")
        tables = ("mean", "means", "values")
        return {name: getattr(self, name) for name in (*names, *tables)}

    def number(self, metric: str, column: str = "measured_mean", **keys: Any) -> Any:
        return _only(self._scores, {"metric": metric, **keys})[column]

    def numbers(self, verdict: str = "", **keys: Any) -> int:
        return _count([row for row in self._scores if _agrees(row, keys)], verdict)

    def statement(self, name: str, column: str = "statistic") -> Any:
        return _only(self._claims, {"name": name})[column]

    def verdict(self, name: str) -> Any:
        return self.statement(name, "verdict")

    def statements(self, verdict: str = "") -> int:
        stated = [row for row in self._claims if str(row.get("extension")) != "True"]
        return _count(stated, verdict)

    def mean(self, table: str, column: str, over: Any = None, **keys: Any) -> float:
        return mean_of(self._tables[table], column, keys, over)

    def means(
        self, table: str, column: str, by: list[str], over: Any = None, **keys: Any
    ) -> list[float]:
        rows = self._tables[table]
        groups = _rows_with(rows, keys)[by].drop_duplicates().to_dict("records")
        return [mean_of(rows, column, {**keys, **group}, over) for group in groups]

    def values(self, table: str, column: str, over: str | None = None, **keys: Any) -> list[Any]:
        found = _rows_with(self._tables[table], keys)
        return list(found[column] if over is None else found[column] / found[over])


Row = Mapping[Any, Any]


def _shown(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    text = f"{value:.3g}"
    return f"{float(text):,.0f}" if "e+0" in text and abs(value) < 1e6 else text


def _fixed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"


def _only(rows: Sequence[Row], keys: Mapping[str, Any]) -> Row:
    """The one row with these keys."""
    agreeing = [row for row in rows if _agrees(row, keys)]
    if len(agreeing) != 1:
        raise ValueError(f"summary: expected one row with {dict(keys)}, found {len(agreeing)}")
    return agreeing[0]


def _agrees(row: Row, keys: Mapping[str, Any]) -> bool:
    return all(text_of(row.get(key)) == text_of(value) for key, value in keys.items())


def _count(rows: Sequence[Row], verdict: str) -> int:
    """How many of the rows have the verdict; without one, how many count."""
    wanted = (verdict,) if verdict else COUNTED
    return sum(row["verdict"] in wanted for row in rows)


def mean_of(
    table: pd.DataFrame,
    column: str,
    keys: Mapping[str, Any],
    over: str | Mapping[str, Any] | None = None,
) -> float:
    """Mean of a column over the rows with these keys.

    over: of its ratio to another column, row by row; or its mean over that in the rows with these
    other keys: a ratio of means, as papers have it of a decay.
    """
    values = _rows_with(table, keys)
    if over is None:
        return float(values[column].mean())
    if isinstance(over, str):
        return float((values[column] / values[over]).mean())
    below = _rows_with(table, {**keys, **over})
    return float(values[column].mean() / below[column].mean())


def _rows_with(table: pd.DataFrame, keys: Mapping[str, Any]) -> pd.DataFrame:
    for key, value in keys.items():
        table = table[table[key] == value]
    if table.empty:
        raise ValueError(f"summary: expected rows with {dict(keys)}, found none")
    return table
