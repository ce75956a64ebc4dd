"""Values of a configuration checked against the fields of a dataclass, with one line for each mistake.

Configuration gives text, numbers, true and false, lists and mappings. A whole number stands for a number, and a number
for text, as YAML writes them; nothing else is converted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Set
from typing import Any, get_args, get_origin

from runner.contract import SettingError
from runner.run.sources import nearest, short
from runner.run.targets import hints

MISSING = "???"
NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
PLURALS = {int: "whole numbers", float: "numbers", str: "texts", bool: "true or false"}


class Mismatch(ValueError):
    """A value that is not of its field's type."""


def typed(
    cls: type, values: Any, prefix: str, file: str, leave_out: tuple[str, ...] = (), given: Set[str] = frozenset()
) -> dict[str, Any]:
    """Arguments of `cls` from `values`; fields that are absent keep their defaults.

    Unknown keys, values of another type and missing values raise SettingError, which names `prefix`.key. leave_out:
    fields that are not set here. given: keys that the command line sets, whose mistakes are not the file's.
    """
    dot = f"{prefix}." if prefix else ""

    def where(key: str) -> str:
        return f"{file}: " if file and f"{dot}{key}" not in given else ""

    if not isinstance(values, Mapping):
        raise SettingError(f"{where('')}{prefix}: expected keys and values, found {short(values)}")
    own = {f.name: f for f in dataclasses.fields(cls) if f.name not in leave_out}
    for key in map(str, values):
        if key not in own:
            known = [dot + name for name in own]
            raise SettingError(f"{where(key)}{dot}{short(key)} is not a setting{nearest(f'{dot}{key}', known)}")
    found = {}
    for name, f in own.items():
        if values.get(name, "") == MISSING:
            raise SettingError(f"{where(name)}{dot}{name} has no value; set it there or on the command line")
        if name in values:
            value, kind = values[name], hints(cls)[name]
            if f.metadata.get("grid") and not isinstance(value, list):
                value = [value]
            try:
                found[name] = convert(value, kind)
            except (Mismatch, OverflowError) as error:
                line = f"{where(name)}{dot}{name}: expected {readable(kind)}, found {short(repr(value))}"
                raise SettingError(line) from error
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise SettingError(f"{where(name)}{dot}{name} has no value; set it there or on the command line")
    return found


def convert(value: Any, kind: Any) -> Any:
    """`value` as an instance of the annotation `kind`. Raises Mismatch."""
    origin = get_origin(kind)
    if origin is list:
        if not isinstance(value, list):
            raise Mismatch
        return [convert(item, get_args(kind)[0]) for item in value]
    if origin is dict:
        if not isinstance(value, dict):
            raise Mismatch
        return {str(key): convert(item, get_args(kind)[1]) for key, item in value.items()}
    if kind in (Any, object):
        return value
    if kind not in NAMES:
        raise Mismatch
    return _scalar(value, kind)


def _scalar(value: Any, kind: type) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and number and isinstance(value, int):
        return value
    if kind is int and isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value):
        return int(value)
    if kind is float and (number or (isinstance(value, str) and _is_number(value))):
        return float(value)
    if kind is str and (isinstance(value, str) or number or isinstance(value, bool)):
        return str(value)
    raise Mismatch


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) is not None


def readable(kind: Any) -> str:
    """An annotation in words."""
    if kind in NAMES:
        return NAMES[kind]
    if get_origin(kind) is list:
        item = get_args(kind)[0]
        return f"a list of {PLURALS.get(item, readable(item))}"
    if get_origin(kind) is dict or kind is dict:
        return "keys and values"
    return getattr(kind, "__name__", str(kind))
