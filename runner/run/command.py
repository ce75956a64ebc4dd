"""A run: measure what is not stored, then report."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

from runner.contract import SettingError
from runner.run import launch
from runner.run.call import Call
from runner.run.execute import dismiss, end_on_sigterm, prepare, run_job, was_terminated
from runner.run.exit_status import FULL_ERROR, guarded, no_space, ran_full, say, was_interrupted
from runner.run.listing import survey
from runner.run.messages import short
from runner.run.reports import read_jobs, report_jobs
from runner.run.requirements import missing_data
from runner.store.job import Job
from runner.store.outputs import claim_outputs


def run_command(call: Call) -> int:
    """Measure, then report; or, with one of Hydra's options that show something, show it."""
    if launch.needs_no_job(call):
        return launch.show([*call.shows, *call.settings])
    arguments, jobs = read_jobs(call)
    if arguments.launcher or arguments.shows:
        launch.check(arguments)
    if arguments.shows:
        return launch.show(launch.shown_words(arguments))
    lines, open_jobs = survey(jobs)
    lacking = missing_data({id(job.experiment): job.experiment for job in open_jobs}.values())
    if lacking and not any(job.store.has(cell_id) for job in jobs for cell_id, _ in job.cells()):
        raise SettingError(lacking)
    for outputs in {job.outputs for job in jobs}:
        claim_outputs(outputs)
    end_on_sigterm()
    if any(job.profile == "quick" for job in jobs):
        lines.insert(0, quick_notice(jobs))
    if call.quiet:
        lines = []
    for line in lines:
        print(line, file=sys.stderr, flush=True)
    at_work = {id(job) for job in open_jobs}
    for job in (job for job in jobs if id(job) not in at_work):
        print(f"{job.name} seed={job.seed}: 0 measured, {len(job.cells())} were stored, 0 failed", flush=True)
    if lacking:
        status = report_status(jobs)
        say(f"not every cell is stored, and the others cannot be measured: {lacking}")
        return max(status, 1)
    if open_jobs:
        try:
            if arguments.multirun and launch.chosen(arguments):
                launch.launch(arguments, jobs, open_jobs)
            else:
                _measure(open_jobs)
        except (SettingError, KeyboardInterrupt):
            raise
        except Exception as error:
            return _ended_early(error, jobs)
    return report_status(jobs)


def quick_notice(jobs: Sequence[Job]) -> str:
    """What the quick profile is, in one line."""
    data = {getattr(getattr(job.experiment, "dataset", None), "kind", "") for job in jobs}
    images = "images are random-field stand-in data, no real ones; " if "surrogate" in data else ""
    return f"profile=quick: {images}the grid is small and trainings are short; nothing is scored"


def _measure(jobs: Sequence[Job]) -> None:
    """Measure the missing cells of every job, one job after the other."""
    prepare(workers_of(jobs[0]))
    for job in jobs:
        run_job(job)


def workers_of(job: Job) -> int:
    """How many processes measure a job, apart from the command's own."""
    store = job.store
    return min(job.jobs, sum(not store.has(cell_id, job.only_run) for cell_id, _ in job.cells())) if job.jobs > 1 else 0


def _ended_early(error: Exception, jobs: Sequence[Job]) -> int:
    """One line about what ended a run, and the report of what is stored; the exit status."""
    if was_interrupted(error):
        raise KeyboardInterrupt from error
    if FULL_ERROR:
        raise error
    if ran_full(error):
        return no_space(error)
    reason = short(f"{type(error).__name__}: {error}", 300)
    say(f"the run ended early ({reason}); finished cells are stored. Run the same command again to go on.")
    report_jobs(jobs)
    return 1


def report_status(jobs: Sequence[Job]) -> int:
    """The exit status that the report of some jobs asks for; whatever ends it early is said in one line."""
    try:
        dismiss()
        return guarded(lambda: 0 if report_jobs(jobs) else 1)
    except Exception as error:  # the cells are safe, the report is not there
        if was_terminated():  # swallowed by an import, say, which is then incomplete
            raise KeyboardInterrupt from error
        if FULL_ERROR:
            traceback.print_exc()
        say(f"the report failed ({type(error).__name__}: {error}); all cells are stored, see hess-run report")
        return 1
