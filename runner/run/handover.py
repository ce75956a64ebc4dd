"""What is handed to Hydra's own application, after every word of the command was checked."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from runner.run import config, sources
from runner.run.command_line import Arguments, expand
from runner.run.hydra_words import options
from runner.run.loop import out_of_space
from runner.run.sources import TOP_LEVEL
from runner.store.job import Job


def needs_no_job(argv: Sequence[str]) -> bool:
    """Whether a command asks Hydra for something that no experiment has a part in: its help, completion, plugins."""
    found = options(argv)
    named = any(word.startswith("experiment=") for word in found.overrides)
    return found.hydra_help or found.shell_completion or (found.info == "plugins" and not named)


def shown_words(arguments: Arguments) -> list[str]:
    """The overrides of the (first) job with those of its profile, for Hydra to show what would run."""
    words = expand(arguments)[0]
    run = [word for word in words if word.split("=", 1)[0] in TOP_LEVEL]
    others = [word for word in words if word.split("=", 1)[0] not in TOP_LEVEL]
    return [*run, *config.composition(others).words]


def sweep_folder(arguments: Arguments, jobs: Sequence[Job]) -> list[str]:
    """Hydra's scratch folder of a sweep, inside an output folder of the sweep; the default may be in none of them."""
    if not arguments.multirun:
        return []
    folder = jobs[0].outputs / ".multirun" / time.strftime("%Y-%m-%d_%H-%M-%S")
    escaped = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    return [f"hydra.sweep.dir='{escaped}'"]


def without_stored(arguments: Arguments, open_jobs: Sequence[Job]) -> Arguments:
    """The command line with those seeds of a sweep alone at which a cell is to be measured.

    Hydra composes every job of a sweep anew, a quarter of a second each: too much for a thousand with nothing to do.
    """
    seeds = ",".join(str(seed) for seed in sorted({job.seed for job in open_jobs}))
    words = [f"seed={seeds}" if word.startswith("seed=") else word for word in arguments.overrides]
    return replace(arguments, overrides=tuple(words)) if arguments.multirun else arguments


def workers_of(job: Job) -> int:
    """How many processes a job is measured by, besides the command's own."""
    store = job.store
    return min(job.jobs, sum(not store.has(cell_id, job.only_run) for cell_id, _ in job.cells())) if job.jobs > 1 else 0


RESTARTS = 3
"""How often a sweep is started again after a process of its launcher was killed: one cell may kill each that tries."""
_LAUNCHERS = ("joblib", "submitit", "ray", "concurrent")
"""Packages whose own errors say that a process is gone."""


def lost_worker(error: BaseException) -> bool:
    """Whether a launcher reports that one of its processes ended early. What was not stored can be measured again."""
    return any(kind.__module__.split(".")[0] in _LAUNCHERS for kind in type(error).__mro__) and not ran_full(error)


def ran_full(error: BaseException) -> bool:
    """Whether a full disk is behind an error, also one that a launcher hands on as text."""
    return out_of_space(error) or "NoSpace" in str(error)


def take_folders(found: Iterable[Any]) -> None:
    """In a process that a launcher made: take choices from the folders that the command was given."""
    for source in found:
        if source.provider == "command-line":
            sources.add(source.path)
