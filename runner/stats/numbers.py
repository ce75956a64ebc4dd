"""Printed numbers as rows of a CSV file, numbers.csv: one row a value.

`experiment` says whose tables have the measured value. `mean` and `std` have the digits that are
printed ("2.50"), `upper_bound` a printed bound in the place of a mean, and `n_seeds` how many seeds
they are of. `statistic` says how the value is made from them (blank: their mean). `way` says how it
is measured here (`WAYS`). `results` is its place in the authors' public results
(`unrounded/results.csv`), whose standard deviation counts where the paper prints none. `margin` and
`margin_reason` say how far another value may lie from it and still be the same ("rounding" for the
rounding of the print; blank for a quarter of the value), `fixed` in which commit that was decided,
and whether before or after the first result; `constructed` says why the row could not come out
otherwise, `calibrated` why its protocol counts as chosen by looking at these numbers, and
`not_comparable` why no value of ours can be compared. `table`, `where` and `quantity` say how the
value is read (docs/statements.md). Every other column is a key (`metric` always).
"""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.stats.rows import RowError, lines_of, named, resolution, table_of

if TYPE_CHECKING:
    import pandas as pd

WAYS = ("as described", "authors' configuration", "recovered protocol")
"""Ways to a number: by the paper's description; with initial networks and data order from the
authors' public code; by a protocol that was found by a search over the published values. They are
counted apart."""
VALUE_COLUMNS = (
    *("mean", "std", "upper_bound", "n_seeds", "way", "statistic", "results", "results_std"),
    *("margin", "margin_reason", "fixed", "constructed", "calibrated", "not_comparable"),
    *("table", "where", "quantity", "source", "note"),
)
BIBLIOGRAPHIC = ("experiment",)
"""Keys that say where a value is printed, not which value it is; measured values need not carry
them."""
NEAR = 0.8
"""Likeness, of 1, of a name and a mistyped one."""
ROUNDING = "rounding"
MEAN = "mean over seeds"
NAN = float("nan")


@dataclass(frozen=True)
class Printed:
    """One published value. results_std: population std of the authors' public results; resolution,
    std_resolution: half a unit of the last printed digit of mean and std."""

    mean: float
    std: float
    bound: float
    n: int
    way: str
    statistic: str
    results_std: float
    margin: str
    constructed: str
    calibrated: str
    not_comparable: str
    source: str
    note: str
    resolution: float
    std_resolution: float


def read_numbers(path: Path, experiment: str = "") -> pd.DataFrame:
    """A reference file, every cell as text (so that the printed digits are not lost).

    experiment: whose rows are read, of a file with that column; keys that none of them has are left
    out.

    Raises RowError with one line for an unreadable file, missing columns, a row of another
    length, a number that is none, a negative std, or a row with neither mean nor upper_bound.
    """
    import pandas as pd

    header = lines_of(path)[0]
    for column in ("metric", "mean"):
        if column not in header:
            raise RowError(f"{path}: expected a column {column!r}, found {', '.join(header)}")
    rows = table_of(path)
    for number, row in enumerate(rows, start=2):
        try:
            published(row)
        except ValueError as error:
            raise RowError(f"{path}, row {number}: {error}") from None
    table = of_experiment(pd.DataFrame(rows, columns=header, dtype=str), experiment)
    if "results" in header:
        beside = [folder / "unrounded" / "results.csv" for folder in path.parents[:2]]
        source = next((place for place in beside if place.is_file()), beside[0])
        known = unrounded(source)
        lost = [place for place in table["results"] if place and place not in known]
        if lost:
            raise RowError(f"{path}, results: expected places of {source}, found {lost[0]}")
        table["results_std"] = [str(known[place][1]) if place else "" for place in table["results"]]
    return table


def of_experiment(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The rows of an experiment, without keys that none of them has."""
    if not experiment or "experiment" not in table:
        return table
    named("experiment", experiment, table["experiment"].unique())
    table = table[table["experiment"] == experiment].drop(columns="experiment")
    blank = [c for c in table if c not in VALUE_COLUMNS and (table[c] == "").all()]
    return table.drop(columns=blank).reset_index(drop=True)


def require_keys(numbers: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> None:
    """RowError for a column that no table has and whose name is nearly that of another: a mistyped
    one, whose values would count for nothing. Others describe their rows."""
    known = {*VALUE_COLUMNS, *BIBLIOGRAPHIC, "metric"}.union(*tables.values())
    for column in sorted({*numbers} - known):
        if near := difflib.get_close_matches(column, sorted(known), 1, NEAR):
            raise RowError(f"numbers: no table has a column {column!r}: did you mean {near[0]!r}?")


def published(row: Mapping[str, str]) -> Printed:
    """The paper's side of a reference row; ValueError for numbers that are none."""
    mean, std, bound = (_number(row, column) for column in ("mean", "std", "upper_bound"))
    if math.isnan(mean) and math.isnan(bound):
        raise ValueError("expected a mean or an upper_bound, found neither")
    if std < 0:
        raise ValueError(f"expected std of zero or more, found {row['std']}")
    if row.get("way", "").strip() not in ("", *WAYS):
        raise ValueError(f"expected a way among {', '.join(WAYS)}, found {row['way']}")
    seeds = _number(row, "n_seeds")
    if not math.isnan(seeds) and (seeds < 1 or seeds != int(seeds)):
        raise ValueError(f"expected n_seeds as a whole number above zero, found {row['n_seeds']}")
    margin = row.get("margin", "").strip()
    if margin not in ("", ROUNDING) and not _number(row, "margin") >= 0:
        raise ValueError(
            f"expected a margin of zero or more, or {ROUNDING!r}, found {row['margin']}"
        )
    return Printed(
        mean=mean,
        std=std,
        bound=bound,
        n=1 if math.isnan(seeds) else int(seeds),
        way=row.get("way", "").strip(),
        statistic=row.get("statistic", "").strip() or MEAN,
        results_std=_number(row, "results_std"),
        margin=margin,
        constructed=row.get("constructed", "").strip(),
        calibrated=row.get("calibrated", "").strip(),
        not_comparable=row.get("not_comparable", "").strip(),
        source=row.get("source", ""),
        note=row.get("note", ""),
        resolution=resolution(row["mean"]),
        std_resolution=resolution(row.get("std", "")),
    )


def _number(row: Mapping[str, str], column: str) -> float:
    text = row.get(column, "").strip()
    if not text:
        return NAN
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"expected a number in column {column}, found {text!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number in column {column}, found {text!r}")
    return value


@cache
def unrounded(path: Path) -> dict[str, tuple[float, float]]:
    """ "file:place" -> (mean, population std) of the authors' public results; {} without such a
    file."""
    if not path.is_file():
        return {}
    with open(path, newline="", encoding="utf-8") as stream:
        return {
            f"{row['file']}:{row['place']}": (float(row["mean"]), float(row["std"]))
            for row in csv.DictReader(stream)
        }


def text_of(value: Any) -> str:
    """A key as canonical text: 8, 8.0 and '8' are equal, as are True and 'true'; NaN is ''."""
    text = str(value).strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        if text.lower() in ("true", "false"):
            return text.lower()
        return text
    if number.is_nan():
        return ""
    if number.is_finite():
        return str(number.normalize())
    return text
