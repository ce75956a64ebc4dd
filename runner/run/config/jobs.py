"""Jobs of a command line: a composed experiment with checked settings of its run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from runner.contract import Experiment, SettingError, check, setting, short, typed_path
from runner.run.config import files
from runner.run.config.experiment import Composition, composition, preview
from runner.run.config.overrides import TOP_LEVEL, Arguments, expand, read
from runner.run.config.types import typed
from runner.store.job import PAPER, Job

MOST_AT_ONCE = 1024
"""Processes or threads of one machine; a larger number is a typo."""
NOT_REPEATED = (
    "experiment",
    "seed",
    "profile",
    "force",
    "jobs",
)  # in the commands that reports print


@dataclasses.dataclass(frozen=True)
class Run:
    """Settings of a run that are not the experiment's."""

    seed: int = setting(42, at_least=0, at_most=2**63 - 1)
    threads: int = setting(1, above=0, at_most=MOST_AT_ONCE)
    device: str = "cpu"
    outputs: str = "outputs"
    jobs: int = setting(1, above=0, at_most=MOST_AT_ONCE)
    force: bool = False

    def __post_init__(self) -> None:
        check(self, "")
        if self.device != "cpu" and not re.fullmatch(r"(cuda|mps)(:\d+)?", self.device):
            raise SettingError(
                f"device: expected cpu, cuda, cuda:N or mps, found {short(self.device)}"
            )


def build_job(overrides: Sequence[str]) -> Job:
    """Compose, check and type one job. Raises SettingError with one line for any mistake."""
    run_words = [word for word in overrides if word.split("=", 1)[0] in TOP_LEVEL]
    values = {word.split("=", 1)[0]: read(word).value for word in run_words}
    composed = composition([word for word in overrides if word not in run_words])
    if not composed.repeats or any("${" in str(value) for value in values.values()):
        composed = composition(overrides)
        values = {}
    return _job(composed, {**composed.run, **values}, overrides)


def _job(composed: Composition, values: Mapping[str, Any], overrides: Sequence[str]) -> Job:
    run = Run(**typed(Run, values, "", ""))
    check_device(run.device, composed.name, composed.experiment)
    return Job(
        name=composed.name,
        experiment=composed.experiment,
        profile=composed.profile,
        overrides=tuple(
            word.lstrip("+") for word in overrides if word.split("=", 1)[0] not in NOT_REPEATED
        ),
        options=files.options(),
        **{**vars(run), "outputs": typed_path("outputs", run.outputs)},
    )


def build_jobs(arguments: Arguments) -> list[Job]:
    """Every job of a command line. Raises SettingError with one line for any mistake in it."""
    return [build_job(words) for words in expand(arguments)]


def distinct(arguments: Arguments) -> list[list[str]]:
    """The overrides of the jobs of a command line, without those that are settings of the run, each
    once."""
    kept = [w for w in arguments.overrides if w.split("=", 1)[0] not in TOP_LEVEL]
    return expand(dataclasses.replace(arguments, overrides=tuple(kept)))


def protocol(name: str, profile: str) -> Experiment:
    """The experiment under a profile as its YAML file has it, nothing changed on the command
    line."""
    if profile == PAPER:
        return preview(name)
    return build_job([f"experiment={name}", f"profile={profile}"]).experiment


def check_device(device: str, name: str, experiment: Experiment) -> None:
    """Raise SettingError for a device that the experiment has no use for, or that this machine
    lacks."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return
    if kind not in experiment.devices:
        known = ", ".join(experiment.devices)
        raise SettingError(f"device={device}: {name} runs on {known} only; leave device out")
    import torch

    if kind == "mps":
        there = 1 if torch.backends.mps.is_available() else 0
    else:
        there = 0
        if torch.cuda.is_available():
            there = torch.cuda.device_count()
    if there == 0:
        raise SettingError(
            f"device={device}: this machine has no {kind} device that torch can use; found cpu"
        )
    if number and int(number) >= there:
        raise SettingError(
            f"device={device}: expected {kind}:0 to {kind}:{there - 1}, found {kind}:{number}"
        )
