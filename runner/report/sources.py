"""What a report is made from, as one hash: cells, settings, the paper's values, and the code that reads and draws.

A report whose hash is the one in its manifest need not be made again. The engine is not part of it: it made the cells,
which are.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from runner.contract import Experiment
from runner.report.watched import NAMES
from runner.store.identity import digest
from runner.store.published import published_root
from runner.store.store import Stored

RUNNER = Path(__file__).resolve().parents[1]
REFERENCE = RUNNER.parent / "experiments" / "reference"
ROOMS = ("report", "stats", "contract")
"""Rooms of runner/ that reports are made by."""
CODE = (".py", ".html", ".css", ".js")
"""Files of them that decide what a report says and how it looks."""


def made_from(
    experiment: Experiment, cells: Sequence[Stored], manifest: Mapping[str, Any], files: Iterable[Path]
) -> str:
    """Hash of everything that decides a report's content. files: the YAML file and the paper's values."""
    measured = [[cell.id, cell.meta["finished"], cell.meta.get("sha256")] for cell in cells]
    said = {key: value for key, value in manifest.items() if key not in ("written", "software", "made_from")}
    return digest([measured, said, _code(experiment), [_file(path) for path in files]])


@dataclass(frozen=True)
class Sources:
    """What the figures of a report are made from, table by table.

    common: hash of what all of them share: settings, code, files. content: name of a table (of a companion's:
    companion/table) -> hash of its cells and their sums. cells: name of an own table -> ids of the cells that have it.
    """

    common: str
    content: Mapping[str, str]
    cells: Mapping[str, frozenset[str]]

    def key(self, *, names: Iterable[str], stamp: Mapping[str, Any], held: Sequence[str]) -> str:
        """Hash of all that decides a figure: these tables (absent ones too), its stamp, what its maker holds."""
        found = [[name, self._of(name)] for name in sorted(set(names))]
        return digest([self.common, found, {key: str(value) for key, value in stamp.items()}, list(held)])

    def _of(self, name: str) -> str:
        return digest(sorted(self.content)) if name == NAMES else self.content.get(name, "absent")

    def behind(self, manifest: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
        """The manifest with the cells and seeds of these tables alone; whole where they are not known, or not all its
        own."""
        wanted = {name for name in names if name in self.content}
        if not wanted or not wanted <= set(self.cells):
            return manifest
        ids = frozenset().union(*(self.cells[name] for name in wanted))
        cells = [cell for cell in manifest["cells"] if cell["id"] in ids]
        return {**manifest, "cells": cells, "seeds": sorted({cell["seed"] for cell in cells})}


SHARED = ("title", "paper", "version", "settings", "settings_key", "threads", "device", "surrogate", "not_comparable")
"""Of a manifest, what decides every figure; seeds, cells and warnings are in their stamps."""


def sources(
    experiment: Experiment,
    cells: Sequence[Stored],
    beside: Mapping[str, Sequence[Stored]],
    manifest: Mapping[str, Any],
    files: Iterable[Path],
) -> Sources:
    """The sources of a report's figures. beside: cells of companions by name; files: as in `made_from`."""
    content: dict[str, list[Any]] = {}
    own: dict[str, set[str]] = {}
    for prefix, members in (("", cells), *((f"{name}/", of) for name, of in beside.items())):
        for cell in members:
            for table in cell.meta["tables"]:
                there = (cell.meta.get("sha256") or {}).get(table, cell.meta["finished"])
                content.setdefault(prefix + table, []).append([cell.id, there])
                if not prefix:
                    own.setdefault(table, set()).add(cell.id)
    shared = {key: manifest.get(key) for key in SHARED}
    common = digest([shared, _code(experiment), [_file(path) for path in files]])
    return Sources(
        common, {name: digest(of) for name, of in content.items()}, {name: frozenset(ids) for name, ids in own.items()}
    )


def start_made_from(root: Path) -> str:
    """Hash of everything that decides the start page of an output folder, and the rates over all reports."""
    names = ("manifest.json", "scorecard.csv", "claims.csv")
    files = [path for name in names for path in root.glob(f"*/{name}")]
    files += [*not_run_files(root), *root.glob("*/errata.json")]
    below = [path.relative_to(root).as_posix() for path in root.glob("*/*/manifest.json")]
    drawn = [path.relative_to(root).as_posix() for path in root.glob("*/figures/*.png")]
    names = {path: path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name for path in files}
    content = [[names[path], _file(path)] for path in sorted(files) if path.is_file()]
    return digest([content, sorted(below), sorted(drawn), [_folder(RUNNER / room) for room in ROOMS]])


def not_run_files(root: Path) -> list[Path]:
    """Files that say what was not run and why: the published one, then that of the output folder."""
    folders = [*filter(None, [published_root()]), root]
    return [path for folder in folders if (path := folder / "not_run.md").is_file()]


def references(experiment: Experiment, files: Iterable[Path]) -> list[Path]:
    """Files of printed values that a report may read: those that the experiment's code or its YAML file name."""
    text = _words(_package(experiment)).union(*(_words(path) for path in files))
    return [path for path in sorted(REFERENCE.glob("*.csv")) if path.stem in text]


def _code(experiment: Experiment) -> str:
    """Hash of the experiment's package and of the reporting rooms."""
    return digest([_folder(path) for path in (_package(experiment), *(RUNNER / room for room in ROOMS))])


def _package(experiment: Experiment) -> Path:
    """The experiment's package of the first two levels (experiments/dag/), or its module alone."""
    module = sys.modules[type(experiment).__module__]
    parts = module.__name__.split(".")
    own = Path(str(module.__file__)).resolve()
    for _ in range(len(parts) - 2 if len(parts) > 2 else 0):
        own = own.parent
    return own if own.is_dir() else own.parent if own.name == "__init__.py" else own


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in CODE)


@cache
def _folder(path: Path) -> str:
    return digest([[file.name, _file(file)] for file in _files(path)])


@cache
def _words(path: Path) -> frozenset[str]:
    return frozenset(word for file in _files(path) for word in re.findall(r"\w+", file.read_text(errors="replace")))


def _file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
