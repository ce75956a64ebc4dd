"""Cells of one's own: a zip file each, with the entries that it has in an archive."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from runner.store.archive import Archive
from runner.store.cells import CellFiles
from runner.store.tables import EXHAUSTED

SUFFIX = ".zip"


class Working(CellFiles):
    """Cells as zip files in `root`."""

    def __init__(self, root: Path, experiment: str = "") -> None:
        super().__init__(experiment)
        self.root = root

    def path(self, name: str) -> Path:
        """Where a cell is."""
        return self.root / f"{name}{SUFFIX}"

    def has(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    def names(self) -> list[str]:
        try:
            listed = os.listdir(self.root)
        except (FileNotFoundError, NotADirectoryError):
            return []
        own = [name for name in listed if name.endswith(SUFFIX) and not name.startswith(".")]
        return [name.removesuffix(SUFFIX) for name in own]

    def read(self, name: str, file: str) -> bytes:
        return self._archive(name).read(name, file)

    def size(self, name: str) -> int:
        try:
            return self.path(name).stat().st_size
        except OSError:
            return 0

    def stamp(self, name: str) -> tuple[int, ...]:
        """() where there is nothing."""
        try:
            found = os.stat(self.path(name))
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def is_replaceable(self, name: str) -> bool:
        """Whether nobody loses anything when the file is replaced: it holds this cell, whole, and
        nothing else, and may be written."""
        path = self.path(name)
        cell = self.usable(name)
        if cell is None or path.is_symlink() or not os.access(path, os.W_OK):
            return False
        own = [file for file, _ in cell.entries()]
        return sorted(self._archive(name).entries()) == sorted(own)

    def _archive(self, name: str) -> Archive:
        return _opened(self.path(name), *self.stamp(name))


@lru_cache(maxsize=1)
def _opened(path: Path, *state: int) -> Archive:
    """The zip file that was read last."""
    return Archive(path)


def cell_at(path: Path) -> tuple[CellFiles, str] | None:
    """Where the cell is read from that a path leads to, and its name; None for no cell."""
    if path.suffix == SUFFIX and path.parent.name == "cells" and path.is_file():
        return Working(path.parent), path.stem
    return None
