"""Published results in a zip file: unpacked once, into the user's cache folder."""

from __future__ import annotations

import os
import re
import zipfile
from functools import lru_cache
from pathlib import Path

from runner.contract import SettingError, short
from runner.files import remove, scratch_path, sha256, write_bytes

MOST_BYTES = 2**30
"""Of all files together: fifty times what is published today."""
MANIFEST = re.compile(r"((?:[\w.@+-]+/)*)[\w-]+/manifest\.json")
NAME = re.compile(r"[\w-]+/(?:[\w.=+-]+/)?[\w.=+-]+|not_run\.md")
"""A file of the published results, below their folder."""


def unpacked(path: Path) -> Path:
    """The folder with the published results of a zip file: of outputs/published/ or of a whole
    clone. Raises SettingError for any other file."""
    try:
        found = path.stat()
        return _unpacked(path.resolve(), found.st_size, found.st_mtime_ns)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise SettingError(
            f"{short(path)}: expected a zip file with published results, found one that "
            f"cannot be unpacked ({short(error)})"
        ) from error


def is_cached(folder: Path) -> bool:
    """Whether a folder of published results was unpacked from a zip file."""
    return folder.parent == _cache()


@lru_cache
def _unpacked(path: Path, *state: int) -> Path:
    target = _cache() / sha256(path)[:32]
    if not target.is_dir():
        _unpack(path, target)
    return target


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hess-run"


def _unpack(path: Path, target: Path) -> None:
    """Unpack into a folder of its own, which appears by one rename."""
    with zipfile.ZipFile(path) as archive:
        files = _published_files(archive)
        if not files:
            raise zipfile.BadZipFile("it has no EXPERIMENT/manifest.json")
        if sum(entry.file_size for entry in files.values()) > MOST_BYTES:
            raise zipfile.BadZipFile(f"it holds more than {MOST_BYTES} bytes")
        target.parent.mkdir(parents=True, exist_ok=True)
        work = scratch_path(target)
        try:
            for name, entry in files.items():
                (work / name).parent.mkdir(parents=True, exist_ok=True)
                write_bytes(work / name, archive.read(entry))
            os.replace(work, target)
        except OSError:
            if not target.is_dir():  # another process was first
                raise
        finally:
            remove(work, lambda path: True)


def _published_files(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Name below the folder of the published results -> entry; none for names that lead out."""
    entries = {entry.filename: entry for entry in archive.infolist() if not entry.is_dir()}
    roots = [found[1] for name in entries if (found := MANIFEST.fullmatch(name))]
    published = [root for root in roots if root.endswith("outputs/published/")]
    root = min(published or roots, key=len, default=None)
    if root is None:
        return {}
    below = {name.removeprefix(root): e for name, e in entries.items() if name.startswith(root)}
    return {
        name: entry
        for name, entry in below.items()
        if NAME.fullmatch(name) and ".." not in Path(name).parts
    }
