"""Run a job: its loop in this process, or in several processes of this machine over one store
(`jobs=N`).

The processes outlive a job: a sweep starts them once, not once a seed. Each has a pipe of its own,
so that one that is killed in the middle of a word holds up no other.
"""

from __future__ import annotations

import atexit
import multiprocessing

# its wait for children is registered now, so that `dismiss` comes before it at the end
import multiprocessing.util
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

from runner.run.exit_status import LimitReached, limit
from runner.run.loop import Outcome, close_log, loop, open_log, was_terminated
from runner.run.progress import Progress, open_progress
from runner.run.streams import protect
from runner.store.job import Job
from runner.store.store import Store
from runner.store.upkeep import make_ready

ORPHAN_CHECK_SECONDS = 1.0
POLITE = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask for an end."""


def end_with(parent: int) -> None:
    """End this process soon after its parent is gone, whatever it is doing: a cell is stored whole
    or not at all."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _serve(pipe: Any, parent: int) -> None:
    """A worker process: the loop of every job that comes through the pipe, until None or an
    interruption."""
    protect()
    try:
        end_with(parent)
        import torch  # noqa: F401  while the command still composes its first job

        # one that came meanwhile ends this worker here
        signal.pthread_sigmask(signal.SIG_UNBLOCK, POLITE)

        while (job := _next(pipe)) is not None:
            kind, content = _loop(job, pipe)
            with suppress(OSError):  # nobody listens any more; what was measured is stored
                pipe.send((kind, content))
            if kind == "done" and content.interrupted:
                return
    except KeyboardInterrupt:
        return
    except Exception as error:
        if not limit(error):
            raise
        with suppress(OSError):
            pipe.send(("limit", f"{limit(error)}: {error}"))


def _next(pipe: Any) -> Job | None:
    """The next job, None when there is none to come."""
    try:
        return pipe.recv()  # type: ignore[no-any-return]
    except (EOFError, OSError):
        return None


class _Sent(Progress):
    """Sends the state of the running cell to the command, twice a second at most."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._label = ""
        self._last = 0.0

    def start(self, label: str) -> None:
        self._label = label

    def inside(self, done: float, total: float, note: str = "") -> None:
        if time.monotonic() - self._last > 0.5:
            self._last = time.monotonic()
            with suppress(OSError):  # nobody listens any more
                self._pipe.send(("inside", (self._label, done, total, note)))


def _loop(job: Job, pipe: Any) -> tuple[str, Any]:
    store = job.store
    log = open_log(store, job)
    progress = _Sent(pipe) if sys.stderr.isatty() else Progress()
    try:
        return "done", loop(job, store, log, progress)
    except LimitReached as error:
        return "limit", str(error)
    finally:
        close_log(log)


@dataclass
class Worker:
    """A worker process and this side of its pipe. busy: it has a job whose outcome has not come
    back."""

    process: Any
    pipe: Any
    busy: bool = False

    def give(self, job: Job) -> None:
        with suppress(OSError):  # it has died: its cells are for the others
            self.pipe.send(job)
            self.busy = True

    def outcome(self, progress: Progress) -> tuple[str, Any] | None:
        """(kind, content) where it has come; a worker that has died is busy no more. progress: of
        the running cell."""
        # before the look into the pipe, which may hold its last word
        alive = self.process.is_alive()
        try:
            while self.pipe.poll():
                kind, content = self.pipe.recv()
                if kind != "inside":
                    self.busy = False
                    return kind, content
                progress.turn_to(content[0])
                progress.inside(*content[1:])
        except (EOFError, OSError):
            alive = False
        self.busy = self.busy and alive
        return None


_WORKERS: list[Worker] = []
# they are children of the process that started them
os.register_at_fork(after_in_child=_WORKERS.clear)


def prepare(count: int) -> list[Worker]:
    """So many idle workers; those of earlier jobs that live are used again.

    A command asks before its first job is there: they take two seconds to import what every cell
    needs.
    """
    _WORKERS[:] = [worker for worker in _WORKERS if worker.process.is_alive()]
    idle = [worker for worker in _WORKERS if not worker.busy]
    context = multiprocessing.get_context("spawn")
    if len(idle) < count:
        # registered last, it runs before multiprocessing waits for its children
        atexit.unregister(dismiss)
        atexit.register(dismiss)
    while len(idle) < count:
        ours, theirs = context.Pipe()
        worker = Worker(context.Process(target=_serve, args=(theirs, os.getpid())), ours)
        _WORKERS.append(worker)
        idle.append(worker)
        # A Ctrl-C meets the worker when it can heed it, not in the middle of an import; this
        # process a moment later, when the worker has been told all that it waits for. The tracker
        # comes first: starting a worker may start it too, and it takes the block away behind it.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, POLITE)
        try:
            worker.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
    return idle[:count]


def dismiss() -> None:
    """End all workers: the jobs are done, and what they hold is wanted elsewhere."""
    for worker in _WORKERS:
        with suppress(OSError):
            worker.pipe.send(None)
            worker.pipe.close()
    stop([worker.process for worker in _WORKERS])
    _WORKERS.clear()


def run_parallel(job: Job, store: Store) -> Outcome:
    """The loop in `job.jobs` processes; this one only watches and draws the progress."""
    total = job.cells()
    before = {cell_id for cell_id, _ in total if store.has(cell_id, job.only_run)}
    if len(before) == len(total):
        return Outcome(stored=[cell_id for cell_id, _ in total])
    progress = open_progress(f"{job.name} seed={job.seed}", [cell for _, cell in total], job.jobs)
    for cell_id, cell in total:
        if cell_id in before:
            progress.advance("stored", cell)
    stamps = {
        cell_id: store.working.stamp(cell_id) for cell_id, _ in total if cell_id not in before
    }
    messages: list[tuple[str, Any]] = []
    workers: list[Worker] = []
    interrupted = False
    try:
        workers = prepare(min(job.jobs, len(total) - len(before)))
        for worker in workers:
            worker.give(job)
        _watch(job, store, stamps, workers, messages, progress)
    except KeyboardInterrupt:
        interrupted = True
        stop([worker.process for worker in _WORKERS])
        _WORKERS.clear()
    finally:
        progress.close()
    return _collect(
        job, store, before, messages, interrupted, [worker.process.exitcode for worker in workers]
    )


def _watch(
    job: Job,
    store: Store,
    stamps: Mapping[str, Any],
    workers: list[Worker],
    messages: list[tuple[str, Any]],
    progress: Progress,
) -> None:
    """Draw what the workers finish, until they are done. stamps: of the cells to measure, as they
    were before."""
    open_cells = {cell_id: cell for cell_id, cell in job.cells() if cell_id in stamps}
    running = True
    while running:
        messages += [
            found for worker in workers if worker.busy and (found := worker.outcome(progress))
        ]
        running = any(worker.busy for worker in workers)
        written = [i for i in open_cells if store.working.stamp(i) not in ((), stamps[i])]
        for cell_id in written:
            stored = store.find(cell_id)
            cell = open_cells.pop(cell_id)
            progress.start(cell.label)
            progress.advance(
                "measured", cell, stored.meta["wall_seconds"] if stored is not None else None
            )
        if running:
            time.sleep(0.1)


def stop(processes: list) -> None:
    """Give the workers, which got the same Ctrl-C, a moment; then end those that are left."""
    deadline = time.monotonic() + 1.2
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.join(max(0.0, deadline - time.monotonic()))
    for process in started:
        if process.is_alive():
            process.kill()
            process.join()


def _collect(
    job: Job,
    store: Store,
    before: set[str],
    messages: list[tuple[str, Any]],
    interrupted: bool,
    exit_codes: list[int | None],
) -> Outcome:
    """The workers' outcomes as one, read from the store rather than from what each believes."""
    # the workers heeded what a library swallowed here
    interrupted = interrupted or was_terminated()
    for kind, content in messages:
        if kind == "limit":
            raise LimitReached(content)
        interrupted = interrupted or content.interrupted
    ids = [cell_id for cell_id, _ in job.cells()]
    outcome = Outcome(
        measured=[i for i in ids if i not in before and store.has(i, job.only_run)],
        stored=[i for i in ids if i in before],
        failed=[i for i in ids if store.failed_in(job.run, i) and not store.has(i, job.only_run)],
        interrupted=interrupted,
    )
    complete = len(outcome.measured) + len(outcome.stored) + len(outcome.failed) == len(ids)
    if not complete and not interrupted:
        cells = ", ".join(cell.label for i, cell in job.cells() if store.begun(i))
        raise RuntimeError(
            f"a worker process ended early (exit codes {exit_codes}) in cell {cells}; "
            "the finished cells are stored, "
            f"the logs are in {store.logs}; run the same command again to go on"
        )
    return outcome


def run(job: Job) -> Outcome:
    """Measure every cell of the job that is not stored yet. Raises LimitReached at a limit of the
    system."""
    store = job.store
    make_ready(store)
    log = open_log(store, job)
    try:
        if job.jobs > 1:
            return run_parallel(job, store)
        return loop(
            job,
            store,
            log,
            open_progress(f"{job.name} seed={job.seed}", [c for _, c in job.cells()]),
        )
    finally:
        close_log(log)


def run_job(job: Job) -> None:
    """Measure the missing cells of a job. Raises KeyboardInterrupt where it was interrupted."""
    outcome = run(job)
    counts = (
        f"{len(outcome.measured)} measured, {len(outcome.stored)} were stored, "
        f"{len(outcome.failed)} failed"
    )
    print(f"{job.name} seed={job.seed}: {counts}", flush=True)
    if outcome.interrupted:
        raise KeyboardInterrupt
