"""The published layer: outputs/published/<experiment>/ of the clone that the package lies in, read-only at run time."""

from __future__ import annotations

import os
from pathlib import Path

from runner.store.archive import Archive, open_archive

VARIABLE = "HESS_PUBLISHED"
"""Environment variable with another place for the published results; empty: there are none."""
NAME = "published"
"""Folder below outputs/ that git tracks."""
CELLS = "cells.zip"


def published_root() -> Path | None:
    """Folder of the published results; None where there is none, as in an installed wheel."""
    place = os.environ.get(VARIABLE)
    if place is not None:
        root = Path(place) if place else None
    else:
        root = Path(__file__).resolve().parents[2] / "outputs" / NAME
    return root if root is not None and root.is_dir() else None


def published_folder(experiment: str) -> Path | None:
    """Folder of the published results of an experiment; None where there is none."""
    root = published_root()
    folder = root / experiment if root is not None else None
    return folder if folder is not None and folder.is_dir() else None


def published_cells(experiment: str) -> Archive | None:
    """The published cells of an experiment; None where there are none."""
    folder = published_folder(experiment)
    return open_archive(folder / CELLS) if folder is not None else None


def report_folders(outputs: Path) -> list[Path]:
    """Folder of the report of every experiment that has one: the one below `outputs`, else the published one."""
    root = published_root()
    places = [*(root.glob("*/manifest.json") if root is not None else ()), *outputs.glob("*/manifest.json")]
    found = {path.parent.name: path.parent for path in places}
    return [found[name] for name in sorted(found)]


def where_published() -> str:
    """Where published results are read from, in words; and what to do where there are none."""
    root = published_root()
    if root is not None:
        return f"published results are read from {root}"
    return f"published results are not here: clone the repository, or set {VARIABLE} to its outputs/{NAME}"
