"""Printed statements, read from a file beside the printed numbers."""

from __future__ import annotations

import csv
from pathlib import Path

from runner.contract import Statement

NUMBERS = ("low", "high", "number", "rounding", "std", "margin")
COLUMNS = ("name", "statement", "where", *NUMBERS, "n", "strict", "reason")


def read_statements(path: Path) -> dict[str, Statement]:
    """name -> statement, in the order of the file; a blank field keeps the default of `Statement`.

    Raises ValueError with one line for an unreadable file, unknown columns, a number that is none, or a name twice.
    """
    try:
        with open(path, newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read as a CSV file ({error})") from None
    found: dict[str, Statement] = {}
    for i, row in enumerate(rows, start=2):
        unknown = [str(c) for c in row if c not in COLUMNS]
        if unknown or None in row.values():
            raise ValueError(f"{path}, row {i}: expected the columns {', '.join(COLUMNS)}, found {unknown or 'fewer'}")
        try:
            statement = _statement(row)
        except ValueError as error:
            raise ValueError(f"{path}, row {i}: {error}") from None
        if statement.name in found:
            raise ValueError(f"{path}, row {i}: expected one row for {statement.name!r}, found another")
        found[statement.name] = statement
    return found


def _statement(row: dict[str, str]) -> Statement:
    given = {c: row[c].strip() for c in row if row[c].strip()}
    for column in ("name", "statement", "where"):
        if column not in given:
            raise ValueError(f"expected a {column}, found none")
    if ("low" in given or "high" in given) and "number" in given:
        raise ValueError("expected limits or a number, found both")
    values = {c: _number(c, given[c]) for c in NUMBERS if c in given}
    return Statement(
        name=given["name"],
        text=given["statement"],
        where=given["where"],
        strict=given.get("strict", "").lower() in ("1", "true", "yes"),
        n=int(_number("n", given.get("n", "1"))),
        reason=given.get("reason", ""),
        sharp=True,
        **values,
    )


def _number(column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number in column {column}, found {text!r}") from None
