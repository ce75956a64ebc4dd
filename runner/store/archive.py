"""Cells in zip files, and the published layer: outputs/published/<experiment>/ of the clone that
contains the package, read-only at run time.

Published cells are in one file: `<id>/cell.json` and `<id>/<table>.csv.gz`, byte for byte as they
were measured. Entries are not compressed again, are sorted by name and have a fixed date, so that
the same cells give the same bytes; a cell of one's own has its entries in a file of its own.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path

from runner.contract import SettingError, short, typed_path
from runner.store.cells import CellFiles, Damaged
from runner.store.tables import EXHAUSTED

DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every entry: the earliest that a zip file can hold."""
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""What zipfile raises for files that are damaged, encrypted or packed in another way."""


class Archive(CellFiles):
    """The cells in a zip file, which is read once and never written.

    error: why the file as a whole cannot be read; it then has no cells.
    """

    def __init__(self, path: Path, experiment: str = "") -> None:
        super().__init__(experiment)
        self.path = path
        self.error = ""
        self._entries: dict[str, dict[str, zipfile.ZipInfo]] = {}
        try:
            if not path.is_file():
                raise ValueError("expected a file")  # a pipe would be waited for
            self._zip = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
        except (OSError, *UNREADABLE) as error:
            if isinstance(error, OSError) and error.errno in EXHAUSTED:
                raise
            self.error = str(error)
            return
        for entry in self._zip.infolist():
            cell, _, file = entry.filename.partition("/")
            self._entries.setdefault(cell, {})[file] = entry

    def names(self) -> Collection[str]:
        return self._entries.keys()

    def has(self, name: str) -> bool:
        return name in self._entries

    def entries(self) -> list[str]:
        """Name of every entry, of a cell or not."""
        return self._zip.namelist()

    def read(self, name: str, file: str) -> bytes:
        entry = self._entries.get(name, {}).get(file)
        if entry is None:
            raise Damaged(self.error or f"expected {name}/{file} in the archive, found none")
        if entry.file_size > self.most:
            raise Damaged(f"{file}: expected {self.most} bytes at most, found {entry.file_size}")
        try:
            return self._zip.read(entry)
        except UNREADABLE as error:
            raise Damaged(f"{file}: is not what was stored ({short(error)})") from error

    def size(self, name: str) -> int:
        return sum(entry.file_size for entry in self._entries[name].values())

    def stamp(self, name: str) -> int:
        return 0  # an archive that is replaced is another Archive


class Published(Archive):
    """An archive of another's, maybe: what it says of its sizes is not trusted."""

    most = 256 << 20


@lru_cache(maxsize=64)
def _opened(path: Path, experiment: str, *state: int) -> Archive:
    return Published(path, experiment)


def archive_bytes(files: Iterable[tuple[str, bytes]]) -> bytes:
    """A zip file of these (name, content), which depends on nothing else."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files):
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


VARIABLE = "HESS_PUBLISHED"
"""Environment variable with another place for the published results; empty: there are none."""
PUBLISHED = "published"
"""Folder below outputs/ that git tracks."""
CELLS = "cells.zip"


def published_root() -> Path | None:
    """Folder of the published results: that of the clone that contains the package, or what
    `VARIABLE` names: a clone, or its outputs/published. None where there is none, as in an
    installed wheel. Raises SettingError where `VARIABLE` names something else."""
    place = os.environ.get(VARIABLE)
    if place == "":
        return None
    clone = Path(__file__).resolve().parents[2]
    named = clone if place is None else typed_path(VARIABLE, place)
    inside = named / "outputs" / PUBLISHED
    if inside.is_dir():
        return inside
    if place is None:
        return None
    if not named.is_dir():
        found = "a file; unpack it first:" if named.is_file() else "none at"
        raise SettingError(
            f"{VARIABLE}: expected a clone or its outputs/{PUBLISHED}, found {found} "
            f"{short(named, 200)}"
        )
    return named


def published_folder(experiment: str) -> Path | None:
    """Folder of the published results of an experiment; None where there is none."""
    root = published_root()
    folder = root / experiment if root is not None else None
    return folder if folder is not None and folder.is_dir() else None


def published_cells(experiment: str) -> Archive | None:
    """The published cells of an experiment, opened once in this process until the file is replaced;
    None where there are none."""
    folder = published_folder(experiment)
    if folder is None:
        return None
    try:
        found = os.stat(folder / CELLS)
    except OSError:
        return None
    return _opened(folder / CELLS, experiment, found.st_ino, found.st_size, found.st_mtime_ns)


def report_folders(outputs: Path) -> list[Path]:
    """Folder of the report of every experiment that has one: the one below `outputs`, else the
    published one."""
    root = published_root()
    places = [
        *(root.glob("*/manifest.json") if root is not None else ()),
        *outputs.glob("*/manifest.json"),
    ]
    found = {path.parent.name: path.parent for path in places}
    return [found[name] for name in sorted(found)]


def where_published() -> str:
    """Where published results are read from, in words; and what to do where there are none."""
    root = published_root()
    if root is not None:
        return f"published results are read from {root}"
    return (
        "published results are not here, since they are no part of the package: set "
        f"{VARIABLE} to a clone of the repository"
    )
