"""`hess-run store check`: is everything that is stored whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.contract import SettingError, one_of, setting
from runner.files import sweep
from runner.report.output.manifest import (
    NAME as MANIFEST,
    changed_files,
    is_published,
    read_manifest,
)
from runner.run.command_line import Call
from runner.run.keys import Outputs
from runner.run.reports import earlier_cells
from runner.store.archive import CELLS, published_root, report_folders, where_published
from runner.store.job import check_outputs
from runner.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Checked(Outputs):
    """What is examined, and what is done with what is damaged."""

    repair: bool = setting(False, help="rename damaged cells, so that the next run measures them")


def store_command(call: Call) -> int:
    """hess-run store check [outputs=PATH] [repair=true]

    Examines every stored cell: its SHA-256 and its id. Names the
    damaged ones, one line each; repair=true renames them to <id>.zip.damaged, and the next run
    measures them again. Names the files of reports that have changed, too; the next report
    makes them again. Exit status 1 if anything is damaged.

      hess-run store check outputs=outputs/run
    """
    one_of("store", call.words[0], ("check",))
    return check_store(call.keys.folder, call.keys.repair)


def check_store(root: Path, repair: bool = False) -> int:
    """Examine every stored cell and report; 1 when one is damaged. repair: rename damaged
    cells."""
    check_outputs(root)
    sweep(root)
    if not root.is_dir() and published_root() is None:
        raise SettingError(
            f"outputs: expected a folder with stored cells, found no {root}; set outputs=PATH; "
            f"{where_published()}"
        )
    total = 0
    lines = []
    earlier: list[str] = []
    for experiment in _experiments(root):
        store = Store(root, experiment)
        total += sum(1 for _ in store.all())
        for name, reason in sorted(store.damaged.items()):
            lines.append(
                store.quarantine(name)
                if repair
                else f"{experiment}: damaged cell {name} ({reason})"
            )
        lines += store.published_damage()
        earlier += filter(None, [earlier_cells(store)])
    reports = [line for folder in report_folders(root) for line in _changed_report(folder)]
    print("\n".join([*lines, *earlier, *reports, f"{total} cells are whole, {len(lines)} damaged"]))
    return 1 if lines or reports else 0


def _changed_report(folder: Path) -> list[str]:
    """A line for a report whose files are not what its manifest says; published ones come without
    merged tables and page."""
    manifest = read_manifest(folder)
    changed = [MANIFEST]
    if manifest is not None:
        changed = changed_files(folder, manifest)
    there = ", ".join(file for file in changed if is_published(file) or (folder / file).exists())
    return (
        [f"{folder}: changed after the report: {there}; the next report makes them again"]
        if there
        else []
    )


def _experiments(root: Path) -> list[str]:
    """Names of the experiments with cells in the working folder or published."""
    working = [path.parent.name for path in root.glob("*/cells") if path.is_dir()]
    folder = published_root()
    published = []
    if folder is not None:
        published = [path.parent.name for path in folder.glob(f"*/{CELLS}")]
    return sorted({*working, *published})
