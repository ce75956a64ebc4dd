"""What decides a cell's numbers, and the hash of it that is the cell's id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any

from runner.contract import Cell, Experiment


def digest(value: Any) -> str:
    """16 hexadecimal digits of the SHA-256 of a JSON value with sorted keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
