"""The jobs of a command line, and the reports of what is stored of them: after a run, and by `hess-run report`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.contract import SettingError
from runner.run import config
from runner.run.call import Call
from runner.run.config import files
from runner.run.config.overrides import Arguments
from runner.run.exit_status import say
from runner.run.messages import short
from runner.store.job import Job
from runner.store.outputs import check_outputs
from runner.store.published import published_folder
from runner.store.scratch import sweep


def read_jobs(call: Call) -> tuple[Arguments, list[Job]]:
    """The arguments of a command line and every checked job of it."""
    arguments = call.arguments()
    jobs = config.build_jobs(arguments)
    _check_outputs(jobs)
    for notice in dict.fromkeys(config.composition(words).notice for words in config.distinct(arguments)):
        if notice:
            say(notice)
    return arguments, jobs


def _check_outputs(jobs: Sequence[Job]) -> None:
    for outputs in {job.outputs for job in jobs}:
        try:
            check_outputs(outputs)
        except OSError as error:
            raise SettingError(f"outputs: {short(outputs)} cannot be used ({error.strerror})") from error


def report_jobs(jobs: Sequence[Job], any_seed: bool = False) -> bool:
    """Report each set of settings among `jobs` once; True when every report was made and no cell is missing.

    any_seed: as in `runner.report.update.report`.
    """
    from runner.report.update import report
    from runner.report.write import write_overview

    groups: dict[tuple[Path, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.outputs, job.identity.key), []).append(job)
    complete = True
    for outputs in {job.outputs for job in jobs}:
        sweep(outputs)  # what a report that was killed has left: a run that finds all cells stored sweeps nothing
    for members in groups.values():
        paths = [files.CONF / "experiment" / f"{members[0].name}.yaml"]
        paths = [path for path in paths if path.is_file()]
        published = published_folder(members[0].name)
        try:
            about = {"files": paths, "published": published, "any_seed": any_seed, "say": _progress}
            collection, lines = report(members, config.protocol, **about)  # type: ignore[arg-type]
        except (SettingError, OSError, MemoryError):
            raise
        except Exception as error:  # one experiment whose files are damaged must not stop the others
            say(f"{members[0].name}: no report ({type(error).__name__}: {error})")
            complete = False
            continue
        print("\n".join(lines))
        for cell in collection.failures:
            print(f"  failed: {cell}: {cell.error}", file=sys.stderr)
        # A companion's cells stand beside the report's own, and are as much there.
        shown = [*collection.cells, *(cell for of in collection.beside.values() for cell in of)]
        stored = {cell.id for cell in shown}
        complete = complete and all(cell_id in stored for job in members for cell_id, _ in job.cells())
    for outputs in {job.outputs for job in jobs}:
        if outputs.is_dir():
            write_overview(outputs)
    return complete


def _progress(line: str) -> None:
    """The step that a report is at, on a terminal: one line that the next one covers."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="\r", file=sys.stderr, flush=True)


def report_command(call: Call) -> int:
    """Report from the store: one experiment, or every one that has cells."""
    figure, suffix = call.keys.get("figure", ""), call.keys.get("figures", "png")
    one = any(word.startswith("experiment=") for word in call.settings)
    if figure and not one:
        raise SettingError("figure: expected experiment=NAME next to it")
    jobs = read_jobs(call)[1] if one else _stored_jobs(call)
    if not jobs:
        print("nothing is stored yet; begin with: hess-run experiment=NAME (see hess-run list)")
        return 0
    any_seed = not any(word.startswith("seed=") for word in call.settings)
    if call.keys:
        from runner.report.update import draw

        for job in jobs:
            print("\n".join(draw([job], config.protocol, figure=figure, suffix=suffix, any_seed=any_seed)))
        return 0
    report_jobs(jobs, any_seed)
    return 0


def _stored_jobs(call: Call) -> list[Job]:
    """A job of every experiment that has cells."""
    of_each = [replace(call, settings=(f"experiment={name}", *call.settings)) for name in config.experiment_names()]
    return [job for one in of_each for job in read_jobs(one)[1] if job.store.names()]
