"""conf/experiment/NAME.yaml with the files that it builds on, and the classes that it and its groups name."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runner.contract import GROUPS, Experiment, SettingError
from runner.run.config import files
from runner.run.config.files import load, merge
from runner.run.config.types import load_class, takes
from runner.run.messages import nearest, short

FILE_KEYS = (*GROUPS, "experiment", "profiles", "defaults", "seed")
"""What an experiment's file may hold. seed: where it is not that of conf/config.yaml."""


@dataclasses.dataclass(frozen=True)
class ExperimentFile:
    """An experiment's file, merged with those that it builds on. choices: group -> choice."""

    path: Path
    choices: Mapping[str, str]
    body: Mapping[str, Any]


def experiment_names() -> list[str]:
    """Every experiment that has a YAML file."""
    return files.choices("experiment")


@cache
def experiment_file(name: str, trail: tuple[str, ...] = ()) -> ExperimentFile:
    """The file of an experiment. Raises SettingError for what it may not hold. trail: the files that build on it."""
    path = files.find("experiment", name)
    own, where = load(path), files.shown(path)
    if name in trail:
        raise SettingError(f"{where}: builds on itself through {', '.join(trail)}")
    if path.read_text(encoding="utf-8").partition("\n")[0].strip() != "# @package _global_":
        raise SettingError(f"{where}: expected # @package _global_ as its first line")
    chosen: dict[str, str] = {}
    body: dict[str, Any] = {}
    items = own.get("defaults") or []
    if not isinstance(items, list):
        raise SettingError(f"{where}: expected a list under defaults, found {short(repr(items))}")
    for number, item in enumerate(items):
        if isinstance(item, str):
            if item == "_self_" and number == len(items) - 1:
                continue
            base = experiment_file(item.removeprefix("/experiment/"), (*trail, name))
            chosen |= base.choices
            body = merge(body, base.body)
        else:
            group, choice = _override(item, where)
            chosen[group] = choice
    for key in own:
        if key not in FILE_KEYS:
            raise SettingError(f"{where}: {short(key)} is not a setting{nearest(key, FILE_KEYS)}")
    body = merge(body, {key: value for key, value in own.items() if key != "defaults"})
    return ExperimentFile(path, chosen, body)


def _override(item: Any, where: str) -> tuple[str, str]:
    """(group, choice) of an item `override /group: choice`."""
    if isinstance(item, dict) and len(item) == 1:
        ((key, choice),) = item.items()
        group = re.fullmatch(r"override /(\w+)", str(key))
        if group and group[1] in (*GROUPS, "profile") and isinstance(choice, str):
            try:
                files.find(group[1], choice)
            except SettingError as error:
                raise SettingError(f"{where}: defaults: {error}") from error
            return group[1], choice
    expected = f"'override /GROUP: CHOICE' (groups: {', '.join(GROUPS)}) or the name of another experiment"
    raise SettingError(f"{where}: defaults: expected {expected}, found {short(repr(item))}")


@cache
def experiment_class(name: str) -> type[Experiment]:
    """The class that conf/experiment/<name>.yaml names in `_target_`."""
    file = experiment_file(name)
    node, where = file.body.get("experiment"), files.shown(file.path)
    if not isinstance(node, Mapping):
        raise SettingError(f"{where}: expected settings under experiment:")
    cls = load_class(node.get("_target_"), where)
    if not issubclass(cls, Experiment):
        raise SettingError(f"{where}: _target_ {node['_target_']} is not an Experiment")
    return cls


def experiment_fields(name: str) -> dict[str, dataclasses.Field]:
    """Fields of an experiment that are set under `experiment:`, by name."""
    return {f.name: f for f in dataclasses.fields(experiment_class(name)) if f.name not in GROUPS}


def kind_class(group: str, choice: str) -> type[Any]:
    """The settings class of a choice."""
    path = files.find(group, choice)
    target = load(path).get("_target_")
    cls = load_class(target, files.shown(path))
    if not dataclasses.is_dataclass(cls) or "kind" not in {f.name for f in dataclasses.fields(cls)}:
        raise SettingError(f"{files.shown(path)}: _target_ {target} is not a dataclass with a field kind")
    return cls


def fitting(name: str, group: str) -> list[str]:
    """Choices of a group that an experiment takes; files that cannot be read or imported are not among them."""
    fit = []
    for choice in files.choices(group):
        try:
            fit += [choice] if issubclass(kind_class(group, choice), takes(experiment_class(name))[group]) else []
        except (SettingError, KeyError):
            continue
    return fit


def mirrors(dataset: str) -> list[str]:
    """Addresses of a data set's archive, in the order to try: `url`, then `mirrors` of conf/dataset/<name>.yaml."""
    node = load(files.find("dataset", dataset))
    return [str(address) for address in (node.get("url"), *(node.get("mirrors") or [])) if address]
