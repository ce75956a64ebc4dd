"""Configuration folders, their YAML files, and the classes that an experiment and its groups name.

conf/ holds one folder for each group and one YAML file for each choice. A folder given with
--config-dir adds choices; its files may not have the name of one of the project's. HESS_CONF
replaces the project's folder by a whole one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from runner.contract import GROUPS, Experiment, SettingError, did_you_mean, short
from runner.run.config.types import load_class, takes

ROOT = Path(__file__).resolve().parents[3]
"""Where the project's packages are."""
_CONF = os.environ.get("HESS_CONF") or ROOT / "conf"
CONF = Path(_CONF).expanduser().absolute()
"""The project's configuration folder, or the one that HESS_CONF names."""
LAUNCHERS = "hydra/launcher"
OPTIONS = (*GROUPS, "experiment", "profile")
"""Every group that has a folder of choices."""
RESERVED = ("published", "diagnose", "demo")
"""Folders of outputs/ that are no experiment's."""
_ADDED: list[Path] = []


def add(folder: str | Path) -> None:
    """Take choices from `folder`, too. Raises SettingError if it is no folder or repeats a name of
    the project."""
    place = Path(folder).expanduser().absolute()
    if not place.is_dir():
        raise SettingError(f"--config-dir: expected a folder, found {short(place, 200)}")
    for group in (*OPTIONS, LAUNCHERS):
        own = _stems(CONF / group) | ({"basic"} if group == LAUNCHERS else set())
        taken = sorted(_stems(place / group) & own)
        if taken and place != CONF:
            raise SettingError(
                f"{place / group / taken[0]}.yaml: the project has a {group} of this name; "
                "choose another"
            )
    if place not in _ADDED:
        _ADDED.append(place)


def added() -> tuple[Path, ...]:
    """The user's folders."""
    return tuple(_ADDED)


def forget_added() -> None:
    """Use the project's folder alone."""
    _ADDED.clear()


def _stems(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.yaml")}


def choices(group: str) -> list[str]:
    """Sorted names of all files of a group."""
    if not (CONF / "config.yaml").is_file():
        raise SettingError(
            f"HESS_CONF: expected a whole configuration folder, found no config.yaml in {CONF}"
        )
    return sorted(set().union(*(_stems(root / group) for root in (CONF, *_ADDED))))


def find(group: str, name: str) -> Path:
    """The file of a choice. Raises SettingError with the did_you_mean and all valid names where
    there is none."""
    known = choices(group)
    if name not in known:
        shown_name = name if name.isascii() else ascii(name)  # letters of others look like ours
        raise SettingError(
            f"{group}={short(shown_name)}: no such choice{did_you_mean(name, known)}; known: "
            f"{', '.join(known)}"
        )
    paths = [root / group / f"{name}.yaml" for root in (CONF, *_ADDED)]
    return next(path for path in paths if path.is_file())


def options() -> tuple[str, ...]:
    """What a command line needs before its settings to find these choices, as one would type it."""
    here = Path.cwd()
    words = []
    for folder in _ADDED:
        typed = folder.relative_to(here) if folder.is_relative_to(here) else folder
        words += ["--config-dir", str(typed)]
    return tuple(words)


def shown(path: Path) -> str:
    """A file's name in messages: conf/group/name.yaml in the project's folder, the whole path
    elsewhere."""
    return f"conf/{path.relative_to(CONF).as_posix()}" if path.is_relative_to(CONF) else str(path)


@cache
def load(path: Path) -> dict[str, Any]:
    """A YAML file as keys and values, references as they stand; read once, never changed. Raises
    SettingError, which names the file."""
    try:
        content = OmegaConf.to_container(OmegaConf.load(path))
    except (YAMLError, OmegaConfBaseException, ValueError, OSError, RecursionError) as error:
        raise SettingError(f"{shown(path)}: cannot be read as YAML: {short(error, 200)}") from error
    if not isinstance(content, dict):
        raise SettingError(f"{shown(path)}: expected keys and values, found {short(repr(content))}")
    for key in content:
        if not isinstance(key, str):
            raise SettingError(f"{shown(path)}: expected names as keys, found {short(repr(key))}")
    return content  # type: ignore[return-value]


def experiment_names() -> list[str]:
    """Every experiment that has a YAML file."""
    return choices("experiment")


def kind_class(group: str, choice: str) -> type[Any]:
    """The settings class of a choice."""
    path = find(group, choice)
    target = load(path).get("_target_")
    cls = load_class(target, shown(path))
    if not dataclasses.is_dataclass(cls) or "kind" not in {f.name for f in dataclasses.fields(cls)}:
        raise SettingError(f"{shown(path)}: _target_ {target} is not a dataclass with a field kind")
    return cls


def fitting(experiment: type[Experiment], group: str) -> list[str]:
    """Choices of a group that an experiment takes; files that cannot be read or imported are not
    among them."""
    taken = takes(experiment).get(group, ())
    fit = []
    for choice in choices(group):
        try:
            if issubclass(kind_class(group, choice), taken):
                fit.append(choice)
        except SettingError:
            continue
    return fit


def mirrors(dataset: str) -> list[str]:
    """Addresses of a data set's archive, in the order to try: `url`, then `mirrors` of
    conf/dataset/<name>.yaml."""
    node = load(find("dataset", dataset))
    addresses = (node.get("url"), *(node.get("mirrors") or []))
    return [str(address) for address in addresses if address]


def fingerprint(name: str) -> str:
    """Digest of everything from which an experiment is composed: the files of the configuration,
    and the module of its class; "" where it has no file."""
    if name not in choices("experiment"):
        return ""
    own = find("experiment", name)
    roots = (CONF,) if own.is_relative_to(CONF) else (CONF, *_ADDED)
    places = [CONF / "config.yaml"]
    for root in roots:
        places += [path for group in OPTIONS for path in sorted((root / group).glob("*.yaml"))]
    target = re.search(rb"_target_: *([\w.]+)\.\w+", own.read_bytes())
    if target:
        module = Path(*target[1].decode().split(".")).with_suffix(".py")
        places += [folder / module for folder in (ROOT, Path.cwd())]
    found = hashlib.sha256(own.name.encode())
    for path in filter(Path.is_file, dict.fromkeys(places)):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
