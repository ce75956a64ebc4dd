"""Tables on disk: columns or rows in, CSV out, without loss; and two measurements of one cell,
field by field.

Floats are written with 17 significant digits in float64 and read back with the round-trip parser,
so a table that is written, read and written again is the same file byte for byte.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract.records import CERTIFICATE, NUMBERS
from runner.files import write_bytes

if TYPE_CHECKING:
    import pandas as pd


EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of reading that say something about this process and nothing about the file."""
Rows = Sequence[Mapping[str, Any]]
NO_NUMBER = ("nan", "inf")
"""Texts that stand for a missing and for an infinite float in the files."""


def frame(name: str, table: Mapping[str, Any] | Rows, constants: Mapping[str, Any]) -> pd.DataFrame:
    """One table of an experiment as a DataFrame, with `constants` (cell parameters, seed) as
    leading columns.

    table: columns (name -> values), or rows (a sequence of mappings from column to value). Raises
    ValueError when columns differ in length, are not one-dimensional, or repeat the name of a
    constant with other values, and for a text that would be read back as a float ("nan", "inf").
    """
    import pandas as pd

    columns = table if isinstance(table, Mapping) else by_column(table)
    arrays = {key: _column(name, key, value) for key, value in columns.items()}
    lengths = {key: len(value) for key, value in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"table {name}: expected columns of equal length, found {lengths}")
    rows = next(iter(lengths.values()), 0)
    data: dict[str, Any] = {}
    for key, value in constants.items():
        own = arrays.pop(key, None)
        if own is not None and any(str(item) != str(value) for item in own):
            raise ValueError(
                f"table {name}: column {key} must equal the cell's own {key}={value}, "
                "or be left out"
            )
        data[key] = [value] * rows
    return pd.DataFrame({**data, **arrays})


def by_column(rows: Rows) -> dict[str, list[Any]]:
    """The columns of rows, in the order in which the rows first name them; NaN where a row lacks
    one."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name, math.nan) for row in rows] for name in names}


def _column(table: str, name: str, values: Any) -> Any:
    if hasattr(values, "detach"):  # a torch tensor, without importing torch
        values = values.detach().cpu().numpy()
    import numpy as np

    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(
            f"table {table}, column {name}: expected one dimension, found shape {array.shape}"
        )
    if array.dtype.kind in "UO":
        for text in {value for value in array.tolist() if isinstance(value, str)}:
            if text.strip().lower().lstrip("+-") in NO_NUMBER:
                found = (
                    f"found {text!r}, which would be read back as a float; write another word, "
                    "such as infinity"
                )
                raise ValueError(f"table {table}, column {name}: expected text, {found}")
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def to_bytes(table: pd.DataFrame) -> bytes:
    """CSV text of a table: %.17g floats, nan for missing values, rows in order, '\\n' line ends."""
    text = io.StringIO()
    table.to_csv(text, index=False, float_format="%.17g", na_rep="nan", lineterminator="\n")
    return text.getvalue().encode()


def read(path: Path) -> pd.DataFrame:
    """A table written by this module, from .csv or .csv.gz; every float exactly as it was."""
    return _parsed(path)


def _parsed(source: Path | io.BytesIO) -> pd.DataFrame:
    import pandas as pd

    exact = (
        {} if int(pd.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
    )  # 3: the only way
    how: dict[str, Any] = {"keep_default_na": False, "na_values": ["nan"], "low_memory": False}
    table = pd.read_csv(source, **how, **exact)
    infinite = [
        name for name in table.select_dtypes("float") if bool((table[name].abs() == math.inf).any())
    ]
    if infinite:
        if isinstance(source, io.BytesIO):
            source.seek(0)
        texts = pd.read_csv(source, usecols=infinite, dtype=str, **how)
        for name in (
            infinite
        ):  # floats are written as inf: the whole word is text that pandas takes for a number
            if bool((texts[name].str.strip().str.lower().str.lstrip("+-") == "infinity").any()):
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
        table = _parsed(io.BytesIO(b"\n".join([head, b"".join(bodies)])))
        if all(bodies) and all(_only_text(table[name]) for name in table.columns):
            return table
    return pd.concat([_parsed(io.BytesIO(content)) for content in contents], ignore_index=True)


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


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a table to .csv or .csv.gz by one rename, so that a reader never sees half a file."""
    content = to_bytes(table)
    write_bytes(path, compressed(content) if path.suffix == ".gz" else content)


def compressed(content: bytes) -> bytes:
    """A .csv.gz file; without a time stamp, so that the same table gives the same bytes."""
    return gzip.compress(content, compresslevel=6, mtime=0)


@dataclass(frozen=True)
class Comparison:
    """identical: every byte agrees. first: the first field outside the tolerance, '' where there is
    none. largest: the largest relative difference of all numbers, |a − b| / max(|a|, |b|), and
    where it is."""

    identical: bool
    first: str
    largest: float
    where: str
    note: str = ""

    @property
    def agrees(self) -> bool:
        return not self.first

    def line(self) -> str:
        """The finding in one line."""
        note = f"; {self.note}" if self.note else ""
        if self.identical:
            return f"identical{note}"
        if self.agrees:
            return f"agrees; largest relative difference {self.largest:.2g} ({self.where}){note}"
        return f"differs: {self.first}"


def compare(
    stored: Mapping[str, pd.DataFrame], measured: Mapping[str, pd.DataFrame], tolerance: float
) -> Comparison:
    """Hold the tables of a cell measured again against the stored ones.

    Floats agree when |a − b| <= tolerance · max(|a|, |b|); everything else must be equal. Columns
    of seconds are times, not results, and are left out; so are the errors in a certificate, which
    are rounding, and a certificate that agrees now. A stored cell without a certificate, or with
    one that did not agree, is no difference, but said.
    """
    note = ""
    if CERTIFICATE in measured and CERTIFICATE not in stored:
        measured = {name: table for name, table in measured.items() if name != CERTIFICATE}
        note = "the stored cell has no certificate, it was measured before"
    if (
        CERTIFICATE in measured
        and CERTIFICATE in stored
        and bool((measured[CERTIFICATE]["ok"] == 1).all())
    ):
        if not bool((stored[CERTIFICATE]["ok"] == 1).all()):
            note = "the stored certificate disagreed, measured again it agrees"
        stored, measured = (
            {k: t for k, t in tables.items() if k != CERTIFICATE} for tables in (stored, measured)
        )
    if set(stored) != set(measured):
        return Comparison(
            False, f"tables {_names(stored)} stored, {_names(measured)} measured", math.inf, ""
        )
    largest, where, first, identical = 0.0, "", "", True
    for name in sorted(stored):
        for column, row, difference, text in _differences(name, stored[name], measured[name]):
            identical = False
            if difference > largest:
                largest, where = difference, f"{name}.{column} row {row}"
            if difference > tolerance and not first:
                first = text
    return Comparison(identical, first, largest, where, note)


def _differences(name: str, a: pd.DataFrame, b: pd.DataFrame) -> list[tuple[str, int, float, str]]:
    """(column, row, relative difference, text) of the worst field of every column that differs."""
    if list(a.columns) != list(b.columns) or len(a) != len(b):
        shapes = (
            f"{len(a)} rows of {_names(a.columns)} stored, "
            f"{len(b)} rows of {_names(b.columns)} measured"
        )
        return [("", 0, math.inf, f"{name}: {shapes}")]
    found = []
    for column in a.columns:
        if "seconds" in str(column) or (name == CERTIFICATE and column in NUMBERS):
            continue
        apart = [_difference(x, y) for x, y in zip(a[column], b[column], strict=True)]
        difference = max(apart, default=0.0)
        if difference > 0:
            row = apart.index(difference)
            x, y = a[column].iloc[row], b[column].iloc[row]
            text = (
                f"{name}.{column} row {row}: {x!s} stored, "
                f"{y!s} measured (relative difference {difference:.2g})"
            )
            found.append((str(column), row, difference, text))
    return found


def _difference(x: Any, y: Any) -> float:
    """|x − y| / max(|x|, |y|) of two finite numbers; 0 for equal fields, two NaN among them; else
    infinite."""
    if x == y or (x != x and y != y):
        return 0.0
    if isinstance(x, float) and isinstance(y, float) and math.isfinite(x) and math.isfinite(y):
        return abs(x - y) / max(abs(x), abs(y))
    return math.inf


def _names(names: Any) -> str:
    return ", ".join(map(str, names))
