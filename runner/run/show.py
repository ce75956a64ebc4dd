"""`hess-run show`: what an experiment or a choice of a group can be set to."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from inspect import getdoc
from pathlib import Path
from typing import Any

from runner.contract import (
    GROUPS,
    SettingError,
    assignments,
    figure_settings,
    natural,
    short,
)
from runner.run import command_line
from runner.run.command_line import VERBS, Call
from runner.run.config import experiment_class, experiment_fields, files, preview
from runner.run.config.compose import experiment_alone
from runner.run.config.experiment import profiles
from runner.run.config.files import comments
from runner.run.config.types import hints, readable, takes
from runner.run.nearest import did_you_mean


def show_command(call: Call) -> int:
    """hess-run show NAME        an experiment: its fields and the kinds that it takes
    hess-run show GROUP=NAME  a choice of dataset, model, metric or training: its fields

    The meaning and the place in the paper are the comments of the YAML file.

      hess-run show exp1_resonance
      hess-run show model=bottleneck_mlp
    """
    print(show(call.words[0]))
    return 0


def help_text(call: Call) -> str:
    """Help of a verb; of an experiment, where one is named; of the command otherwise."""
    if call.verb:
        return str(getdoc(VERBS[call.verb].command))
    names = [word.partition("=")[2] for word in call.settings if word.startswith("experiment=")]
    return (
        show(names[0])
        if names
        else f"{command_line.__doc__}\nexperiments: {', '.join(files.experiment_names())}"
    )


def show(word: str) -> str:
    """The page of an experiment, or of GROUP=NAME. Raises SettingError for anything else."""
    group, equals, name = word.removeprefix("experiment=").partition("=")
    if not equals:
        return "\n".join(_experiment_lines(group))
    if group not in GROUPS:
        raise SettingError(
            f"show: {short(group)} is not a group{did_you_mean(group, GROUPS)}; known: "
            f"{', '.join(GROUPS)}"
        )
    return "\n".join(_kind_lines(group, name))


def _experiment_lines(name: str) -> list[str]:
    path = files.find("experiment", name)
    alone = experiment_alone(name)
    experiment = preview(name)
    lines = [f"{name}: {experiment.title}"]
    if experiment.paper:
        lines.append(f"paper: {experiment.paper}; reproduces {experiment.reproduces}")
    head = _head(path)[1:]  # without @package
    if head:
        lines += ["", *head]
    own = experiment_fields(name)
    meaning = comments(path)
    values = {key: getattr(experiment, key) for key in own}
    lines += ["", "fields (= default)", *_table(type(experiment), values, meaning)]
    for group in takes(type(experiment)):
        chosen = alone.choices.get(group) or "none"
        lines += [
            "",
            f"{group} = {chosen}; takes {', '.join(files.fitting(type(experiment), group))}",
        ]
        settings = getattr(experiment, group)
        known = {}
        if chosen != "none":
            known = comments(files.find(group, chosen))
        known |= {key: text for key, text in meaning.items() if key not in own}
        lines += _table(type(settings), vars(settings), known, group)
    lines += _figure_lines(experiment)
    quick = " ".join(map(str, profiles(name).get("quick", [])))
    lines += [
        "",
        f"profile=quick: {quick or 'the same'}",
        f"devices: {', '.join(experiment.devices)}",
    ]
    return [line.rstrip() for line in lines]


def _figure_lines(experiment: Any) -> list[str]:
    """Figures and tables of the paper with the settings that they are drawn with."""
    by_place = sorted(figure_settings(experiment).items(), key=lambda item: natural(item[0]))
    lines = [f"  {place}: {', '.join(assignments(settings))}" for place, settings in by_place]
    return ["", "figures, and the settings that they are drawn with", *lines] if lines else []


def _kind_lines(group: str, name: str) -> list[str]:
    path = files.find(group, name)
    cls = files.kind_class(group, name)
    default = {
        f.name: f.default_factory() if callable(f.default_factory) else f.default
        for f in dataclasses.fields(cls)
    }
    values = {**default, **files.load(path)}
    users = []
    for experiment in files.experiment_names():
        try:
            if name in files.fitting(experiment_class(experiment), group):
                users += [experiment]
        except SettingError:  # a file that cannot be read takes nothing
            continue
    table = _table(cls, values, comments(path), group) or ["  no settings of its own"]
    return [
        f"{group}={name}",
        *_head(path),
        "",
        *table,
        "",
        f"taken by: {', '.join(users) or 'none'}",
    ]


def _head(path: Path) -> list[str]:
    """The comment lines at the margin of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("#").strip() for line in lines if line.startswith("#")]


def _table(
    cls: Any, values: Mapping[str, Any], meaning: Mapping[str, str], group: str = ""
) -> list[str]:
    """A line for each field (name, type, value, limits and meaning), two where one is too long."""
    shown = [f for f in dataclasses.fields(cls) if f.name in values and f.name != "kind"]
    names = {f.name: f"{group}.{f.name}" if group else f.name for f in shown}
    width = max(map(len, names.values()), default=0)
    lines = []
    columns = max(80, shutil.get_terminal_size((120, 24)).columns)
    for f in shown:
        kind = (
            f"{readable(hints(cls)[f.name])}{', one cell each' if f.metadata.get('grid') else ''}"
        )
        note = "; ".join(
            part for part in (str(f.metadata.get("limits", "")), meaning.get(f.name, "")) if part
        )
        if f.metadata.get("report") and not group:
            note += " [report only]"
        line = f"  {names[f.name].ljust(width)}  {kind} = {_value(values[f.name])}"
        if note and len(line) + len(note) + 4 <= columns:
            line = f"{line}  # {note}"
            note = ""
        lines += [line, f"  {' ' * width}  # {note}"] if note else [line]
    return lines


def _value(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value).replace("'", "")
    return short(text, 70)
