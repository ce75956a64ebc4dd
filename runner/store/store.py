"""Where measured cells are: the working folder, one folder a cell, and below it the published cells.

    <outputs>/.hess-run.json                    says that this folder belongs to hess-run
    <outputs>/<experiment>/cells/<id>/          cell.json and <table>.csv.gz, put there by one rename
    <outputs>/<experiment>/quarantine/          damaged cells, each with the reason; never used, never deleted
    <outputs>/<experiment>/failures/<id>.json   the error of a cell that failed last time; tried again next time
    <outputs>/<experiment>/checkpoints/         states of long trainings
    <outputs>/<experiment>/logs/                one file a job
    <outputs>/<experiment>/.locks/              one lock file a cell: two processes never measure the same cell

An id is a hash of everything that decides the numbers (`identity`), so a stored cell never has to be measured again.
A cell that is not in the working folder is looked for in the archive of published cells (`archive`), which is never
written here.

States of long trainings are replaced by one rename each, and used only if their SHA-256 is right.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import SettingError
from runner.store import tables as csv
from runner.store.archive import published_cells
from runner.store.cells import CellFiles, Damaged, Folder, Stored, merge
from runner.store.identity import digest, settings
from runner.store.tables import sweep

if TYPE_CHECKING:
    import pandas as pd


class DiskCheckpoints:
    """Named torch states in one folder, each replaced by one rename (`runner.contract.experiment.Checkpoints`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loaded = False
        """Whether a state has been taken up: the training is then not part of a cell's time."""

    def load(self, name: str) -> Any | None:
        import logging
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
            path.rename(path.with_suffix(".damaged"))
            logging.getLogger("hess_run").warning(
                "checkpoint %s is damaged (%s); set aside", path, error
            )
            return None
        self.loaded = True
        return state

    def save(self, name: str, state: Any) -> None:
        import torch

        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        self.folder.mkdir(parents=True, exist_ok=True)
        csv.write_bytes(
            self.folder / f"{name}.pt", CHECKED + hashlib.sha256(content).digest() + content
        )


CHECKED = b"hess-run checkpoint 1\n"


def _checked(content: bytes) -> bytes:
    """The state in a checkpoint file, whose SHA-256 stands before it; torch itself does not look. Raises Damaged."""
    start = len(CHECKED) + hashlib.sha256().digest_size
    if (
        not content.startswith(CHECKED)
        or hashlib.sha256(content[start:]).digest() != content[len(CHECKED) : start]
    ):
        raise Damaged("SHA-256 differs")
    return content[start:]


__all__ = ["Store", "Stored", "merge"]

QUARANTINE = "quarantine"


class Store:
    """The cells of one experiment: those below an output folder, and the published ones unless published=False."""

    def __init__(self, outputs: Path, experiment: str, *, published: bool = True) -> None:
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
        """One line for each thing in the archive that cannot be used; such cells count as not stored."""
        if self.archive is None:
            return []
        if self.archive.error:
            return [
                f"{self.archive.path} cannot be read ({self.archive.error}); its cells count as not stored"
            ]
        lines = self.archive.damaged.items()
        return [
            f"{self.archive.path}: damaged cell {name} ({reason})" for name, reason in sorted(lines)
        ]

    def prepare(self, *, clean: bool = True) -> None:
        """Make the folders; clean: and remove what killed writers left behind.

        Raises SettingError for a file in the way, and for a folder that cannot be written.
        """
        for folder in (self.cells, self.failures, self.logs, self.locks, self.root / QUARANTINE):
            try:
                if folder.name != QUARANTINE:
                    folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError as error:
                raise SettingError(
                    f"outputs: expected a folder, found the file {folder}; move it away"
                ) from error
            except PermissionError as error:
                raise SettingError(_no_access(folder)) from error
            if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                raise SettingError(_no_access(folder))
        if not clean:
            return
        sweep(self.root)
        for scratch in list(self.cells.glob(".tmp-*")):
            with self.lock(scratch.name.split("-")[1]) as mine:
                if mine:
                    final = self.cells / scratch.name.split("-")[1]
                    if scratch.name.endswith("-old") and not final.exists():
                        scratch.rename(final)  # killed between the two renames of a replacement
                    else:
                        shutil.rmtree(scratch, ignore_errors=True)

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
        """Every usable cell, in the order of ids; tables=False does not compute the checksums of the tables."""
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
        """Move what lies under a cell's name away, with the reason next to it; returns one line that says so."""
        reason = self.damaged.pop(name, "")
        folder = self.root / QUARANTINE
        folder.mkdir(parents=True, exist_ok=True)
        number = sum(
            1 for path in folder.iterdir() if path.name.startswith(name) and not path.suffix
        )
        target = folder / (name if number == 0 else f"{name}-{number}")
        os.rename(self.cells / name, target)
        csv.write_bytes(folder / f"{target.name}.txt", f"{reason}\n".encode())
        return f"{self.experiment}: damaged cell {name} moved to {target} ({reason}); it counts as not measured"

    @contextmanager
    def lock(self, cell_id: str) -> Iterator[bool]:
        """Hold the lock of a cell while inside; yields False at once when another process holds it.

        The operating system frees the lock of a process that dies, so a killed run never blocks the next one.
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
            if self.working.stamp(
                cell_id
            ):  # whoever still waits on this file finds the cell stored
                with suppress(OSError):
                    os.unlink(lock.lock_file)
            lock.release()

    def write(
        self, cell_id: str, tables: Mapping[str, pd.DataFrame], meta: Mapping[str, Any]
    ) -> None:
        """Store a cell by one rename; the caller holds its lock. An earlier cell of the id is replaced whole."""
        scratch = self.cells / f".tmp-{cell_id}-{os.getpid()}"
        old = self.cells / f".tmp-{cell_id}-{os.getpid()}-old"
        final = self.cells / cell_id
        try:
            scratch.mkdir(parents=True)
            sums = {}
            for name, table in tables.items():
                csv.write(table, scratch / f"{name}.csv.gz")
                sums[name] = hashlib.sha256((scratch / f"{name}.csv.gz").read_bytes()).hexdigest()
            rows = {k: len(v) for k, v in tables.items()}
            content = {**meta, "id": cell_id, "tables": rows, "sha256": sums, "status": "ok"}
            csv.write_bytes(
                scratch / "cell.json",
                json.dumps(content, indent=1, sort_keys=True).encode() + b"\n",
            )
            if final.exists():
                final.rename(old)
            scratch.rename(final)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
        with suppress(OSError):
            (self.failures / f"{cell_id}.json").unlink(missing_ok=True)

    def record_failure(self, cell_id: str, record: Mapping[str, Any]) -> None:
        """Remember why a cell failed; it will be tried again by the next run."""
        text = json.dumps({**record, "id": cell_id, "status": "failed"}, indent=1, sort_keys=True)
        csv.write_bytes(self.failures / f"{cell_id}.json", text.encode() + b"\n")

    def failed(self) -> dict[str, dict[str, Any]]:
        """Failure records by cell id."""
        if not self.failures.is_dir():
            return {}
        records = {p.stem: _record(p) for p in sorted(self.failures.glob("*.json"))}
        return {cell_id: record for cell_id, record in records.items() if record is not None}

    def checkpoints(self, key: Mapping[str, Any]) -> DiskCheckpoints:
        """States of the training that `key` describes."""
        return DiskCheckpoints(self.root / "checkpoints" / digest(settings(dict(key))))


def _no_access(folder: Path) -> str:
    return f"outputs: {folder} cannot be written (permission denied); get access to it or choose outputs=PATH"


def _record(path: Path) -> dict[str, Any] | None:
    """A record of a failure; None for one that cannot be read, which is no loss: the cell is tried again anyway."""
    try:
        record = csv.read_json(path)
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and "error" in record else None
