"""`hess-run open`: the page of an experiment, or the start page, in a browser."""

from __future__ import annotations

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
