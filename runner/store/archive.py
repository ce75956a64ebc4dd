"""Published cells in one zip file: `<id>/cell.json` and `<id>/<table>.csv.gz`, byte for byte as they were measured.

Entries are not compressed again, are sorted by name and have a fixed date, so that the same cells give the same bytes.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from runner.store.cells import CellFiles
from runner.store.check import Damaged

DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every entry: the earliest that a zip file can hold."""
LOCAL_HEADER = 30
"""Bytes of an entry's own header before its name."""


class Archive(CellFiles):
    """The cells in a zip file, which is opened once and never written.

    error: why the file as a whole cannot be read; it then has no cells.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.error = ""
        self._entries: dict[str, dict[str, zipfile.ZipInfo]] = {}
        self._metas: dict[str, dict[str, Any]] = {}
        try:
            self._stream = open(path, "rb")  # noqa: SIM115  kept open as long as the process
            with zipfile.ZipFile(self._stream) as directory:
                for entry in directory.infolist():
                    cell, _, file = entry.filename.partition("/")
                    self._entries.setdefault(cell, {})[file] = entry
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            self.error = str(error)
            self._entries = {}

    def names(self) -> Collection[str]:
        return self._entries.keys()

    def has(self, name: str) -> bool:
        return name in self._entries

    def read(self, name: str, file: str) -> bytes:
        entry = self._entries[name].get(file)
        if entry is None:
            raise Damaged(f"{file}: is not in the archive")
        try:
            content = self._content(entry)
        except (OSError, zlib.error) as error:
            raise Damaged(f"{file}: cannot be read ({error})") from error
        if len(content) != entry.file_size or zlib.crc32(content) != entry.CRC:
            raise Damaged(f"{file}: is not what was stored (CRC differs)")
        return content

    def _content(self, entry: zipfile.ZipInfo) -> bytes:
        """The bytes of an entry, in one read: zipfile's own reader costs more than opening a file."""
        spare = 64  # the local header may have extra fields that the central directory lacks
        if entry.compress_size > os.fstat(self._stream.fileno()).st_size:
            raise OSError("its size is larger than the archive")
        size = LOCAL_HEADER + len(entry.filename.encode()) + spare + entry.compress_size
        found = os.pread(self._stream.fileno(), size, entry.header_offset)
        start = LOCAL_HEADER + int.from_bytes(found[26:28], "little") + int.from_bytes(found[28:30], "little")
        packed = found[start : start + entry.compress_size]
        return zlib.decompress(packed, -15) if entry.compress_type == zipfile.ZIP_DEFLATED else packed

    def stamp(self, name: str) -> int:
        return 0  # an archive that is replaced is another Archive

    def meta(self, name: str) -> dict[str, Any]:
        if name not in self._metas:
            self._metas[name] = super().meta(name)
        return self._metas[name]


def open_archive(path: Path) -> Archive | None:
    """The archive at `path`, opened once in this process until it is replaced; None where there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _opened(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=64)
def _opened(path: Path, *state: int) -> Archive:
    return Archive(path)


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
