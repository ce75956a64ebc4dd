"""Stored cells and where their files are read from: the one interface of the working folder and of an archive."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.store import tables as csv
from runner.store.check import CELL_JSON, Damaged, check_cell, check_tables

if TYPE_CHECKING:
    import pandas as pd


class CellFiles(ABC):
    """The cells of one experiment in one place.

    damaged: cell -> why it cannot be used, for every damaged cell that was read.
    """

    def __init__(self) -> None:
        self.damaged: dict[str, str] = {}
        self._checked: dict[str, Any] = {}

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
    def stamp(self, name: str) -> Any:
        """A value that changes when the cell is replaced."""

    def meta(self, name: str) -> dict[str, Any]:
        """Content of cell.json, checked. Raises Damaged."""
        return check_cell(name, self.read(name, CELL_JSON))

    def cell(self, name: str, *, tables: bool = True) -> Stored:
        """A usable cell; tables=False does not read its tables. Raises Damaged.

        The checksums of tables are computed once for each stamp.
        """
        stamp = self.stamp(name)
        cell = Stored(name, self.meta(name), self)
        if tables and (name not in self._checked or self._checked[name] != stamp):
            check_tables(cell.meta, lambda file: self.read(name, file))
            self._checked[name] = stamp
        return cell

    def usable(self, name: str, *, tables: bool = True) -> Stored | None:
        """The cell, or None where there is none that can be used; `damaged` then has the reason."""
        if not self.has(name):
            return None
        try:
            cell = self.cell(name, tables=tables)
        except Damaged as error:
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

    def content(self, name: str) -> bytes:
        """A table as it is stored (.csv.gz). Raises Damaged."""
        return self.files.read(self.id, f"{name}.csv.gz")

    def table(self, name: str) -> pd.DataFrame:
        return csv.read_many([self.content(name)])


class Folder(CellFiles):
    """Cells as folders below `root`."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def names(self) -> list[str]:
        try:
            found = os.listdir(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in found if not name.startswith(".")]

    def has(self, name: str) -> bool:
        return os.path.lexists(self.root / name)

    def read(self, name: str, file: str) -> bytes:
        path = f"{self.root}/{name}/{file}"
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
                raise Damaged(f"{file}: expected a file")
            with open(path, "rb") as stream:
                return stream.read()
        except NotADirectoryError as error:
            raise Damaged("expected a folder") from error
        except OSError as error:
            raise Damaged(f"{file}: cannot be read ({error.strerror})") from error

    def stamp(self, name: str) -> tuple[int, ...]:
        """() where there is no cell.json."""
        try:
            found = os.stat(f"{self.root}/{name}/{CELL_JSON}")
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns


def merge(cells: Iterable[Stored], names: Collection[str] | None = None) -> dict[str, pd.DataFrame]:
    """Tables of many cells (of these names), one below the other in the order given."""
    parts: dict[str, list[bytes]] = {}
    for cell in cells:
        for name in cell.meta["tables"] if names is None else [n for n in cell.meta["tables"] if n in names]:
            parts.setdefault(name, []).append(cell.content(name))
    return {name: csv.read_many(contents) for name, contents in parts.items()}
