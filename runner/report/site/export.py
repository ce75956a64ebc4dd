"""The complete static site: every report, the pages and the start page in one folder, and the same in one zip file."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from runner.report.provenance import warnings_of
from runner.report.site.model import Page
from runner.report.write import write_overview, write_page
from runner.store.archive import archive_bytes
from runner.store.outputs import claim_outputs
from runner.store.tables import write_bytes


def export_site(folders: Iterable[Path], target: Path) -> list[str]:
    """Write the site into `target` and `target`.zip; returns names of folders whose report cannot be read.

    Parameters
    ----------
    folders
        One folder with a report for each experiment (`runner.store.published.report_folders`).
    target
        A new or empty folder, or one of an earlier site.
    """
    claim_outputs(target)
    left_out = []
    for folder in folders:
        page = Page.read(folder)
        if page is None:
            left_out.append(folder.name)
            continue
        place = target / page.name
        shutil.rmtree(place, ignore_errors=True)
        (place / "figures").mkdir(parents=True)
        for file in ("manifest.json", *(name for name in page.manifest["files"] if (folder / name).is_file())):
            shutil.copyfile(folder / file, place / file)
        write_page(place, warnings_of(page.manifest, page.manifest["missing"]))
    write_overview(target)
    files = [path for path in target.rglob("*") if path.is_file() and not path.name.startswith(".")]
    content = ((f"{target.name}/{path.relative_to(target).as_posix()}", path.read_bytes()) for path in files)
    write_bytes(target.with_name(f"{target.name}.zip"), archive_bytes(content))
    return left_out
