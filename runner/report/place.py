"""Where the report of some settings goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.contract import Experiment, quoted
from runner.store.identity import Identity
from runner.store.job import PAPER, Job

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
