"""Stored cells: what makes one unusable, and how it is read, wherever its files are.

A cell is used only if it has the SHA-256 that was recorded when it was written (`sum_of`), and its
id is the hash of its content. Neither a place nor a name is trusted.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.contract import Experiment, described, short
from runner.store import tables as csv
from runner.store.identity import digest

if TYPE_CHECKING:
    import pandas as pd


CELL_JSON = "cell.json"
SUM = "sha256"
"""Key of cell.json: the sum of the cell; in cells of earlier versions one for each table."""


class Damaged(ValueError):
    """A cell that cannot be used; the text says what was expected and what was found."""


def file_of(table: str) -> str:
    """Name of the file of a table in a cell."""
    return f"{table}.csv.gz"


def sums_of(tables: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each table, by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in tables.items()}


def sum_of(meta: Mapping[str, Any], sums: Mapping[str, str]) -> str:
    """SHA-256 of a cell: of everything that cell.json says, the sum itself apart, and of its
    tables."""
    about = {key: value for key, value in meta.items() if key != SUM}
    return hashlib.sha256(json.dumps([about, sums], sort_keys=True).encode()).hexdigest()


def _check(name: str, meta: Mapping[str, Any], sums: Mapping[str, str]) -> None:
    """Raise Damaged where a cell is not what was stored under this name."""
    if not all(map(csv.TABLE_NAME.fullmatch, sums)):
        raise Damaged(f"expected table names of a-z, 0-9 and _, found {short(', '.join(sums))}")
    found = sums if isinstance(meta[SUM], dict) else sum_of(meta, sums)
    if found != meta[SUM]:
        raise Damaged("is not what was stored (SHA-256 differs)")
    key = digest([meta[key] for key in ("experiment", "version", "settings", "threads", "device")])
    cell_id = digest([key, meta["params"], meta["seed"]])
    if (name, meta["settings_key"]) != (cell_id, key):
        raise Damaged(f"expected the name and id {cell_id} for its settings, parameters and seed")


class CellFiles(ABC):
    """The cells of one experiment in one place.

    experiment: its name, "" for any. most: bytes that a file may have, packed or not. damaged: cell
    -> why it cannot be used, for every damaged cell that was read.
    """

    most = sys.maxsize

    def __init__(self, experiment: str = "") -> None:
        self.experiment = experiment
        self.damaged: dict[str, str] = {}
        self._whole: dict[str, tuple[Any, Stored]] = {}

    @abstractmethod
    def names(self) -> Collection[str]:
        """Name of every cell, usable or not."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is something under this name, usable or not."""

    @abstractmethod
    def read(self, name: str, file: str) -> bytes:
        """Content of a file of a cell. Raises Damaged."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes that a cell takes; 0 where there is none."""

    @abstractmethod
    def stamp(self, name: str) -> Any:
        """A value that changes when the cell is replaced."""

    def cell(self, name: str) -> Stored:
        """A usable cell, checked once for each stamp. Raises Damaged."""
        stamp = self.stamp(name)
        if name not in self._whole or self._whole[name][0] != stamp:
            self._whole[name] = (stamp, self._read(name))
        return self._whole[name][1]

    def _read(self, name: str) -> Stored:
        try:
            meta = json.loads(self.read(name, CELL_JSON))
            sums = sums_of({t: self.read(name, file_of(t)) for t in meta["tables"]})
            _check(name, meta, sums)
        except Damaged:
            raise
        # what is no cell.json, in whatever way
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise Damaged(f"{CELL_JSON}: expected that of a cell ({described(error)})") from error
        if self.experiment not in ("", meta["experiment"]):
            found = short(meta["experiment"])
            raise Damaged(f"expected a cell of {self.experiment}, found one of {found}")
        return Stored(name, meta, self, sums)

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
    """A finished cell: its id, the content of its cell.json, where its tables are read from, and
    the SHA-256 of each."""

    id: str
    meta: Mapping[str, Any]
    files: CellFiles
    sums: Mapping[str, str]

    def entries(self) -> list[tuple[str, bytes]]:
        """Every file, by its name in an archive. Raises Damaged."""
        names = [CELL_JSON, *map(file_of, self.meta["tables"])]
        return [(f"{self.id}/{file}", self.files.read(self.id, file)) for file in names]

    def content(self, name: str) -> bytes:
        """A table as it is stored (.csv.gz). Raises Damaged."""
        return self.files.read(self.id, file_of(name))

    def text(self, name: str) -> bytes:
        """A table as CSV. Raises Damaged, before memory is full, for one that is too large."""
        stream = zlib.decompressobj(wbits=31)
        text = stream.decompress(self.content(name), self.files.most)
        if not stream.eof:
            raise Damaged(f"{name}: expected {self.files.most} bytes at most when unpacked")
        return text

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


def in_order(cells: Iterable[Stored], experiment: Experiment) -> list[Stored]:
    """The cells in the order of the grid, then of the seed; others after them."""
    grid = [digest(dict(cell.params)) for cell in experiment.cells()]
    order = {params: i for i, params in enumerate(grid)}

    def place(cell: Stored) -> tuple[int, str, int]:
        params = cell.meta["params"]
        return order.get(digest(params), len(grid)), str(params), cell.meta["seed"]

    return sorted(cells, key=place)
