"""The cells that a run measures, whether they are stored, and their predicted cost: for `hess-run
list NAME`, and the lines in front of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.contract import Cell, SettingError, quoted
from runner.run.config.jobs import build_jobs
from runner.run.config.overrides import arguments
from runner.store import code
from runner.store.archive import Archive, published_folder
from runner.store.costs import Cost, Costs, duration, price
from runner.store.job import Job
from runner.store.store import Store, Stored


@dataclass(frozen=True)
class Planned:
    """A cell of a job, with its predicted cost. stored: as it is stored, None where it is to run;
    note: why it is to run again, "" for the first time."""

    job: Job
    cell_id: str
    cell: Cell
    cost: Cost
    stored: Stored | None
    note: str = ""

    @property
    def state(self) -> str:
        return "stored" if self.stored else ", ".join(filter(None, ("to run", self.note)))

    @property
    def is_published(self) -> bool:
        return self.stored is not None and isinstance(self.stored.files, Archive)


def planned(jobs: Iterable[Job]) -> list[Planned]:
    """Every cell of some jobs; stored cells are examined, checksums included, once for all jobs."""
    stores: dict[Path, tuple[Store, dict[str, Any]]] = {}
    costs: dict[tuple[Path, str], Costs] = {}
    cells: list[Planned] = []
    for job in jobs:
        key = job.store.root, job.identity.key
        if job.store.root not in stores:
            store = job.store
            stores[store.root] = store, store.failed()
        store, failed = stores[job.store.root]
        if key not in costs:
            own = [cell for cell in store.all() if cell.meta["settings_key"] == job.identity.key]
            costs[key] = Costs(own, list(job.experiment.cells()))
        for cell_id, cell in job.cells():
            stored = None if job.force else store.find(cell_id)
            note = ""
            if cell_id in failed:
                note = "failed last time"
            elif cell_id in store.damaged:
                note = "the stored cell is damaged"
            cells.append(Planned(job, cell_id, cell, costs[key](cell), stored, note))
    return cells


def price_of(words: Sequence[str], seeds: Sequence[int]) -> str:
    """How many cells a run measures where none is stored, and what they cost; "" for settings that
    are no longer taken."""
    named = [f"seed={','.join(map(str, seeds))}"] if seeds else []
    try:
        jobs = build_jobs(arguments([*words, *named], multirun=True))
    except SettingError:
        return ""
    costs = _costs(planned(jobs))
    return f"{len(costs)} cell{'' if len(costs) == 1 else 's'}, {price(costs)}"


def cell_lines(cells: Sequence[Planned]) -> list[str]:
    """A line for each cell, below one for its job; last, what they cost."""
    lines: list[str] = []
    last = ""
    for one in cells:
        job = one.job
        place = quoted("outputs", job.outputs)
        head = f"{job.name} seed={job.seed} profile={job.profile} {place}"
        if head != last:
            lines.append(head)
        last = head
        cost = f"{duration(one.cost.seconds):>7}  {one.cost.gib:5.1f} GiB"
        lines.append(f"  {one.cell_id}  {cost}  {one.state:7}  {one.cell.label}")
    return [*lines, *_sums(cells)]


def _states(cells: Sequence[Planned]) -> str:
    """How many cells are stored, and how many are to run."""
    missing = sum(not one.stored for one in cells)
    return f"{len(cells) - missing} stored, {missing} to run"


def _costs(cells: Iterable[Planned]) -> list[Cost]:
    """Costs of the cells, each counted once: jobs of a sweep may share them."""
    by_cell = {(one.job.name, one.cell_id): one.cost for one in cells}
    return list(by_cell.values())


def _sums(cells: Sequence[Planned]) -> list[str]:
    """What is left to run costs, and what all would cost from the beginning."""
    missing = [one for one in cells if not one.stored]
    processes = max((one.job.jobs for one in cells), default=1)
    rest = price(_costs(missing), processes) if missing else "nothing to do"
    lines = [f"{len(cells)} cells: {_states(cells)}; {rest}"]
    if len(missing) < len(cells):
        lines.append(f"all {len(cells)} again: {price(_costs(cells), processes)}")
    return lines


def survey(jobs: Sequence[Job]) -> tuple[list[str], list[Job]]:
    """What a run is about to do, one line an experiment (cells, stored ones apart, predicted time
    and memory), and the jobs that have a cell to measure."""
    cells = planned(jobs)
    by_experiment: dict[tuple[Path, str], dict[str, Planned]] = {}
    for one in cells:  # jobs of a sweep may share cells
        by_experiment.setdefault((one.job.outputs, one.job.name), {})[one.cell_id] = one
    lines = []
    for job in jobs:
        of_experiment = by_experiment.pop((job.outputs, job.name), None)
        if of_experiment is not None:
            lines.append(_summary(job, list(of_experiment.values())))
            lines += _changed_code(job, of_experiment.values())
    to_measure = {id(one.job) for one in cells if not one.stored}
    return lines, [job for job in jobs if id(job) in to_measure]


def _summary(job: Job, cells: Sequence[Planned]) -> str:
    """What is stored of an experiment, and what is to be measured."""
    missing = [one for one in cells if not one.stored]
    stored = len(cells) - len(missing)
    published = sum(one.is_published for one in cells)
    text = f"{job.name}: {stored} of {len(cells)} cells are stored"
    if published:
        text += f" ({'all' if published == stored else published} published)"
    if missing:
        seconds = sum(one.cost.seconds for one in missing)
        peak = max(one.cost.gib * one.job.jobs for one in missing)
        text += f"; {len(missing)} to measure: about {duration(seconds)} of one core"
        processes = missing[0].job.jobs
        if processes > 1:
            text += f", {duration(seconds / processes)} with {processes} processes"
        text += f", {peak:.1f} GiB"
    return f"{text}; then the report, below {job.outputs / job.name}"


def _changed_code(job: Job, cells: Iterable[Planned]) -> list[str]:
    """One line where stored cells were measured by other code than the present one."""
    digests = set()
    for one in cells:
        if one.stored:
            own = one.stored.meta.get("code", "")
            digests.add(code.PUBLISHED if one.is_published else own)
    if not code.is_other(job.experiment, digests - {""}, published_folder(job.name)):
        return []
    return [f"{job.name}: stored cells were measured by other code; force=true measures again"]
