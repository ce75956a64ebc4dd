"""`hess-run store check` and `hess-run verify`: is what is stored whole, and does it come out again?"""

from __future__ import annotations

import json
import logging
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runner.contract import Cell, SettingError, one_of
from runner.run.call import Call
from runner.run.loop import measure
from runner.run.progress import Progress
from runner.run.reports import read_jobs
from runner.store.job import Job
from runner.store.outputs import check_outputs
from runner.store.published import CELLS, published_root
from runner.store.store import Store
from runner.store.verify import compare

TOLERANCE = 1e-6
"""Relative: what float32 trainings on another processor may differ by before anything else is wrong."""


def store_command(call: Call) -> int:
    """`hess-run store check`."""
    one_of("store", call.words[0], ("check",))
    repair = call.keys.get("repair", "false")
    one_of("repair", repair, ("true", "false"))
    return check_store(Path(call.keys.get("outputs", "outputs")), repair == "true", call.json)


def check_store(root: Path, repair: bool = False, as_json: bool = False) -> int:
    """Examine every stored cell; 1 when one is damaged. repair: move damaged ones to quarantine."""
    check_outputs(root)
    if not root.is_dir() and published_root() is None:
        raise SettingError(f"outputs: expected a folder with stored cells, found no {root}; set outputs=PATH")
    total, lines = 0, []
    for experiment in _experiments(root):
        store = Store(root, experiment)
        total += sum(1 for _ in store.all())
        for name, reason in sorted(store.damaged.items()):
            lines.append(store.quarantine(name) if repair else f"{experiment}: damaged cell {name} ({reason})")
        lines += store.published_damage()
    text = "\n".join([*lines, f"{total} cells are whole, {len(lines)} damaged"])
    print(json.dumps({"whole": total, "damaged": lines}, indent=1) if as_json else text)
    return 1 if lines else 0


def _experiments(root: Path) -> list[str]:
    """Names of the experiments with cells in the working folder or published."""
    working = [path.parent.name for path in root.glob("*/cells") if path.is_dir()]
    folder = published_root()
    published = [path.parent.name for path in folder.glob(f"*/{CELLS}")] if folder is not None else []
    return sorted({*working, *published})


def verify_command(call: Call) -> int:
    """Measure stored cells again and compare."""
    try:
        sample, tolerance = int(call.keys.get("sample", "3")), float(call.keys.get("tolerance", TOLERANCE))
    except ValueError as error:
        raise SettingError(f"verify: expected sample=NUMBER and tolerance=NUMBER ({error})") from error
    if sample < 0 or not tolerance >= 0:
        raise SettingError(f"verify: expected sample and tolerance of at least 0, found {sample}, {tolerance}")
    return verify_jobs(read_jobs(call)[1], sample, tolerance, call.json)


def verify_jobs(jobs: Sequence[Job], sample: int = 3, tolerance: float = TOLERANCE, as_json: bool = False) -> int:
    """Measure a sample of the stored cells of `jobs` again and compare; 0 when all agree."""
    stored = [(job, cell_id, cell) for job in jobs for cell_id, cell in job.cells() if job.store.has(cell_id)]
    if not stored:
        raise SettingError("verify: expected stored cells of these settings, found none; run the experiment first")
    chosen = stored if sample == 0 else random.sample(stored, min(sample, len(stored)))
    wrong, records = 0, []
    for job, cell_id, cell in chosen:
        agrees, line = _verify(job, cell_id, cell, tolerance)
        wrong += not agrees
        records.append({"experiment": job.name, "seed": job.seed, "cell": cell_id, "agrees": agrees, "found": line})
        if not as_json:
            print(f"{job.name} seed={job.seed} {cell.label}: {line}", flush=True)
    if as_json:
        print(json.dumps({"stored": len(stored), "cells": records}, indent=1))
        return 1 if wrong else 0
    print(f"{len(chosen)} of {len(stored)} stored cells measured again: {len(chosen) - wrong} agree, {wrong} differ")
    return 1 if wrong else 0


def _verify(job: Job, cell_id: str, cell: Cell, tolerance: float) -> tuple[bool, str]:
    """Whether a cell that is measured again agrees with the stored one, and how."""
    kept = job.store.get(cell_id)
    with tempfile.TemporaryDirectory() as folder:
        again = Store(Path(folder), job.name)
        again.prepare()
        tables, meta = measure(job, again, cell, logging.getLogger("hess_run.verify"), Progress())
        again.write(cell_id, tables, meta)  # through the files, so that both have made the same way
        cell_again = again.get(cell_id)
        found = compare(
            {name: kept.table(name) for name in kept.meta["tables"]},
            {name: cell_again.table(name) for name in cell_again.meta["tables"]},
            tolerance,
        )
    here, there = meta["software"], kept.meta["software"]
    changed = [key for key in ("torch", "cpu", "instructions", "blas") if there.get(key) != here[key]]
    other = [f"{key} {there.get(key)} -> {here[key]}" for key in changed]
    note = f" [{'; '.join(other)}]" if other and not found.identical else ""
    return found.agrees, f"{found.line()}{note}"
