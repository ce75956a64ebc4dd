"""The configuration of one job: files and overrides merged, references resolved, every value
checked and typed.

Later layers win: conf/config.yaml, the chosen file of each group, the experiment's file, the
overrides of its profile, the command line. Hydra composes the same files by the same rules where a
launcher of Hydra is asked for. Jobs of a sweep that differ only in settings of the run (seed,
outputs, …) share one composition.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from runner.contract import GROUPS, Experiment, SettingError, short
from runner.run.config import files
from runner.run.config.files import (
    experiment_class,
    experiment_fields,
    experiment_file,
    experiment_names,
    fitting,
    kind_class,
    load,
)
from runner.run.config.overrides import (
    KNOWN_KEYS,
    TOP_LEVEL,
    Word,
    qualified,
    read,
)
from runner.run.config.types import takes, typed
from runner.run.exit_status import was_interrupted
from runner.run.nearest import did_you_mean


@dataclasses.dataclass(frozen=True)
class Composition:
    """One composed configuration. words: the overrides with those of the profile; run: settings of
    the run, not typed; repeats: whether other settings of the run give the same experiment; notice:
    what a user should know."""

    name: str
    profile: str
    experiment: Experiment
    words: tuple[str, ...]
    run: Mapping[str, Any]
    repeats: bool
    notice: str = ""


def composition(words: Sequence[str]) -> Composition:
    """The experiment and the settings of the run that the overrides of one job describe."""
    return _composition(tuple(words), files.CONF, files.added())


@lru_cache(maxsize=64)
def _composition(words: tuple[str, ...], *_folders: object) -> Composition:
    parsed = [read(word) for word in words]
    name = _experiment_name(parsed)
    given = {word.key for word in parsed}
    profile = str(_chosen(name, parsed)["profile"])
    extra = [word for word in _profile_words(name, profile) if read(word).key not in given]
    composed = _built(name, (*extra, *words), given)
    missing = getattr(getattr(composed.experiment, "dataset", None), "missing", None)
    if profile == "quick" and missing is not None and missing():
        return _stand_in(composed, given)
    return composed


def _stand_in(composed: Composition, given: set[str]) -> Composition:
    """The quick profile never asks for a download: random fields with as many classes replace the
    data set."""
    data = composed.experiment.dataset  # type: ignore[attr-defined]
    kept = [word for word in composed.words if read(word).key != "dataset"]
    words = (*kept, "dataset=surrogate", f"++dataset.classes={data.classes}")
    notice = (
        f"dataset={data.kind} is not here; profile=quick takes the surrogate with "
        f"{data.classes} classes instead"
    )
    return dataclasses.replace(_built(composed.name, words, given), notice=notice)


@cache
def preview(name: str) -> Experiment:
    """The experiment at its paper profile."""
    return _built(name, (), set()).experiment


def _experiment_name(words: Sequence[Word]) -> str:
    named = [word for word in words if word.key == "experiment"]
    if any(word.override.is_delete() for word in named):
        raise SettingError(_kept("experiment", "NAME"))
    names = [word.value for word in named]
    if names and names[-1] is not None:
        experiment_file(str(names[-1]))
        return str(names[-1])
    wrong = next((word.key for word in words if word.key.split(".")[0] not in KNOWN_KEYS), None)
    if wrong is not None:
        raise SettingError(
            f"{short(wrong)} is not a setting{did_you_mean(wrong, KNOWN_KEYS)}; "
            "expected experiment=NAME"
        )
    raise SettingError(
        f"expected experiment=NAME, found none; known: {', '.join(experiment_names())}"
    )


def _built(name: str, words: Sequence[str], given: set[str]) -> Composition:
    parsed = [read(word) for word in words]
    chosen = _chosen(name, parsed)
    raw = _merged(name, chosen, parsed)
    values = _resolved(raw)
    settings = [raw.get(key) for key in (*GROUPS, "experiment")]
    references = re.findall(r"\$\{([^}]*)", str(settings))
    repeats = all(
        re.fullmatch(rf"({'|'.join(GROUPS)}|experiment)\.[\w.]+", reference)
        for reference in references
    )
    run = {key: values[key] for key in TOP_LEVEL if key in values}
    experiment = build_experiment(name, chosen, values, given)
    return Composition(name, str(chosen["profile"]), experiment, tuple(words), run, repeats)


def _chosen(name: str, words: Sequence[Word]) -> dict[str, str | None]:
    """Group (and profile) -> choice."""
    chosen: dict[str, Any] = {**_base()[0], **experiment_file(name).choices}
    for word in words:
        if word.key in (*GROUPS, "profile"):
            value = None if word.override.is_delete() else word.value
            if isinstance(value, list | dict):
                raise SettingError(f"{word.key}: expected one choice, found {short(value)}")
            chosen[word.key] = None if value is None else str(value)
    known = files.choices("profile")
    if chosen.get("profile") is None:
        raise SettingError(f"profile: expected one of {', '.join(known)}, found none")
    path = files.find("profile", chosen["profile"])
    if load(path).get("name") != chosen["profile"]:
        raise SettingError(f"{files.shown(path)}: expected name: {chosen['profile']}")
    return chosen


def _base() -> tuple[dict[str, Any], dict[str, Any]]:
    """Choices and settings of the run in conf/config.yaml. Raises SettingError for what it may not
    hold."""
    path = files.CONF / "config.yaml"
    node = load(path)
    chosen = {}
    for key in node:
        if key not in (*KNOWN_KEYS, "profiles", "hydra", "defaults"):
            raise SettingError(
                f"{files.shown(path)}: {short(key)} is not a setting{did_you_mean(key, KNOWN_KEYS)}"
            )
    items = node.get("defaults")
    for item in items if isinstance(items, list) else [items]:
        if isinstance(item, dict) and set(item) <= {*GROUPS, "profile"}:
            chosen.update(item)
        elif item != "_self_" and not (
            isinstance(item, dict) and re.search("hydra|^experiment$", "".join(item))
        ):
            raise SettingError(
                f"{files.shown(path)}: defaults: expected GROUP: CHOICE, found {short(item)}"
            )
    return chosen, {key: node[key] for key in TOP_LEVEL if key in node}


@cache
def _layers(name: str, chosen: tuple[tuple[str, str | None], ...], *_folders: object) -> DictConfig:
    """All files, one over the other."""
    groups: dict[str, Any] = dict.fromkeys(GROUPS)
    for group, choice in chosen:
        if group in groups and choice is not None:
            groups[group] = load(files.find(group, choice))
    file = experiment_file(name)
    body = {key: value for key, value in file.body.items() if key != "profiles"}
    return files.merged(files.shown(file.path), _base()[1], groups, body)


def _merged(name: str, chosen: Mapping[str, str | None], words: Sequence[Word]) -> dict[str, Any]:
    """All layers, references not resolved."""
    layers = _layers(name, tuple(chosen.items()), files.CONF, files.added())
    values = cast(dict[str, Any], OmegaConf.to_container(layers))
    for word in words:
        if word.key not in (*GROUPS, "profile", "experiment") or word.override.package is not None:
            _set(values, word, name)
    return values


def _set(values: dict[str, Any], word: Word, name: str) -> None:
    """One override. Raises SettingError for a key that nothing declares."""
    parts = word.key.split(".")
    node: Any = values
    for part in parts:
        node = node.get(part, KeyError) if isinstance(node, Mapping) else KeyError
    override = word.override
    declared = node is not KeyError or parts[0] in TOP_LEVEL
    may_be_new = override.is_add() or override.is_force_add()
    known = (*GROUPS, "experiment") if parts[1:] else TOP_LEVEL
    if override.package is not None or parts[0] not in known or not (declared or may_be_new):
        raise SettingError(_unknown(override.input_line.lstrip("+~").partition("=")[0], name))
    if override.is_delete() and word.key in TOP_LEVEL:
        raise SettingError(_kept(word.key, "VALUE"))
    parent = values
    for part in parts[:-1]:
        if not isinstance(parent.get(part), dict):
            parent[part] = {}
        parent = parent[part]
    value = word.value
    if isinstance(node, Mapping) and isinstance(value, Mapping):
        value = OmegaConf.to_container(files.merged(word.key, node, value))
    parent[parts[-1]] = value
    if override.is_delete():
        del parent[parts[-1]]


def _kept(key: str, value: str) -> str:
    return f"{key} cannot be removed; set it with {key}={value}"


def _unknown(key: str, name: str) -> str:
    """The message for a key that is not a setting: the did_you_mean name, and all of them."""
    own = list(experiment_fields(name))
    if key in own:
        return f"{short(key)} of {name} cannot be removed; set it with {short(key)}=VALUE"
    groups = list(takes(experiment_class(name)))
    nested = []
    for group in groups:
        choice = experiment_file(name).choices.get(group)
        if choice:
            nested += [f"{group}.{f.name}" for f in dataclasses.fields(kind_class(group, choice))]
    hint = did_you_mean(key, [*KNOWN_KEYS, *(f"experiment.{field}" for field in own), *nested])
    known = ", ".join([*own, *(f"{group}.KEY" for group in groups), *TOP_LEVEL, "profile"])
    return f"{short(key)} is not a setting of {name}{hint}; known: {known}"


def _resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with every ${reference} replaced. Raises SettingError, which names the key."""
    try:
        found = OmegaConf.to_container(OmegaConf.create(dict(values)), resolve=True)
    except Exception as error:  # of a resolver, too
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        raise SettingError(files.explained(error, "a reference")) from error
    return cast(dict[str, Any], found)


def _profile_words(name: str, profile: str) -> list[str]:
    """The overrides that an experiment's file lists for a profile."""
    listed = profiles(name)
    if profile != "paper" and profile not in listed:
        where = files.shown(experiment_file(name).path)
        raise SettingError(f"profile={profile}: {where} has no profiles.{profile}")
    return qualified([f"experiment={name}", *listed.get(profile, [])])[1:]


def profiles(name: str) -> Mapping[str, list[str]]:
    """The overrides of each profile that an experiment's file lists. Raises SettingError."""
    file = experiment_file(name)
    where = files.shown(file.path)
    listed = file.body.get("profiles", {})
    if not isinstance(listed, Mapping):
        raise SettingError(
            f"{where}: expected keys and values under profiles, found {short(listed)}"
        )
    for profile, words in listed.items():
        if not isinstance(words, list) or not all(
            isinstance(word, str) and "=" in word for word in words
        ):
            raise SettingError(
                f"{where}: profiles.{profile}: expected a list of key=value, found {short(words)}"
            )
    return listed


def build_experiment(
    name: str, chosen: Mapping[str, str | None], values: Mapping[str, Any], given: set[str]
) -> Experiment:
    """The experiment with every field typed and checked.

    chosen: group -> choice. values: the merged settings. given: keys that the command line sets.
    """
    cls = experiment_class(name)
    where = files.shown(experiment_file(name).path)
    node = values.get("experiment")
    if not isinstance(node, Mapping):
        raise SettingError(
            f"{where}: expected settings under experiment:, found {short(repr(node))}"
        )
    own = {key: value for key, value in node.items() if key != "_target_"}
    arguments = typed(cls, own, "experiment", where, GROUPS, given)
    for group in GROUPS:
        if group in takes(cls):
            arguments[group] = _group(name, group, chosen.get(group), values.get(group), given)
        elif values.get(group) is not None:
            raise SettingError(f"{group}: experiment {name} does not use this group; leave it out")
    return cls(**arguments)


def _group(name: str, group: str, choice: str | None, node: Any, given: set[str]) -> Any:
    if choice is None or not isinstance(node, Mapping):
        known = ", ".join(fitting(name, group))
        raise SettingError(
            f"{group}: expected a choice for experiment {name}, found {short(node)}; known: {known}"
        )
    cls: Any = kind_class(group, choice)
    file = files.find(group, choice)
    if not issubclass(cls, takes(experiment_class(name))[group]):
        known = ", ".join(fitting(name, group)) or "none that is there"
        raise SettingError(
            f"{group}={choice}: experiment {name} takes another kind of {group}: {known}"
        )
    values = {key: value for key, value in node.items() if key != "_target_"}
    if choice != experiment_file(name).choices.get(group):
        # What the experiment adapts in its own kind need not exist in another; what the user or its
        # file says must.
        asked = {f.name for f in dataclasses.fields(cls)} | set(load(file))
        values = {
            key: value for key, value in values.items() if key in asked or f"{group}.{key}" in given
        }
    return cls(**typed(cls, values, group, files.shown(file), given=given))
