"""The fingerprint of a report: one hash of its cells, its settings, the published values and the code that makes it.

A report whose manifest holds the same fingerprint is up to date. Processor, date and commit of the measurements are not
part of it; neither is the engine, whose results are the cells.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from runner.contract import Experiment
from runner.store.identity import digest
from runner.store.published import published_root
from runner.store.store import Stored

RUNNER = Path(__file__).resolve().parents[1]
REFERENCE = RUNNER.parent / "experiments" / "reference"
PACKAGES = ("report", "stats", "contract")
"""Packages of runner/ that make reports."""
CODE = (".py", ".html", ".css", ".js", ".md", ".toml")
"""Files of them that decide what a report says and how it looks."""
NOT_PART = ("cells", "beside", "fill_commands", "wall_seconds")
"""Keys of a manifest that the fingerprint leaves out; cells enter by id and checksum."""


def fingerprint(
    experiment: Experiment, cells: Sequence[Stored], manifest: Mapping[str, Any], files: Iterable[Path]
) -> str:
    """Hash of everything that decides the content of a report.

    Parameters
    ----------
    experiment
        Its package is part of the hash.
    cells
        Every cell that the report reads, companions included.
    manifest
        As `runner.report.collect.manifest` gives it.
    files
        The YAML file and the published values.
    """
    measured = [[cell.id, cell.meta.get("sha256")] for cell in cells]
    settings = {key: value for key, value in manifest.items() if key not in NOT_PART}
    code = [_folder(path) for path in (_package(experiment), *(RUNNER / name for name in PACKAGES))]
    return digest([measured, settings, code, [sha256(path) for path in files]])


def start_fingerprint(root: Path) -> str:
    """Hash of everything that decides the start page of an output folder, and the rates over all reports."""
    files = sorted([*root.glob("*/manifest.json"), *root.glob("*/errata.json")])
    content = [[path.relative_to(root).as_posix(), sha256(path)] for path in files]
    content += [[path.name, sha256(path)] for path in (*not_run_files(root), *REFERENCE.parent.glob("papers.toml"))]
    below = sorted(path.relative_to(root).as_posix() for path in root.glob("*/*/manifest.json"))
    return digest([content, below, [_folder(RUNNER / name) for name in PACKAGES]])


def not_run_files(root: Path) -> list[Path]:
    """Files that say what was not run and why: the published one, then that of the output folder."""
    folders = [*filter(None, [published_root()]), root]
    return [path for folder in folders if (path := folder / "not_run.md").is_file()]


def references(experiment: Experiment, files: Iterable[Path]) -> list[Path]:
    """Files of published values that a report may read: those that the experiment's code or its YAML file name."""
    text = _words(_package(experiment)).union(*(_words(path) for path in files))
    return [path for path in sorted(REFERENCE.glob("*.csv")) if path.stem in text]


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
    return digest([[file.name, sha256(file)] for file in _files(path)])


@cache
def _words(path: Path) -> frozenset[str]:
    text = (file.read_text(encoding="utf-8", errors="replace") for file in _files(path))
    return frozenset(word for content in text for word in re.findall(r"\w+", content))
