"""The experiment of a command line: what Hydra composed, with every value typed and checked."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from runner.contract import GROUPS, Experiment, SettingError, did_you_mean, short
from runner.run.config import files
from runner.run.config.compose import (
    Composed,
    composed,
    experiment_alone,
    experiment_class,
    experiment_fields,
)
from runner.run.config.overrides import KNOWN_KEYS, TOP_LEVEL, Word, qualified, read
from runner.run.config.types import takes, typed

IN_FILES = (*KNOWN_KEYS, "profiles")
"""What the files of a configuration may set."""


@dataclasses.dataclass(frozen=True)
class Composition:
    """One composed configuration. run: settings of the run, not typed; repeats: whether other
    settings of the run give the same experiment; words: the overrides, with those of the profile;
    notice: what a user should know."""

    name: str
    profile: str
    experiment: Experiment
    run: Mapping[str, Any]
    repeats: bool
    words: tuple[str, ...]
    notice: str = ""


def composition(words: Sequence[str]) -> Composition:
    """The experiment and the settings of the run that the overrides of one job describe."""
    return _composition(tuple(words), files.CONF, files.added())


def preview(name: str) -> Experiment:
    """The experiment at its paper profile."""
    return composition((f"experiment={name}",)).experiment


@lru_cache(maxsize=256)
def _composition(words: tuple[str, ...], *_folders: object) -> Composition:
    parsed = [read(word) for word in words]
    name = _experiment_name(parsed)
    for word in parsed:
        _check(word, name)
    given = {word.key for word in parsed}
    profiles = [str(word.value) for word in parsed if word.key == "profile"]
    profile = profiles[-1] if profiles else "paper"
    extra = [word for word in _profile_words(name, profile) if read(word).key not in given]
    made = _typed(name, (*extra, *words), given)
    missing = getattr(getattr(made.experiment, "dataset", None), "missing", None)
    if profile == "quick" and missing is not None and missing():
        return _stand_in(made, given)
    return made


def _stand_in(made: Composition, given: set[str]) -> Composition:
    """The quick profile never asks for a download: random fields with as many classes replace the
    data set."""
    data = made.experiment.dataset  # type: ignore[attr-defined]
    kept = [word for word in made.words if read(word).key != "dataset"]
    words = (*kept, "dataset=surrogate", f"++dataset.classes={data.classes}")
    notice = (
        f"dataset={data.kind} is not here; profile=quick takes the surrogate with "
        f"{data.classes} classes instead"
    )
    return dataclasses.replace(_typed(made.name, words, given), notice=notice)


def _experiment_name(words: Sequence[Word]) -> str:
    names = [word.value for word in words if word.key == "experiment"]
    if names and names[-1] is not None:
        return str(names[-1])
    wrong = next((word.key for word in words if word.key.split(".")[0] not in KNOWN_KEYS), None)
    if wrong is not None:
        raise SettingError(
            f"{short(wrong)} is not a setting{did_you_mean(wrong, KNOWN_KEYS)}; "
            "expected experiment=NAME"
        )
    known = ", ".join(files.choices("experiment"))
    raise SettingError(f"expected experiment=NAME, found none; known: {known}")


def _check(word: Word, name: str) -> None:
    """Refuse what Hydra would take and no job has: parts of Hydra's own configuration, and keys
    that lead out of the experiment's."""
    override = word.override
    first, _, rest = word.key.partition(".")
    written = override.input_line.lstrip("+").partition("=")[0]
    if first not in KNOWN_KEYS or (rest and first in (*TOP_LEVEL, "profile")) or override.package:
        raise SettingError(_unknown(written, name))
    if word.key in files.OPTIONS:
        if word.value is None or isinstance(word.value, list | dict):
            known = ", ".join(files.choices(word.key))
            raise SettingError(
                f"{word.key}: expected one choice, found {short(word.value)}; known: {known}"
            )
        files.find(word.key, str(word.value))


def _unknown(key: str, name: str) -> str:
    """The message for a key that is not a setting: the nearest name, and all of them."""
    own = list(experiment_fields(name))
    groups = list(takes(experiment_class(name)))
    values = experiment_alone(name).values
    nested = [
        f"{group}.{field}" for group in groups for field in values[group] or () if field[0] != "_"
    ]
    hint = did_you_mean(key, [*KNOWN_KEYS, *(f"experiment.{field}" for field in own), *nested])
    known = ", ".join([*own, *(f"{group}.KEY" for group in groups), *TOP_LEVEL, "profile"])
    return f"{short(key)} is not a setting of {name}{hint}; known: {known}"


def profiles(name: str) -> Mapping[str, list[str]]:
    """The overrides of each profile that an experiment's file lists. Raises SettingError."""
    where = files.shown(files.find("experiment", name))
    listed = experiment_alone(name).values["profiles"]
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


def _profile_words(name: str, profile: str) -> list[str]:
    """The overrides of one profile."""
    listed = profiles(name)
    if profile != "paper" and profile not in listed:
        where = files.shown(files.find("experiment", name))
        raise SettingError(f"profile={profile}: {where} has no profiles.{profile}")
    return qualified([f"experiment={name}", *listed.get(profile, [])])[1:]


def _typed(name: str, words: Sequence[str], given: set[str]) -> Composition:
    """The composed experiment with every field typed and checked. given: keys that the command line
    sets."""
    cls = experiment_class(name)
    try:
        made = composed(words)
    except SettingError as error:
        line = str(error)
        if not any(key in line for key in given):
            line = f"{', '.join(sorted(given - {'experiment'}))}: {line}"
        raise SettingError(line) from error
    _check_keys(name, made.values)
    settings = [made.raw.get(key) for key in (*GROUPS, "experiment")]
    references = re.findall(r"\$\{([^}]*)", str(settings))
    repeats = all(
        re.fullmatch(rf"({'|'.join(GROUPS)}|experiment)\.[\w.]+", reference)
        for reference in references
    )
    run = {key: made.values[key] for key in TOP_LEVEL if key in made.values}
    experiment = cls(**_arguments(name, cls, made, given))
    profile = str(made.choices.get("profile"))
    return Composition(name, profile, experiment, run, repeats, tuple(words))


def _check_keys(name: str, values: Mapping[str, Any]) -> None:
    """Refuse what no file may set, by the name of the file."""
    for key in values:
        if key not in IN_FILES:
            path = files.find("experiment", name)
            if key in files.load(files.CONF / "config.yaml"):
                path = files.CONF / "config.yaml"
            hint = did_you_mean(key, IN_FILES)
            raise SettingError(f"{files.shown(path)}: {short(key)} is not a setting{hint}")


def _arguments(name: str, cls: type[Experiment], made: Composed, given: set[str]) -> dict[str, Any]:
    """The arguments of an experiment's class, its groups among them."""
    where = files.shown(files.find("experiment", name))
    node = made.values.get("experiment")
    if not isinstance(node, Mapping):
        raise SettingError(
            f"{where}: expected settings under experiment:, found {short(repr(node))}"
        )
    own = {key: value for key, value in node.items() if key != "_target_"}
    arguments = typed(cls, own, "experiment", where, GROUPS, given)
    for group in GROUPS:
        if group in takes(cls):
            choice = made.choices.get(group)
            arguments[group] = _kind(name, group, choice, made.values.get(group), given)
        elif made.values.get(group) is not None:
            raise SettingError(f"{group}: experiment {name} does not use this group; leave it out")
    return arguments


def _kind(name: str, group: str, choice: str | None, node: Any, given: set[str]) -> Any:
    """The settings of a group."""
    cls = experiment_class(name)
    if choice is None or not isinstance(node, Mapping):
        known = ", ".join(files.fitting(cls, group))
        raise SettingError(
            f"{group}: expected a choice for experiment {name}, found {short(node)}; known: {known}"
        )
    kind: Any = files.kind_class(group, choice)
    file = files.find(group, choice)
    if not issubclass(kind, takes(cls)[group]):
        known = ", ".join(files.fitting(cls, group)) or "none that is there"
        raise SettingError(
            f"{group}={choice}: experiment {name} takes another kind of {group}: {known}"
        )
    values = {key: value for key, value in node.items() if key != "_target_"}
    if choice != experiment_alone(name).choices.get(group):
        # What the experiment adapts in its own kind need not exist in another; what the user or its
        # file says must.
        asked = {f.name for f in dataclasses.fields(kind)} | set(files.load(file))
        values = {
            key: value for key, value in values.items() if key in asked or f"{group}.{key}" in given
        }
    return kind(**typed(kind, values, group, files.shown(file), given=given))
