"""Rows of measured tables by the values of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd


def chosen(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """The rows whose columns have these values; none where a column is missing."""
    for column, value in values.items():
        if column not in table.columns:
            return table.iloc[:0]
        table = table[table[column] == value]
    return table


def first_seed(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the smallest seed."""
    return chosen(table, seed=table["seed"].min())


def groups(
    table: pd.DataFrame, keys: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], pd.DataFrame]]:
    """(values of the keys, rows), in the order in which the values first occur."""
    for values, part in table.groupby(list(keys), sort=False):
        yield (values if isinstance(values, tuple) else (values,)), part


def seed_values(table: pd.DataFrame, value: str) -> dict[int, float]:
    """seed -> value, from rows of one seed each. Raises ValueError for two rows of one seed."""
    if table["seed"].duplicated().any():
        raise ValueError(
            f"{value}: expected one row per seed, found several; the keys do not tell them apart"
        )
    return {int(s): float(v) for s, v in zip(table["seed"], table[value], strict=True)}
