"""Averages over rows of pairs of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Row = dict[str, Any]


def mean_of(values: Iterable[float]) -> float:
    """Mean of the values that are not NaN; NaN where there are none."""
    finite = [value for value in values if not math.isnan(value)]
    if finite:
        return math.fsum(finite) / len(finite)
    return math.nan


def means(rows: Sequence[Row], names: Iterable[str]) -> dict[str, float]:
    """Mean over the rows of each of these columns (`mean_of`)."""
    return {name: mean_of(column(rows, name)) for name in names}


def sums(rows: Sequence[Row], names: Iterable[str]) -> dict[str, float]:
    """Sum over the rows of each of these columns."""
    return {name: math.fsum(column(rows, name)) for name in names}


def column(rows: Sequence[Row], name: str) -> list[Any]:
    """One entry of every row."""
    return [row[name] for row in rows]


def by_column(rows: Sequence[Row], name: str) -> Iterator[tuple[Any, list[Row]]]:
    """(value, rows that have it) of a column, in the order of the values."""
    for value in sorted({row[name] for row in rows}):
        yield value, [row for row in rows if row[name] == value]
