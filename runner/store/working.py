"""Cells of one's own: a zip file each, with the entries that it has in an archive; up to version
0.3.0 a folder each.
"""

from __future__ import annotations

import os
import stat
from abc import abstractmethod
from functools import lru_cache
from pathlib import Path

from runner.store.archive import Archive
from runner.store.cells import CELL_JSON, CellFiles, Damaged
from runner.store.tables import EXHAUSTED

SUFFIX = ".zip"


class _Places(CellFiles):
    """Cells in one folder, each in a file or folder that has its name."""

    def __init__(self, root: Path, experiment: str = "") -> None:
        super().__init__(experiment)
        self.root = root

    @abstractmethod
    def path(self, name: str) -> Path:
        """Where a cell is."""

    def has(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    def _listed(self) -> list[str]:
        """Everything in the folder that is not hidden."""
        try:
            listed = os.listdir(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in listed if not name.startswith(".")]


class Working(_Places):
    """Cells as zip files in `root`."""

    def path(self, name: str) -> Path:
        return self.root / f"{name}{SUFFIX}"

    def names(self) -> list[str]:
        return [name.removesuffix(SUFFIX) for name in self._listed() if name.endswith(SUFFIX)]

    def read(self, name: str, file: str, most: int) -> bytes:
        return self._archive(name).read(name, file, most)

    def size(self, name: str) -> int:
        try:
            return self.path(name).stat().st_size
        except OSError:
            return 0

    def stamp(self, name: str) -> tuple[int, ...]:
        """() where there is nothing."""
        return _stamp(self.path(name))

    def is_replaceable(self, name: str) -> bool:
        """Whether nobody loses anything when the file is replaced: it holds this cell, whole, and
        nothing else, and may be written."""
        path = self.path(name)
        cell = self.usable(name)
        if cell is None or path.is_symlink() or not os.access(path, os.W_OK):
            return False
        own = [f"{name}/{file}" for file in cell.file_names()]
        return sorted(self._archive(name).entries()) == sorted(own)

    def _archive(self, name: str) -> Archive:
        return _opened(self.path(name), *self.stamp(name))


@lru_cache(maxsize=1)
def _opened(path: Path, *state: int) -> Archive:
    """The zip file that was read last: more would be too many open files."""
    return Archive(path)


class Folders(_Places):
    """Cells as folders in `root`; anything else there, zip files apart, is a damaged one."""

    def path(self, name: str) -> Path:
        return self.root / name

    def names(self) -> list[str]:
        return [name for name in self._listed() if not name.endswith(SUFFIX)]

    def read(self, name: str, file: str, most: int) -> bytes:
        path = f"{self.root}/{name}/{file}"
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
                raise Damaged(f"{file}: expected a file")
            if found.st_size > most:
                raise Damaged(f"{file}: expected {most} bytes at most, found {found.st_size}")
            with open(path, "rb") as stream:
                return stream.read()
        except NotADirectoryError as error:
            raise Damaged("expected a zip file or a folder") from error
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise
            raise Damaged(f"{file}: cannot be read ({error.strerror})") from error

    def size(self, name: str) -> int:
        try:
            with os.scandir(self.root / name) as entries:
                return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
        except OSError:
            return 0

    def stamp(self, name: str) -> tuple[int, ...]:
        """() where there is no cell.json."""
        return _stamp(self.root / name / CELL_JSON)


def _stamp(path: Path) -> tuple[int, ...]:
    """A value that changes when a file is replaced; () where there is none."""
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def cell_at(path: Path) -> tuple[CellFiles, str] | None:
    """Where the cell is read from that a path leads to or into, and its name; None for no cell."""
    if path.suffix == SUFFIX and path.parent.name == "cells" and path.is_file():
        return Working(path.parent), path.stem
    for folder in (path, *path.parents):
        if (folder / CELL_JSON).is_file():
            return Folders(folder.parent), folder.name
    return None
