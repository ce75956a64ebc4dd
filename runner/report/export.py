"""`hess-run site`: the reports of a store as one folder of pages and one zip file.

A site says in `.hess-run.json` which files it wrote, with their SHA-256, and its zip file in the
comment. A folder or a zip file with anything else is refused before a byte is written: nothing that
a user put there is lost.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from runner.contract import SettingError
from runner.files import (
    MARKER,
    is_listed,
    is_scratch,
    move_files,
    remove,
    scratch_path,
    sha256,
    sweep,
    write_bytes,
)
from runner.report.documents import write_documents
from runner.report.manifest import read_manifest, warnings_of
from runner.report.navigation import IN_DOCUMENTATION, SITE, Surroundings
from runner.report.page import Page
from runner.report.write import write_manifest, write_overview, write_page
from runner.store.archive import archive_bytes, is_marked
from runner.store.job import FORMAT, check_place
from runner.store.tables import read_json

KIND = "site"
COMMENT = b"hess-run site"


def export_site(
    folders: Iterable[Path],
    target: Path,
    draw: Callable[[Page, Path], object] = lambda page, place: None,
) -> list[str]:
    """Write the site into `target` and `target`.zip; returns names of folders whose report cannot
    be read.

    Parameters
    ----------
    folders
        One folder with a report for each experiment (`runner.store.archive.report_folders`).
    target
        A new or empty folder, or an earlier site without changes.
    draw
        Called with a report and its new folder: adds its figures in another format.

    Raises
    ------
    SettingError
        For a folder or a zip file with anything that this command did not write.
    """
    target = Path(os.path.abspath(target))
    packed = target.with_name(f"{target.name}.zip")
    earlier = _check_target(target)
    _check_zip(packed)
    target.mkdir(parents=True, exist_ok=True)
    sweep(target)
    work = scratch_path(target / KIND)
    work.mkdir()
    try:
        _write_mark(work, {}, {})
        left_out = _build(folders, work, draw, around_of(target))
        paths = sorted(path for path in work.rglob("*") if path.is_file() and path.name != MARKER)
        sums = {path.relative_to(work).as_posix(): sha256(path) for path in paths}
        content = [(f"{target.name}/{name}", (work / name).read_bytes()) for name in sums]
        _write_mark(target, sums, earlier)
        move_files(work, target, sums)
    finally:
        remove(work, lambda path: True)
    gone = {name: total for name, total in earlier.items() if name not in sums}
    for path in list(target.iterdir()):
        remove(path, is_listed(target, gone))
    _write_mark(target, sums, {})
    write_bytes(packed, archive_bytes(content, COMMENT))
    return left_out


def around_of(target: Path) -> Surroundings:
    """Whether a site is a part of the documentation: Sphinx leaves its index there."""
    return IN_DOCUMENTATION if (target.parent / "searchindex.js").is_file() else SITE


def _build(
    folders: Iterable[Path],
    work: Path,
    draw: Callable[[Page, Path], object],
    around: Surroundings,
) -> list[str]:
    """Write every page below `work`; returns names of folders whose report cannot be read."""
    left_out = []
    for folder in folders:
        page = Page.read(folder)
        if page is None:
            left_out.append(folder.name)
            continue
        place = work / page.name
        (place / "figures").mkdir(parents=True)
        for file in ("manifest.json", *page.manifest["files"]):
            if (folder / file).is_file():
                (place / file).parent.mkdir(exist_ok=True)
                write_bytes(place / file, (folder / file).read_bytes())
        draw(page, place)
        write_page(place, warnings_of(page.manifest, page.manifest["missing"]), around)
    if around is SITE:
        write_documents(work)
    write_overview(work, around)
    return left_out


def keep_drawn(page: Page, place: Path, earlier: Path, suffix: str) -> bool:
    """Copy the figures in a format of vectors from an earlier site's folder of the same report;
    False where it has not all of them."""
    record = read_manifest(earlier)
    if record is None or record["fingerprint"] != page.manifest["fingerprint"]:
        return False
    files = [str(Path(figure.file).with_suffix(f".{suffix}")) for figure in page.figures]
    if not set(files) <= set(record["files"]):
        return False
    for file in files:
        write_bytes(place / file, (earlier / file).read_bytes())
    listed = page.manifest["files"] | {file: record["files"][file] for file in files}
    write_manifest(place, {**page.manifest, "files": listed})
    return True


def _check_target(target: Path) -> dict[str, str]:
    """The files of an earlier site in `target`, with their SHA-256. Raises SettingError for
    anything else in it."""
    check_place(target, "to")
    if not target.exists():
        return {}
    mark = _mark(target)
    known = (is_listed(target, mark.get("files", {})), is_listed(target, mark.get("replaced", {})))
    folders = {target / parent for name in mark.get("files", {}) for parent in Path(name).parents}
    for path in sorted(target.rglob("*")):
        inside = path.relative_to(target)
        if (path == target / MARKER and mark) or is_scratch(target / inside.parts[0]):
            continue
        ours = path in folders if path.is_dir() else any(listed(path) for listed in known)
        if path.is_symlink() or not ours:
            found = (
                "changed since it was written"
                if inside.as_posix() in mark.get("files", {})
                else "not of a site"
            )
            raise SettingError(
                "to: expected a new or empty folder or an earlier site, "
                f"found {path} ({found}); choose another folder"
            )
    return {**mark.get("replaced", {}), **mark.get("files", {})}


def _mark(target: Path) -> dict[str, dict[str, str]]:
    """What the mark of a site says; empty for no mark, a damaged one, and that of another kind."""
    try:
        mark = read_json(target / MARKER)
    except (OSError, ValueError):
        return {}
    if not isinstance(mark, dict) or mark.get("kind") != KIND or mark.get("format") != FORMAT:
        return {}
    lists = (mark.get("files"), mark.get("replaced"))
    return mark if all(isinstance(of, dict) for of in lists) else {}


def _write_mark(folder: Path, files: Mapping[str, str], replaced: Mapping[str, str]) -> None:
    """Say which files of a folder are the site's; replaced: those of an earlier site that may still
    be there."""
    mark = {
        "project": "hess-run",
        "format": FORMAT,
        "kind": KIND,
        "files": files,
        "replaced": replaced,
    }
    write_bytes(folder / MARKER, json.dumps(mark, indent=1).encode() + b"\n")


def _check_zip(path: Path) -> None:
    """Raise SettingError for a file that is not the zip file of an earlier site, as it was
    written."""
    if not os.path.lexists(path):
        return
    try:
        same = path.is_file() and not path.is_symlink() and is_marked(path.read_bytes(), COMMENT)
    except OSError:
        same = False
    if not same:
        raise SettingError(
            f"to: {path} is not the zip file of an earlier site, or was changed; "
            "choose another folder"
        )
