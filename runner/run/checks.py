"""Commands that check: `store check`, `verify`, `data list|fetch|verify`, and `demo`, one result
measured now."""

from __future__ import annotations

import json
import logging
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from runner.contract import Cell, Experiment, SettingError, one_of, whole_number
from runner.report.manifest import (
    NAME as MANIFEST,
    changed_files,
    changed_pages,
    changed_start,
    is_merged,
    read_manifest,
)
from runner.run import config
from runner.run.command_line import Call
from runner.run.console import Progress
from runner.run.execute import run
from runner.run.loop import measure
from runner.run.reports import read_jobs
from runner.store.archive import CELLS, published_root, report_folders, where_published
from runner.store.compare import compare
from runner.store.job import Job, check_outputs, claim_outputs
from runner.store.store import Store

TOLERANCE = 1e-6
"""Relative: what float32 trainings on another processor may differ by before anything else is
wrong."""


def store_command(call: Call) -> int:
    """hess-run store check [outputs=PATH] [repair=true]

    Examines every stored cell: cell.json, id, names, and the SHA-256 of each table. Names the
    damaged ones, one line each; repair=true moves them to <experiment>/quarantine/, and the next
    run measures them again. Names the files of reports that have changed, too; the next report
    makes them again. Exit status 1 if anything is damaged.

      hess-run store check outputs=outputs/run
    """
    one_of("store", call.words[0], ("check",))
    repair = call.keys.get("repair", "false")
    one_of("repair", repair, ("true", "false"))
    return check_store(Path(call.keys.get("outputs", "outputs")), repair == "true", call.json)


def check_store(root: Path, repair: bool = False, as_json: bool = False) -> int:
    """Examine every stored cell and report; 1 when one is damaged. repair: move damaged cells to
    quarantine."""
    check_outputs(root)
    if not root.is_dir() and published_root() is None:
        raise SettingError(
            f"outputs: expected a folder with stored cells, found no {root}; set outputs=PATH; "
            f"{where_published()}"
        )
    total, lines, left = 0, [], []
    for experiment in _experiments(root):
        store = Store(root, experiment)
        total += sum(1 for _ in store.all())
        for name, reason in sorted(store.damaged.items()):
            lines.append(
                store.quarantine(name)
                if repair
                else f"{experiment}: damaged cell {name} ({reason})"
            )
        lines += store.published_damage()
        for folder in store.unfinished():
            with store.lock(folder.name.split("-")[1]) as mine:
                left += [
                    f"{folder}: left of a write that was killed; the next run removes it"
                ] * mine
    reports = [line for folder in report_folders(root) for line in _changed_report(folder)]
    if start := changed_start(root):
        found = ", ".join(start)
        reports.append(
            f"{root}: the start page was changed: {found}; hess-run report makes it again"
        )
    text = "\n".join([*lines, *left, *reports, f"{total} cells are whole, {len(lines)} damaged"])
    print(
        json.dumps({"whole": total, "damaged": lines, "left": left, "reports": reports}, indent=1)
        if as_json
        else text
    )
    return 1 if lines or reports else 0


def _changed_report(folder: Path) -> list[str]:
    """A line for a report whose files are not what its manifest says; published ones come without
    merged tables."""
    manifest = read_manifest(folder)
    changed = [MANIFEST]
    if manifest is not None:
        changed = [*changed_files(folder, manifest), *changed_pages(folder, manifest)]
    there = ", ".join(file for file in changed if not is_merged(file) or (folder / file).exists())
    return (
        [f"{folder}: changed after the report: {there}; the next report makes them again"]
        if there
        else []
    )


def _experiments(root: Path) -> list[str]:
    """Names of the experiments with cells in the working folder or published."""
    working = [path.parent.name for path in root.glob("*/cells") if path.is_dir()]
    folder = published_root()
    published = (
        [path.parent.name for path in folder.glob(f"*/{CELLS}")] if folder is not None else []
    )
    return sorted({*working, *published})


def verify_command(call: Call) -> int:
    """hess-run [-m] verify experiment=NAME [key=value ...] [sample=3] [tolerance=1e-6]

    Measures a random sample of the stored cells again, outside the store, and compares every table
    with the stored one. Names the first field that differs by more than the relative tolerance;
    sample=0 takes all cells. Exit status 1 if any cell differs. Times (columns of seconds) are not
    compared.

      hess-run verify experiment=scalar_spectrum sample=5
    """
    try:
        sample = whole_number("verify: sample", call.keys.get("sample", "3"))
        tolerance = float(call.keys.get("tolerance", TOLERANCE))
    except SettingError:
        raise
    except ValueError as error:
        raise SettingError(
            f"verify: expected sample=NUMBER and tolerance=NUMBER ({error})"
        ) from error
    if sample < 0 or not 0 <= tolerance < math.inf:
        raise SettingError(
            f"verify: expected sample and tolerance of at least 0, found {sample}, {tolerance}"
        )
    return verify_jobs(read_jobs(call)[1], sample, tolerance, call.json)


def verify_jobs(
    jobs: Sequence[Job], sample: int = 3, tolerance: float = TOLERANCE, as_json: bool = False
) -> int:
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
    chosen = stored if sample == 0 else random.sample(stored, min(sample, len(stored)))
    wrong, records, moved = 0, [], False
    for job, cell_id, cell in chosen:
        agrees, line, elsewhere = _verify(job, cell_id, cell, tolerance)
        wrong += not agrees
        moved = moved or (elsewhere and not agrees)
        records.append(
            {
                "experiment": job.name,
                "seed": job.seed,
                "cell": cell_id,
                "agrees": agrees,
                "found": line,
            }
        )
        if not as_json:
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
    print(json.dumps({"stored": len(stored), "cells": records}, indent=1) if as_json else counts)
    return 1 if wrong else 0


def _verify(job: Job, cell_id: str, cell: Cell, tolerance: float) -> tuple[bool, str, bool]:
    """Whether a cell that is measured again agrees with the stored one, how, and whether it was
    measured elsewhere."""
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
    changed = [
        key for key in ("torch", "cpu", "instructions", "blas") if there.get(key) != here[key]
    ]
    other = [f"{key} {there.get(key)} -> {here[key]}" for key in changed]
    note = f" [{'; '.join(other)}]" if other and not found.identical else ""
    return found.agrees, f"{found.line()}{note}", bool(other)


ARCHIVES = ("cifar10", "cifar100")


def missing_data(experiments: Iterable[Experiment]) -> str:
    """What is missing of the first data set whose files are not there or have the wrong size; ""
    for nothing."""
    for experiment in experiments:
        missing = getattr(getattr(experiment, "dataset", None), "missing", None)
        if missing is not None and (reason := missing()):
            return str(reason)
    return ""


def data_command(call: Call) -> int:
    """hess-run data list         what is there, where it is looked for, sizes and orders of records
    hess-run data fetch NAME  download an official archive; check its sum; unpack known files only
    hess-run data verify NAME check the files and labels that are there

    NAME: cifar10 or cifar100. Files are looked for below $HESS_DATA, then below data/ in the
    current folder; torchvision's folder there counts where it has the official binary files (its
    own are pickled and never read). fetch writes to $HESS_DATA, else to data/.
    """
    verb, *names = call.words
    one_of("data", verb, ("list", "fetch", "verify"))
    if verb != "list" and not names:
        raise SettingError(f"data {verb}: expected one of {', '.join(ARCHIVES)}, found nothing")
    for name in names:
        one_of(f"data {verb}", name, ARCHIVES)
    if verb == "list":
        print("\n".join(line for name in names or ARCHIVES for line in _listed(name)))
        return 0
    (name,) = names
    from runner.data.images import DataError

    try:
        return _fetch(name) if verb == "fetch" else _verify_data(name)
    except DataError as error:
        raise SettingError(str(error)) from error
    except OSError as error:
        print(f"hess-run: {name}: {error}; run the same command again to go on", file=sys.stderr)
        return 1


def _listed(name: str) -> list[str]:
    """What is known of a data set: where it is looked for, whether it is there, its files and
    addresses."""
    from runner.data.cifar import archive, complete, data_root, locate, pickled, places
    from runner.data.fetch import SUMS
    from runner.run.config import mirrors

    spec = archive(name)
    folder = locate(spec)
    state = f"not there; hess-run data fetch {name}"
    if complete(spec, folder):
        size = sum(spec.sizes.values()) / 2**20
        state = (
            f"{len(spec.sizes)} files, {size:.0f} MiB; "
            f"hess-run data verify {name} compares their sums"
        )
    origin = {data_root(): "$HESS_DATA", Path("data"): "data/ in the current folder"}
    looked = [
        f"  {'folder' if p == folder else 'or':8} {p.absolute()} ({origin[p.parent]})"
        for p in places(spec)
    ]
    sums = folder / SUMS
    noted = sums.read_text(encoding="utf-8").splitlines() if sums.is_file() else []
    return [
        f"{name}: {state}",
        *sorted(looked),
        *([f"  note     {note}"] if (note := pickled(spec)) else []),
        f"  archive  {spec.file}, MD5 {spec.md5}",
        *(f"  address  {url}" for url in mirrors(name)),
        *(f"  SHA-256  {line}" for line in noted),
    ]


def _fetch(name: str) -> int:
    from tqdm import tqdm

    from runner.data.fetch import fetch
    from runner.run.config import mirrors

    with tqdm(unit="B", unit_scale=True, desc=name, disable=not sys.stderr.isatty()) as bar:

        def progress(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        folder = fetch(name, mirrors=mirrors(name), progress=progress)
    print(f"{name}: complete in {folder}")
    return 0


def _verify_data(name: str) -> int:
    from runner.data.cifar import archive, locate
    from runner.data.fetch import verify

    folder = locate(archive(name))
    verify(archive(name), folder)
    print(f"{name}: files and labels in {folder} are as they should be")
    return 0


DEMO_EXPERIMENT = "scalar_spectrum"
DEMO_CELLS = ("part=[cells,bias]", "seed=42,43,44,45,46")
DEMO_FIGURE = "fig2_relu_cells"
DEMO_CLAIM = "relu_closed_form"
DEMO_PLAIN = (
    "every Hessian eigenvalue of a ReLU network with one hidden layer and scalar input has a "
    "closed form"
)
TABLE, FORMULA, OURS = "relu_cells", "eigenvalue", "dense"
"""Table of the cell, its column with the values of the paper's formula, and its column with ours.
"""
DEMO_OUTPUTS = "outputs/demo"


def demo_command(call: Call) -> int:
    """hess-run demo [outputs=PATH]

    Measures ten cells of scalar_spectrum (a few seconds, no data set): every Hessian eigenvalue of
    a ReLU network by the paper's formula and by automatic differentiation. Prints the claim, the
    published and our values and the verdict, and draws the figure into PATH (default outputs/demo).
    A second call only draws.
    """
    return demo(Path(call.keys.get("outputs", DEMO_OUTPUTS)))


def demo(outputs: Path) -> int:
    """Measure the cells that are not stored, report them, and print both sides. 0, or 1 when a cell
    failed."""
    words = [f"experiment={DEMO_EXPERIMENT}", *DEMO_CELLS, f"outputs='{outputs}'"]
    # measured now, that is the point
    jobs = [
        replace(job, published=False)
        for job in config.build_jobs(config.arguments(words, multirun=True))
    ]
    check_outputs(outputs)
    claim_outputs(outputs)
    begin = time.monotonic()
    missing = sum(not job.store.has(cell_id) for job in jobs for cell_id, _ in job.cells())
    print(f"{jobs[0].experiment.title} (paper: {jobs[0].experiment.paper})")
    print(
        f"  measuring {missing} small cells" if missing else "  stored; drawing the figure",
        flush=True,
    )
    for job in jobs:
        outcome = run(job)
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.failed:
            print(f"  a cell failed: {job.store.failed()[outcome.failed[0]]['error']}")
            return 1
    for line in [
        *_report(jobs),
        f"{time.monotonic() - begin:.0f} s. Next: hess-run list, hess-run experiment=NAME",
    ]:
        print(line)
    return 0


def _report(jobs: Sequence[Job]) -> list[str]:
    """Report the cells with one figure, compared with the grid of these cells alone; lines that say
    what is in it."""
    from runner.report.manifest import read_table
    from runner.report.update import report
    from runner.report.write import write_overview

    def narrowed(name: str, profile: str) -> Experiment:
        return jobs[0].experiment

    collection, _ = report(jobs, narrowed, only_figure=DEMO_FIGURE)
    write_overview(jobs[0].outputs)
    folder = collection.place.folder
    claim = next(row for row in read_table(folder / "claims.csv") if row["name"] == DEMO_CLAIM)
    rows = read_table(folder / f"{TABLE}.csv")

    def extremes(column: str) -> str:
        values = [float(row[column]) for row in rows]
        return f"largest {max(values):.14f}, smallest {min(values):.14f}"

    return [
        "",
        f"claim      {DEMO_PLAIN} ({claim['where']})",
        (
            f"published  {extremes(FORMULA)}: the paper's formula, "
            f"{len(rows)} eigenvalues of {len(jobs)} networks"
        ),
        f"ours       {extremes(OURS)}: the Hessian by automatic differentiation, an eigensolver",
        f"verdict    {claim['verdict']}: largest relative difference "
        f"{float(claim['statistic']):.1e}, "
        f"criterion {claim['threshold']}",
        "",
        f"figure     {folder / 'figures' / DEMO_FIGURE}.png",
        f"page       {folder / 'index.html'}",
    ]
