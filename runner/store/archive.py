"""The published layer: outputs/published/<experiment>/ of the clone that contains the package, read-only at run time.

Published cells are in one zip file: `<id>/cell.json` and `<id>/<table>.csv.gz`, byte for byte as they were measured.
Entries are not compressed again, are sorted by name and have a fixed date, so that the same cells give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from runner.store.cells import CellFiles, Damaged
from runner.store.tables import EXHAUSTED

DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every entry: the earliest that a zip file can hold."""
LOCAL_HEADER = 30
"""Bytes of an entry's own header before its name."""
SPARE = 64
"""Extra fields of a local header that the directory does not have: the most that is read in one go."""
DIRECTORY = struct.Struct("<4s6xH4xLLLHHH8xL")
"""Of an entry in the directory: signature, compression, CRC, packed and full size, lengths, place."""


class Entry(NamedTuple):
    """A file in an archive. place: of its local header; start: bytes from there to its name's end."""

    place: int
    start: int
    packed: int
    size: int
    crc: int
    deflated: bool


class Archive(CellFiles):
    """The cells in a zip file, which is opened once and never written.

    error: why the file as a whole cannot be read; it then has no cells.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.error = ""
        self._entries: dict[str, dict[str, Entry]] = {}
        self._metas: dict[str, dict[str, Any]] = {}
        try:
            self._stream = open(path, "rb")  # noqa: SIM115  kept open as long as the process
            self._entries = _directory(self._stream.fileno())
        except (OSError, ValueError, struct.error) as error:
            if isinstance(error, OSError) and error.errno in EXHAUSTED:
                raise
            self.error = str(error)

    def names(self) -> Collection[str]:
        return self._entries.keys()

    def has(self, name: str) -> bool:
        return name in self._entries

    def read(self, name: str, file: str, most: int) -> bytes:
        entry = self._entries[name].get(file)
        if entry is None:
            raise Damaged(f"{file}: is not in the archive")
        if entry.size > most or entry.packed > entry.size + 1024:
            raise Damaged(f"{file}: expected {most} bytes at most, found {entry.size}")
        try:
            content = self._content(entry)
        except (OSError, zlib.error) as error:
            raise Damaged(f"{file}: cannot be read ({error})") from error
        if len(content) != entry.size or zlib.crc32(content) != entry.crc:
            raise Damaged(f"{file}: is not what was stored (CRC differs)")
        return content

    def _content(self, entry: Entry) -> bytes:
        found = os.pread(self._stream.fileno(), entry.start + SPARE + entry.packed, entry.place)
        start = entry.start + int.from_bytes(found[28:30], "little")
        content = found[start : start + entry.packed]
        return (
            zlib.decompressobj(-15).decompress(content, entry.size + 1)
            if entry.deflated
            else content
        )

    def stamp(self, name: str) -> int:
        return 0  # an archive that is replaced is another Archive

    def meta(self, name: str) -> dict[str, Any]:
        if name not in self._metas:
            self._metas[name] = super().meta(name)
        return self._metas[name]


def _directory(file: int) -> dict[str, dict[str, Entry]]:
    """Cell -> file -> entry. Raises ValueError and OSError for anything but a whole zip file.

    zipfile makes an object of 20 fields of each entry, which takes longer than all else that listing cells does.
    """
    total = os.fstat(file).st_size
    tail = os.pread(file, 66_000, max(0, total - 66_000))
    end = tail.rfind(b"PK\5\6")
    if end < 0:
        raise ValueError("expected a zip file")
    length, place = struct.unpack_from("<LL", tail, end + 12)
    if tail[max(0, end - 20) : end].startswith(b"PK\6\7"):  # more than 65,535 entries
        (record,) = struct.unpack_from("<Q", tail, end - 12)
        length, place = struct.unpack("<QQ", os.pread(file, 16, record + 40))
    found: dict[str, dict[str, Entry]] = {}
    directory, at = os.pread(file, min(length, total), place), 0
    while at < length:
        mark, method, crc, packed, size, name, extra, comment, place = DIRECTORY.unpack_from(
            directory, at
        )
        at += 46
        if mark != b"PK\1\2" or method not in (0, 8) or place + packed > total:
            raise ValueError("expected a directory of entries that are in the file")
        cell, _, inside = directory[at : at + name].decode().partition("/")
        found.setdefault(cell, {})[inside] = Entry(
            place, LOCAL_HEADER + name, packed, size, crc, method == 8
        )
        at += name + extra + comment
    return found


@lru_cache(maxsize=64)
def _opened(path: Path, *state: int) -> Archive:
    return Archive(path)


def archive_bytes(files: Iterable[tuple[str, bytes]], mark: bytes = b"") -> bytes:
    """A zip file of these (name, content), which depends on nothing else. mark: what `is_marked` finds in it again."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files):
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
        if mark:
            archive.comment = _comment(archive, mark)
    return buffer.getvalue()


def is_marked(content: bytes, mark: bytes) -> bool:
    """Whether a zip file was made with this mark, and holds what it held then."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.comment == _comment(archive, mark) and archive.testzip() is None
    except (zipfile.BadZipFile, NotImplementedError, EOFError, ValueError):
        return False


def _comment(archive: zipfile.ZipFile, mark: bytes) -> bytes:
    entries = [[entry.filename, entry.CRC, entry.file_size] for entry in archive.infolist()]
    return mark + b" " + hashlib.sha256(repr(entries).encode()).hexdigest().encode()


VARIABLE = "HESS_PUBLISHED"
"""Environment variable with another place for the published results; empty: there are none."""
PUBLISHED = "published"
"""Folder below outputs/ that git tracks."""
CELLS = "cells.zip"


def published_root() -> Path | None:
    """Folder of the published results; None where there is none, as in an installed wheel."""
    place = os.environ.get(VARIABLE)
    if place is not None:
        root = Path(place) if place else None
    else:
        root = Path(__file__).resolve().parents[2] / "outputs" / PUBLISHED
    return root if root is not None and root.is_dir() else None


def published_folder(experiment: str) -> Path | None:
    """Folder of the published results of an experiment; None where there is none."""
    root = published_root()
    folder = root / experiment if root is not None else None
    return folder if folder is not None and folder.is_dir() else None


def published_cells(experiment: str) -> Archive | None:
    """The published cells of an experiment, opened once in this process until the file is replaced; None where there
    are none."""
    folder = published_folder(experiment)
    if folder is None:
        return None
    try:
        found = os.stat(folder / CELLS)
    except OSError:
        return None
    return _opened(folder / CELLS, found.st_ino, found.st_size, found.st_mtime_ns)


def report_folders(outputs: Path) -> list[Path]:
    """Folder of the report of every experiment that has one: the one below `outputs`, else the published one."""
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
    return f"published results are not here: clone the repository, or set {VARIABLE} to its outputs/{PUBLISHED}"
