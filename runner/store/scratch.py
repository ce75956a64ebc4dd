"""What a killed writer leaves behind: `.<name>.<pid>@<machine>.tmp`, beside the file that it was to become."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from pathlib import Path

SCRATCH = re.compile(r"\..+\.(\d+)(?:@([\w.-]*))?\.tmp")


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
    """Remove half-written files below `root` whose writers, processes of this machine, are gone.

    Those of other machines are left: whether their writers live cannot be told here. cells/ is for the store to sweep.
    """
    for folder, folders, files in os.walk(root):
        if "cells" in folders:
            folders.remove("cells")
        for name in files:
            found = SCRATCH.fullmatch(name)
            if found and found.group(2) in (None, machine()) and not _alive(int(found.group(1))):
                with suppress(OSError):
                    (Path(folder) / name).unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True
