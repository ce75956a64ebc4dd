"""A run: measure what is not stored, then report; with a launcher by `runner.run.launch`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from runner.contract import SettingError, described, plain, short
from runner.run import launch
from runner.run.command_line import Call
from runner.run.config.experiment import composition
from runner.run.config.jobs import protocol
from runner.run.config.overrides import Arguments, expand
from runner.run.data import missing_data
from runner.run.execute import run_jobs
from runner.run.exit_status import FULL_ERROR, Ended, limit, was_interrupted
from runner.run.forecast import survey
from runner.run.loop import end_on_sigterm, was_terminated
from runner.run.reports import read_jobs, report_jobs
from runner.run.streams import say
from runner.run.verify import agreement
from runner.store.job import PAPER, Job, claim_outputs


def run_command(call: Call) -> int:
    """Measure, then report; or, with one of Hydra's options that show something, show it."""
    if launch.needs_no_job(call):
        return launch.show_hydra(call.argv(call.settings))
    arguments, jobs = read_jobs(call)
    if arguments.launcher or call.shows:
        launch.check_launcher(arguments)
    if call.shows:  # the (first) job, the overrides of its profile included
        words = composition(expand(arguments)[0]).words
        return launch.show_hydra(call.argv([*arguments.launcher, *words]))
    return _run(call, arguments, jobs)


def _run(call: Call, arguments: Arguments, jobs: Sequence[Job]) -> int:
    """Measure what is not stored, then report; the exit status."""
    for name in {job.name for job in jobs}:
        protocol(name, PAPER)  # the report asks for it: a mistake in it is said before
    lines, open_jobs = survey(jobs)
    lacking = missing_data({id(job.experiment): job.experiment for job in open_jobs}.values())
    able = [job for job in open_jobs if not (lacking and missing_data([job.experiment]))]
    if lacking and not able and not any(map(_has_stored, jobs)):
        raise SettingError(lacking)
    for outputs in {job.outputs for job in jobs}:
        claim_outputs(outputs)
    end_on_sigterm()
    if not call.quiet:
        _announce(jobs, lines)
    _say_stored(jobs, open_jobs)
    if able:
        try:
            if arguments.multirun and launch.chosen(arguments):
                launch.launch(call, arguments, able)
            else:
                run_jobs(able)
        except (SettingError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise _early(error, jobs) from error
    return _report(jobs, lacking)


def _has_stored(job: Job) -> bool:
    """Whether any cell of a job is stored."""
    return any(job.store.has(cell_id) for cell_id, _ in job.cells())


def _announce(jobs: Sequence[Job], lines: Sequence[str]) -> None:
    """Say on standard error what the run is about to do."""
    quick = any(job.profile == "quick" for job in jobs)
    for line in [quick_notice(jobs), *lines] if quick else lines:
        print(plain(line), file=sys.stderr, flush=True)


def _say_stored(jobs: Sequence[Job], open_jobs: Sequence[Job]) -> None:
    """A line for each job that has nothing to measure."""
    to_measure = {id(job) for job in open_jobs}
    for job in jobs:
        if id(job) not in to_measure:
            counts = f"0 measured, {len(job.cells())} were stored, 0 failed"
            print(f"{job.name} seed={job.seed}: {counts}", flush=True)


def _report(jobs: Sequence[Job], lacking: str) -> int:
    """Report the jobs; the exit status. lacking: data that some cells could not be measured for."""
    status = report_status(jobs)
    if any(job.force for job in jobs) and (line := agreement(jobs)):
        print(line, flush=True)
    if lacking:
        say(f"not every cell is stored, and some cannot be measured: {lacking}")
        return max(status, 1)
    return status


def quick_notice(jobs: Sequence[Job]) -> str:
    """What the quick profile is, in one line."""
    data = [getattr(job.experiment, "dataset", None) for job in jobs]
    stand_in = "surrogate" in [getattr(one, "kind", "") for one in data]
    images = "images are random-field stand-in data, no real ones; " if stand_in else ""
    return f"profile=quick: {images}the grid is small and trainings are short; nothing is scored"


def _early(error: Exception, jobs: Sequence[Job]) -> Ended:
    """What ended a run, after the report of what is stored."""
    if not (was_interrupted(error) or limit(error) or FULL_ERROR):
        report_jobs(jobs)
    reason = short(described(error), 300)
    return Ended(
        f"the run ended early ({reason}); finished cells are stored. Run the same command "
        "again to go on."
    )


def report_status(jobs: Sequence[Job]) -> int:
    """The exit status that the report of some jobs asks for."""
    try:
        return 0 if report_jobs(jobs) else 1
    except (SettingError, OSError, MemoryError, KeyboardInterrupt):
        raise
    except Exception as error:  # the cells are safe, the report is not there
        if was_terminated():  # swallowed by an import, say, which is then incomplete
            raise KeyboardInterrupt from error
        line = f"the report failed ({described(error)}); all cells are stored, see hess-run report"
        raise Ended(line) from error
