"""What a report is made from, as one hash: cells, settings, the paper's values, and the code that reads and draws.

A report whose hash is the one in its manifest need not be made again. The engine is not part of it: it made the cells,
which are.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from runner.contract.experiment import Experiment
from runner.store.identity import digest
from runner.store.store import Stored

RUNNER = Path(__file__).resolve().parents[1]
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


def start_made_from(root: Path) -> str:
    """Hash of everything that decides the start page of an output folder, and the rates over all reports."""
    names = ("manifest.json", "scorecard.csv", "claims.csv")
    files = [path for name in names for path in root.glob(f"*/{name}")]
    files += [root / "not_run.md", *root.glob("*/errata.json")]
    below = [path.relative_to(root).as_posix() for path in root.glob("*/*/manifest.json")]
    drawn = [path.relative_to(root).as_posix() for path in root.glob("*/figures/*.png")]
    content = [[path.relative_to(root).as_posix(), _file(path)] for path in sorted(files) if path.is_file()]
    return digest([content, sorted(below), sorted(drawn), [_folder(RUNNER / room) for room in ROOMS]])


def _code(experiment: Experiment) -> str:
    """Hash of the experiment's package of the first two levels (experiments/dag/) and of the reporting rooms."""
    module = sys.modules[type(experiment).__module__]
    parts = module.__name__.split(".")
    own = Path(str(module.__file__)).resolve()
    for _ in range(len(parts) - 2 if len(parts) > 2 else 0):
        own = own.parent
    folders = [own if own.is_dir() else own.parent if own.name == "__init__.py" else own]
    return digest([_folder(path) for path in (*folders, *(RUNNER / room for room in ROOMS))])


@cache
def _folder(path: Path) -> str:
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in CODE)
    return digest([[file.name, _file(file)] for file in files])


def _file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
