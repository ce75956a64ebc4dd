"""Stored cells: what makes one unusable, and how it is read, wherever its files are.

A cell is used only if its cell.json says what it must, its id is the hash of its content, and every
table has the SHA-256 that was recorded when it was written. Neither a place nor a name is trusted.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.contract import Experiment, short
from runner.store import tables as csv
from runner.store.identity import digest

if TYPE_CHECKING:
    import pandas as pd


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
    "cpu_seconds": (int, float),
    "peak_memory_mib": (int, float),
    "finished": str,
    "software": dict,
    "tables": dict,
    "sha256": dict,
}
"""Key of cell.json -> type."""

_KEYS: dict[str, list[Any]] = {}
"""Keys of settings that were compared with what they are the hash of: many cells share one."""
MOST_META = 64 << 20
"""Bytes of a cell.json, at most."""
MOST_OVERHEAD = 1 << 20
MOST_PER_ROW = 16 << 10
"""Bytes of a table whose cell.json states no sizes, at most."""


class Damaged(ValueError):
    """A cell that cannot be used; the text says what was expected and what was found."""


def check_cell(name: str, content: bytes) -> dict[str, Any]:
    """Meaning of the cell.json of the cell `name`. Raises Damaged."""
    meta = _parsed(content)
    for key, kind in NEEDED.items():
        if not isinstance(meta.get(key), kind):
            raise Damaged(f"cell.json: expected {key}, found {short(meta.get(key))}")
    _check_identity(name, meta)
    _check_sizes(meta)
    for table in meta["tables"]:
        if not csv.TABLE_NAME.fullmatch(table):
            raise Damaged(
                f"cell.json: expected table names of a-z, 0-9 and _, found {short(table)}"
            )
    return meta


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        meta = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"cell.json: expected JSON ({error})") from error
    if not isinstance(meta, dict):
        raise Damaged("cell.json: expected keys and values")
    return meta


def _check_identity(name: str, meta: Mapping[str, Any]) -> None:
    """The id and the key of the settings are hashes of what cell.json says (`Identity`)."""
    key = meta["settings_key"]
    content = [meta[k] for k in ("experiment", "version", "settings", "threads", "device")]
    if _KEYS.get(key) != content:
        if (expected := digest(content)) != key:
            raise Damaged(
                f"cell.json: expected settings_key {expected} for its settings, found {short(key)}"
            )
        _KEYS[key] = content
    expected = digest([key, meta["params"], meta["seed"]])
    if expected != name or meta.get("id", name) != name:
        raise Damaged(f"expected the name and id {expected} for its settings, parameters and seed")


def most_bytes(meta: Mapping[str, Any], table: str) -> tuple[int, int]:
    """The most bytes that a table may have, as stored and unpacked: what cell.json states under
    sizes.

    Cells of version 0.2 and before state none: their rows have to do, of which none has 400 bytes.
    """
    stated = meta.get("sizes", {}).get(table)
    if stated is not None:
        return stated[0], stated[1]
    return (most := MOST_OVERHEAD + MOST_PER_ROW * int(meta["tables"][table])), most


def _check_sizes(meta: Mapping[str, Any]) -> None:
    sizes = meta.get("sizes", {})
    pairs = sizes.values() if isinstance(sizes, dict) else [None]
    whole = all(isinstance(rows, int) for rows in meta["tables"].values())
    for pair in pairs:
        whole = whole and isinstance(pair, list) and [type(n) for n in pair] == [int, int]
    if not whole:
        raise Damaged(f"cell.json: expected numbers of rows and bytes, found {short(sizes)}")


def unpacked(content: bytes, file: str, most: int) -> bytes:
    """Content of a .csv.gz file. Raises Damaged, before memory is full, for one of more than `most`
    bytes."""
    stream = zlib.decompressobj(wbits=31)
    try:
        text = stream.decompress(content, most + 1)
    except zlib.error as error:
        raise Damaged(f"{file}: cannot be unpacked ({error})") from error
    if len(text) > most or not stream.eof or stream.unused_data:
        raise Damaged(f"{file}: expected {most} bytes at most and one table, found another content")
    return text


def check_tables(meta: Mapping[str, Any], read: Callable[[str, int], bytes]) -> None:
    """Check the tables of a cell against their checksums.

    read: content of a file, by its name and the most bytes that it may have. Raises Damaged.
    """
    sums = meta["sha256"]
    if set(sums) != set(meta["tables"]):
        raise Damaged(
            f"cell.json: expected one SHA-256 for each of its tables, found {short(sums)}"
        )
    for table in meta["tables"]:
        file = f"{table}.csv.gz"
        stored, full = most_bytes(meta, table)
        content = read(file, stored)
        if hashlib.sha256(content).hexdigest() != sums[table]:
            raise Damaged(f"{file}: is not the table that was stored (SHA-256 differs)")
        if int.from_bytes(content[-4:], "little") > full:  # what gzip says of its content
            raise Damaged(f"{file}: expected {full} bytes at most when unpacked")


class CellFiles(ABC):
    """The cells of one experiment in one place.

    experiment: its name, "" for any. damaged: cell -> why it cannot be used, for every damaged cell
    that was read.
    """

    def __init__(self, experiment: str = "") -> None:
        self.experiment = experiment
        self.damaged: dict[str, str] = {}
        self._checked: dict[str, Any] = {}

    @abstractmethod
    def names(self) -> Collection[str]:
        """Name of every cell, usable or not."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is something under this name, usable or not."""

    @abstractmethod
    def read(self, name: str, file: str, most: int) -> bytes:
        """Content of a file of a cell. Raises Damaged, unread, for one of more than `most`
        bytes."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes that a cell takes; 0 where there is none."""

    @abstractmethod
    def stamp(self, name: str) -> Any:
        """A value that changes when the cell is replaced."""

    def meta(self, name: str) -> dict[str, Any]:
        """Content of cell.json, checked. Raises Damaged."""
        meta = check_cell(name, self.read(name, CELL_JSON, MOST_META))
        found = meta["experiment"]
        if self.experiment not in ("", found):
            raise Damaged(f"expected a cell of {self.experiment}, found one of {short(found)}")
        return meta

    def cell(self, name: str) -> Stored:
        """A usable cell. Raises Damaged.

        The checksums of tables are computed once for each stamp.
        """
        stamp = self.stamp(name)
        cell = Stored(name, self.meta(name), self)
        if name not in self._checked or self._checked[name] != stamp:
            check_tables(cell.meta, lambda file, most: self.read(name, file, most))
            self._checked[name] = stamp
        return cell

    def usable(self, name: str) -> Stored | None:
        """The cell, or None where there is none that can be used; `damaged` then has the reason."""
        if not self.has(name):
            return None
        try:
            cell = self.cell(name)
        except Damaged as error:
            if self.has(name):  # else another process has moved it away meanwhile
                self.damaged[name] = str(error)
            return None
        self.damaged.pop(name, None)
        return cell


@dataclass(frozen=True)
class Stored:
    """A finished cell: its id, the content of its cell.json, and where its tables are read from."""

    id: str
    meta: Mapping[str, Any]
    files: CellFiles

    def file_names(self) -> list[str]:
        """Names of its files."""
        return [CELL_JSON, *(f"{name}.csv.gz" for name in self.meta["tables"])]

    def entries(self) -> list[tuple[str, bytes]]:
        """Every file, by its name in an archive. Raises Damaged."""
        return [
            (f"{self.id}/{f}", self.files.read(self.id, f, MOST_META)) for f in self.file_names()
        ]

    def content(self, name: str) -> bytes:
        """A table as it is stored (.csv.gz). Raises Damaged."""
        return self.files.read(self.id, f"{name}.csv.gz", most_bytes(self.meta, name)[0])

    def text(self, name: str) -> bytes:
        """A table as CSV. Raises Damaged."""
        return unpacked(self.content(name), f"{name}.csv.gz", most_bytes(self.meta, name)[1])

    def table(self, name: str) -> pd.DataFrame:
        return csv.read_many([self.text(name)])


def merge(cells: Iterable[Stored], names: Collection[str] | None = None) -> dict[str, pd.DataFrame]:
    """Tables of many cells (of these names), one below the other in the order given."""
    parts: dict[str, list[bytes]] = {}
    for cell in cells:
        for name in (
            cell.meta["tables"] if names is None else [n for n in cell.meta["tables"] if n in names]
        ):
            parts.setdefault(name, []).append(cell.text(name))
    return {name: csv.read_many(contents) for name, contents in parts.items()}


def within(cells: Iterable[Stored], paper: Experiment, seeds: Sequence[int]) -> list[Stored]:
    """The cells of the paper's grid at these seeds; no seeds: at all."""
    grid = {digest(dict(cell.params)) for cell in paper.cells()}
    return [
        c
        for c in cells
        if digest(c.meta["params"]) in grid and (not seeds or c.meta["seed"] in seeds)
    ]
