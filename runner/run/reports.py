"""The jobs of a command line, and their reports: `hess-run report`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner import results
from runner.contract import SettingError, described, quoted, setting
from runner.files import sweep
from runner.run.command_line import Call
from runner.run.config import files
from runner.run.config.experiment import composition
from runner.run.config.files import experiment_names
from runner.run.config.jobs import build_jobs, distinct, protocol
from runner.run.config.overrides import Arguments
from runner.run.keys import Keys
from runner.run.streams import say
from runner.store.archive import published_folder, where_published
from runner.store.costs import duration
from runner.store.job import Job, check_outputs, is_claimed
from runner.store.store import Store
from runner.store.upkeep import cells_as_folders

PACKING = "06fc71c5"
"""The last commit that reads cells that are folders; a run there that measures stores them as zip
files."""


def read_jobs(call: Call) -> tuple[Arguments, list[Job]]:
    """The arguments of a command line and every checked job of it."""
    arguments = call.arguments()
    jobs = build_jobs(arguments)
    for outputs in {job.outputs for job in jobs}:
        check_outputs(outputs)
        sweep(outputs)  # what killed processes have left
    stores = {job.store.root: job.store for job in jobs}
    for line in filter(None, map(earlier_cells, stores.values())):
        say(line)
    for notice in dict.fromkeys(composition(words).notice for words in distinct(arguments)):
        if notice:
            say(notice)
    return arguments, jobs


def earlier_cells(store: Store) -> str:
    """One line on cells that are stored as version 0.3.0 stored them; "" where there are none."""
    count, seconds = cells_as_folders(store)
    if not count:
        return ""
    place = quoted("outputs", store.root.parent)
    return (
        f"{store.cells}: {count} cells are folders, as version 0.3.0 stored them, and are not "
        f"read; check out {PACKING} and run `hess-run experiment={store.experiment} profile=quick "
        f"force=true {place}` there, which puts them into zip files; to measure them again takes "
        f"{duration(seconds)} of one core"
    )


def report_jobs(jobs: Sequence[Job], any_seed: bool = False, partial: bool = False) -> bool:
    """Report each set of settings among `jobs` once; True when every report was made without
    failures and no cell is missing.

    any_seed: as in `runner.report.update.report`. partial: cells may be missing.
    """
    from runner.report.output.start import write_overview

    groups: dict[tuple[Path, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.outputs, job.identity.key), []).append(job)
    folders = {job.outputs for job in jobs}
    complete = [_report_one(members, any_seed, partial) for members in groups.values()]
    for outputs in folders:
        if is_claimed(outputs):  # a folder without any report has no start page
            write_overview(outputs)
    return all(complete)


def _report_one(jobs: Sequence[Job], any_seed: bool, partial: bool) -> bool:
    """Report jobs of the same settings; True as in `report_jobs`."""
    from runner.report.output.manifest import read_manifest
    from runner.report.update import Configuration, report

    name = jobs[0].name
    path = files.CONF / "experiment" / f"{name}.yaml"
    try:
        collection, lines = report(
            jobs,
            protocol,
            configuration=Configuration([path] if path.is_file() else [], files.fingerprint(name)),
            published=published_folder(name),
            any_seed=any_seed,
            say=say_step,
        )
    except (SettingError, OSError, MemoryError):
        raise
    # one experiment whose files are damaged must not stop the others
    except Exception as error:
        say(f"{name}: no report ({described(error)})")
        return False
    print("\n".join(lines))
    for cell in collection.failures:
        print(f"  failed: {cell}: {cell.error}", file=sys.stderr)
    stored = {cell.id for cell in collection.cells}
    for cells in collection.beside.values():  # a companion's cells count as stored, too
        stored |= {cell.id for cell in cells}
    made = read_manifest(collection.place.folder)
    if made is not None and made["report_failures"]:
        return False
    return partial or all(cell_id in stored for job in jobs for cell_id, _ in job.cells())


def say_step(line: str) -> None:
    """The step that a report is at, on a terminal: one line that the next one covers."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="\r", file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class Drawing(Keys):
    """What is drawn next to a report."""

    figure: str = setting("", help="name of one that is drawn alone")
    figures: str = setting("png", choices=("png", "pdf", "svg"), help="format, next to PNG")
    figure_width: float = setting(
        0.0, off=0, at_least=1.5, at_most=40, unit="inches", help="0 for its own; a further file"
    )
    figure_height: float = setting(0.0, off=0, at_least=1.5, at_most=40, unit="inches")

    @property
    def alone(self) -> list[str]:
        """The keys that are about figures of one experiment."""
        return [name for name in ("figure", "figure_width", "figure_height") if getattr(self, name)]


def report_command(call: Call) -> int:
    """hess-run report [experiment=NAME] [key=value ...]

    Tables, figures, statistics, claims, scorecard and pages from stored cells, of one set of
    settings or, without experiment, of every experiment that has any. Measures nothing, and leaves
    what is up to date as it is. With a key of its own only figures are drawn.

      hess-run report                                everything below outputs/
      hess-run report experiment=ws_bound outputs=outputs/run
      hess-run report experiment=ws_bound figure=fig11_width figure_width=5 figures=pdf
    """
    asked: Drawing = call.keys
    one = any(word.startswith("experiment=") for word in call.settings)
    if asked.alone and not one:
        raise SettingError(f"{asked.alone[0]}: expected experiment=NAME next to it")
    jobs = read_jobs(call)[1] if one else stored_jobs(call)
    if not jobs:
        print(
            "nothing is stored yet; begin with: hess-run experiment=NAME (see hess-run list); "
            f"{where_published()}"
        )
        return 0
    any_seed = not any(word.startswith("seed=") for word in call.settings)
    if asked != Drawing():
        from runner.report.output.start import write_overview
        from runner.report.update import draw

        size = asked.figure_width, asked.figure_height
        about: Any = {"figure": asked.figure, "suffix": asked.figures, "size": size}
        for job in jobs:
            print("\n".join(draw([job], protocol, any_seed=any_seed, **about)))
        for outputs in {job.outputs for job in jobs}:
            write_overview(outputs)
        return 0
    stores = {job.store.root: job.store for job in jobs}
    left_out = [line for store in stores.values() for line in store.examined().left_out()]
    if left_out:
        print(results.damage_line(left_out))
    made = report_jobs(jobs, any_seed, partial=True)
    return 0 if made and not left_out else 1


def stored_jobs(call: Call) -> list[Job]:
    """A job of every experiment that has cells."""
    of_each = [
        replace(call, settings=(f"experiment={name}", *call.settings))
        for name in experiment_names()
    ]
    return [job for one in of_each for job in read_jobs(one)[1] if job.store.names()]
