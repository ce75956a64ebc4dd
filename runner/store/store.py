"""Where measured cells live: one directory a cell, whole or absent, whatever is killed.

    <outputs>/.hess-run.json                    says that this folder belongs to hess-run
    <outputs>/<experiment>/cells/<id>/          cell.json and <table>.csv.gz, put there by one rename
    <outputs>/<experiment>/failures/<id>.json   the error of a cell that failed last time; tried again next time
    <outputs>/<experiment>/checkpoints/         states of long trainings
    <outputs>/<experiment>/logs/                one file a job
    <outputs>/<experiment>/.locks/              one lock file a cell: two processes never measure the same cell

An id is a hash of everything that decides the numbers (`identity`), so a cell that is there never has to be redone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract.experiment import Cell, Experiment
from runner.contract.schema import SettingError
from runner.store import tables as csv

if TYPE_CHECKING:
    import pandas as pd

MARKER = ".hess-run.json"
FORMAT = 1


def settings(value: Any) -> Any:
    """The part of an experiment's settings that changes its numbers.

    All fields but the grid, the report-only ones, and those made with `since()` that hold their default.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: settings(_identifying(f, value)) for f in fields(value) if _identifies(f, value)}
    if isinstance(value, list | tuple):
        return [settings(item) for item in value]
    return value


def _identifies(f: Field[Any], owner: Any) -> bool:
    """Whether a field's value is part of a cell's identity."""
    if f.metadata.get("grid") or f.metadata.get("report"):
        return False
    return "since" not in f.metadata or getattr(owner, f.name) != f.metadata["since"]


def _identifying(f: Field[Any], owner: Any) -> Any:
    """A field's value as identities know it: a renamed kind keeps its earlier name."""
    value = getattr(owner, f.name)
    return f.metadata["stored"].get(value, value) if "stored" in f.metadata else value


def digest(value: Any) -> str:
    """16 hexadecimal digits of the SHA-256 of a JSON value with sorted keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Identity:
    """What decides a cell's numbers, but for the cell parameters: shared by all cells of one job."""

    experiment: str
    version: int
    settings: Mapping[str, Any]
    threads: int
    device: str

    @classmethod
    def of(cls, name: str, experiment: Experiment, threads: int = 1, device: str = "cpu") -> Identity:
        return cls(name, experiment.version, settings(experiment), threads, device)

    @cached_property
    def key(self) -> str:
        """Hash of the settings; cells with the same key belong into one report."""
        return digest([self.experiment, self.version, self.settings, self.threads, self.device])

    def cell_id(self, cell: Cell, seed: int) -> str:
        return digest([self.key, dict(cell.params), seed])


@dataclass(frozen=True)
class Stored:
    """A finished cell: its directory and the content of its cell.json."""

    path: Path
    meta: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.path.name

    def table(self, name: str) -> pd.DataFrame:
        return csv.read(self.path / f"{name}.csv.gz")


def claim_outputs(root: Path) -> None:
    """Make `root` an output folder of hess-run, or refuse: it must be new, empty, or already ours, and writable."""
    check_outputs(root)
    marker = root / MARKER
    try:
        root.mkdir(parents=True, exist_ok=True)
        if not marker.exists():
            csv.write_bytes(marker, json.dumps({"project": "hess-run", "format": FORMAT}).encode() + b"\n")
    except OSError as error:
        reason = f"{root} cannot be written ({error.strerror})"
        raise SettingError(f"outputs: {reason}; choose another with outputs=PATH") from error


def check_outputs(root: Path) -> None:
    """Raise SettingError when `root` cannot serve as output folder; writes nothing."""
    place = root
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise SettingError(f"outputs: expected a folder, found the file {place}; choose another with outputs=PATH")
    if not os.access(place, os.W_OK | os.X_OK):
        raise SettingError(f"outputs: {root} cannot be written; choose another folder with outputs=PATH")
    marker = root / MARKER
    if marker.exists():
        try:
            found = json.loads(marker.read_text())
        except (OSError, ValueError):
            found = {}
        if not isinstance(found, dict) or found.get("project") != "hess-run" or found.get("format") != FORMAT:
            raise SettingError(f"outputs: {marker} is not this project's (format {FORMAT}); choose outputs=PATH")
    elif root.exists() and any(root.iterdir()):
        raise SettingError(
            f"outputs: {root} holds files that are not hess-run's (no {MARKER}); "
            "choose an empty folder with outputs=PATH"
        )


class Store:
    """The cells of one experiment below an output folder."""

    def __init__(self, outputs: Path, experiment: str) -> None:
        self.root = outputs / experiment
        self.cells = self.root / "cells"
        self.failures = self.root / "failures"
        self.logs = self.root / "logs"
        self.locks = self.root / ".locks"
        self.experiment = experiment

    def prepare(self) -> None:
        """Make the folders and remove what killed writers left behind."""
        for folder in (self.cells, self.failures, self.logs, self.locks):
            folder.mkdir(parents=True, exist_ok=True)
        for scratch in self.cells.glob(".tmp-*"):
            with self.lock(scratch.name.split("-")[1]) as mine:
                if mine:
                    final = self.cells / scratch.name.split("-")[1]
                    if scratch.name.endswith("-old") and not final.exists():
                        scratch.rename(final)  # killed between the two renames of a replacement
                    else:
                        shutil.rmtree(scratch, ignore_errors=True)

    def has(self, cell_id: str, since: float = 0.0) -> bool:
        """Whether the cell is stored, and was finished at or after `since` (seconds of the clock)."""
        return _written_since(self.cells / cell_id / "cell.json", since)

    def failed_since(self, cell_id: str, since: float) -> bool:
        """Whether a failure of the cell was recorded at or after `since`."""
        return _written_since(self.failures / f"{cell_id}.json", since)

    def get(self, cell_id: str) -> Stored:
        path = self.cells / cell_id
        return Stored(path, json.loads((path / "cell.json").read_text()))

    def all(self) -> Iterator[Stored]:
        """Every finished cell, in the order of ids."""
        if self.cells.is_dir():
            for path in sorted(self.cells.iterdir()):
                if not path.name.startswith(".") and (path / "cell.json").is_file():
                    yield self.get(path.name)

    @contextmanager
    def lock(self, cell_id: str) -> Iterator[bool]:
        """Hold the lock of a cell while inside; yields False at once when another process holds it.

        The operating system frees the lock of a process that dies, so a killed run never blocks the next one.
        """
        from filelock import FileLock, Timeout

        self.locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.locks / f"{cell_id}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            if self.has(cell_id):  # whoever still waits on this file finds the cell stored
                with suppress(OSError):
                    os.unlink(lock.lock_file)
            lock.release()

    def write(self, cell_id: str, tables: Mapping[str, pd.DataFrame], meta: Mapping[str, Any]) -> None:
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
            csv.write_bytes(scratch / "cell.json", json.dumps(content, indent=1, sort_keys=True).encode() + b"\n")
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
        return {p.stem: json.loads(p.read_text()) for p in sorted(self.failures.glob("*.json"))}

    def checkpoints(self, key: Mapping[str, Any]) -> DiskCheckpoints:
        """States of the training that `key` describes."""
        return DiskCheckpoints(self.root / "checkpoints" / digest(settings(dict(key))))


def _written_since(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except FileNotFoundError:
        return False


class DiskCheckpoints:
    """Named torch states in one folder, each replaced by one rename (`runner.contract.experiment.Checkpoints`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, name: str) -> Any | None:
        import torch

        path = self.folder / f"{name}.pt"
        if not path.is_file():
            return None
        return torch.load(path, weights_only=True)

    def save(self, name: str, state: Any) -> None:
        import io

        import torch

        buffer = io.BytesIO()
        torch.save(state, buffer)
        self.folder.mkdir(parents=True, exist_ok=True)
        csv.write_bytes(self.folder / f"{name}.pt", buffer.getvalue())


def merge(cells: Iterable[Stored]) -> dict[str, pd.DataFrame]:
    """Tables of many cells, one below the other in the order given."""
    import pandas as pd

    parts: dict[str, list[pd.DataFrame]] = {}
    for cell in cells:
        for name in cell.meta["tables"]:
            parts.setdefault(name, []).append(cell.table(name))
    return {name: pd.concat(frames, ignore_index=True) for name, frames in parts.items()}
