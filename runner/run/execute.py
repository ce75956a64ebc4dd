"""Run a job: its loop in this process, or in several."""

from __future__ import annotations

from pathlib import Path

from runner.run.loop import NoSpace, Outcome, close_log, end_on_sigterm, loop, open_log, was_terminated
from runner.run.pool import dismiss, prepare, run_parallel
from runner.run.progress import open_progress
from runner.store.job import Job

__all__ = ["NoSpace", "Outcome", "dismiss", "end_on_sigterm", "prepare", "run", "run_job", "was_terminated"]

_CLEANED: set[Path] = set()
"""Stores that this process has swept: a sweep of a thousand jobs need not look through all cells for each."""


def run(job: Job) -> Outcome:
    """Measure every cell of the job that is not stored yet. Raises NoSpace when the disk is full."""
    store = job.store
    store.prepare(clean=store.root not in _CLEANED)
    _CLEANED.add(store.root)
    log = open_log(store, job)
    try:
        if job.jobs > 1:
            return run_parallel(job, store)
        return loop(job, store, log, open_progress(f"{job.name} seed={job.seed}", [c for _, c in job.cells()]))
    finally:
        close_log(log)


def run_job(job: Job) -> None:
    """Measure the missing cells of a job. Raises KeyboardInterrupt where it was interrupted."""
    outcome = run(job)
    counts = f"{len(outcome.measured)} measured, {len(outcome.stored)} were stored, {len(outcome.failed)} failed"
    print(f"{job.name} seed={job.seed}: {counts}", flush=True)
    if outcome.interrupted:
        raise KeyboardInterrupt
