"""Hydra's own application: its options that show something, and sweeps that a launcher spreads over
processes or machines. Every word of the command was checked before; a plain run needs none of this.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from runner.contract import SettingError, described, quoted, short
from runner.run.command_line import Call
from runner.run.config import files
from runner.run.config.compose import defaults_of_hydra, one_line, with_hydra
from runner.run.config.jobs import build_job
from runner.run.config.overrides import Arguments, expand
from runner.run.config.types import may_import
from runner.run.execute import end_with, run_jobs
from runner.run.exit_status import FULL_ERROR, limit, was_interrupted
from runner.run.streams import protect, say
from runner.store.job import Job

LAUNCHERS = {
    "joblib": "hydra-joblib-launcher",
    "submitit_local": "hydra-submitit-launcher",
    "submitit_slurm": "hydra-submitit-launcher",
    "ray": "hydra-ray-launcher",
}
"""Launcher -> the package that brings it."""
RESTARTS = 3
"""How often a sweep is started again after a process of its launcher was killed: one cell may kill
each that tries."""
COMMAND = "HESS_COMMAND"
"""Environment variable: the process of the command. Processes of a launcher that are its children
end with it."""
PLUGINS = ("hydra._internal.core_plugins.", "hydra_plugins.")
_PACKAGES = ("joblib", "submitit", "ray", "concurrent")
"""Packages whose own errors say that a process is gone."""


def needs_no_job(call: Call) -> bool:
    """Whether a command asks Hydra for something that no experiment has a part in: its help,
    completion, plugins."""
    if "plugins" in call.shows:
        return not any(word.startswith("experiment=") for word in call.settings)
    return call.shows[:1] in (("--hydra-help",), ("--shell-completion",))


def chosen(arguments: Arguments) -> bool:
    """Whether a launcher of Hydra was asked for."""
    words = [word.lstrip("+").partition("=") for word in arguments.launcher]
    return any(key == files.LAUNCHERS and value != "basic" for key, _, value in words)


def check_launcher(arguments: Arguments) -> None:
    """Let Hydra compose the first job. Raises SettingError with one line for what it refuses, and
    for code that a file brings in through Hydra's own section."""
    try:
        cfg = with_hydra([*expand(arguments)[0], *arguments.launcher])
    # Hydra, OmegaConf and YAML raise many kinds; all are a mistake in what was read
    except Exception as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        missing = re.search(r"Could not (?:find|load) 'hydra/launcher/([^'/]+)'", str(error))
        line = missing_launcher(missing[1]) if missing else f"hydra: {one_line(error)}"
        raise SettingError(line) from error
    _check_section(cfg.hydra)


def missing_launcher(name: str) -> str:
    """One line for a launcher whose plugin is not installed."""
    if name in LAUNCHERS:
        return (
            f"hydra/launcher={name}: its plugin is not installed; "
            f"get it with pip install {LAUNCHERS[name]}"
        )
    known = ", ".join(["basic", *files.choices(files.LAUNCHERS), *LAUNCHERS])
    return f"hydra/launcher={name}: no such launcher; known: {known} (docs/scale.md)"


def _check_section(section: Any) -> None:
    """Refuse callbacks, launchers, sweepers and logging that are not Hydra's or this project's."""
    from omegaconf import OmegaConf

    node = OmegaConf.to_container(section, resolve=False)
    assert isinstance(node, dict)
    if node.get("callbacks") or node["job"].get("chdir") or node["run"]["dir"] != ".":
        raise SettingError(
            "hydra: expected no callbacks, run.dir=. and job.chdir=false, as in conf/config.yaml"
        )
    for group in ("job_logging", "hydra_logging"):
        disabled = section.runtime.choices.get(f"hydra/{group}") == "disabled"
        if not disabled or "handlers" in (node[group] or {}):
            raise SettingError(
                f"hydra.{group}: expected disabled: every job keeps a log of its own"
            )
    for group in ("launcher", "sweeper"):
        for target in _targets(node.get(group)):
            if not (target.startswith(PLUGINS) or may_import(target)):
                raise SettingError(
                    f"hydra.{group}: _target_ {short(target)} is no plugin of Hydra and was "
                    "not imported"
                )


def _targets(node: Any) -> Iterator[str]:
    """Every `_target_` in a configuration, nested ones included."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield str(node["_target_"])
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from _targets(item)


def show_hydra(words: Sequence[str]) -> int:
    """What one of Hydra's options shows."""
    try:
        application(words)
    except SystemExit as ending:  # --hydra-help
        return 2 if ending.code else 0
    except Exception as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        if FULL_ERROR:
            raise
        raise SettingError(f"{words[0]}: {one_line(error)}") from error
    return 0


def launch(call: Call, arguments: Arguments, open_jobs: Sequence[Job]) -> None:
    """Spread a sweep over the processes of a launcher. One that loses a process is started
    again."""
    left = without_stored(arguments, open_jobs)
    folder = str(open_jobs[0].outputs / ".multirun" / time.strftime("%Y-%m-%d_%H-%M-%S"))
    words = [*left.launcher, *left.overrides]
    for restart in range(1, RESTARTS + 2):
        try:
            return application(call.argv([*words, quoted("hydra.sweep.dir", folder)]))
        except Exception as error:
            if FULL_ERROR or restart > RESTARTS or not lost_worker(error):
                raise
            reason = short(described(error), 300)
            say(
                f"a process of the launcher ended early ({reason}); "
                f"starting what is not stored again ({restart})"
            )
    raise AssertionError("the last start returns")


def without_stored(arguments: Arguments, open_jobs: Sequence[Job]) -> Arguments:
    """The sweep over those seeds alone at which a cell is to be measured: Hydra composes every job
    again."""
    if not arguments.multirun:
        return arguments
    seeds = sorted({job.seed for job in open_jobs})
    seed = f"seed={','.join(map(str, seeds))}"
    words = [seed if word.startswith("seed=") else word for word in arguments.overrides]
    return replace(arguments, overrides=tuple(words))


def lost_worker(error: BaseException) -> bool:
    """Whether a launcher reports that one of its processes ended early. What was not stored can be
    measured again."""
    packages = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return not packages.isdisjoint(_PACKAGES) and not limit(error)


def application(words: Sequence[str]) -> None:
    """Hydra's application on a command line. Raises whatever ends it early."""
    import hydra

    sys.argv = [sys.argv[0], *words]
    # Hydra would print its own pages of what went wrong, and exit
    os.environ["HYDRA_FULL_ERROR"] = "1"
    os.environ[COMMAND] = str(os.getpid())
    main = hydra.main(**defaults_of_hydra(), config_path=str(files.CONF), config_name="config")
    try:
        main(hydra_job)()
    finally:
        if not FULL_ERROR:
            os.environ.pop("HYDRA_FULL_ERROR", None)


def hydra_job(cfg: Any) -> None:
    """One job, in a process that a launcher made."""
    from hydra.core.hydra_config import HydraConfig

    protect(quiet=os.environ.get("HESS_QUIET") == "1")
    for source in HydraConfig.get().runtime.config_sources:
        if source.provider == "command-line":
            files.add(source.path)
    if os.environ.get(COMMAND) == str(os.getppid()):
        end_with(os.getppid())
    run_jobs([build_job(list(HydraConfig.get().overrides.task))])
