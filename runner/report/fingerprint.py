"""Fingerprints of reports: one digest of cells, settings, published values and code.

A report whose manifest holds the same fingerprint is up to date. Processor, date and commit of the
measurements are not part of it; neither is the engine, whose results are the cells. Of a module its
syntax tree counts, so that a comment changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.contract import Experiment
from runner.files import sha256
from runner.report.answers.reference import REFERENCE
from runner.store.archive import CELLS, published_folder
from runner.store.code import package_of, tree_of
from runner.store.identity import digest
from runner.store.store import Stored

RUNNER = Path(__file__).resolve().parents[1]
PACKAGES = ("report", "stats", "contract")
"""Packages of runner/ that make reports."""
SOURCES = (".py", ".html", ".css", ".js", ".toml", ".mplstyle", ".csv", ".md")
"""Files of a package that decide what a report says and how it looks."""
NOT_PART = ("cells", "beside", "fill_commands", "wall_seconds", "options")
"""Keys of a manifest that the fingerprint leaves out; cells enter by id and checksum."""


def fingerprint(
    experiment: Experiment,
    cells: Sequence[Stored],
    manifest: Mapping[str, Any],
    files: Iterable[Path],
) -> str:
    """Hash of everything that decides the content of a report: cells, settings, published values,
    and the packages that make it.

    Parameters
    ----------
    experiment
        All its settings, those that only reports read included.
    cells
        Every cell that the report reads, companions included.
    manifest
        As `runner.report.output.record.record_of` gives it.
    files
        The YAML file.
    """
    measured = [[cell.id, cell.sums] for cell in cells]
    settings = {key: value for key, value in manifest.items() if key not in NOT_PART}
    read = [*sorted(files), *map(archive_of, experiment.reads)]
    sums = [sha256(path) for path in read if path is not None]
    code = []
    for path in code_files(type(experiment)):
        code.append([path.name, tree_of(path) if path.suffix == ".py" else sha256(path)])
    return digest([measured, settings, str(experiment), sorted(code), sums])


def archive_of(experiment: str) -> Path | None:
    """The published cells of an experiment, None where there are none."""
    folder = published_folder(experiment)
    if folder is not None and (folder / CELLS).is_file():
        return folder / CELLS
    return None


def code_files(experiment: type[Experiment]) -> list[Path]:
    """Files that decide what a report says and how it looks: of the package that an experiment is
    in, of the modules next to it, and of the packages that make reports."""
    found = [*package_of(experiment.__module__), *(RUNNER.parent / "experiments").glob("*.py")]
    for folder in (*(RUNNER / name for name in PACKAGES), REFERENCE):
        found += folder.rglob("*")
    return [path for path in found if path.suffix in SOURCES]
