"""`hess-run open` and `hess-run site`: the pages of the reports."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from runner.contract import SettingError, one_of, short, typed_path
from runner.run import config
from runner.run.command_line import Call
from runner.run.config import experiment_names
from runner.run.reports import read_jobs, report_jobs, say_step, stored_jobs
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
        about = replace(call, settings=(*named, config.quoted("outputs", outputs)))
        report_jobs(read_jobs(about)[1] if name else stored_jobs(about), any_seed=True)
    if not page.is_file():
        made = f"hess-run report experiment={name}" if name else "hess-run report"
        raise SettingError(
            f"open: expected a page {page}, found none; make it with {made}; {where_published()}"
        )
    print(page)
    webbrowser.open(page.as_uri())
    return 0


def site_command(call: Call) -> int:
    """hess-run site [to=DIR] [outputs=PATH] [figures=pdf|svg]

    Builds the complete static site (reports, pages, start page) into DIR (default: site) and into
    DIR.zip: the reports below PATH, and the published ones of every other experiment. It needs no
    server and loads nothing from outside. figures: draws every figure in that format, too, for
    download (some minutes), unless an earlier site in DIR has them of the same report.
    """
    from runner.report.export import export_site, keep_drawn
    from runner.report.page import VECTOR, Page
    from runner.report.update import draw
    from runner.store.archive import report_folders

    target = typed_path("to", call.keys.get("to", "site"))
    outputs = call.outputs
    reports = report_folders(outputs)
    if not reports:
        raise SettingError(
            f"site: expected reports below {outputs}, found none; {where_published()}"
        )
    suffix = call.keys.get("figures", "")
    if suffix not in ("", *VECTOR):
        raise SettingError(f"figures: expected one of {', '.join(VECTOR)}, found {short(suffix)}")
    place = config.quoted("outputs", outputs)
    stored = stored_jobs(replace(call, settings=(place,))) if suffix else []
    jobs = {job.identity.key: job for job in stored}

    def add_figures(page: Page, place: Path) -> None:
        job = jobs.get(page.manifest["settings_key"])
        if job is not None and not keep_drawn(page, place, target / page.name, suffix):
            say_step(f"figures of {page.name}")
            draw([job], config.protocol, suffix=suffix, any_seed=True, to=place)

    left_out = export_site(reports, target, add_figures)
    for name in left_out:
        line = (
            f"{name}: expected a whole report, found changed files; "
            f"see hess-run report experiment={name}"
        )
        print(line, file=sys.stderr)
    print(f"site: {target / 'index.html'}, {target}.zip")
    return 1 if left_out else 0
