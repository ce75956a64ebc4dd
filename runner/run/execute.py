"""Run jobs: their loop in this process, or in `jobs=N` processes of this machine.

The store is the queue of the processes: each runs the loop of every job, and takes the cells that
no other holds. One that is killed holds up no other; this process only watches and draws the
progress.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from typing import Any

from runner.run.exit_status import LIMITS, LimitReached, limit
from runner.run.loop import Outcome, close_log, loop, open_log, was_terminated
from runner.run.progress import Progress, RunningCell, is_drawn, open_progress
from runner.run.streams import protect, say
from runner.store.job import Job
from runner.store.store import Store
from runner.store.upkeep import make_ready

ORPHAN_CHECK_SECONDS = 1.0
LOOK_SECONDS = 0.1
"""Between looks at what the processes have stored."""
POLITE = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask for an end."""
INTERRUPTED = 130
FIRST_LIMIT = 64
"""Exit status of a process that met the first limit of `LIMITS`; the others follow."""


def end_with(parent: int) -> None:
    """End this process soon after its parent is gone, whatever it is doing: a cell is stored whole
    or not at all."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run(job: Job) -> Outcome:
    """Measure every cell of the job that is not stored yet. Raises LimitReached at a limit of the
    system."""
    (outcome,) = _outcomes([job])
    return outcome


def run_jobs(jobs: Sequence[Job]) -> None:
    """Measure the missing cells of every job. Raises KeyboardInterrupt where it was interrupted."""
    for outcome, job in zip(_outcomes(jobs), jobs, strict=True):
        counts = (
            f"{len(outcome.measured)} measured, {len(outcome.stored)} were stored, "
            f"{len(outcome.failed)} failed"
        )
        print(f"{job.name} seed={job.seed}: {counts}", flush=True)
        if outcome.interrupted:
            raise KeyboardInterrupt


def _outcomes(jobs: Sequence[Job]) -> Iterator[Outcome]:
    """What was done for each job."""
    if max(job.jobs for job in jobs) > 1:
        yield from _together(jobs)
        return
    for job in jobs:
        yield measure(job, _progress(job))


def _progress(job: Job, processes: int = 1) -> Progress:
    return open_progress(
        f"{job.name} seed={job.seed}", [cell for _, cell in job.cells()], processes
    )


def measure(job: Job, progress: Progress) -> Outcome:
    """The loop of a job in this process, with a log of its own."""
    store = job.store
    make_ready(store)
    log = open_log(store, job)
    try:
        return loop(job, store, log, progress)
    finally:
        close_log(log)


def _work(jobs: Sequence[Job], parent: int, place: int, lock: Any) -> None:
    """One of several processes: the loop of every job. The exit status tells of an interruption or
    a limit. place, lock: of its line on a terminal."""
    protect()
    try:
        end_with(parent)
        import torch  # noqa: F401

        # one that came meanwhile ends this process here
        signal.pthread_sigmask(signal.SIG_UNBLOCK, POLITE)
        for job in jobs:
            progress = RunningCell(place, lock) if is_drawn() else Progress()
            if measure(job, progress).interrupted:
                sys.exit(INTERRUPTED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if not limit(error):
            raise
        sys.exit(FIRST_LIMIT + list(LIMITS).index(limit(error)))


def start(count: int, jobs: Sequence[Job], lock: Any) -> list[Any]:
    """So many processes that run the jobs. lock: of the terminal; the caller keeps it, since the
    processes find it by its name.

    A Ctrl-C meets them when they can heed it, not in the middle of an import; this process a moment
    later. The tracker comes first: starting a process may start it too, and it takes the block away
    behind it.
    """
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_work, args=(jobs, os.getpid(), place, lock))
        for place in range(1, count + 1)
    ]
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, POLITE)
    try:
        for process in processes:
            process.start()
    except BaseException:  # the system has no room for all of them
        for process in processes:
            if process.pid is not None:
                process.kill()
                process.join()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return processes


def stop(processes: Sequence[Any]) -> None:
    """Give the processes, which got the same Ctrl-C, a moment; then end those that are left."""
    deadline = time.monotonic() + 1.2
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.join(max(0.0, deadline - time.monotonic()))
    for process in started:
        if process.is_alive():
            process.kill()
            process.join()


def _together(jobs: Sequence[Job]) -> Iterator[Outcome]:
    """Outcomes of jobs that several processes measure."""
    for job in jobs:
        make_ready(job.store)
    missing = sum(not job.store.has(i, job.only_run) for job in jobs for i, _ in job.cells())
    count = min(max(job.jobs for job in jobs), missing)
    processes: list[Any] = []
    killed: set[int] = set()
    lock = multiprocessing.get_context("spawn").RLock()
    try:
        for job in jobs:
            outcome = Outcome()
            progress = _progress(job, max(1, count))
            try:
                if count and not processes:
                    processes = start(count, jobs, lock)
                _watch(job, processes, killed, progress, outcome)
            except KeyboardInterrupt:
                outcome.interrupted = True
                stop(processes)
            finally:
                progress.close()
            outcome.interrupted = outcome.interrupted or was_terminated()
            _check_complete(job, outcome, [process.exitcode for process in processes])
            yield outcome
    finally:
        stop(processes)


def _watch(
    job: Job, processes: Sequence[Any], killed: set[int], progress: Progress, outcome: Outcome
) -> None:
    """Draw what the processes finish, until the job or they have ended; the store says what became
    of a cell. killed: processes whose end was said."""
    store = job.store
    waiting = job.cells()
    alive = True
    while waiting and alive:
        alive = any(process.is_alive() for process in processes)  # before the look at the store
        left = []
        for cell_id, cell in waiting:
            state, seconds = _ended(job, store, cell_id)
            if not state:
                left.append((cell_id, cell))
                continue
            getattr(outcome, state).append(cell_id)
            if state != "stored":
                progress.start(cell.label)
            progress.advance(state, cell, seconds)
        waiting = left
        for process in processes:
            if process.exitcode is not None and process.exitcode < 0 and process.pid not in killed:
                killed.add(process.pid)
                name = signal.Signals(-process.exitcode).name
                others = "the others go on" if alive else "no other is left"
                say(f"{job.name}: process {process.pid} of this run was killed ({name}); {others}")
        if alive and waiting:
            with suppress(InterruptedError):
                time.sleep(LOOK_SECONDS)


def _ended(job: Job, store: Store, cell_id: str) -> tuple[str, float | None]:
    """'measured' (with its seconds) or 'failed' by this run, 'stored' before it, or '' for a cell
    that is still to come."""
    found = store.find(cell_id)
    if found is not None and found.meta.get("run") == job.run:
        return "measured", found.meta["wall_seconds"]
    if store.failed_in(job.run, cell_id):
        return "failed", None
    return ("stored" if found is not None and not job.force else ""), None


def _check_complete(job: Job, outcome: Outcome, exit_codes: Sequence[int | None]) -> None:
    """Raise LimitReached or RuntimeError where the processes ended before the job was done."""
    done = len(outcome.measured) + len(outcome.stored) + len(outcome.failed)
    if outcome.interrupted or done == len(job.cells()):
        return
    if INTERRUPTED in exit_codes:  # this process has not heeded what the others did
        outcome.interrupted = True
        return
    for place, name in enumerate(LIMITS, start=FIRST_LIMIT):
        if place in exit_codes:
            raise LimitReached(f"{name}: in a process of this run")
    cells = ", ".join(cell.label for i, cell in job.cells() if job.store.begun(i))
    raise RuntimeError(
        f"a worker process ended early (exit codes {list(exit_codes)}) in cell {cells}; "
        "the finished cells are stored, "
        f"the logs are in {job.store.logs}; run the same command again to go on"
    )
