"""Before cells are written: folders that are there, have one owner and can be written."""

from __future__ import annotations

import json
import os
from pathlib import Path

from runner.contract import SettingError
from runner.files import write_bytes
from runner.store.cells import CELL_JSON
from runner.store.store import DIAGNOSIS, EXPERIMENT, Store
from runner.store.tables import json_of

OWNER = ".owner.json"
"""Says what the folder of an experiment holds."""


def make_ready(store: Store) -> None:
    """Make the folders of a store. Raises SettingError for a file in the way, for a folder that
    cannot be written, and for one of another kind."""
    _check_owner(store)
    for folder in (store.cells, store.failures, store.logs, store.locks):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            file = store.root if store.root.is_file() else folder
            raise SettingError(
                f"outputs: expected a folder, found the file {file}; move it away"
            ) from error
        except PermissionError as error:
            raise SettingError(_no_access(folder)) from error
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise SettingError(_no_access(folder))
    if not (store.root / OWNER).exists():
        write_bytes(store.root / OWNER, json.dumps({"kind": store.kind}).encode() + b"\n")


def _no_access(folder: Path) -> str:
    return (
        f"outputs: {folder} cannot be written (permission denied); "
        "get access to it or choose outputs=PATH"
    )


def _check_owner(store: Store) -> None:
    """Refuse a folder of this name that holds something else: an experiment and a diagnosis may
    share a name."""
    owner = json_of(store.root / OWNER).get("kind")
    if owner in (EXPERIMENT, DIAGNOSIS) and owner != store.kind:
        key = "name" if store.kind == DIAGNOSIS else "outputs"
        raise SettingError(f"{key}: {store.root} holds {owner}; choose another with {key}=")


def cells_as_folders(store: Store) -> tuple[int, float]:
    """Cells of version 0.3.0 and before, which were folders and are not read: how many, and the
    seconds in which they were measured."""
    records = [json_of(path) for path in store.cells.glob(f"*/{CELL_JSON}")]
    seconds = [record.get("wall_seconds") for record in records]
    return len(records), sum(value for value in seconds if isinstance(value, int | float))
