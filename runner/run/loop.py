"""The only loop over cells: skip what is stored, measure, store, record failures.

Any number of processes may run the same loop over the same store; each cell is measured by the one
that holds its lock. That is also how `jobs=N` works on one machine (`runner.run.execute`).
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runner.contract import Cell, Context, described, measure as measure_cell, short
from runner.run import guest
from runner.run.exit_status import LimitReached, limit
from runner.run.progress import Progress
from runner.run.streams import say
from runner.store import code, tables as csv
from runner.store.checkpoints import DiskCheckpoints
from runner.store.identity import software
from runner.store.job import Job
from runner.store.store import Store

WAIT_FOR_OTHERS = (
    0.05,
    0.5,
)  # seconds between looks at cells that another process is measuring: first, longest

NAMED_AFTER = 5.0
"""Seconds of waiting after which the process that holds a cell is named."""
MOST_ENDS = 2
"""How often the process of a cell is killed before the cell counts as failed."""


class Killed(RuntimeError):
    """The process that measured a cell was killed, each time."""


@dataclass
class Outcome:
    """What a loop did: ids measured, found stored, failed, and left because the run was
    interrupted."""

    measured: list[str] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    interrupted: bool = False


def loop(job: Job, store: Store, log: logging.Logger, progress: Progress) -> Outcome:
    """The loop itself, in this process."""
    outcome = Outcome()
    # a cell that killed its process comes last: the others are measured before
    waiting = sorted(job.cells(), key=lambda one: bool(store.begun(one[0])))
    pause = WAIT_FOR_OTHERS[0]
    since = time.monotonic()
    named: set[str] = set()
    try:
        while waiting:
            busy = []
            for cell_id, cell in waiting:
                state = _one_cell(job, store, cell_id, cell, log, progress)
                if state == "busy":
                    busy.append((cell_id, cell))
                else:
                    getattr(outcome, state).append(cell_id)
                    progress.advance(state, cell)
                if _TERMINATED:
                    raise KeyboardInterrupt
            if len(busy) < len(waiting):
                pause = WAIT_FOR_OTHERS[0]
                since = time.monotonic()
            if busy:
                if time.monotonic() - since > NAMED_AFTER:
                    _name_holders(job, store, busy, named)
                time.sleep(pause)
                pause = min(1.5 * pause, WAIT_FOR_OTHERS[1])
            waiting = busy
    except KeyboardInterrupt:
        log.info("interrupted")
        outcome.interrupted = True
    finally:
        progress.close()
    return outcome


def _name_holders(
    job: Job, store: Store, busy: Sequence[tuple[str, Cell]], named: set[str]
) -> None:
    """Say once which process, of another run than this one, holds each of these cells."""
    for cell_id, cell in busy:
        holder = store.begun(cell_id)
        if cell_id not in named and holder.get("run") != job.run:
            named.add(cell_id)
            say(
                f"{job.name}: waiting for cell {cell.label}, which {_process(holder)} measures; "
                "it is taken over when that process ends"
            )


def _process(holder: Mapping[str, Any]) -> str:
    if holder:
        return f"process {holder.get('process')} of {holder.get('machine')}"
    return "another process"


def _one_cell(
    job: Job, store: Store, cell_id: str, cell: Cell, log: logging.Logger, progress: Progress
) -> str:
    """'stored', 'measured', 'failed', or 'busy' when another process holds the cell."""
    if store.has(cell_id, job.only_run):
        return "stored"
    with store.lock(cell_id) as mine:
        if not mine:
            return "busy"
        if store.has(cell_id, job.only_run):  # finished by another process since the first look
            return "stored"
        if store.failed_in(job.run, cell_id):  # by another worker of this run: tried once a run
            return "failed"
        if cell_id in store.damaged:
            say(store.quarantine(cell_id))
        progress.start(cell.label)
        log.info("cell %s %s", cell_id, cell.label)
        started = time.perf_counter()
        before = store.begun(cell_id)
        try:
            _check_ends(job, cell, before, store.begin(cell_id, job.run))
            tables, meta = measure(job, store, cell, log, progress)
            store.write(cell_id, tables, meta)
        # whatever an experiment raises is a failed cell, never a lost run
        except Exception as error:
            reached = limit(error)
            if reached and reached != "not enough memory":  # another cell may need less
                log.error("%s: %s", reached, error)
                raise LimitReached(f"{reached}: {error}") from error
            return _failure(store, cell_id, cell, job, error, log)
        finally:
            store.end(cell_id)
        log.info("cell %s stored after %.2f s", cell_id, time.perf_counter() - started)
        return "measured"


def _check_ends(job: Job, cell: Cell, before: Mapping[str, Any], times: int) -> None:
    """Name a cell that was begun and never ended so many times. Raises Killed where that is often
    enough."""
    if not times:
        return
    line = f"was begun by {_process(before)} and never ended: that process was killed"
    if times < MOST_ENDS:
        say(f"{job.name}: cell {cell.label} {line}; it is measured again, after all others")
        return
    raise Killed(
        f"{line}, as {times} were that measured this cell, perhaps for lack of memory; "
        "the next run tries it again"
    )


def measure(
    job: Job, store: Store, cell: Cell, log: logging.Logger, progress: Progress
) -> tuple[dict, dict]:
    """Tables of one cell as DataFrames, and the content of its cell.json."""
    import torch

    from runner.training.allocator import keep_freed_memory

    torch.set_num_threads(job.threads)
    keep_freed_memory()
    opened: list[DiskCheckpoints] = []

    def checkpoints(key: Mapping[str, Any]) -> DiskCheckpoints:
        opened.append(store.checkpoints(key))
        return opened[-1]

    context = Context(
        seed=job.seed,
        device=job.device,
        threads=job.threads,
        progress=progress.inside,
        log=log.info,
        open_checkpoints=checkpoints,
    )
    wall = time.perf_counter()
    cpu = time.process_time()
    own = replace(cell, params=dict(cell.params))  # the experiment may change it
    with guest.seeded(job.seed):
        measured = guest.call(lambda: measure_cell(job.experiment, own, context))
    wall = time.perf_counter() - wall
    cpu = time.process_time() - cpu
    tables = csv.frames(measured, {**cell.params, "seed": job.seed})
    times = {"wall_seconds": round(wall, 4), "cpu_seconds": round(cpu, 4)}
    resumed = any(states.loaded for states in opened)
    return tables, {**_about(job, cell), **times, "resumed": resumed}


def _about(job: Job, cell: Cell) -> dict[str, Any]:
    """What cell.json says of a cell that was just measured, its times apart."""
    identity = job.identity
    return {
        "experiment": job.name,
        "version": identity.version,
        "settings": identity.settings,
        "settings_key": identity.key,
        "params": dict(cell.params),
        "seed": job.seed,
        "run": job.run,
        "profile": job.profile,
        "threads": job.threads,
        "device": job.device,
        "peak_memory_mib": round(peak_memory_mib(), 1),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "software": software(),
        "code": code.digest_of(job.experiment),
    }


def peak_memory_mib() -> float:
    """Largest resident set of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform != "darwin":
        return peak / 1024
    return peak / 2**20


def _failure(
    store: Store, cell_id: str, cell: Cell, job: Job, error: Exception, log: logging.Logger
) -> str:
    text = "".join(traceback.format_exception(error))
    log.error("cell %s failed\n%s", cell_id, text)
    record = {
        "experiment": job.name,
        "params": dict(cell.params),
        "seed": job.seed,
        "run": job.run,
        "error": short(described(error), 300),
    }
    store.record_failure(cell_id, {**record, "settings_key": job.identity.key, "traceback": text})
    return "failed"


def open_log(store: Store, job: Job) -> logging.Logger:
    """A logger that writes this job's own file."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    logger = logging.getLogger(f"hess_run.{job.name}.{job.seed}.{os.getpid()}")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.disabled = False  # Hydra switches off every logger that is there when it sets up its own
    handler = logging.FileHandler(
        store.logs / f"seed-{job.seed}-{stamp}-{os.getpid()}.log",
        encoding="utf-8",
        errors="backslashreplace",
        delay=True,
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    return logger


def close_log(logger: logging.Logger) -> None:
    for handler in list(logger.handlers):
        handler.close()
        logger.removeHandler(handler)


_TERMINATED: list[int] = []
"""Signals that asked this process to end: a library may swallow the exception that the handler
raises."""


def end_on_sigterm() -> None:
    """Treat a polite kill like Ctrl-C, so that a batch system's stop leaves the same state;
    remember either."""

    def raise_interrupt(number: int, frame: Any) -> None:
        _TERMINATED.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, raise_interrupt)
    signal.signal(signal.SIGINT, raise_interrupt)


def was_terminated() -> bool:
    """Whether SIGTERM or Ctrl-C has asked this process to end."""
    return bool(_TERMINATED)
