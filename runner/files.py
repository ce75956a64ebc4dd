"""The one place that replaces, sets aside and removes files and folders.

Nothing that this program did not write is removed or replaced. A file is removed only where the
caller recognises it (a recorded SHA-256, a name that no other program gives); a link and a folder
never.
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


def remove(path: Path, is_ours: Callable[[Path], bool]) -> None:
    """Remove a file that this program wrote, for the purpose that ends now; a link, a folder, a
    file that is not recognised and one that cannot be removed stay."""
    with suppress(OSError):
        if path.is_file() and not path.is_symlink() and is_ours(path):
            path.unlink()


def is_listed(folder: Path, sums: Mapping[str, str]) -> Callable[[Path], bool]:
    """Recognises the files below `folder` whose SHA-256 is recorded: name below it -> sum."""
    place = folder.resolve()

    def listed(path: Path) -> bool:
        name = path.resolve().relative_to(place).as_posix()
        return name in sums and sha256(path) == sums[name]

    return listed


def set_aside(path: Path, target: Path) -> Path:
    """Move a file or folder to a name that nothing has: `target`, or that with a number.

    Names are taken by exclusive creation, so that two processes never get the same one.
    """
    make = Path.mkdir if path.is_dir() and not path.is_symlink() else _create
    for number in itertools.count():
        place = target if number == 0 else target.with_name(f"{target.name}-{number}")
        with suppress(FileExistsError):
            make(place)
            os.rename(path, place)
            return place
    raise AssertionError("numbers do not end")


def _create(path: Path) -> None:
    path.touch(exist_ok=False)


def sweep(root: Path) -> None:
    """Remove the half-written files below `root` whose writers, processes of this machine, are
    gone. Those of other machines are left: whether their writers live cannot be told here."""
    for folder, _, files in os.walk(root):
        for name in files:
            found = SCRATCH.fullmatch(name)
            if found and found[2] == machine() and not is_alive(int(found[1])):
                remove(Path(folder, name), is_scratch)


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
