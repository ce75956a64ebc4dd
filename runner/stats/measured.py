"""Measured values of printed numbers, as the rows of numbers.csv say how they are read."""

from __future__ import annotations

from typing import Any

import pandas as pd

from runner.contract import Statement, Tables
from runner.stats.intervals import NAN
from runner.stats.numbers import VALUE_COLUMNS
from runner.stats.quantities import Functions, Reader, parts_of, rows_of
from runner.stats.rows import RowError, check_query
from runner.stats.statements import SAME

PAIRED = "paired"
"""Column of a table: networks, data and order are the paper's own, trained ones too, so that every
printed digit may be found (`runner.stats.scorecard`)."""


def with_table(numbers: pd.DataFrame) -> pd.DataFrame:
    """The printed numbers whose rows say how they are read. Raises RowError for none."""
    if "table" not in numbers or not (numbers["table"] != "").any():
        raise RowError("numbers, table: expected the name of a table in a row, found none")
    return numbers[numbers["table"] != ""].reset_index(drop=True)


def values_of(numbers: pd.DataFrame, tables: Tables, functions: Functions) -> pd.DataFrame:
    """Values to compare with printed numbers: one row a seed, with the keys of the numbers that the
    table has, too."""
    keys = [c for c in numbers if c not in (*VALUE_COLUMNS, "metric")]
    read = ["metric", "table", "where", "quantity"]
    missing = [column for column in read if column not in numbers]
    if missing:
        raise RowError(f"numbers: expected the columns {', '.join(read)}, missing {missing[0]}")
    found: list[dict[str, Any]] = []
    for metric, table, where, quantity in numbers[read].drop_duplicates().to_numpy():
        if not quantity:
            raise RowError(f"numbers, metric {metric}: expected a quantity, found none")
        check_query(where, f"numbers, metric {metric}, where")
        shared = [key for key in keys if table in tables and key in tables[table]]
        row = Statement(
            name=f"metric {metric}",
            text="",
            table=table,
            where=where,
            quantity=quantity,
            parts=" ".join(f"{{{key}}}" for key in shared),
        )
        rows = rows_of(row, tables)
        reader = Reader(row, functions)
        if len(rows):
            reader.check(rows, functions)
        for part in parts_of(row, rows).values():
            about = {"metric": metric} | {key: part.rows[key].iloc[0] for key in shared}
            same, paired = (c in part.rows and part.rows[c].all() for c in (SAME, PAIRED))
            about |= {"paired": same or paired, "rounding_std": 0.0 if same else NAN}
            by_seed = reader.values(part).by_unit
            found += [{**about, "seed": seed, "value": v} for seed, v in by_seed.items()]
    columns = ["metric", "seed", "value"]
    return pd.DataFrame(found) if found else pd.DataFrame(columns=columns)
