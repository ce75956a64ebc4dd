"""The cells that a run measures, whether they are stored, and their predicted cost: for `hess-run
list NAME`, and the lines in front of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.contract import Cell, SettingError, quoted
from runner.run.config.jobs import build_jobs
from runner.run.config.overrides import arguments
from runner.store import code
from runner.store.archive import Archive, published_folder
from runner.store.costs import Cost, Costs, duration, price
from runner.store.job import Job
from runner.store.store import Store, Stored

STORED = "stored"


@dataclass(frozen=True)
class Planned:
    """A cell of a job: whether it is stored, and its predicted cost. code: digest of the code that
    measured it, "" where it is not stored."""

    job: Job
    cell_id: str
    cell: Cell
    state: str
    cost: Cost
    published: bool = False
    code: str = ""

    @property
    def is_stored(self) -> bool:
        return self.state == STORED


class _Contents:
    """What one store holds: read once, however many jobs share it."""

    def __init__(self, store: Store) -> None:
        self.cells = {cell.id: cell for cell in store.all()}
        self.failed = store.failed()
        self.damaged = store.damaged
        self._costs: dict[str, Costs] = {}
        self._by_settings: dict[str, list[Stored]] = {}
        for cell in self.cells.values():
            self._by_settings.setdefault(cell.meta["settings_key"], []).append(cell)

    def costs(self, job: Job) -> Costs:
        """Costs of cells with the settings of a job."""
        key = job.identity.key
        if key not in self._costs:
            self._costs[key] = Costs(self._by_settings.get(key, []), list(job.experiment.cells()))
        return self._costs[key]

    def planned(self, job: Job) -> Iterable[Planned]:
        """Every cell of a job."""
        costs = self.costs(job)
        for cell_id, cell in job.cells():
            cost = costs(cell)
            stored = self.cells.get(cell_id)
            if stored is not None and not job.force:
                published = isinstance(stored.files, Archive)
                digest = code.PUBLISHED if published else stored.meta.get("code", "")
                yield Planned(job, cell_id, cell, STORED, cost, published, digest)
                continue
            state = "to run"
            if cell_id in self.failed:
                state = "to run, failed last time"
            elif cell_id in self.damaged:
                state = "to run, the stored cell is damaged"
            yield Planned(job, cell_id, cell, state, cost)


def planned(jobs: Iterable[Job]) -> list[Planned]:
    """Every cell of some jobs; stored cells are examined, checksums included."""
    stores: dict[Path, _Contents] = {}
    cells: list[Planned] = []
    for job in jobs:
        store = job.store
        if store.root not in stores:
            stores[store.root] = _Contents(store)
        cells += stores[store.root].planned(job)
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
    missing = sum(not one.is_stored for one in cells)
    return f"{len(cells) - missing} stored, {missing} to run"


def _costs(cells: Iterable[Planned]) -> list[Cost]:
    """Costs of the cells, each counted once: jobs of a sweep may share them."""
    by_cell = {(one.job.name, one.cell_id): one.cost for one in cells}
    return list(by_cell.values())


def _sums(cells: Sequence[Planned]) -> list[str]:
    """What is left to run costs, and what all would cost from the beginning."""
    missing = [one for one in cells if not one.is_stored]
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
        key = (one.job.outputs, one.job.name)
        by_experiment.setdefault(key, {})[one.cell_id] = one
    lines = []
    for job in jobs:
        of_experiment = by_experiment.pop((job.outputs, job.name), None)
        if of_experiment is not None:
            lines.append(_summary(job, list(of_experiment.values())))
            lines += _changed_code(job, of_experiment.values())
    to_measure = {id(one.job) for one in cells if not one.is_stored}
    return lines, [job for job in jobs if id(job) in to_measure]


def _summary(job: Job, cells: Sequence[Planned]) -> str:
    """What is stored of an experiment, and what is to be measured."""
    missing = [one for one in cells if not one.is_stored]
    stored = len(cells) - len(missing)
    published = sum(one.published for one in cells)
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
    digests = {one.code for one in cells if one.code}
    if not code.is_other(job.experiment, digests, published_folder(job.name)):
        return []
    return [f"{job.name}: stored cells were measured by other code; force=true measures again"]
