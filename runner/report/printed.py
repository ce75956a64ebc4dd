"""A paper's values: reading a reference file, and the digits to which its numbers were printed.

A reference file (experiments/reference/<name>.csv) has one row per published value. `mean`, `std`, `upper_bound`,
`n_seeds`, `source`, `note` describe the value; `margin` and `margin_reason` say how far another value may lie from it
and still be the same ("rounding" for the rounding of the print; blank for the default of `judge.margin_of`);
`constructed` says why the row could not come out otherwise. Every other column is a key (`metric` always).
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

VALUE_COLUMNS = (
    "mean",
    "std",
    "upper_bound",
    "n_seeds",
    "margin",
    "margin_reason",
    "constructed",
    "source",
    "note",
)
BIBLIOGRAPHIC = ("experiment", "table")
"""Keys that say where a value is printed, not which value it is; measured values need not carry them."""
ROUNDING = "rounding"
NAN = float("nan")


@dataclass(frozen=True)
class Printed:
    """One published value. resolution, std_resolution: half a unit of the last printed digit of mean and std."""

    mean: float
    std: float
    bound: float
    n: int
    margin: str
    constructed: str
    source: str
    note: str
    resolution: float = NAN
    std_resolution: float = NAN


def read_reference(path: Path) -> pd.DataFrame:
    """A reference file, every cell as text (so that the printed digits are not lost).

    Raises ValueError with one line for an unreadable file, missing columns, a row of another length, a number that
    is none, a negative std, or a row with neither mean nor upper_bound.
    """
    import pandas as pd

    try:
        with open(path, newline="", encoding="utf-8") as stream:
            rows = [row for row in csv.reader(stream) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read as a CSV file ({error})") from None
    header = [name.strip() for name in rows[0]] if rows else []
    for column in ("metric", "mean"):
        if column not in header:
            raise ValueError(f"{path}: expected a column {column!r}, found {', '.join(header) or 'an empty file'}")
    if len(set(header)) < len(header):
        raise ValueError(f"{path}: column names repeat: {', '.join(header)}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}, row {number}: expected {len(header)} fields, found {len(row)}")
        try:
            published(dict(zip(header, row, strict=True)))
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
    return pd.DataFrame(rows[1:], columns=header, dtype=str)


def published(row: Mapping[str, str]) -> Printed:
    """The paper's side of a reference row; ValueError for numbers that are none."""
    mean, std, bound = (_number(row, column) for column in ("mean", "std", "upper_bound"))
    if math.isnan(mean) and math.isnan(bound):
        raise ValueError("expected a mean or an upper_bound, found neither")
    if std < 0:
        raise ValueError(f"expected std of zero or more, found {row['std']}")
    seeds = _number(row, "n_seeds")
    if not math.isnan(seeds) and (seeds < 1 or seeds != int(seeds)):
        raise ValueError(f"expected n_seeds as a whole number above zero, found {row['n_seeds']}")
    margin = row.get("margin", "").strip()
    if margin not in ("", ROUNDING) and not _number(row, "margin") >= 0:
        raise ValueError(f"expected a margin of zero or more, or {ROUNDING!r}, found {row['margin']}")
    return Printed(
        mean=mean,
        std=std,
        bound=bound,
        n=1 if math.isnan(seeds) else int(seeds),
        margin=margin,
        constructed=row.get("constructed", "").strip(),
        source=row.get("source", ""),
        note=row.get("note", ""),
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


def resolution(row: Mapping[str, str], rows: Iterable[Mapping[str, str]], column: str = "mean") -> float:
    """Half a unit of the last printed digit of the row's mean or std (`_digits`); NaN where there is none."""
    if not row.get(column, "").strip():
        return NAN
    same = [
        r[column]
        for r in rows
        if r[column].strip() and r["metric"] == row["metric"] and r.get("source") == row.get("source")
    ]
    return 0.5 * 10.0 ** -_digits(row[column], same)


def _digits(text: str, same: Iterable[str]) -> int:
    """Decimal places to which `text` was printed, judged with the other values of its table and metric.

    A CSV file loses trailing zeros (2.5 for 2.50), so a value's own decimals are only a lower limit. A table prints
    either a fixed number of decimals or a fixed number of significant digits: whichever more of its values share,
    the coarser on a tie. Among 2.59 and 2.78, 2.5 is 2.50; beside 0.0068 and 0.35, 0.025 is 0.025; among 6.7e-08
    and 4.1e-09, 7e-08 is 7.0e-08; among 0.058, 0.246 and 0.618, 0.0 is 0.000.
    """
    own = Decimal(text.strip())
    numbers = [Decimal(t.strip()) for t in same]
    places, sharing_places = _commonest(_decimals(v.normalize()) for v in numbers)
    if own != 0:
        digits, sharing_digits = _commonest(_significant(v) for v in numbers if v != 0)
        by_digits = digits - 1 - own.adjusted()
        if sharing_digits != sharing_places:
            places = by_digits if sharing_digits > sharing_places else places
        else:
            places = min(places, by_digits)
    return max(_decimals(own), places)


def _commonest(values: Iterable[int]) -> tuple[int, int]:
    """(most frequent value, the largest of them on a tie; how often it occurs)."""
    counts = Counter(values)
    value = max(counts, key=lambda v: (counts[v], v))
    return value, counts[value]


def _decimals(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _significant(value: Decimal) -> int:
    """Significant digits without trailing zeros, which may come from the CSV file or pad a whole number."""
    return len(value.normalize().as_tuple().digits)


def text_of(value: Any) -> str:
    """A key as canonical text: 8, 8.0 and '8' are equal, as are True and 'true'; NaN is ''."""
    text = str(value).strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text.lower() if text.lower() in ("true", "false") else text
    if number.is_nan():
        return ""
    return str(number.normalize()) if number.is_finite() else text
