"""Where measured cells are: the working folder, one folder a cell, and below it the published
cells.

    <outputs>/.hess-run.json                    says that this folder belongs to hess-run
    <outputs>/<experiment>/cells/<id>/          cell.json and <table>.csv.gz, by one rename
    <outputs>/<experiment>/quarantine/          damaged cells with the reason; never used or deleted
    <outputs>/<experiment>/failures/<id>.json   the error of a cell that failed; it is tried again
    <outputs>/<experiment>/checkpoints/         states of long trainings
    <outputs>/<experiment>/logs/                one file a job
    <outputs>/<experiment>/.locks/              one lock file a cell: one process measures it

An id is a hash of everything that decides the numbers (`identity`), so a stored cell never has to
be measured again. A cell that is not in the working folder is looked for in the archive of
published cells (`archive`), which is never written here.

States of long trainings are replaced by one rename each, and used only if their SHA-256 is right.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import SettingError
from runner.files import is_scratch, remove, set_aside, sweep, write_bytes
from runner.store import tables as csv
from runner.store.archive import published_cells
from runner.store.cells import CELL_JSON, CellFiles, Damaged, Folder, Stored, merge
from runner.store.identity import digest, settings

if TYPE_CHECKING:
    import pandas as pd


class DiskCheckpoints:
    """Named torch states in one folder, each replaced by one rename
    (`runner.contract.experiment.Checkpoints`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loaded = False
        """Whether a state has been taken up: the training is then not part of a cell's time."""

    def load(self, name: str) -> Any | None:
        import pickle
        import zipfile

        import torch

        path = self.folder / f"{name}.pt"
        if not path.is_file():
            return None
        content = path.read_bytes()
        try:
            state = torch.load(io.BytesIO(_checked(content)), map_location="cpu", weights_only=True)
        except (
            Damaged,
            RuntimeError,
            EOFError,
            pickle.UnpicklingError,
            zipfile.BadZipFile,
        ) as error:
            if "allocate" in str(error):  # not enough memory says nothing about the file
                raise
            place = set_aside(path, path.with_suffix(".damaged"))
            LOGGER.warning("checkpoint %s is damaged (%s); moved to %s", path, error, place)
            return None
        self.loaded = True
        return state

    def save(self, name: str, state: Any) -> None:
        import torch

        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{name}.pt"
        if path.is_file() and not path.read_bytes().startswith(CHECKED):
            set_aside(path, path.with_suffix(".damaged"))
        write_bytes(path, CHECKED + hashlib.sha256(content).digest() + content)


CHECKED = b"hess-run checkpoint 1\n"


def _checked(content: bytes) -> bytes:
    """The state in a checkpoint file, whose SHA-256 stands before it; torch itself does not look.
    Raises Damaged."""
    start = len(CHECKED) + hashlib.sha256().digest_size
    if (
        not content.startswith(CHECKED)
        or hashlib.sha256(content[start:]).digest() != content[len(CHECKED) : start]
    ):
        raise Damaged("SHA-256 differs")
    return content[start:]


__all__ = ["Store", "Stored", "merge"]

QUARANTINE = "quarantine"
OWNER = ".owner.json"
"""Says what the folder of an experiment holds."""
EXPERIMENT, DIAGNOSIS = "the cells of an experiment", "a diagnosis"
"""Kinds of folders, in the words of messages."""
UNFINISHED = re.compile(r"\.tmp-\w+-\d+(-old)?")
LOGGER = logging.getLogger("hess_run")


class Store:
    """The cells of one experiment: those below an output folder, and the published ones unless
    published=False."""

    def __init__(
        self, outputs: Path, experiment: str, *, published: bool = True, kind: str = EXPERIMENT
    ) -> None:
        self.kind = kind
        self.root = outputs / experiment
        self.cells = self.root / "cells"
        self.failures = self.root / "failures"
        self.logs = self.root / "logs"
        self.locks = self.root / ".locks"
        self.experiment = experiment
        self.working = Folder(self.cells)
        self.archive = published_cells(experiment) if published else None
        self.layers: tuple[CellFiles, ...] = (
            (self.working, self.archive) if self.archive else (self.working,)
        )

    @property
    def damaged(self) -> dict[str, str]:
        """Name in cells/ -> why it cannot be used: what this object has read and not moved away."""
        return self.working.damaged

    def published_damage(self) -> list[str]:
        """One line for each thing in the archive that cannot be used; such cells count as not
        stored."""
        if self.archive is None:
            return []
        if self.archive.error:
            return [
                f"{self.archive.path} cannot be read ({self.archive.error}); "
                "its cells count as not stored"
            ]
        lines = self.archive.damaged.items()
        return [
            f"{self.archive.path}: damaged cell {name} ({reason})" for name, reason in sorted(lines)
        ]

    def examined(self) -> Store:
        """This store, after every cell was read."""
        for _ in self.all():
            pass
        return self

    def left_out(self) -> list[str]:
        """One line for each cell that no layer has whole; of what this object has read."""
        if self.archive and self.archive.error:
            return self.published_damage()
        lines = []
        for name in sorted({name for layer in self.layers for name in layer.damaged}):
            reasons = [layer.damaged.get(name, "") for layer in self.layers if layer.has(name)]
            if all(reasons):
                lines.append(f"{self.experiment}: damaged cell {name} ({reasons[0]})")
        return lines

    def prepare(self, *, clean: bool = True) -> None:
        """Make the folders; clean: and remove what killed writers left behind.

        Raises SettingError for a file in the way, for a folder that cannot be written, and for one
        of another kind.
        """
        self._check_owner()
        for folder in (self.cells, self.failures, self.logs, self.locks):
            self._make(folder)
        for folder in (self.cells, self.failures, self.logs, self.locks, self.root / QUARANTINE):
            if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                raise SettingError(_no_access(folder))
        if not (self.root / OWNER).exists():
            write_bytes(self.root / OWNER, json.dumps({"kind": self.kind}).encode() + b"\n")
        if clean:
            sweep(self.root)
            for scratch in self.unfinished():
                self._finish(scratch)

    def _make(self, folder: Path) -> None:
        """Make a folder, or raise SettingError for what is in the way."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            file = self.root if self.root.is_file() else folder
            raise SettingError(
                f"outputs: expected a folder, found the file {file}; move it away"
            ) from error
        except PermissionError as error:
            raise SettingError(_no_access(folder)) from error

    def _finish(self, scratch: Path) -> None:
        """Put back or remove what a killed writer left of a cell, unless another one holds it."""
        cell_id = scratch.name.split("-")[1]
        final = self.cells / cell_id
        with self.lock(cell_id) as mine:
            if mine and scratch.name.endswith("-old") and not final.exists():
                scratch.rename(final)  # killed between the two renames of a replacement
            elif mine:
                self._discard(scratch)

    def _check_owner(self) -> None:
        """Refuse a folder of this name that holds something else: an experiment and a diagnosis may
        share a name."""
        owner = self._owner()
        if owner not in ("", self.kind):
            key = "name" if self.kind == DIAGNOSIS else "outputs"
            raise SettingError(f"{key}: {self.root} holds {owner}; choose another with {key}=")

    def _owner(self) -> str:
        """What the folder holds, as it says itself, else by its cells or its report; "" for
        nothing."""
        record = _json(self.root / OWNER)
        if record.get("kind") in (EXPERIMENT, DIAGNOSIS):
            return str(record["kind"])
        for path in (*self.cells.glob("*/cell.json"), self.root / "manifest.json"):
            settings = _json(path).get("settings")
            if isinstance(settings, dict):
                return DIAGNOSIS if "content" in settings else EXPERIMENT
        return ""

    def unfinished(self) -> list[Path]:
        """Folders of cells that were being written or replaced."""
        return sorted(path for path in self.cells.glob(".tmp-*") if UNFINISHED.fullmatch(path.name))

    def _discard(self, folder: Path) -> None:
        """Remove a half-written or replaced cell; what is not a cell's is kept in quarantine/."""
        if not remove(folder, _cell_files(folder)):
            return
        try:
            (self.root / QUARANTINE).mkdir(exist_ok=True)
            reason = (
                "left of a cell that was replaced: not this program's, or no access to remove it"
            )
            place = set_aside(folder, self.root / QUARANTINE / folder.name.lstrip("."), reason)
            LOGGER.warning(
                "%s holds files that are not a cell's, or cannot be removed; moved to %s",
                folder,
                place,
            )
        except OSError as error:
            LOGGER.warning("%s cannot be removed (%s); its cell is stored", folder, error.strerror)

    def has(self, cell_id: str, run: str = "") -> bool:
        """Whether the cell is stored whole; run: by the run of this id.

        A cell that is there but cannot be used counts as not stored; `damaged` then says why.
        """
        found = self.find(cell_id)
        return found is not None and run in ("", found.meta.get("run"))

    def failed_in(self, run: str, cell_id: str) -> bool:
        """Whether the cell failed in the run of this id."""
        record = _record(self.failures / f"{cell_id}.json")
        return record is not None and record.get("run") == run

    def get(self, cell_id: str) -> Stored:
        """A stored cell. Raises `runner.store.cells.Damaged` for one that cannot be used."""
        return self.find(cell_id) or self.working.cell(cell_id)

    def all(self, *, tables: bool = True) -> Iterator[Stored]:
        """Every usable cell, in the order of ids; tables=False does not compute the checksums of
        the tables."""
        for name in self.names():
            cell = self.find(name, tables=tables)
            if cell is not None:
                yield cell

    def names(self) -> list[str]:
        """Name of every cell in the working folder or published, usable or not."""
        return sorted({name for layer in self.layers for name in layer.names()})

    def find(self, name: str, *, tables: bool = True) -> Stored | None:
        """The cell of the first layer that has it whole; None where none has."""
        found = (layer.usable(name, tables=tables) for layer in self.layers)
        return next((cell for cell in found if cell is not None), None)

    def quarantine(self, name: str) -> str:
        """Move what lies under a cell's name away, with the reason next to it; returns one line
        that says so."""
        reason = self.damaged.pop(name, "")
        folder = self.root / QUARANTINE
        folder.mkdir(parents=True, exist_ok=True)
        target = set_aside(self.cells / name, folder / name, reason or "cannot be used")
        return (
            f"{self.experiment}: damaged cell {name} moved to {target} ({reason}); "
            "it counts as not measured"
        )

    @contextmanager
    def lock(self, cell_id: str) -> Iterator[bool]:
        """Hold the lock of a cell while inside; yields False at once when another process holds it.

        The operating system frees the lock of a process that dies, so a killed run never blocks the
        next one.
        """
        from filelock import FileLock, Timeout

        self.locks.mkdir(parents=True, exist_ok=True)
        path = self.locks / f"{cell_id}.lock"
        if path.is_dir():
            raise SettingError(
                f"outputs: expected a lock file, found the folder {path}; move it away"
            )
        lock = FileLock(path, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            # whoever still waits on this file finds the cell stored
            if self.working.stamp(cell_id):
                remove(path, lambda file: file.stat().st_size == 0)
            lock.release()

    def write(
        self, cell_id: str, tables: Mapping[str, pd.DataFrame], meta: Mapping[str, Any]
    ) -> None:
        """Store a cell by one rename; the caller holds its lock. An earlier cell of the id is
        replaced whole."""
        scratch = self.cells / f".tmp-{cell_id}-{os.getpid()}"
        old = self.cells / f".tmp-{cell_id}-{os.getpid()}-old"
        final = self.cells / cell_id
        try:
            scratch.mkdir(parents=True)
            sums, sizes = {}, {}
            for name, table in tables.items():
                text = csv.to_bytes(table)
                content = csv.compressed(text)
                write_bytes(scratch / f"{name}.csv.gz", content)
                sums[name] = hashlib.sha256(content).hexdigest()
                sizes[name] = [len(content), len(text)]
            rows = {k: len(v) for k, v in tables.items()}
            about = {"tables": rows, "sha256": sums, "sizes": sizes, "status": "ok"}
            record = json.dumps({**meta, "id": cell_id, **about}, indent=1, sort_keys=True)
            write_bytes(scratch / CELL_JSON, record.encode() + b"\n")
            if final.exists():
                final.rename(old)
            scratch.rename(final)
        finally:
            for left in (scratch, old):
                if os.path.lexists(left):
                    self._discard(left)
        remove(self.failures / f"{cell_id}.json", lambda file: _record(file) is not None)

    def record_failure(self, cell_id: str, record: Mapping[str, Any]) -> None:
        """Remember why a cell failed; it will be tried again by the next run."""
        text = json.dumps({**record, "id": cell_id, "status": "failed"}, indent=1, sort_keys=True)
        write_bytes(self.failures / f"{cell_id}.json", text.encode() + b"\n")

    def failed(self) -> dict[str, dict[str, Any]]:
        """Failure records by cell id."""
        if not self.failures.is_dir():
            return {}
        records = {p.stem: _record(p) for p in sorted(self.failures.glob("*.json"))}
        return {cell_id: record for cell_id, record in records.items() if record is not None}

    def checkpoints(self, key: Mapping[str, Any]) -> DiskCheckpoints:
        """States of the training that `key` describes."""
        return DiskCheckpoints(self.root / "checkpoints" / digest(settings(dict(key))))


def _cell_files(folder: Path) -> Callable[[Path], bool]:
    """Recognises the files of a cell: the tables that its cell.json names; before it is written,
    any table."""
    record = _json(folder / CELL_JSON).get("tables")
    tables = set(record) if isinstance(record, dict) else None

    def of_cell(path: Path) -> bool:
        name, _, suffix = path.name.partition(".")
        table = suffix == "csv.gz" and (tables is None or name in tables)
        return path.parent == folder and (table or path.name == CELL_JSON or is_scratch(path))

    return of_cell


def _no_access(folder: Path) -> str:
    return (
        f"outputs: {folder} cannot be written (permission denied); "
        "get access to it or choose outputs=PATH"
    )


def _json(path: Path) -> dict[str, Any]:
    """Content of a JSON file of keys and values; empty for any other."""
    try:
        record = csv.read_json(path)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _record(path: Path) -> dict[str, Any] | None:
    """A record of a failure; None for one that cannot be read, which is no loss: the cell is tried
    again anyway."""
    record = _json(path)
    return record if "error" in record else None
