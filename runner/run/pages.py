"""`hess-run open` and `hess-run site`: the pages in a browser, and all of them in one folder."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

from runner.contract import SettingError, one_of
from runner.run.call import Call
from runner.run.config import experiment_names


def open_command(call: Call) -> int:
    """Open a page and print where it is."""
    outputs, name = Path(call.keys.get("outputs", "outputs")), "".join(call.words)
    if name:
        one_of("open", name, experiment_names())
    page = (outputs / name / "index.html").absolute()
    if not page.is_file():
        made = f"hess-run report experiment={name}" if name else "hess-run report"
        raise SettingError(f"open: expected a page {page}, found none; make it with {made}")
    print(page)
    webbrowser.open(page.as_uri())
    return 0


def site_command(call: Call) -> int:
    """Build the site; exit status 1 where a report cannot be read."""
    from runner.report.site.export import export_site
    from runner.store.published import report_folders

    target = Path(call.keys.get("to", "site"))
    left_out = export_site(report_folders(Path(call.keys.get("outputs", "outputs"))), target)
    for name in left_out:
        line = f"{name}: expected a whole report, found changed files; see hess-run report experiment={name}"
        print(line, file=sys.stderr)
    print(f"site: {target / 'index.html'}, {target}.zip")
    return 1 if left_out else 0
