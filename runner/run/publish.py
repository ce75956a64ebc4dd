"""`hess-run publish`: merge finished cells and their report into the published results.

The only command that writes there. The archive and every file of the report appear by one rename
each, the manifest last: a publication that was killed is completed by the same command, and a
second one changes nothing.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from runner.contract import Cell, SettingError, quoted
from runner.files import is_listed, locked, remove, sweep, write_bytes
from runner.report.collect import place_of
from runner.report.output.manifest import NAME as MANIFEST, is_published, read_manifest, to_bytes
from runner.run.command_line import Call
from runner.run.config.jobs import build_jobs, protocol
from runner.run.config.overrides import arguments
from runner.run.reports import report_jobs
from runner.store import code, tables
from runner.store.archive import CELLS, archive_bytes, published_root, where_published
from runner.store.cells import Stored
from runner.store.identity import Identity
from runner.store.job import PAPER, Job
from runner.store.store import Store

SHOWN = 20
"""Lines shown of each kind of change."""


def publish_command(call: Call) -> int:
    """hess-run publish EXPERIMENT [key=value ...] [outputs=PATH]

    For maintainers: merges finished cells and their report into the published results. git diff
    shows what has changed, and git restore takes it back.
    """
    print("\n".join(publish(call.words[0], call.settings, call.keys.folder)))
    return 0


def publish(experiment: str, settings: Sequence[str], outputs: Path) -> list[str]:
    """Publish the finished cells of an experiment and their report; returns what changed, one line
    each.

    Parameters
    ----------
    experiment, settings
        Cells of the paper's protocol, of its companions, and of settings that are published
        already; settings (``key=value``) add those of a run with changed settings.
    outputs
        Folder with the cells.

    Raises
    ------
    SettingError
        If a cell was measured from a changed working tree, if the archive is damaged, or if there
        is no folder of published results.
    """
    root = published_root()
    if root is None:
        raise SettingError(f"publish: {where_published()}")
    job = build_jobs(
        arguments([f"experiment={experiment}", *settings, quoted("outputs", outputs)])
    )[0]
    folder = root / experiment
    folder.mkdir(exist_ok=True)
    with locked(folder / ".publish.lock") as mine:
        if not mine:
            raise SettingError(f"publish: another process is publishing {experiment}")
        sweep(folder)
        return _publish(job, folder)


def _publish(job: Job, folder: Path) -> list[str]:
    store = job.store
    before = _published(store)
    added, replaced = _changes(store, before, _keys(job, before))
    _refuse_changed_trees([*added, *replaced])
    report_jobs([job], any_seed=True)
    place = place_of(job, protocol).folder
    target = folder / place.relative_to(store.root)
    content = _content(place, code.digests_of(job.experiment))
    if added or replaced:
        cells = {**before, **{cell.id: cell for cell in (*added, *replaced)}}
        entries = [entry for cell in cells.values() for entry in cell.entries()]
        write_bytes(folder / CELLS, archive_bytes(entries))
    files = _update(target, content)
    lines = [
        *_named("added", added),
        *_named("replaced", replaced),
        *(f"  file {name}" for name in files[:SHOWN]),
    ]
    if not (added or replaced or files):
        return [*lines, f"{job.name}: nothing to publish"]
    count = f"{len(added)} cells added, {len(replaced)} replaced"
    return [*lines, f"{job.name}: {count}, {len(files)} files of the report changed"]


def _published(store: Store) -> dict[str, Stored]:
    """The published cells by id. Raises SettingError for a damaged archive: its cells must not be
    lost."""
    if store.archive is None:
        return {}
    found = {name: store.archive.usable(name) for name in store.archive.names()}
    if damage := store.published_damage():
        raise SettingError(
            f"publish: expected an undamaged archive, found {damage[0]}; "
            "restore it with git checkout"
        )
    return {name: cell for name, cell in found.items() if cell is not None}


def _keys(job: Job, before: Mapping[str, Stored]) -> set[str]:
    """Keys of the settings whose cells are published."""
    paper = protocol(job.name, PAPER)
    companions = [companion.experiment for companion in paper.companions().values()]
    own = {Identity.of(job.name, experiment).key for experiment in (paper, *companions)}
    return own | {job.identity.key} | {cell.meta["settings_key"] for cell in before.values()}


def _changes(
    store: Store, before: Mapping[str, Stored], keys: Collection[str]
) -> tuple[list[Stored], list[Stored]]:
    """(new cells, cells with other tables than the published ones) of the working folder, of these
    settings."""
    added = []
    replaced = []
    for cell in store.all(published=False):
        if cell.meta["settings_key"] not in keys:
            continue
        if cell.id not in before:
            added.append(cell)
        elif cell.sums != before[cell.id].sums:
            replaced.append(cell)
    return added, replaced


def _refuse_changed_trees(cells: Sequence[Stored]) -> None:
    clean = re.compile(r"[^+]{12,}")
    commits = {cell.id: str(cell.meta["software"].get("git_commit")) for cell in cells}
    wrong = [cell for cell in cells if not clean.fullmatch(commits[cell.id])]
    if wrong:
        found = f"{len(wrong)} cells that were not, such as {wrong[0].id}"
        raise SettingError(
            f"publish: expected cells measured from a clean commit, found {found}; commit, "
            "then measure them again "
            "with force=true"
        )


def _named(what: str, cells: Sequence[Stored]) -> list[str]:
    lines = [
        f"  cell {what}: {cell.id} seed={cell.meta['seed']} {Cell(cell.meta['params']).label}"
        for cell in cells
    ]
    more = [f"  and {len(lines) - SHOWN} more cells {what}"] if len(lines) > SHOWN else []
    return [*lines[:SHOWN], *more]


def _content(place: Path, of_code: Sequence[str]) -> dict[str, bytes]:
    """Files of a report that are published, with their content: not the page and the tables that
    the cells give at once. The manifest, the last, has the digests of the code for which the cells
    hold, and its commands name no folder of this machine.

    Raises SettingError for no report, or one with failures.
    """
    if read_manifest(place) is None:
        raise SettingError(
            f"publish: expected a report in {place}, found none; see hess-run report"
        )
    manifest = tables.read_json(place / MANIFEST)
    if failures := manifest["report_failures"]:
        raise SettingError(
            f"publish: expected a report without failures, found {len(failures)} in {place}"
        )
    files = filter(is_published, manifest["files"])
    content = {name: (place / name).read_bytes() for name in files}
    cleaned = []
    for command in manifest["fill_commands"]:
        words = [word for word in shlex.split(command) if not word.startswith("outputs=")]
        cleaned.append(shlex.join(words))
    return content | {MANIFEST: to_bytes({**manifest, "fill_commands": cleaned, "code": of_code})}


def _update(target: Path, content: Mapping[str, bytes]) -> list[str]:
    """Bring the files of a published report to this content, the manifest last; names of those
    that changed. A manifest that differs in times alone stays."""
    there = read_manifest(target) or {"files": {}}
    manifest = json.loads(content[MANIFEST])
    changed = [
        name for name in content if name != MANIFEST and not _holds(target / name, content[name])
    ]
    if changed or any(there.get(key) != manifest[key] for key in ("fingerprint", "code")):
        changed.append(MANIFEST)
    gone = sorted(name for name in {*there["files"]} - {*content} if (target / name).is_file())
    for name in gone:
        remove(target / name, is_listed(target, there["files"]))
    (target / "figures").mkdir(parents=True, exist_ok=True)
    for name in changed:
        write_bytes(target / name, content[name])
    return [*changed, *gone]


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content
