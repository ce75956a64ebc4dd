"""Configuration files read without Hydra: quick enough for listings, and the check of every file before a run.

The YAML is that of OmegaConf: numbers such as 1e-3, no dates, no key twice.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runner.contract import GROUPS, Experiment, SettingError
from runner.run import sources
from runner.run.sources import KNOWN_KEYS, nearest, short
from runner.run.targets import load_experiment, load_kind, takes
from runner.run.typed import typed

FILE_KEYS = (*GROUPS, "experiment", "profiles", "profile", "defaults")
"""What an experiment's file may hold, beside the settings of a run."""


class NeedsHydra(Exception):
    """A value that only a composition can give."""


@cache
def load(path: Path) -> dict[str, Any]:
    """A YAML file as keys and values; read once, never changed. Raises SettingError, which names the file."""
    import yaml

    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=_loader())
    except (yaml.YAMLError, ValueError, TypeError, OSError, RecursionError) as error:
        raise SettingError(f"{sources.shown(path)}: cannot be read as YAML: {short(error, 200)}") from error
    if not isinstance(found, dict):
        raise SettingError(f"{sources.shown(path)}: expected keys and values, found {short(repr(found))}")
    for key in found:
        if not isinstance(key, str):
            raise SettingError(f"{sources.shown(path)}: expected names as keys, found {short(repr(key))}")
    return found


@cache
def _loader() -> type:
    """The YAML dialect of OmegaConf, on the parser in C where there is one."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                raise yaml.constructor.ConstructorError(None, None, f"key {twice} stands twice", node.start_mark)
            return super().construct_mapping(node, deep=deep)

    number = (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?)"
    )
    special = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    Loader.yaml_implicit_resolvers = {
        first: [(tag, regex) for tag, regex in known if not tag.endswith((":timestamp", ":float"))]
        for first, known in Loader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(f"^(?:{number}|{special})$"), list("-+0123456789.")
    )
    return Loader


def experiment_names() -> list[str]:
    """Every experiment that has a YAML file."""
    return sources.choices("experiment")


@dataclasses.dataclass(frozen=True)
class ExperimentFile:
    """What conf/experiment/<name>.yaml says, with the files that it builds on. choices: group -> choice."""

    path: Path
    choices: Mapping[str, str]
    body: Mapping[str, Any]


@cache
def experiment_file(name: str) -> ExperimentFile:
    """The file of an experiment. Raises SettingError for what it may not hold."""
    return _experiment_file(name, ())


def _experiment_file(name: str, trail: tuple[str, ...]) -> ExperimentFile:
    path = sources.find("experiment", name)
    own = load(path)
    where = sources.shown(path)
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
            base = _experiment_file(item.removeprefix("/experiment/"), (*trail, name))
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
                sources.find(group[1], choice)
            except SettingError as error:
                raise SettingError(f"{where}: defaults: {error}") from error
            return group[1], choice
    expected = f"'override /GROUP: CHOICE' (groups: {', '.join(GROUPS)}) or the name of another experiment"
    raise SettingError(f"{where}: defaults: expected {expected}, found {short(repr(item))}")


def merge(below: Any, above: Any) -> Any:
    """`above` laid over `below`: mappings key by key, everything else replaced."""
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        return {**below, **{key: merge(below[key], value) if key in below else value for key, value in above.items()}}
    return above


def experiment_class(name: str) -> type[Experiment]:
    """The class that conf/experiment/<name>.yaml names in `_target_`."""
    file = experiment_file(name)
    node = file.body.get("experiment")
    if not isinstance(node, Mapping):
        raise SettingError(f"{sources.shown(file.path)}: expected settings under experiment:")
    return load_experiment(node.get("_target_"), sources.shown(file.path))


def experiment_fields(name: str) -> dict[str, dataclasses.Field]:
    """Fields of an experiment that are set under `experiment:`, by name."""
    return {f.name: f for f in dataclasses.fields(experiment_class(name)) if f.name not in GROUPS}


def kind_class(group: str, choice: str) -> type[Any]:
    """The settings class of a choice."""
    path = sources.find(group, choice)
    return load_kind(load(path).get("_target_"), sources.shown(path))


def fitting(name: str, group: str) -> list[str]:
    """Choices of a group that an experiment takes; files that cannot be read or imported are not among them."""
    found = []
    for choice in sources.choices(group):
        try:
            if issubclass(kind_class(group, choice), takes(experiment_class(name)).get(group, ())):
                found.append(choice)
        except SettingError:
            continue
    return found


def build_experiment(name: str, chosen: Mapping[str, str], values: Mapping[str, Any], given: set[str]) -> Experiment:
    """The experiment with every field typed and checked.

    chosen: group -> choice. values: the composed settings, plain. given: keys that the command line sets.
    """
    cls, file = experiment_class(name), experiment_file(name)
    where = sources.shown(file.path)
    arguments = _own(cls, values.get("experiment"), where, given)
    for group in GROUPS:
        if group in takes(cls):
            arguments[group] = _group(name, group, chosen.get(group), values.get(group), given)
        elif values.get(group) is not None:
            raise SettingError(f"{group}: experiment {name} does not use this group; leave it out")
    return cls(**arguments)


def _own(cls: type[Experiment], node: Any, where: str, given: set[str]) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise SettingError(f"{where}: expected settings under experiment:, found {short(repr(node))}")
    return typed(cls, {k: v for k, v in node.items() if k != "_target_"}, "experiment", where, GROUPS, given)


def _group(name: str, group: str, choice: str | None, node: Any, given: set[str]) -> Any:
    known = takes(experiment_class(name))[group]
    if choice is None or not isinstance(node, Mapping):
        options = ", ".join(fitting(name, group))
        raise SettingError(f"{group}: expected a choice for experiment {name}, found {short(node)}; known: {options}")
    cls: Any = kind_class(group, choice)
    file = sources.shown(sources.find(group, choice))
    if not issubclass(cls, known):
        options = ", ".join(fitting(name, group)) or "none that is there"
        raise SettingError(f"{group}={choice}: experiment {name} takes another kind of {group}: {options}")
    values = {key: value for key, value in node.items() if key != "_target_"}
    if choice != experiment_file(name).choices.get(group):
        # What the experiment adapts in its own kind need not exist in another; what the user or its file says must.
        asked = {f.name for f in dataclasses.fields(cls)} | set(load(sources.find(group, choice)))
        values = {key: value for key, value in values.items() if key in asked or f"{group}.{key}" in given}
    return cls(**typed(cls, values, group, file, given=given))


@cache
def preview(name: str) -> Experiment:
    """The experiment at its paper profile. Raises NeedsHydra where a value has to be composed."""
    file = experiment_file(name)
    values: dict[str, Any] = {}
    for group, choice in file.choices.items():
        if group in GROUPS:
            values[group] = load(sources.find(group, choice))
    values = merge(values, {key: file.body[key] for key in (*GROUPS, "experiment") if key in file.body})
    return build_experiment(name, file.choices, _resolved(values, values), set())


def _resolved(node: Any, root: Mapping[str, Any]) -> Any:
    """The values with ${group.key} replaced."""
    if isinstance(node, Mapping):
        return {key: _resolved(value, root) for key, value in node.items()}
    if isinstance(node, list):
        return [_resolved(item, root) for item in node]
    if isinstance(node, str) and "${" in node:
        reference = re.fullmatch(r"\$\{(\w+)\.(\w+)\}", node)
        place = root.get(reference[1]) if reference else None
        if reference is None or not isinstance(place, Mapping) or reference[2] not in place:
            raise NeedsHydra(node)
        return _resolved(place[reference[2]], root) if place[reference[2]] != node else node
    return node


def known_keys(name: str | None) -> list[str]:
    """Every key that can be set for an experiment."""
    keys = list(KNOWN_KEYS)
    if name in experiment_names():
        assert name is not None
        keys += [f"experiment.{f}" for f in experiment_fields(name)]
        for group in takes(experiment_class(name)):
            choice = experiment_file(name).choices.get(group)
            fields = dataclasses.fields(kind_class(group, choice)) if choice else ()
            keys += [f"{group}.{f.name}" for f in fields]
    return keys


def mirrors(dataset: str) -> list[str]:
    """Addresses of a data set's archive, in the order to try: `url`, then `mirrors` of conf/dataset/<name>.yaml."""
    node = load(sources.find("dataset", dataset))
    return [str(address) for address in (node.get("url"), *(node.get("mirrors") or [])) if address]
