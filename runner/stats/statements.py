"""The statements of a paper, read from the file next to its printed numbers."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.contract import Statement

REQUIRED = ("name", "statement")
NUMBERS = ("low", "high", "number", "rounding", "std", "margin", "least", "most")
FLAGS = ("strict", "chosen", "independent", "extension")
WORDS = ("reason", "history", "constructed")
COLUMNS = (*REQUIRED, "where", *NUMBERS, "n", *FLAGS, *WORDS)
YES = ("1", "true", "yes")


def read_statements(path: Path) -> dict[str, Statement]:
    """name -> statement, in the order of the file; a blank field keeps the default of `Statement`.

    Raises ValueError with one line for an unreadable file, unknown columns, a number that is none,
    or a name twice.
    """
    try:
        with open(path, newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read as a CSV file ({error})") from None
    statements: dict[str, Statement] = {}
    for number, row in enumerate(rows, start=2):
        try:
            statement = _statement(row)
            if statement.name in statements:
                raise ValueError(f"expected one row for {statement.name!r}, found another")
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
        statements[statement.name] = statement
    return statements


def _statement(row: Mapping[str, str]) -> Statement:
    unknown = [str(column) for column in row if column not in COLUMNS]
    if unknown or None in row.values():
        raise ValueError(f"expected the columns {', '.join(COLUMNS)}, found {unknown or 'fewer'}")
    given = {column: text.strip() for column, text in row.items() if text.strip()}
    for column in REQUIRED:
        if column not in given:
            raise ValueError(f"expected a {column}, found none")
    if "where" not in given and given.get("extension", "").lower() not in YES:
        raise ValueError("expected a where, or yes as extension, found neither")
    if ("low" in given or "high" in given) and "number" in given:
        raise ValueError("expected limits or a number, found both")
    values: dict[str, Any] = {c: _number(c, given[c]) for c in NUMBERS if c in given}
    values |= {column: given[column] for column in WORDS if column in given}
    values |= {column: given.get(column, "").lower() in YES for column in FLAGS}
    return Statement(
        name=given["name"],
        text=given["statement"],
        where=given.get("where", ""),
        n=int(_number("n", given.get("n", "1"))),
        **values,
    )


def _number(column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number in column {column}, found {text!r}") from None
