"""What makes a stored cell unusable: one examination, shared by everything that reads the store.

A cell is used only if its cell.json says what it must, its id is the hash of what it says, and every table is there
with the SHA-256 that was recorded when it was written. Nothing is believed because of its place or its name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from runner.store.identity import digest

CELL_JSON = "cell.json"
NEEDED: dict[str, type | tuple[type, ...]] = {
    "experiment": str,
    "version": int,
    "settings": dict,
    "settings_key": str,
    "params": dict,
    "seed": int,
    "threads": int,
    "device": str,
    "wall_seconds": (int, float),
    "peak_memory_mib": (int, float),
    "finished": str,
    "software": dict,
    "tables": dict,
}
"""Key of cell.json -> type."""

TABLE_NAME = re.compile(r"[a-z0-9_]+")


class Damaged(ValueError):
    """A cell that cannot be used; the text says what was expected and what was found."""


def check_cell(name: str, content: bytes) -> dict[str, Any]:
    """Meaning of the cell.json of the cell `name`. Raises Damaged."""
    meta = _parsed(content)
    for key, kind in NEEDED.items():
        if not isinstance(meta.get(key), kind):
            raise Damaged(f"cell.json: expected {key}, found {_short(meta.get(key))}")
    _check_identity(name, meta)
    for table in meta["tables"]:
        if not TABLE_NAME.fullmatch(table):
            raise Damaged(f"cell.json: expected table names of a-z, 0-9 and _, found {_short(table)}")
    return meta


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        meta = json.loads(content)
    except RecursionError as error:
        raise Damaged("cell.json: expected JSON (nested too deeply)") from error
    except ValueError as error:
        raise Damaged(f"cell.json: expected JSON ({error})") from error
    if not isinstance(meta, dict):
        raise Damaged("cell.json: expected keys and values")
    return meta


def _check_identity(name: str, meta: Mapping[str, Any]) -> None:
    """The id and the key of the settings are hashes of what cell.json says (`Identity`)."""
    key = digest([meta["experiment"], meta["version"], meta["settings"], meta["threads"], meta["device"]])
    if key != meta["settings_key"]:
        raise Damaged(f"cell.json: expected settings_key {key} for its settings, found {_short(meta['settings_key'])}")
    expected = digest([key, meta["params"], meta["seed"]])
    if expected != name or meta.get("id", name) != name:
        raise Damaged(f"expected the folder and id {expected} for its settings, parameters and seed")


def check_tables(meta: Mapping[str, Any], read: Callable[[str], bytes]) -> None:
    """Check the tables of a cell against their checksums. read: content of a file by name. Raises Damaged."""
    sums = meta.get("sha256")
    if sums is not None and (not isinstance(sums, dict) or set(sums) != set(meta["tables"])):
        raise Damaged(f"cell.json: expected one SHA-256 for each of its tables, found {_short(sums)}")
    for table, rows in meta["tables"].items():
        file = f"{table}.csv.gz"
        content = read(file)
        if not isinstance(sums, dict):
            _check_rows(file, content, rows)
        elif hashlib.sha256(content).hexdigest() != sums.get(table):
            raise Damaged(f"{file}: is not the table that was stored (SHA-256 differs)")


def _check_rows(file: str, content: bytes, rows: Any) -> None:
    """For cells stored before sums were recorded: the file is whole and has the recorded number of rows."""
    import gzip
    import zlib

    try:
        text = gzip.decompress(content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise Damaged(f"{file}: cannot be unpacked ({error})") from error
    found = text.count("\n") - 1
    if found != rows or not text.endswith("\n"):
        raise Damaged(f"{file}: expected {rows} rows, found {found}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
