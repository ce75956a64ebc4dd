"""`hess-run show`: what an experiment or a choice of a group can be set to."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.contract import GROUPS, SettingError
from runner.run.call import Call
from runner.run.config import experiment_file as reading
from runner.run.config import files, preview
from runner.run.config.files import comments
from runner.run.config.types import hints, readable, takes
from runner.run.messages import nearest, short


def show_command(call: Call) -> int:
    """Print the page of an experiment or of a choice of a group."""
    print(show(call.words[0]))
    return 0


def show(word: str) -> str:
    """The page of an experiment, or of GROUP=NAME. Raises SettingError for anything else."""
    group, equals, name = word.removeprefix("experiment=").partition("=")
    if not equals:
        return "\n".join(_experiment_lines(group))
    if group not in GROUPS:
        raise SettingError(f"show: {short(group)} is not a group{nearest(group, GROUPS)}; known: {', '.join(GROUPS)}")
    return "\n".join(_kind_lines(group, name))


def _experiment_lines(name: str) -> list[str]:
    file = reading.experiment_file(name)
    experiment = preview(name)
    cls = type(experiment)
    lines = [f"{name}: {experiment.title}"]
    if experiment.paper:
        lines.append(f"paper: {experiment.paper}; reproduces {experiment.reproduces}")
    head = [
        line.removeprefix("#").strip()
        for line in file.path.read_text(encoding="utf-8").splitlines()[1:]
        if line.startswith("#")
    ]
    lines += ["", *head] if head else []
    meaning = comments(file.path)
    own = reading.experiment_fields(name)
    lines += ["", "fields (= default)"]
    rows = [(key, _type(cls, f), _value(getattr(experiment, key)), _notes(f, meaning)) for key, f in own.items()]
    lines += _table(rows)
    for group in takes(cls):
        chosen = file.choices.get(group, "none")
        lines += ["", f"{group} = {chosen}; takes {', '.join(reading.fitting(name, group))}"]
        settings = getattr(experiment, group)
        meaning = comments(files.find(group, chosen)) if chosen != "none" else {}
        meaning = {**meaning, **{k: v for k, v in comments(file.path).items() if k not in own}}
        lines += _table(_rows(settings, meaning, group))
    quick = file.body.get("profiles", {}).get("quick", [])
    lines += [
        "",
        f"profile=quick: {' '.join(map(str, quick)) or 'the same'}",
        f"devices: {', '.join(experiment.devices)}",
    ]
    return [line.rstrip() for line in lines]


def _head(path: Path) -> list[str]:
    """The comment lines at the margin of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix("#").strip() for line in lines if line.startswith("#")]


def _kind_lines(group: str, name: str) -> list[str]:
    path = files.find(group, name)
    cls: Any = reading.kind_class(group, name)
    head = [
        line.removeprefix("#").strip() for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")
    ]
    node, meaning = files.load(path), comments(path)
    rows = []
    for f in dataclasses.fields(cls):
        if f.name != "kind":
            value = _value(node.get(f.name, _default(f)))
            note = _joined(_limits(f), meaning.get(f.name, ""))
            rows.append((f"{group}.{f.name}", readable(hints(cls)[f.name]), value, note))
    users = []
    for experiment in reading.experiment_names():
        try:
            users += [experiment] if name in reading.fitting(experiment, group) else []
        except SettingError:  # a file that cannot be read takes nothing
            continue
    table = _table(rows) or ["  no settings of its own"]
    return [f"{group}={name}", *head, "", *table, "", f"taken by: {', '.join(users) or 'none'}"]


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default


def _rows(settings: Any, meaning: Mapping[str, str], group: str) -> list[tuple[str, str, str, str]]:
    rows = []
    cls: Any = type(settings)
    for f in dataclasses.fields(settings):
        if f.name != "kind":
            note = _joined(_limits(f), meaning.get(f.name, ""))
            value, kind = _value(getattr(settings, f.name)), readable(hints(cls)[f.name])
            rows.append((f"{group}.{f.name}", kind, value, note))
    return rows


def _type(cls: type, f: dataclasses.Field[Any]) -> str:
    return f"{readable(hints(cls)[f.name])}{', one cell each' if f.metadata.get('grid') else ''}"


def _value(value: Any) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value).replace("'", "")
    return short(text, 70)


def _limits(f: dataclasses.Field[Any]) -> str:
    """The declared limits of a field, as text."""
    return str(f.metadata.get("limits", ""))


def _notes(f: dataclasses.Field[Any], meaning: Mapping[str, str]) -> str:
    note = _joined(_limits(f), meaning.get(f.name, ""))
    return f"{note} [report only]" if f.metadata.get("report") else note


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _table(rows: Sequence[tuple[str, str, str, str]]) -> list[str]:
    """Two lines a field where one is too long: name, type and default, then what it means."""
    width = max((len(row[0]) for row in rows), default=0)
    room = _columns()
    lines = []
    for name, kind, value, note in rows:
        line = f"  {name.ljust(width)}  {kind} = {value}"
        if note and len(line) + len(note) + 4 <= room:
            line, note = f"{line}  # {note}", ""
        lines.append(line)
        lines += [f"  {' ' * width}  # {note}"] if note else []
    return lines


def _columns() -> int:
    try:
        return max(80, os.get_terminal_size().columns)
    except OSError:
        return 120
