"""The one place that replaces, sets aside and removes files and folders.

Nothing that this program did not write is removed or replaced. A file is removed only where the
caller recognises it (a recorded SHA-256, a name that no other program gives); a folder only when
nothing is left in it. Links are never followed. What is removed from is never a root, a home, the
working folder, a git repository or a store.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

MARKER = ".hess-run.json"
"""Says, in a folder, what this program made it for."""
CELLS = ("cells/*.zip", "cells/*/cell.json")
"""Where the folder of an experiment has its cells: files, or folders of version 0.3.0."""
STORES = ("cells.zip", "*/cells.zip", *CELLS, *(f"*/{cell}" for cell in CELLS))
"""Where a folder with measured cells has them."""
SCRATCH = re.compile(r"\..+\.(\d+)@([\w.-]+)\.hess-run")


def machine() -> str:
    """Name of this machine, as it may stand in a file name."""
    return re.sub(r"[^\w.-]", "_", platform.node()) or "unnamed"


def scratch_path(path: Path) -> Path:
    """Where this process writes what is to become `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}@{machine()}.hess-run")


def is_scratch(path: Path) -> bool:
    """Whether a file or folder bears the name of a half-written one."""
    return SCRATCH.fullmatch(path.name) is not None


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file by one rename; on any error nothing is left behind and an earlier file stays as
    it was."""
    scratch = scratch_path(path)
    try:
        with open(scratch, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def append_line(path: Path, line: str) -> None:
    """Add a line to a file that lists what this program is about to write. One that a full disk has
    cut short stays on a line of its own."""
    with open(path, "a", encoding="utf-8") as stream:
        stream.write(f"\n{line}\n")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last through a power cut, where the file system can."""
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(number)
    finally:
        os.close(number)


def remove(path: Path, is_ours: Callable[[Path], bool]) -> list[Path]:
    """Remove a file; of a folder, the files below it that are recognised, and each folder that this
    leaves empty.

    Parameters
    ----------
    path
        What to remove; nothing happens where there is nothing.
    is_ours
        Whether this program wrote a regular file, for the purpose that ends now.

    Returns
    -------
    What is left: links, everything not recognised, what cannot be removed for lack of access, and
    `path` itself where it may not be removed from.
    """
    if not os.path.lexists(path):
        return []
    if path.is_symlink() or (path.is_dir() and is_protected(path)):
        return [path]
    if not path.is_dir():
        return _remove_file(path, is_ours)
    left: list[Path] = []
    for folder, folders, files in os.walk(path, topdown=False):
        here = Path(folder)
        left += [here / name for name in folders if (here / name).is_symlink()]
        for name in files:
            left += _remove_file(here / name, is_ours)
        with suppress(OSError):  # not empty, or no access
            here.rmdir()
    return left or ([path] if path.exists() else [])


def _remove_file(path: Path, is_ours: Callable[[Path], bool]) -> list[Path]:
    try:
        if path.is_symlink() or not path.is_file() or not is_ours(path):
            return [path]
        path.unlink()
    except OSError:
        return [path]
    return []


def is_protected(folder: Path) -> bool:
    """Whether nothing may be removed from a folder, whatever is in it: the root, a home or the
    working folder, what contains one of these, a git repository, a store."""
    place = folder.resolve()
    homes = (Path.home(), Path.cwd(), Path(os.path.expanduser("~")))
    if any(home.resolve().is_relative_to(place) for home in homes):
        return True
    return (place / ".git").exists() or holds_store(place)


def holds_store(folder: Path) -> bool:
    """Whether measured cells are in a folder, or in one of the folders in it."""
    return any(next(folder.glob(pattern), None) is not None for pattern in STORES)


def is_listed(folder: Path, sums: Mapping[str, str]) -> Callable[[Path], bool]:
    """Recognises the files below `folder` whose SHA-256 is recorded: name below it -> sum."""
    place = folder.resolve()

    def listed(path: Path) -> bool:
        name = path.resolve().relative_to(place).as_posix()
        return name in sums and sha256(path) == sums[name]

    return listed


def set_aside(path: Path, target: Path, reason: str = "") -> Path:
    """Move a file or folder to a name that nothing has: `target`, or that with a number; reason:
    text for <name>.txt.

    Names are taken by exclusive creation, so that two processes never get the same one.
    """
    for number in itertools.count():
        place = target if number == 0 else target.with_name(f"{target.name}-{number}")
        made: list[Path] = []
        try:
            if reason:
                _create(place.with_name(f"{place.name}.txt"), f"{reason}\n", made)
            if path.is_dir() and not path.is_symlink():
                place.mkdir()
                made.append(place)
            else:
                _create(place, "", made)
            os.rename(path, place)
            return place
        except OSError as error:
            for new in made:
                new.rmdir() if new.is_dir() else new.unlink()
            if not isinstance(error, FileExistsError):
                raise
    raise AssertionError("numbers do not end")


def _create(path: Path, text: str, made: list[Path]) -> None:
    with open(path, "x", encoding="utf-8") as stream:
        made.append(path)
        stream.write(text)


def sweep(root: Path, *, below: bool = True) -> None:
    """Remove half-written files and folders in `root` whose writers, processes of this machine, are
    gone.

    Those of other machines are left: whether their writers live cannot be told here. cells/ is for
    the store to sweep. below: in the folders of `root`, too.
    """
    for folder, folders, files in os.walk(root):
        for name in [*files, *folders]:
            found = SCRATCH.fullmatch(name)
            if found and found.group(2) == machine() and not is_alive(int(found.group(1))):
                remove(Path(folder) / name, lambda path: True)
        folders[:] = [
            name for name in folders if below and name != "cells" and not SCRATCH.fullmatch(name)
        ]


NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EIO)
"""Errors of file systems that lock no files; filelock itself answers ENOSYS."""


@contextmanager
def locked(path: Path, timeout: float = 0.0) -> Iterator[bool]:
    """Hold a lock file while inside; False where another process holds it for longer than `timeout`
    seconds (-1: wait for it).

    The operating system frees the lock of a process that dies. Where the file system has no locks,
    a second file serves, which is there as long as its process holds it.
    """
    from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

    lock: BaseFileLock = FileLock(path, timeout)
    try:
        try:
            lock.acquire()
        except OSError as error:
            if isinstance(error, Timeout) or error.errno not in NO_LOCKS:
                raise
            lock = SoftFileLock(path.with_suffix(".soft-lock"), timeout)
            lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def is_alive(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def move(scratch: Path, target: Path) -> None:
    """Give a scratch file or folder of this program the name `target`, which nothing has."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "expected nothing there", str(target))
    os.rename(scratch, target)
