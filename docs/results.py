"""Write the pages of the published results as a part of the documentation.

`make docs` runs `python -m docs.results FOLDER`, where FOLDER is new and next to the index that
Sphinx wrote.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from runner.files import write_bytes
from runner.report.manifest import warnings_of
from runner.report.navigation import ABOVE
from runner.report.page import Page
from runner.report.write import write_overview, write_page
from runner.store.archive import report_folders


def build(folders: Iterable[Path], target: Path) -> None:
    """Copy the reports in these folders below `target`, and write their pages and the start page.
    Raises ValueError for a report whose files have changed."""
    for folder in folders:
        page = Page.read(folder)
        if page is None:
            raise ValueError(f"{folder}: expected a whole report, found changed files")
        place = target / page.name
        (place / "figures").mkdir(parents=True)
        for file in ("manifest.json", *page.manifest["files"]):
            if (folder / file).is_file():
                write_bytes(place / file, (folder / file).read_bytes())
        write_page(place, warnings_of(page.manifest, page.manifest["missing"]), ABOVE)
    write_overview(target, ABOVE)


if __name__ == "__main__":
    build(report_folders(Path("outputs/published")), Path(sys.argv[1]))
