"""Statements as rows of a CSV file: its columns are the fields of `runner.contract.Statement`.

Several rows of one name are readings of one statement: the second and later ones name their
`variant` and say only what differs from the first.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from decimal import Decimal
from pathlib import Path
from string import Formatter
from typing import Any

from runner.contract import SettingError, Statement, one_of

FIELDS = {f.name: f for f in fields(Statement) if f.name != "readings"}
"""Columns of a file of statements."""
REQUIRED = ("name", "text")
YES = ("yes", "1", "true")
NO = ("no", "0", "false")
COMPARED = (ast.Name, ast.Constant, ast.List, ast.Tuple, ast.UnaryOp, ast.USub)
"""What stands on either side of a comparison."""


class RowError(ValueError):
    """A row that cannot be meant; the text is one line with file, row and column."""


def read_statements(path: Path) -> dict[tuple[str, str], Statement]:
    """(experiment, name) -> statement, in the order of the file; a blank field keeps the default.

    Raises RowError for an unreadable file, unknown columns, a value that is none, or a query that
    is more than comparisons.
    """
    found: dict[tuple[str, str], Statement] = {}
    for number, row in enumerate(table_of(path), start=2):
        place = f"{path}, row {number}"
        given = values_of(row, place)
        key = (given.get("experiment", ""), given.get("name", ""))
        if key in found:
            if "variant" not in given:
                raise RowError(f"{place}, variant: expected a name, since {key[1]!r} has a row")
            first = found[key]
            reading = checked(replace(first, readings=(), **given), place)
            found[key] = replace(first, readings=(*first.readings, reading))
        else:
            for column in REQUIRED:
                if column not in given:
                    raise RowError(f"{place}, {column}: expected a text, found none")
            found[key] = checked(Statement(**given), place)
    return found


def lines_of(path: Path) -> list[list[str]]:
    """The lines of a CSV file that are not blank, as texts, the names of its columns first.

    Raises RowError for a file that cannot be read, or without columns of different names.
    """
    try:
        # spreadsheets begin a file with a byte-order mark
        with open(path, newline="", encoding="utf-8-sig") as stream:
            lines = [line for line in csv.reader(stream) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RowError(f"{path}: cannot be read as a CSV file ({error})") from None
    if not lines:
        raise RowError(f"{path}: expected names of columns, found an empty file")
    header = [name.strip() for name in lines[0]]
    if len(set(header)) < len(header):
        raise RowError(f"{path}: column names repeat: {', '.join(header)}")
    return [header, *lines[1:]]


def table_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file as texts; RowError where one has not a field for each column."""
    header, *lines = lines_of(path)
    for number, line in enumerate(lines, start=2):
        if len(line) != len(header):
            raise RowError(
                f"{path}, row {number}: expected {len(header)} fields, found {len(line)}"
            )
    return [dict(zip(header, line, strict=True)) for line in lines]


def values_of(row: Mapping[str, str], place: str) -> dict[str, Any]:
    """The fields that a row gives, with their types."""
    given = {}
    for column, text in row.items():
        named(f"{place}, column", column, FIELDS)
        if text.strip():
            given[column] = _typed(FIELDS[column], text.strip(), f"{place}, {column}")
    if "number" in given and "rounding" not in given:
        given["rounding"] = resolution(row["number"])
    return given


def named(place: str, name: str, known: Iterable[str]) -> None:
    """Raise RowError for a name that is not known, with the nearest ones."""
    try:
        one_of(place, name, list(known))
    except SettingError as error:
        raise RowError(str(error)) from None


def _typed(field: Any, text: str, place: str) -> Any:
    kind = str if field.default is MISSING else type(field.default)
    if kind is bool:
        named(place, text.lower(), (*YES, *NO))
        return text.lower() in YES
    try:
        return kind(text)
    except ValueError:
        raise RowError(f"{place}: expected a number, found {text!r}") from None


def checked(statement: Statement, place: str) -> Statement:
    """The statement; RowError where its fields contradict each other or a query is none."""
    limited = statement.low > -float("inf") or statement.high < float("inf")
    if limited and statement.number == statement.number:
        raise RowError(f"{place}, number: expected limits or a number, found both")
    for column in ("where", "lost"):
        check_query(getattr(statement, column), f"{place}, {column}")
    for column in ("parts", "variant"):
        try:
            list(fields_of(getattr(statement, column)))
        except ValueError as error:
            raise RowError(f"{place}, {column}: expected a template ({error})") from None
    return statement


def check_query(query: str, place: str) -> None:
    """RowError for a query that is more than comparisons of columns and values, joined by `and`."""
    if not query:
        return
    try:
        tree = ast.parse(query, mode="eval").body
    except SyntaxError:
        raise RowError(f"{place}: expected comparisons joined by 'and', found {query!r}") from None
    parts = [tree]
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        parts = tree.values
    for part in parts:
        if not isinstance(part, ast.Compare):
            raise RowError(f"{place}: expected a comparison, found {ast.unparse(part)!r}")
        for side in (part.left, *part.comparators):
            if not all(isinstance(n, (*COMPARED, ast.expr_context)) for n in ast.walk(side)):
                raise RowError(
                    f"{place}: expected a column or a value, found {ast.unparse(side)!r}"
                )


def columns_of(query: str) -> set[str]:
    """The columns that a query names."""
    return {n.id for n in ast.walk(ast.parse(query or "0")) if isinstance(n, ast.Name)}


def fields_of(template: str) -> Iterator[str]:
    """The columns that a template names, each once."""
    yield from dict.fromkeys(name for _, name, _, _ in Formatter().parse(template) if name)


def resolution(text: str) -> float:
    """Half a unit of the last digit of a printed number; NaN for a blank.

    >>> resolution("2.50"), resolution("7.0e-08"), resolution("450")
    (0.005, 5e-10, 0.5)
    """
    if not text.strip():
        return float("nan")
    exponent = Decimal(text.strip()).as_tuple().exponent
    return 5 * 10.0 ** (int(exponent) - 1)
