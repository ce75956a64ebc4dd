"""Where measured cells are: the working folder, one zip file a cell, and below it the published
cells.

    <outputs>/.hess-run.json                    says that this folder belongs to hess-run
    <outputs>/<experiment>/cells/<id>.zip       cell.json and <table>.csv.gz, by one rename
    <outputs>/<experiment>/cells/<id>.zip.damaged-N   damaged cells; never used or deleted
    <outputs>/<experiment>/failures/<id>.json   the error of a cell that failed; it is tried again
    <outputs>/<experiment>/checkpoints/         states of long trainings
    <outputs>/<experiment>/logs/                one file a job
    <outputs>/<experiment>/.locks/              one lock file a cell: one process measures it; and
                                                <id>.json, which process has begun

An id is a hash of everything that decides the numbers (`identity`), so a stored cell never has to
be measured again. A cell that is not in the working folder is looked for in the archive of
published cells (`archive`), which is never written here.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.contract import SettingError
from runner.files import is_scratch, locked, machine, remove, set_aside, sync_folder, write_bytes
from runner.store import tables as csv
from runner.store.archive import archive_bytes, published_cells
from runner.store.cells import CELL_JSON, SUM, CellFiles, Stored, file_of, merge, sum_of, sums_of
from runner.store.checkpoints import DiskCheckpoints
from runner.store.identity import digest
from runner.store.working import Working

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Store", "Stored", "merge"]

EXPERIMENT = "the cells of an experiment"
DIAGNOSIS = "a diagnosis"
"""Kinds of folders, in the words of messages."""
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
        self.states = Path(os.path.abspath(self.root)) / "checkpoints"  # asked for inside a cell
        self.experiment = experiment
        self.working = Working(self.cells, experiment)
        self.archive = published_cells(experiment) if published else None
        archives = [self.archive] if self.archive else []
        self.layers: tuple[CellFiles, ...] = (self.working, *archives)

    @property
    def damaged(self) -> dict[str, str]:
        """Cell -> why it cannot be used: what this object has read and not moved away."""
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
        return [
            f"{self.archive.path}: damaged cell {name} ({reason})"
            for name, reason in sorted(self.archive.damaged.items())
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

    def all(self, *, published: bool = True) -> Iterator[Stored]:
        """Every usable cell, in the order of ids."""
        layers = self.layers if published else self.layers[:1]
        for name in sorted({name for layer in layers for name in layer.names()}):
            cell = _first(layers, name)
            if cell is not None:
                yield cell

    def names(self) -> list[str]:
        """Name of every cell in the working folder or published, usable or not."""
        return sorted({name for layer in self.layers for name in layer.names()})

    def find(self, name: str) -> Stored | None:
        """The cell of the first layer that has it whole; None where none has."""
        return _first(self.layers, name)

    def quarantine(self, name: str) -> str:
        """Give what lies under a cell's name another one, by which it is neither used nor deleted;
        returns one line that says so."""
        reason = self.working.damaged.pop(name)
        try:
            place = f"moved to {_put_away(self.working.path(name))}"
        except OSError as error:
            place = f"left where it is, {error.strerror}"
        return (
            f"{self.experiment}: damaged cell {name} {place} ({reason}); it counts as not measured"
        )

    @contextmanager
    def lock(self, cell_id: str) -> Iterator[bool]:
        """Hold the lock of a cell while inside; yields False at once when another process holds
        it."""
        self.locks.mkdir(parents=True, exist_ok=True)
        path = self.locks / f"{cell_id}.lock"
        if path.is_dir():
            raise SettingError(
                f"outputs: expected a lock file, found the folder {path}; move it away"
            )
        with locked(path) as mine:
            yield mine
            # whoever still waits on this file finds the cell stored
            if mine and self.working.stamp(cell_id):
                remove(path, lambda file: file.stat().st_size == 0)

    def begin(self, cell_id: str, run: str) -> int:
        """Note that this process begins to measure a cell, whose lock it holds; how often it was
        begun before and never ended, since its process was killed."""
        times = int(self.begun(cell_id).get("times", 0))
        about = {"process": os.getpid(), "machine": machine(), "run": run, "times": times + 1}
        self._note(cell_id).write_text(json.dumps(about), encoding="utf-8")
        return times

    def begun(self, cell_id: str) -> dict[str, Any]:
        """Who has begun to measure a cell and has not ended: process, machine, run, times; empty
        for nobody."""
        return csv.json_of(self._note(cell_id))

    def end(self, cell_id: str) -> None:
        """Note that this process has ended to measure a cell, stored or not."""
        remove(self._note(cell_id), lambda file: True)

    def _note(self, cell_id: str) -> Path:
        return self.locks / f"{cell_id}.json"

    def write(
        self, cell_id: str, tables: Mapping[str, pd.DataFrame], meta: Mapping[str, Any]
    ) -> None:
        """Store a cell by one rename; the caller holds its lock. An earlier cell of the id is
        replaced whole."""
        files = {name: csv.compressed(csv.to_bytes(table)) for name, table in tables.items()}
        rows = {name: len(table) for name, table in tables.items()}
        # as it will be read: JSON has lists and texts where Python has tuples and other keys
        about = json.loads(json.dumps({**meta, "id": cell_id, "tables": rows, "status": "ok"}))
        record = json.dumps({**about, SUM: sum_of(about, sums_of(files))}, indent=1, sort_keys=True)
        entries = [(f"{cell_id}/{file_of(name)}", content) for name, content in files.items()]
        self.put(cell_id, [*entries, (f"{cell_id}/{CELL_JSON}", record.encode() + b"\n")])
        remove(self.failures / f"{cell_id}.json", lambda file: _record(file) is not None)

    def put(self, cell_id: str, entries: Iterable[tuple[str, bytes]]) -> None:
        """Write the zip file of a cell, whose lock the caller holds. What it replaces is kept,
        unless it is a whole cell of this id and nothing else."""
        path = self.working.path(cell_id)
        if os.path.lexists(path) and not self.working.is_replaceable(cell_id):
            moved = _put_away(path)
            LOGGER.warning("%s is not a whole cell alone and one's own; moved to %s", path, moved)
        for left in self.cells.glob(f".{path.name}.*"):  # no other process writes this cell
            remove(left, is_scratch)
        write_bytes(path, archive_bytes(entries))
        sync_folder(self.cells)

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
        return DiskCheckpoints(self.states / digest(dict(key)))


def _put_away(path: Path) -> Path:
    return set_aside(path, path.with_name(f"{path.name}.damaged"))


def _first(layers: Iterable[CellFiles], name: str) -> Stored | None:
    """The cell of the first of some layers that has it whole."""
    found = (layer.usable(name) for layer in layers)
    return next((cell for cell in found if cell is not None), None)


def _record(path: Path) -> dict[str, Any] | None:
    """A record of a failure; None for one that cannot be read, which is no loss: the cell is tried
    again anyway."""
    record = csv.json_of(path)
    return record if "error" in record else None
