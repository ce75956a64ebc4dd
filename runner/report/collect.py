"""From stored cells to a report: which cells belong together, which of them are judged, what is
missing, and where the report goes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runner.contract import Experiment, quoted
from runner.report.departures import is_papers, with_marked
from runner.store.cells import in_order, within
from runner.store.identity import Identity
from runner.store.job import PAPER, Job
from runner.store.store import Stored

Protocol = Callable[[str, str], Experiment]
"""(experiment name, profile) -> that experiment as its YAML file has it under the profile, nothing
changed."""


@dataclass(frozen=True)
class Place:
    """Where the report of some settings goes, and the grid whose cells it needs.

    `<outputs>/<experiment>` and the grid of the YAML file for the paper's protocol;
    `<outputs>/<experiment>/<profile>` likewise for a profile; a folder of its own below that, named
    after the settings, and the grid asked for, for anything else. So a quick look never replaces
    finished results.
    """

    folder: Path
    experiment: Experiment
    words: tuple[str, ...]
    """What selects these settings on the command line, besides experiment and seed."""
    paper: Experiment
    """The experiment under the paper's protocol: what departures are counted from."""
    profile: str = PAPER
    changed: tuple[str, ...] = ()
    """Overrides that make these settings neither the paper's protocol nor a profile's."""


def place_of(job: Job, protocol: Protocol) -> Place:
    """The place of the report of a job's settings."""
    outputs = (quoted("outputs", job.outputs),) if str(job.outputs) != "outputs" else ()
    paper = protocol(job.name, PAPER)
    if job.identity.key == Identity.of(job.name, paper).key:
        return Place(job.store.root, paper, outputs, paper)
    words: tuple[str, ...] = (f"profile={job.profile}",)
    plain = protocol(job.name, job.profile)
    if job.identity.key == Identity.of(job.name, plain).key:
        folder = job.store.root / job.profile
        return Place(folder, plain, (*words, *outputs), paper, job.profile)
    folder = job.store.root / f"{job.profile}-{job.identity.key[:8]}"
    changed = tuple(word for word in job.overrides if not word.startswith("outputs="))
    words += job.overrides
    return Place(folder, job.experiment, words, paper, job.profile, changed)


@dataclass(frozen=True)
class Missing:
    """A cell that is not stored: what it is, why it failed last time ("" where it did not), and the
    words that ask for it on the command line, besides experiment and seed."""

    seed: int
    label: str
    error: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"seed={self.seed} {self.label}"


@dataclass(frozen=True)
class Collection:
    """The stored cells of one experiment under one set of settings, over all seeds. job: with the
    grid of the report.

    cells: in the order of the grid, then of the seed. missing: every cell that is not stored, of
    the grid (for the seeds asked for or found) and of those that the jobs asked for in addition.
    """

    job: Job
    place: Place
    cells: tuple[Stored, ...]
    seeds: tuple[int, ...]
    missing: tuple[Missing, ...]
    damage: tuple[str, ...] = ()
    """A line for each cell that was found damaged and moved away."""
    beside: Mapping[str, tuple[Stored, ...]] = field(default_factory=dict)
    """Stored cells of the companions of these settings (`Experiment.companions`), by name."""

    @property
    def failures(self) -> tuple[Missing, ...]:
        """The missing cells that failed last time."""
        return tuple(cell for cell in self.missing if cell.error)

    @property
    def fill_commands(self) -> list[str]:
        """Commands that measure what is missing: one for the grid, one for each way to ask for
        other cells."""
        seeds: dict[tuple[str, ...], set[int]] = {}
        for cell in self.missing:
            seeds.setdefault(cell.words, set()).add(cell.seed)
        name = [*self.job.options, f"experiment={self.job.name}"]
        return [measuring([*name, *words], wanted) for words, wanted in seeds.items()]


def shown_command(words: Iterable[str]) -> str:
    """The command line of these words."""
    return shlex.join(["hess-run", *words])


def measuring(words: Iterable[str], seeds: Iterable[int]) -> str:
    """What measures the cells of these seeds."""
    seeds = sorted(seeds)
    multirun = ["-m"] if len(seeds) > 1 else []
    named = [f"seed={','.join(map(str, seeds))}"] if seeds else []
    return shown_command([*multirun, *words, *named])


def collect(jobs: Sequence[Job], protocol: Protocol, any_seed: bool = False) -> Collection:
    """Every stored cell with the settings of `jobs`, whatever grid or seed it was asked for by.

    jobs: of one experiment with the same settings; they may differ in grid and seed. any_seed: no
    seed was asked for, so that where cells are stored and none at a job's own seed, that seed is
    not missing.
    """
    place = place_of(jobs[0], protocol)
    job = replace(jobs[0], experiment=with_marked(jobs[0].experiment, place.experiment, "grid"))
    identity = job.identity
    store = job.store
    stored_cells = list(store.all())
    companions = companions_of(job, stored_cells)
    damage = tuple(store.quarantine(name) for name in sorted(store.damaged))
    of_companions = {cell.id for cells in companions.values() for cell in cells}
    of_settings = [cell for cell in stored_cells if cell.meta["settings_key"] == identity.key]
    cells = [cell for cell in of_settings if cell.id not in of_companions] or of_settings
    stored_seeds = {int(cell.meta["seed"]) for cell in cells}
    only_beside = {cell.meta["seed"] for cell in of_settings} - stored_seeds
    jobs = [one for one in jobs if one.seed not in only_beside]
    if any_seed and stored_seeds and stored_seeds.isdisjoint(one.seed for one in jobs):
        jobs = [replace(one, seed=min(stored_seeds)) for one in jobs]
    seeds = sorted(stored_seeds | {one.seed for one in jobs})
    wanted = _wanted(job, place, jobs, seeds)
    for cell in of_settings:
        wanted.pop(cell.id, None)
    for cell_id, failure in store.failed().items():
        if cell_id in wanted:
            wanted[cell_id] = replace(wanted[cell_id], error=str(failure["error"]))
    return Collection(
        job=job,
        place=place,
        cells=tuple(in_order(cells, place.experiment)),
        seeds=tuple(seeds),
        missing=tuple(wanted.values()),
        damage=damage,
        beside=companions,
    )


def _wanted(
    job: Job, place: Place, jobs: Iterable[Job], seeds: Iterable[int]
) -> dict[str, Missing]:
    """Every cell that the report needs, by id: of the grid at these seeds, as far as verdicts read
    them, and those that the jobs asked for in addition."""
    of_paper: tuple[int, ...] = ()
    if is_papers(job.experiment, place.paper, place.profile):
        of_paper = tuple(place.paper.paper_seeds)
    grid = list(place.experiment.cells())
    wanted = {}
    for seed in seeds:
        if of_paper and seed not in of_paper:
            continue
        for cell in grid:
            cell_id = job.identity.cell_id(cell, seed)
            wanted[cell_id] = Missing(seed, cell.label, "", place.words)
    # off the grid: the words of the grid would not measure it
    for asked in jobs:
        words = asked.overrides
        if asked.profile != PAPER:
            words = (f"profile={asked.profile}", *words)
        for cell_id, cell in asked.cells():
            wanted.setdefault(cell_id, Missing(asked.seed, cell.label, "", words))
    return wanted


def companions_of(job: Job, cells: Sequence[Stored]) -> dict[str, tuple[Stored, ...]]:
    """The cells of each companion that has any, in the order of parameters and seeds."""
    companions = {}
    for name, companion in job.experiment.companions().items():
        key = Identity.of(job.name, companion.experiment, job.threads, job.device).key
        of_settings = [cell for cell in cells if cell.meta["settings_key"] == key]
        found = within(of_settings, companion.experiment, companion.seeds)
        if found:
            found.sort(key=lambda cell: (str(cell.meta["params"]), cell.meta["seed"]))
            companions[name] = tuple(found)
    return companions


def commits_of(manifest: Mapping[str, Any]) -> list[str]:
    """The commits that measured the cells of a report, each once."""
    return sorted({str(cell.get("git_commit") or "unknown") for cell in manifest.get("cells", [])})
