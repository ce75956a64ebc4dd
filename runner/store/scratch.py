"""What a killed writer leaves behind: `.<name>.<pid>@<machine>.tmp`, beside the file that it was to become."""

from __future__ import annotations

import os
import platform
import re
import time
from contextlib import suppress
from pathlib import Path

SCRATCH = re.compile(r"\..+\.(\d+)(?:@([\w.-]*))?\.tmp")
STALE_SECONDS = 60.0
"""No file of this project takes longer to write: an older one of another machine has lost its writer."""


def scratch_path(path: Path) -> Path:
    """Where this process writes what is to become `path`."""
    return path.with_name(f".{path.name}.{os.getpid()}@{machine()}.tmp")


def machine() -> str:
    """Name of this machine, as it may stand in a file name."""
    return re.sub(r"[^\w.-]", "_", platform.node())


def is_scratch(path: Path) -> bool:
    """Whether a file bears the name of a half-written one."""
    return SCRATCH.fullmatch(path.name) is not None


def sweep(root: Path) -> None:
    """Remove half-written files below `root` whose writers are gone; cells/ is for the store to sweep."""
    for folder, folders, files in os.walk(root):
        if "cells" in folders:
            folders.remove("cells")
        for name in files:
            if (found := SCRATCH.fullmatch(name)) and _orphan(Path(folder) / name, int(found.group(1)), found.group(2)):
                with suppress(OSError):
                    (Path(folder) / name).unlink()


def _orphan(path: Path, pid: int, host: str | None) -> bool:
    if host in (None, machine()):
        return not _alive(pid)
    try:
        return time.time() - path.stat().st_mtime > STALE_SECONDS
    except OSError:
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
