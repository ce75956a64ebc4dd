"""Measured values of printed numbers, as the rows of numbers.csv say how they are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from runner.contract import Statement, Tables
from runner.stats.intervals import NAN
from runner.stats.numbers import VALUE_COLUMNS
from runner.stats.quantities import Functions, Reader, parts_of, rows_of
from runner.stats.rows import RowError, check_query
from runner.stats.score import FACTS
from runner.stats.statements import SAME

READ = ["metric", "table", "where", "quantity"]
PAIRED = "paired"
"""Column of a table: networks, data and order are the paper's own, trained ones too, so that every
printed digit may be found (`runner.stats.scorecard`)."""


def with_table(numbers: pd.DataFrame) -> pd.DataFrame:
    """The printed numbers whose rows say how they are read. Raises RowError for none."""
    if "table" not in numbers or not (numbers["table"] != "").any():
        raise RowError("numbers, table: expected the name of a table in a row, found none")
    return numbers[numbers["table"] != ""].reset_index(drop=True)


def values_of(numbers: pd.DataFrame, tables: Tables, functions: Functions) -> pd.DataFrame:
    """Values to compare with printed numbers: one row a seed, with what `scorecard` must know of
    it.

    Its keys are those of the numbers that its table has, too; a key that the table lacks is that of
    the rows that read the same values, where these have one alone.
    """
    missing = [column for column in READ if column not in numbers]
    if missing:
        raise RowError(f"numbers: expected the columns {', '.join(READ)}, missing {missing[0]}")
    found: list[dict[str, Any]] = []
    for _, rows in numbers.groupby(READ, sort=False):
        found += _of_quantity(rows, tables, functions)
    return pd.DataFrame(found) if found else pd.DataFrame(columns=["metric", "seed", "value"])


def _of_quantity(
    numbers: pd.DataFrame, tables: Tables, functions: Functions
) -> Iterator[dict[str, Any]]:
    """The values of rows that differ in their keys alone."""
    metric, table, where, quantity = numbers[READ].iloc[0]
    if not quantity:
        raise RowError(f"numbers, metric {metric}: expected a quantity, found none")
    check_query(where, f"numbers, metric {metric}, where")
    keys = [c for c in numbers if c not in (*VALUE_COLUMNS, "metric")]
    columns = tables[table].columns if table in tables else []
    shared = [key for key in keys if key in columns and (numbers[key] != "").any()]
    lacking = {key: numbers[key].unique() for key in keys if key not in columns}
    stated = {key: values[0] for key, values in lacking.items() if len(values) == 1}
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
        about = {"metric": metric, **stated} | {key: part.rows[key].iloc[0] for key in shared}
        facts = _facts(quantity, part.rows)
        for seed, value in reader.values(part).by_unit.items():
            yield {**about, **facts.loc[seed], "seed": seed, "value": value}


def _facts(quantity: str, rows: pd.DataFrame) -> pd.DataFrame:
    """What the table says of each seed's value: in columns "X paired", "X rounding_std" and so on,
    else by `paired` and `same`."""
    said = {f"{quantity} {fact}": fact for fact in FACTS}
    known = rows[["seed", *said.keys() & set(rows)]].rename(columns=said)
    facts = known.groupby("seed").first()
    same, paired = (bool(c in rows and rows[c].all()) for c in (SAME, PAIRED))
    if "paired" not in facts:
        facts["paired"] = same or paired
    if "rounding_std" not in facts:
        facts["rounding_std"] = 0.0 if same else NAN
    return facts
