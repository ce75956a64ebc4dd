"""`hess-run verify`: measure a sample of the stored cells again and compare."""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.contract import Cell, SettingError, described, setting, short
from runner.run.command_line import Call
from runner.run.exit_status import limit
from runner.run.keys import Keys
from runner.run.loop import measure
from runner.run.progress import Progress
from runner.run.reports import read_jobs
from runner.store.archive import where_published
from runner.store.cells import merge
from runner.store.compare import compare
from runner.store.job import Job
from runner.store.store import Store
from runner.store.upkeep import make_ready

TOLERANCE = 1e-6
"""Relative: what float32 trainings on another processor may differ by before anything else is
wrong."""


@dataclass(frozen=True, kw_only=True)
class Sample(Keys):
    """What is measured again, and how it is compared."""

    sample: int = setting(3, at_least=0, help="cells; 0 for all")
    tolerance: float = setting(TOLERANCE, at_least=0, help="relative")


def verify_command(call: Call) -> int:
    """hess-run [-m] verify experiment=NAME [key=value ...] [sample=3] [tolerance=1e-6]

    Measures a random sample of the stored cells again, outside the store, and compares every table
    with the stored one. Names the first field that differs by more than the relative tolerance.
    Exit status 1 if any cell differs. Times (columns of seconds) are not compared.

      hess-run verify experiment=scalar_spectrum sample=5
    """
    return verify_jobs(read_jobs(call)[1], call.keys.sample, call.keys.tolerance)


def verify_jobs(jobs: Sequence[Job], sample: int = 3, tolerance: float = TOLERANCE) -> int:
    """Measure a sample of the stored cells of `jobs` again and compare; 0 when all agree."""
    stored = [
        (job, cell_id, cell)
        for job in jobs
        for cell_id, cell in job.cells()
        if job.store.has(cell_id)
    ]
    if not stored:
        found = f"found none; run the experiment first; {where_published()}"
        raise SettingError(f"verify: expected stored cells of these settings, {found}")
    chosen = stored
    if sample != 0:
        chosen = random.sample(stored, min(sample, len(stored)))
    wrong = 0
    moved = False
    for job, cell_id, cell in chosen:
        agrees, line, elsewhere = _verify(job, cell_id, cell, tolerance)
        wrong += not agrees
        moved = moved or (elsewhere and not agrees)
        print(f"{job.name} seed={job.seed} {cell.label}: {line}", flush=True)
    counts = (
        f"{len(chosen)} of {len(stored)} stored cells measured again: "
        f"{len(chosen) - wrong} agree, {wrong} differ"
    )
    if moved:
        counts += (
            "\nAnother processor or torch rounds differently: errors of rounding, "
            "and what amplifies "
            "them, differ there"
        )
    print(counts)
    return 1 if wrong else 0


def _verify(job: Job, cell_id: str, cell: Cell, tolerance: float) -> tuple[bool, str, bool]:
    """Whether a cell that is measured again agrees with the stored one, how, and whether it was
    measured elsewhere."""
    kept = job.store.get(cell_id)
    with tempfile.TemporaryDirectory() as folder:
        again = Store(Path(folder), job.name)
        make_ready(again)
        try:
            log = logging.getLogger("hess_run.verify")
            tables, meta = measure(job, again, cell, log, Progress())
        except Exception as error:  # whatever an experiment raises, as in a run
            if limit(error):
                raise
            return False, f"failed: {short(described(error), 300)}", False
        again.write(cell_id, tables, meta)  # through the files, so that both have made the same way
        found = compare(merge([kept]), merge([again.get(cell_id)]), tolerance)
    here = meta["software"]
    there = kept.meta["software"]
    changed = [
        key for key in ("torch", "cpu", "instructions", "blas") if there.get(key) != here[key]
    ]
    other = [f"{key} {there.get(key)} -> {here[key]}" for key in changed]
    note = f" [{'; '.join(other)}]" if other and not found.identical else ""
    return found.agrees, f"{found.line()}{note}", bool(other)


def agreement(jobs: Iterable[Job]) -> str:
    """How the cells that are both in the working folder and published compare, in a line; "" where
    there is no such cell."""
    found = {}
    for job in jobs:
        store = job.store
        for cell_id, cell in job.cells():
            measured = store.working.usable(cell_id)
            published = store.archive.usable(cell_id) if store.archive else None
            if measured and published:
                label = f"seed={job.seed} {cell.label}"
                found[label] = compare(merge([published]), merge([measured]), TOLERANCE)
    if not found:
        return ""
    apart = [f"{label} {one.line()}" for label, one in found.items() if not one.agrees]
    identical = sum(one.identical for one in found.values())
    line = (
        f"compared with the published cells: {len(found) - len(apart)} of {len(found)} agree to a "
        f"relative difference of {TOLERANCE:g}, {identical} are identical"
    )
    return "; ".join([line, *apart[:1]])
