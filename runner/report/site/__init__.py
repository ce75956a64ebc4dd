"""The static site below an output folder: a start page, and one page for each experiment, from the files of its report.

`model` reads what `runner.report.write` has written, `build` renders it; `templates/` holds the pages, their style and
their script. No server, no network, no file from elsewhere: a page works from a folder, a mail or an archive.
"""

from runner.report.site.build import build_experiment, build_start

__all__ = ["build_experiment", "build_start"]
