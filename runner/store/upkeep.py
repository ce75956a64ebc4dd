"""Before cells are written: folders that are there, have one owner and can be written; what killed
writers and earlier versions left.

Up to version 0.3.0 a cell was a folder, cells/<id>/, with the files that are now entries of its zip
file, and .tmp-<id>-<process> while it was written or replaced.
"""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path

from runner.contract import SettingError
from runner.files import is_scratch, remove, sweep, write_bytes
from runner.store.store import DIAGNOSIS, EXPERIMENT, QUARANTINE, Store
from runner.store.tables import json_of

OWNER = ".owner.json"
"""Says what the folder of an experiment holds."""
UNFINISHED = re.compile(r"\.(\w+)\.zip\.\d+@[\w.-]+\.hess-run|\.tmp-(\w+)-\d+(?:-old)?")
LOGGER = logging.getLogger("hess_run")


def make_ready(store: Store, *, clean: bool = True) -> None:
    """Make the folders of a store; clean: and remove what killed writers left behind, and put cells
    of earlier versions into zip files.

    Raises SettingError for a file in the way, for a folder that cannot be written, and for one of
    another kind.
    """
    _check_owner(store)
    folders = (store.cells, store.failures, store.logs, store.locks)
    for folder in folders:
        _make(store, folder)
    for folder in (*folders, store.root / QUARANTINE):
        if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise SettingError(_no_access(folder))
    if not (store.root / OWNER).exists():
        write_bytes(store.root / OWNER, json.dumps({"kind": store.kind}).encode() + b"\n")
    if clean:
        sweep(store.root)
        _tidy(store)


def _make(store: Store, folder: Path) -> None:
    """Make a folder, or raise SettingError for what is in the way."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = store.root if store.root.is_file() else folder
        raise SettingError(
            f"outputs: expected a folder, found the file {file}; move it away"
        ) from error
    except PermissionError as error:
        raise SettingError(_no_access(folder)) from error


def _no_access(folder: Path) -> str:
    return (
        f"outputs: {folder} cannot be written (permission denied); "
        "get access to it or choose outputs=PATH"
    )


def _check_owner(store: Store) -> None:
    """Refuse a folder of this name that holds something else: an experiment and a diagnosis may
    share a name."""
    owner = _owner(store)
    if owner not in ("", store.kind):
        key = "name" if store.kind == DIAGNOSIS else "outputs"
        raise SettingError(f"{key}: {store.root} holds {owner}; choose another with {key}=")


def _owner(store: Store) -> str:
    """What the folder holds, as it says itself, else by its cells or its report; "" for nothing."""
    record = json_of(store.root / OWNER)
    if record.get("kind") in (EXPERIMENT, DIAGNOSIS):
        return str(record["kind"])
    stored = next(store.all(published=False), None)
    about = json_of(store.root / "manifest.json") if stored is None else stored.meta
    if not isinstance(about.get("settings"), dict):
        return ""
    return DIAGNOSIS if "content" in about["settings"] else EXPERIMENT


def _tidy(store: Store) -> None:
    """Bring the cells of a store into the form of this version, those apart that another process
    holds."""
    for path in unfinished(store):
        _finish(store, path)
    for name in store.folders.names():
        if store.find(name) is not None:
            _pack(store, name)


def unfinished(store: Store) -> list[Path]:
    """What was being written when a process was killed, or is being written."""
    return sorted(path for path in store.cells.glob(".*") if UNFINISHED.fullmatch(path.name))


def cell_of(path: Path) -> str:
    """The cell that an unfinished file or folder belongs to."""
    found = UNFINISHED.fullmatch(path.name)
    if found:
        return found[1] or found[2]
    return ""


def _finish(store: Store, path: Path) -> None:
    with store.lock(cell_of(path)) as mine:
        if mine and is_scratch(path):
            remove(path, lambda file: True)
        elif mine:
            _keep(store, path, "left of a cell when an earlier version was killed")


def _pack(store: Store, name: str) -> None:
    """Put a cell that is a folder into a zip file; the folder goes when that was read back."""
    with store.lock(name) as mine:
        if not mine:
            return
        cell = store.folders.usable(name)
        if cell is not None and store.working.usable(name) is None:
            store.put(name, cell.entries())
        packed = store.working.usable(name)
        if packed is None:  # it is damaged, and stays until its cell is measured again
            return
        entries = dict(packed.entries())

        def is_packed(path: Path) -> bool:
            entry = path.relative_to(store.cells).as_posix()
            return entries.get(entry) == path.read_bytes()

        folder = store.folders.path(name)
        if remove(folder, is_packed):
            _keep(store, folder, "left of a cell that is a zip file now, which does not have it")


def _keep(store: Store, path: Path, reason: str) -> None:
    """Move something to quarantine/; it stays where it cannot be moved."""
    try:
        store.keep(path, reason)
    except OSError as error:
        LOGGER.warning("%s: %s; it cannot be moved (%s)", path, reason, error.strerror)
