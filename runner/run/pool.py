"""The loop in several processes of this machine, over one store (`jobs=N`)."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from typing import Any

from runner.run.loop import NoSpace, Outcome, close_log, loop, open_log
from runner.run.progress import Progress, open_progress
from runner.store.job import Job
from runner.store.store import Store

ORPHAN_CHECK_SECONDS = 1.0


def _end_with(parent: int) -> None:
    """End this process soon after its parent is gone, whatever it is doing: a cell is stored whole or not at all."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _worker(job: Job, results: Any, parent: int) -> None:
    """One of several processes that run the loop on the same store."""
    _end_with(parent)
    store = job.store
    log = open_log(store, job)
    try:
        outcome = loop(job, store, log, Progress())
        results.put(("done", outcome))
    except NoSpace as error:
        results.put(("no space", str(error)))
    finally:
        close_log(log)


def run_parallel(job: Job, store: Store) -> Outcome:
    """The loop in `job.jobs` processes; this one only watches and draws the progress."""
    total = job.cells()
    before = {cell_id for cell_id, _ in total if store.has(cell_id, job.since)}
    if len(before) == len(total):
        return Outcome(stored=[cell_id for cell_id, _ in total])
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    count = min(job.jobs, len(total) - len(before))
    processes = [context.Process(target=_worker, args=(job, results, os.getpid())) for _ in range(count)]
    progress = open_progress(f"{job.name} seed={job.seed}", [cell for _, cell in total])
    for cell_id, cell in total:
        if cell_id in before:
            progress.advance("stored", cell)
    messages: list[tuple[str, Any]] = []
    interrupted = False
    try:
        for process in processes:
            process.start()
        _watch(job, store, before, processes, results, messages, progress)
    except KeyboardInterrupt:
        interrupted = True
        _stop(processes)
    finally:
        progress.close()
    return _collect(job, store, before, messages, interrupted, [p.exitcode for p in processes])


def _watch(
    job: Job,
    store: Store,
    before: set[str],
    processes: list,
    results: Any,
    messages: list[tuple[str, Any]],
    progress: Progress,
) -> None:
    """Draw what the workers finish, until they are done."""
    open_cells = {cell_id: cell for cell_id, cell in job.cells() if cell_id not in before}
    running = True
    while running:
        running = any(process.is_alive() for process in processes)
        for cell_id in [i for i in open_cells if store.written(i, job.since)]:
            cell = open_cells.pop(cell_id)
            progress.start(cell.label)
            progress.advance("measured", cell, store.get(cell_id).meta["wall_seconds"])
        while not results.empty():
            messages.append(results.get())
        if running:
            time.sleep(0.2)


def _stop(processes: list) -> None:
    """Give the workers, which got the same Ctrl-C, a moment; then end those that are left."""
    deadline = time.monotonic() + 1.2
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.join(max(0.0, deadline - time.monotonic()))
    for process in started:
        if process.is_alive():
            process.kill()


def _collect(
    job: Job,
    store: Store,
    before: set[str],
    messages: list[tuple[str, Any]],
    interrupted: bool,
    exit_codes: list[int | None],
) -> Outcome:
    """The workers' outcomes as one, read from the store rather than from what each believes."""
    for kind, content in messages:
        if kind == "no space":
            raise NoSpace(content)
        interrupted = interrupted or content.interrupted
    ids = [cell_id for cell_id, _ in job.cells()]
    outcome = Outcome(
        measured=[i for i in ids if i not in before and store.has(i, job.since)],
        stored=[i for i in ids if i in before],
        failed=[i for i in ids if store.failed_since(i, job.started) and not store.has(i, job.since)],
        interrupted=interrupted,
    )
    complete = len(outcome.measured) + len(outcome.stored) + len(outcome.failed) == len(ids)
    if not complete and not interrupted:
        raise RuntimeError(
            f"a worker process ended early (exit codes {exit_codes}); the finished cells are stored, "
            f"the logs are in {store.logs}; run the same command again to go on"
        )
    return outcome
