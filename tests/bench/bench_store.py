"""A store of 100,000 cells (1,000 seeds of 100 cells, tiny tables): what a sweep of that size asks
of it.

Each step runs in a process of its own, once on cells of one's own and once on an archive of the
same cells: processor time, peak memory, and the ratio of archive to working. Promised for each: at
most 60 s of processor time and 2 GB.

    python -m tests.bench.bench_store [SEEDS [STEP ...]]
"""

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.kinds.dataset import GaussianData
from runner.run import forecast
from runner.run.execute import run
from runner.store.archive import CELLS as CELLS_FILE, archive_bytes
from runner.store.job import Job, claim_outputs
from runner.store.store import Store, merge
from runner.store.upkeep import make_ready
from tests.run.conftest import packed
from tests.run.toy import Toy

SEEDS, CELLS = 1000, 100
ONE = Toy(width=[1], shape=["round"], samples=5, dataset=GaussianData(train=8))
TOY = replace(ONE, width=list(range(1, CELLS + 1)))
LIMIT_SECONDS, LIMIT_GIB = 60.0, 2.0


def simulate(outputs: Path, seeds: int) -> None:
    """Cells of which one is measured; the others are its copies, written without waiting for the
    disk."""
    run(Job("toy", ONE, 0, outputs))
    store = Store(outputs, "toy")
    first = next(store.all())
    found = {name: first.table(name) for name in first.meta["tables"]}
    os.fsync = lambda number: None
    for job in jobs(outputs, seeds):
        for cell_id, cell in job.cells():
            own = {**cell.params, "seed": job.seed}
            copies = {name: table.assign(**own) for name, table in found.items()}
            about = {"params": dict(cell.params), "seed": job.seed}
            store.write(cell_id, copies, first.meta | about)


def pack(outputs: Path, published: Path) -> None:
    """The same cells as an archive."""
    (published / "toy").mkdir(parents=True)
    files = packed(outputs / "toy" / "cells")
    (published / "toy" / CELLS_FILE).write_bytes(archive_bytes(files))


def jobs(outputs: Path, seeds: int) -> list[Job]:
    return [Job("toy", TOY, seed, outputs) for seed in range(seeds)]


def list_stored(outputs: Path, seeds: int) -> None:
    """What `hess-run list` does with one experiment."""
    store = Store(outputs, "toy")
    assert len({cell.meta["seed"] for cell in store.all()}) == seeds


def plan(outputs: Path, seeds: int) -> None:
    """`hess-run list NAME` of every seed."""
    assert len(forecast.cell_lines(forecast.planned(jobs(outputs, seeds)))) > seeds


def resume(outputs: Path, seeds: int) -> None:
    """What a sweep does before its first cell, and all that it does before its report when every
    cell is stored."""
    lines, left = forecast.survey(jobs(outputs, seeds))
    assert f"{seeds * CELLS} of {seeds * CELLS} cells are stored" in lines[0] and not left


def loops(outputs: Path, seeds: int) -> None:
    """The loop over the stored cells of every seed: what a sweep with one new cell a seed adds to
    that."""
    for job in jobs(outputs, seeds):
        store = job.store
        make_ready(store)
        assert all(store.has(cell_id) for cell_id, _ in job.cells())


def collect(outputs: Path, seeds: int) -> None:
    """The cells of a report, and their merged tables."""
    from runner.report import collect as report

    found = report.collect(jobs(outputs, seeds), lambda name, profile: TOY)
    assert len(found.cells) == seeds * CELLS
    assert len(merge(found.cells)["numbers"]) == 5 * seeds * CELLS


def write(outputs: Path, seeds: int) -> None:
    """The whole report, merged tables, manifest and page among it."""
    from runner.report.update import report

    _, lines = report(jobs(outputs, seeds), lambda name, profile: TOY)
    assert f"{seeds * CELLS} cells" in lines[0]
    assert (outputs / "toy" / "index.html").stat().st_size < 400_000


def timed(step: str, outputs: Path, seeds: int, published: str) -> tuple[float, float]:
    """Seconds of processor time and GiB at the peak, in a process of its own."""
    os.environ["HESS_PUBLISHED"] = published
    cpu = time.process_time()
    globals()[step](outputs, seeds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return time.process_time() - cpu, peak


STEPS = ("list_stored", "plan", "resume", "loops", "collect", "write")


def main(seeds: int = SEEDS, steps: Sequence[str] = STEPS) -> None:
    with tempfile.TemporaryDirectory() as name:
        outputs = Path(name) / "many"
        begin = time.perf_counter()
        simulate(outputs, seeds)
        pack(outputs, Path(name) / "published")
        print(f"{seeds * CELLS} cells simulated in {time.perf_counter() - begin:.0f} s", flush=True)
        empty = Path(name) / "empty"
        claim_outputs(empty)
        places = {"working": (outputs, ""), "archive": (empty, f"{name}/published")}
        for step in steps:
            found = []
            for where, (folder, published) in places.items():
                with multiprocessing.get_context("spawn").Pool(1) as process:
                    cpu, peak = process.apply(timed, (step, folder, seeds, published))
                kept = "kept" if cpu <= LIMIT_SECONDS and peak <= LIMIT_GIB else "NOT KEPT"
                found.append(cpu)
                cost = f"{cpu:.1f} s of processor, {peak:.2f} GiB"
                print(f"{step}, {where}: {cost}; promise {kept}", flush=True)
            print(f"{step}: archive / working {found[1] / found[0]:.2f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS, tuple(sys.argv[2:]) or STEPS)
