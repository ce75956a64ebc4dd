"""From a command line to typed jobs, each checked before anything is written; one line for every mistake.

Each job is composed once (`runner.run.composing`). Jobs of a sweep that differ in the settings of the run only (seed,
outputs, …) share one composition.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner.contract import Experiment, SettingError, check, setting
from runner.run import composing, hydra_words, reading
from runner.run import sources as sources
from runner.run.command_line import Arguments, expand
from runner.run.command_line import parse as parse
from runner.run.composing import Composition
from runner.run.composing import composition as composition
from runner.run.devices import check_device
from runner.run.reading import experiment_class as experiment_class
from runner.run.reading import experiment_names as experiment_names
from runner.run.reading import mirrors as mirrors
from runner.run.sources import FULL_ERROR, TOP_LEVEL, short, was_interrupted
from runner.run.targets import check_names
from runner.run.typed import typed
from runner.store.job import Job

MOST_AT_ONCE = 1024
"""Processes or threads of one machine: a larger number is a slip of the finger."""
NOT_REPEATED = ("experiment", "seed", "profile", "force", "jobs")  # in the commands that reports print


@dataclasses.dataclass(frozen=True)
class Run:
    """Settings of a run that are not the experiment's."""

    seed: int = setting(42, at_least=0)
    threads: int = setting(1, above=0, at_most=MOST_AT_ONCE)
    device: str = "cpu"
    outputs: str = "outputs"
    jobs: int = setting(1, above=0, at_most=MOST_AT_ONCE)
    force: bool = False

    def __post_init__(self) -> None:
        check(self, "")
        if self.device != "cpu" and not re.fullmatch(r"(cuda|mps)(:\d+)?", self.device):
            raise SettingError(f"device: expected cpu, cuda, cuda:N or mps, found {short(self.device)}")
        if not self.outputs.strip():
            raise SettingError("outputs: expected a folder, found nothing")


PLAIN = re.compile(rf"({'|'.join(key for key in TOP_LEVEL if key != 'force')})=[\w./-]+")
"""A setting of the run that Hydra's grammar reads as the text that it is."""


def main_job(name: str, words: Sequence[str]) -> Job | None:
    """The job of an experiment at its paper profile without Hydra, at a tenth of its cost: a report of everything that
    is stored asks for many. None where the words say more than plain settings of the run."""
    if not all(PLAIN.fullmatch(word) for word in words):
        return None
    defaults = {field.name: field.default for field in dataclasses.fields(Run)}
    found = Composition(name, "paper", preview(name), (), defaults, True)
    return _job(found, {**defaults, **dict(word.split("=", 1) for word in words)}, words)


def build_job(overrides: Sequence[str]) -> Job:
    """Compose, check and type one job. Raises SettingError with one line for any mistake."""
    run_words = [word for word in overrides if word.split("=", 1)[0] in TOP_LEVEL]
    others = [word for word in overrides if word.split("=", 1)[0] not in TOP_LEVEL]
    values = {word.split("=", 1)[0]: hydra_words.read(word).value for word in run_words}
    if any("${" in str(value) or value == "???" for value in values.values()):
        found = composition(overrides)  # what the value is has to be composed
    else:
        found = composition(others)
        if not found.repeats:
            found = composition(overrides)
    return _job(found, {**found.run, **{k: v for k, v in values.items() if "${" not in str(v)}}, overrides)


def _job(found: Composition, values: Mapping[str, Any], overrides: Sequence[str]) -> Job:
    run = Run(**typed(Run, values, "", ""))
    check_names(type(found.experiment))
    check_device(run.device, found.name, found.experiment)
    return Job(
        name=found.name,
        experiment=found.experiment,
        profile=found.profile,
        overrides=tuple(word.lstrip("+") for word in overrides if word.split("=", 1)[0] not in NOT_REPEATED),
        seed=run.seed,
        outputs=Path(run.outputs).expanduser(),
        threads=run.threads,
        device=run.device,
        jobs=run.jobs,
        force=run.force,
    )


def read_command(argv: Sequence[str]) -> tuple[Arguments, list[Job]]:
    """A command line and every job of it, checked. Raises SettingError with one line for any mistake in it."""
    with _one_line(argv):
        arguments = parse(argv)
    return arguments, build_jobs(arguments)


def build_jobs(arguments: Arguments) -> list[Job]:
    """Every job of a parsed command line. Raises SettingError with one line for any mistake in it."""
    with _one_line(arguments.overrides), composing.session():
        jobs = [build_job(words) for words in expand(arguments)]
        if arguments.launcher:
            composing.compose([*expand(arguments)[0], *arguments.launcher])
        return jobs


@contextmanager
def _one_line(words: Sequence[str]) -> Iterator[None]:
    """A mistake that nothing before named becomes a line too; never a traceback, unless it is asked for."""
    try:
        yield
    except SettingError:
        raise
    except Exception as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        if FULL_ERROR:
            raise
        raise SettingError(composing.explain(error, words)) from error


def distinct(arguments: Arguments) -> list[list[str]]:
    """The overrides of the jobs of a command line, without those that are settings of the run, each once."""
    kept = [w for w in arguments.overrides if w.split("=", 1)[0] not in TOP_LEVEL]
    return expand(dataclasses.replace(arguments, overrides=tuple(kept)))


def preview(name: str) -> Experiment:
    """The experiment at its paper profile; without Hydra's composition where its file allows it."""
    try:
        return reading.preview(name)
    except reading.NeedsHydra:
        return composition([f"experiment={name}"]).experiment


def protocol(name: str, profile: str) -> Experiment:
    """The experiment under a profile as its YAML file has it, nothing changed on the command line."""
    return preview(name) if profile == "paper" else build_job([f"experiment={name}", f"profile={profile}"]).experiment
