"""Tables on disk: columns or rows in, CSV out, without loss.

Floats are written with 17 significant digits in float64 and read back with the round-trip parser,
so a table that is written, read and written again is the same file byte for byte.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import short
from runner.contract.records import CERTIFICATE

if TYPE_CHECKING:
    import pandas as pd


EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)
"""Errors of reading that say something about this process and nothing about the file's content."""
Rows = Sequence[Mapping[str, Any]]
NO_NUMBER = re.compile(r"\s*[+-]?(nan|inf)\s*", re.IGNORECASE)
"""Texts that stand for a missing and for an infinite float in the files."""
TABLE_NAME = re.compile(r"[a-z0-9_]{1,64}")
"""A longer one has no place in the name of a file."""
CERTIFIED = {"what", "ok", "error", "where", "status"}
"""Columns that every row of a certificate has (`certificate_row`)."""
ANSWERS = ("stats", "claims", "scorecard")
"""Tables that an analysis gives; every other table of a report is merged from the cells."""


def frames(tables: Any, constants: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    """What an experiment measured as DataFrames (`frame`), by name. Raises ValueError for what is
    no tables, and for one that would not be read back as it is."""
    if not isinstance(tables, Mapping) or not tables:
        raise ValueError(
            f"measure: expected tables by name, found {short(repr(tables)) or 'nothing'}"
        )
    found = {}
    for name, table in tables.items():
        if not isinstance(name, str) or not TABLE_NAME.fullmatch(name):
            raise ValueError(
                "measure: expected table names of at most 64 letters a-z, digits and _, found "
                f"{short(repr(name))}"
            )
        if name in ANSWERS:
            raise ValueError(f"measure: expected table names other than {', '.join(ANSWERS)}")
        found[name] = frame(name, table, constants)
        if name == CERTIFICATE and len(found[name]) and CERTIFIED - set(found[name]):
            raise ValueError(
                f"table {name}: expected rows of runner.contract.records.certificate_row, found "
                f"columns {short(', '.join(found[name]))}; give a table of your own another name"
            )
        _check_read_back(name, found[name])
    return found


def frame(name: str, table: Mapping[str, Any] | Rows, constants: Mapping[str, Any]) -> pd.DataFrame:
    """One table of an experiment as a DataFrame, with `constants` (cell parameters, seed) as
    leading columns.

    table: columns (name -> values), rows (a sequence of mappings from column to value), or a
    DataFrame. Raises ValueError for anything else, when columns differ in length, are not
    one-dimensional, or repeat the name of a constant with other values, and for values that are no
    numbers, texts or truth values.
    """
    import pandas as pd

    arrays = {key: _column(name, key, value) for key, value in _columns_of(name, table).items()}
    lengths = {key: len(value) for key, value in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"table {name}: expected columns of equal length, found {lengths}")
    rows = next(iter(lengths.values()), 0)
    data: dict[str, Any] = {}
    for key, value in constants.items():
        given = arrays.pop(key, ())
        if any(str(item) != str(value) for item in given):
            raise ValueError(
                f"table {name}: column {key} must equal the cell's own {key}={value}, "
                "or be left out"
            )
        data[key] = [value] * rows
    return pd.DataFrame({**data, **arrays})


def _columns_of(name: str, table: Any) -> Mapping[str, Any]:
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        if not table.index.equals(pd.RangeIndex(len(table))):
            raise ValueError(f"table {name}: expected no index of its own, call .reset_index()")
        if not table.columns.is_unique:
            twice = table.columns[table.columns.duplicated()][0]
            raise ValueError(
                f"table {name}: expected columns of different names, found two {twice!r}"
            )
        return dict(table.items())
    if isinstance(table, Mapping):
        return table
    if not isinstance(table, Sequence) or not all(isinstance(row, Mapping) for row in table):
        raise ValueError(
            f"table {name}: expected columns (name -> values), rows (a list of mappings) or a "
            f"DataFrame, found {short(repr(table))}"
        )
    return by_column(table)


def _check_read_back(name: str, table: pd.DataFrame) -> None:
    """Raise ValueError where another table would be read from the file: of a text with a carriage
    return it has two rows."""
    back = read(io.BytesIO(to_bytes(table)))
    if list(back) != list(table) or len(back) != len(table):
        found = f"{list(back)} and {len(back)} rows"
        raise ValueError(f"table {name}: expected names and texts of one line, read back {found}")
    for column in table:
        if table[column].equals(back[column]):
            continue
        for before, after in zip(table[column].tolist(), back[column].tolist(), strict=True):
            if not _is_same(before, after):
                raise ValueError(
                    f"table {name}, column {column}: expected values that can be read back, found "
                    f"{before!r}, which is read as {after!r}; write another word"
                )


def _is_same(before: Any, after: Any) -> bool:
    """Whether a value was read back; a text may come back as the number that it spells."""
    if before is None or before != before:
        return bool(after != after)
    if isinstance(after, float) and isinstance(before, str):
        return after == float(before)
    return before == after or str(before) == str(after)


def by_column(rows: Rows) -> dict[str, list[Any]]:
    """The columns of rows, in the order in which the rows first name them; NaN where a row lacks
    one."""
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row)
    columns = {}
    for name in names:
        columns[name] = [row.get(name, math.nan) for row in rows]
    return columns


def _array(values: Any) -> Any:
    """The values as an array, missing where they are masked; among texts a NaN stays one."""
    import numpy as np

    if hasattr(values, "detach"):  # a torch tensor, without importing torch
        values = values.detach().cpu().numpy()
    if isinstance(values, np.ma.MaskedArray):
        kind: type = float if values.dtype.kind in "fiu" else object
        return np.ma.filled(values.astype(kind), math.nan)
    array = np.asarray(values)
    if array.dtype.kind == "U" and not isinstance(values, np.ndarray):
        return np.array([*values], dtype=object)
    return array


def _column(table: str, name: str, values: Any) -> Any:
    import numpy as np

    where = f"table {table}, column {name}"
    try:
        array = _array(values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: expected one dimension of values ({error})") from error
    if array.ndim != 1:
        raise ValueError(f"{where}: expected one dimension, found shape {array.shape}")
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    if array.dtype.kind not in "biu":
        for value in array.tolist():
            if isinstance(value, str) and NO_NUMBER.fullmatch(value):
                found = f"found {value!r}, which would be read back as a float"
                raise ValueError(f"{where}: expected text, {found}; write another word")
            if not (value is None or isinstance(value, str | bool | int | float | np.number)):
                kind = type(value).__name__
                raise ValueError(f"{where}: expected numbers, texts or truth values, found {kind}")
    return array


def to_bytes(table: pd.DataFrame) -> bytes:
    """CSV text of a table: %.17g floats, nan for missing values, rows in order, '\\n' line ends."""
    text = io.StringIO()
    table.to_csv(text, index=False, float_format="%.17g", na_rep="nan", lineterminator="\n")
    return text.getvalue().encode()


def read(source: Path | io.BytesIO) -> pd.DataFrame:
    """A table written by this module, from .csv or .csv.gz; every float exactly as it was."""
    import pandas as pd

    how: dict[str, Any] = {"keep_default_na": False, "na_values": ["nan"], "low_memory": False}
    exact = {}
    if int(pd.__version__.split(".")[0]) < 3:  # from 3 on the only way
        exact = {"float_precision": "round_trip"}
    table = pd.read_csv(source, **how, **exact)
    floats = table.select_dtypes("float")
    infinite = [name for name in floats if bool((floats[name].abs() == math.inf).any())]
    if not infinite:
        return table
    if isinstance(source, io.BytesIO):
        source.seek(0)
    texts = pd.read_csv(source, usecols=infinite, dtype=str, **how)
    # floats are written as inf: the whole word is text that pandas takes for a number
    for name in infinite:
        words = texts[name].str.strip().str.lower().str.lstrip("+-")
        if bool((words == "infinity").any()):
            table[name] = texts[name]
    return table


def read_many(contents: Sequence[bytes]) -> pd.DataFrame:
    """Tables one below the other, as reading each and joining them gives them. contents: of .csv
    files.

    Tables with the same columns are parsed as one text, a hundred times as fast for many small
    ones; where that could give other types (text here that is a number there), each is parsed by
    itself.
    """
    import pandas as pd

    heads = {content.partition(b"\n")[0] for content in contents}
    if len(contents) > 1 and len(heads) == 1:
        head = heads.pop()
        bodies = [content[len(head) + 1 :] for content in contents]
        table = read(io.BytesIO(b"\n".join([head, b"".join(bodies)])))
        if all(bodies) and all(_only_text(table[name]) for name in table.columns):
            return table
    return pd.concat([read(io.BytesIO(content)) for content in contents], ignore_index=True)


def _only_text(column: pd.Series) -> bool:
    """Whether a column is of numbers or truth values alone, or of text that stays text in whatever
    file it stands.

    Text with missing values is left to the slow way: a file in which all are missing reads as
    numbers.
    """
    import pandas as pd

    if not (pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)):
        return True
    if column.isna().any():
        return False
    words = pd.Series(column.unique()).astype(str).str.strip().str.lower()
    return not (pd.to_numeric(words, errors="coerce").notna() | words.isin(["true", "false"])).any()


def read_json(path: Path) -> Any:
    """Content of a JSON file. Raises OSError, and ValueError for anything that is not JSON or too
    deeply nested."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deeply") from error


def json_of(path: Path) -> dict[str, Any]:
    """Content of a JSON file of keys and values; empty for any other."""
    try:
        record = read_json(path)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def compressed(content: bytes) -> bytes:
    """A .csv.gz file; without a time stamp, so that the same table gives the same bytes."""
    return gzip.compress(content, compresslevel=6, mtime=0)
