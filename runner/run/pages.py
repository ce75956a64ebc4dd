"""`hess-run open`: the pages of the reports."""

from __future__ import annotations

from dataclasses import replace

from runner.contract import SettingError, one_of, quoted
from runner.run.command_line import Call
from runner.run.config import experiment_names
from runner.run.reports import read_jobs, report_jobs, stored_jobs
from runner.store.archive import where_published


def open_command(call: Call) -> int:
    """hess-run open [NAME] [outputs=PATH]

    Opens the page of an experiment in a browser, or the start page; prints where it is. A page
    that is not there yet is made from the stored cells, published ones included.
    """
    import webbrowser

    outputs = call.outputs
    name = "".join(call.words)
    if name:
        one_of("open", name, experiment_names())
    page = (outputs / name / "index.html").absolute()
    if not page.is_file():
        named = (f"experiment={name}",) if name else ()
        about = replace(call, settings=(*named, quoted("outputs", outputs)))
        report_jobs(read_jobs(about)[1] if name else stored_jobs(about), any_seed=True)
    if not page.is_file():
        made = f"hess-run report experiment={name}" if name else "hess-run report"
        raise SettingError(
            f"open: expected a page {page}, found none; make it with {made}; {where_published()}"
        )
    print(page)
    webbrowser.open(page.as_uri())
    return 0
