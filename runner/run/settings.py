"""What an experiment or a choice of a group can be set to, from the fields of its class."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from collections.abc import Mapping
from inspect import getdoc
from typing import Any

from runner.contract import Experiment, SettingError, assignments, figure_settings, natural, short
from runner.run.config import files
from runner.run.config.compose import experiment_class, experiment_fields
from runner.run.config.experiment import profiles
from runner.run.config.types import hints, readable, takes


def experiment_lines(name: str, experiment: Experiment) -> list[str]:
    """The page of an experiment with these settings."""
    cls = type(experiment)
    lines = [f"{name}: {experiment.title}"]
    if experiment.paper:
        lines.append(f"paper: {experiment.paper}; reproduces {experiment.reproduces}")
    lines += _head(cls)
    own = {key: getattr(experiment, key) for key in experiment_fields(name)}
    lines += ["", "settings of the experiment (= value)", *_table(cls, own)]
    for group in takes(cls):
        settings = getattr(experiment, group)
        known = ", ".join(files.fitting(cls, group))
        lines += ["", f"{group} = {settings.kind}; takes {known}"]
        lines += _table(type(settings), vars(settings), group)
    by_place = sorted(figure_settings(experiment).items(), key=lambda item: natural(item[0]))
    if by_place:
        lines += ["", "figures, and the settings that they are drawn with"]
    lines += [f"  {place}: {', '.join(assignments(settings))}" for place, settings in by_place]
    quick = " ".join(map(str, profiles(name).get("quick", [])))
    devices = ", ".join(experiment.devices)
    lines += ["", f"profile=quick: {quick or 'the same'}", f"devices: {devices}"]
    return [line.rstrip() for line in lines]


def kind_lines(group: str, name: str) -> list[str]:
    """The page of a choice of a group. Raises SettingError where there is none."""
    path = files.find(group, name)
    cls = files.kind_class(group, name)
    default = {f.name: default_of(f) for f in dataclasses.fields(cls)}
    users = []
    for experiment in files.experiment_names():
        try:
            if name in files.fitting(experiment_class(experiment), group):
                users.append(experiment)
        except SettingError:  # a file that cannot be read takes nothing
            continue
    table = _table(cls, {**default, **files.load(path)}, group) or ["  no settings of its own"]
    taken = f"taken by: {', '.join(users) or 'none'}"
    return [f"{group}={name}", *_head(cls), "", *table, "", taken]


def key_lines(cls: Any) -> list[str]:
    """A line for each key of a command."""
    return _table(cls, {f.name: default_of(f) for f in dataclasses.fields(cls)})


def default_of(field: dataclasses.Field[Any]) -> Any:
    """The value of a field that is not set."""
    return field.default_factory() if callable(field.default_factory) else field.default


def _head(cls: type) -> list[str]:
    """What the docstring of a class says; nothing where `dataclass` made it."""
    text = getdoc(cls) or ""
    return [] if text.startswith(f"{cls.__name__}(") else ["", *text.splitlines()]


def _table(cls: Any, values: Mapping[str, Any], group: str = "") -> list[str]:
    """A line for each field (name, type, value, limits and meaning), or several."""
    shown = [f for f in dataclasses.fields(cls) if f.name in values and f.name != "kind"]
    names = {f.name: f"{group}.{f.name}" if group else f.name for f in shown}
    width = max(map(len, names.values()), default=0)
    columns = max(80, shutil.get_terminal_size((120, 24)).columns)
    lines = []
    for f in shown:
        grid = ", one cell each" if f.metadata.get("grid") else ""
        line = f"  {names[f.name].ljust(width)}  {readable(hints(cls)[f.name])}{grid}"
        if value := _value(values[f.name]):
            line += f" = {value}"
        parts = [str(f.metadata.get("limits", "")), f.metadata.get("help", "")]
        if f.metadata.get("report") and not group:
            parts.append("[report only]")
        note = "; ".join(filter(None, parts))
        if note and len(line) + len(note) + 4 <= columns:
            lines.append(f"{line}  # {note}")
        else:
            parts = textwrap.wrap(note, columns - width - 6)
            lines += [line, *(f"  {' ' * width}  # {part}" for part in parts)]
    return lines


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value).replace("'", "")
    return short(text, 70)
