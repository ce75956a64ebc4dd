"""The configuration of a command line, by Hydra: conf/, the user's folders and overrides merged,
and what it refuses in one line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from runner.contract import GROUPS, Experiment, SettingError, did_you_mean, short
from runner.run.config import files
from runner.run.config.types import load_class
from runner.run.exit_status import was_interrupted

GLOBAL = "# @package _global_"
"""First line of an experiment's file: it fills the whole configuration, not a part of it."""
IN_PARTS = (*GROUPS, "experiment", "profiles")
"""What has keys and values of its own in an experiment's file."""


@dataclasses.dataclass(frozen=True)
class Composed:
    """A configuration without Hydra's own section. values: keys and values; raw: the same with
    references as they stand; choices: group -> the choice of its file."""

    values: Mapping[str, Any]
    raw: Mapping[str, Any]
    choices: Mapping[str, str | None]


def composed(words: Sequence[str]) -> Composed:
    """What Hydra makes of some overrides. Raises SettingError with one line for what it refuses."""
    return _composed(tuple(words), files.CONF, files.added())


@lru_cache(maxsize=256)
def _composed(words: tuple[str, ...], *_folders: object) -> Composed:
    from omegaconf import OmegaConf

    try:
        cfg = with_hydra(words)
        choices = dict(cfg.hydra.runtime.choices)
        OmegaConf.set_struct(cfg, False)
        del cfg["hydra"]
        raw: Any = OmegaConf.to_container(cfg)
        values: Any = OmegaConf.to_container(cfg, resolve=True)
    except (SettingError, OSError, MemoryError):
        raise
    # Hydra, OmegaConf, YAML and resolvers raise many kinds; all are a mistake in what was read
    except Exception as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        raise SettingError(one_line(error)) from error
    return Composed(values, raw, choices)


def with_hydra(words: Sequence[str]) -> Any:
    """The whole configuration, Hydra's own section included. Raises what Hydra raises."""
    import hydra
    from hydra.core.global_hydra import GlobalHydra

    files.choices("experiment")  # refuses a folder without config.yaml
    if files.added():
        places = ",".join(f"'file://{folder}'" for folder in files.added())
        words = [*words, f"hydra.searchpath=[{places}]"]
    running = GlobalHydra.instance().hydra  # a launcher's application, in which this is a job
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(files.CONF), **defaults_of_hydra()):
            return hydra.compose("config", overrides=list(words), return_hydra_config=True)
    finally:
        if running is not None:
            GlobalHydra.instance().initialize(running)


def defaults_of_hydra() -> dict[str, str]:
    """Hydra 1.3 must be told to use its own defaults; 1.4 uses them, and warns about the
    parameter."""
    import hydra

    if hydra.__version__.startswith("1.3."):
        return {"version_base": "1.3"}
    return {}


def one_line(error: Exception) -> str:
    """An error of Hydra, OmegaConf or YAML in one line, with the known names where a file was not
    found."""
    from yaml import YAMLError

    if isinstance(error, YAMLError):  # its lines name the file and the place in it
        return f"cannot be read as YAML: {short(' '.join(str(error).split()), 200)}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    while len(lines) > 1 and lines[0].endswith(":"):
        lines[:2] = [f"{lines[0]} {lines[1]}"]
    first = short(lines[0] if lines else type(error).__name__, 250)
    missing = re.search(r"Could not (?:find|load) '([\w/]+)/([^'/]+)'", str(error))
    if missing and missing[1] in files.OPTIONS:
        known = files.choices(missing[1])
        return f"{first}{did_you_mean(missing[2], known)}; known: {', '.join(known)}"
    places = [getattr(cause, "full_key", None) for cause in (error, error.__cause__)]
    place = next(filter(None, places), "")
    return f"{short(place)}: {first}" if str(place) not in first else first


def experiment_alone(name: str) -> Composed:
    """The configuration of an experiment with nothing said of it. Raises SettingError for a file
    that is no experiment's."""
    path = files.find("experiment", name)
    where = files.shown(path)
    if not re.fullmatch(r"\w[\w-]*", name) or name in files.RESERVED:
        raise SettingError(
            f"{where}: expected a name of letters, digits, _ and -, and none of "
            f"{', '.join(files.RESERVED)}: it is the name of the folder of its results"
        )
    if path.read_text(encoding="utf-8-sig", errors="replace").partition("\n")[0].strip() != GLOBAL:
        raise SettingError(f"{where}: expected {GLOBAL} as its first line")
    try:
        return composed((f"experiment={name}",))
    except SettingError as error:
        parts = {key: files.load(path).get(key, {}) for key in IN_PARTS}
        wrong = [key for key, part in parts.items() if not isinstance(part, Mapping)]
        said = f"{wrong[0]}: expected keys and values" if wrong else str(error)
        raise SettingError(f"{where}: {said}") from error


def experiment_class(name: str) -> type[Experiment]:
    """The class that conf/experiment/<name>.yaml names in `_target_`."""
    node = experiment_alone(name).values.get("experiment")
    where = files.shown(files.find("experiment", name))
    if not isinstance(node, Mapping):
        raise SettingError(f"{where}: expected settings under experiment:")
    cls = load_class(node.get("_target_"), where)
    if not issubclass(cls, Experiment):
        raise SettingError(f"{where}: _target_ {node['_target_']} is not an Experiment")
    return cls


def experiment_fields(name: str) -> dict[str, dataclasses.Field]:
    """Fields of an experiment that are set under `experiment:`, by name."""
    return {f.name: f for f in dataclasses.fields(experiment_class(name)) if f.name not in GROUPS}
