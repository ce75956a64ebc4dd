"""Classes that configuration names, and values checked against their fields, with one line for each
mistake.

Configuration can come from anywhere, and importing a module runs it: only the project's own modules
are imported, and those whose package HESS_MODULES names. YAML gives text, numbers, true and false,
lists and mappings; a whole number stands for a number, and a number for text; nothing else is
converted.
"""

from __future__ import annotations

import dataclasses
import os
import re
import types
from collections.abc import Mapping, Set
from functools import cache
from importlib import import_module
from typing import Any, Union, get_args, get_origin, get_type_hints

from runner.contract import GROUPS, Experiment, SettingError, did_you_mean, short
from runner.contract.schema import DIGITS

OWN = ("runner", "experiments")
MISSING = "???"
NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
PLURALS = {int: "whole numbers", float: "numbers", str: "texts", bool: "true or false"}


def may_import(target: str) -> bool:
    """Whether the module of a dotted name is the project's, or of a package in HESS_MODULES
    (comma-separated)."""
    named = [name.strip() for name in os.environ.get("HESS_MODULES", "").split(",")]
    return any(
        target == package or target.startswith(f"{package}.")
        for package in (*OWN, *named)
        if package
    )


def load_class(target: Any, where: str) -> type:
    """The class that a configuration file names. Raises SettingError before any import for a module
    not allowed."""
    if (
        not isinstance(target, str)
        or not all(part.isidentifier() for part in target.split("."))
        or "." not in target
    ):
        raise SettingError(f"{where}: expected _target_ as module.Class, found {short(target)}")
    if not may_import(target):
        raise SettingError(
            f"{where}: _target_ {short(target)} is not a module of this project and was not "
            "imported; "
            f"if you trust it, allow it with HESS_MODULES={target.split('.')[0]}"
        )
    module, _, name = target.rpartition(".")
    try:
        loaded = getattr(import_module(module), name)
    # whatever a module does on import, the file that names it is to blame
    except Exception as error:
        raise SettingError(
            f"{where}: _target_ {target} cannot be loaded: {short(error, 200)}"
        ) from error
    if not isinstance(loaded, type):
        raise SettingError(f"{where}: _target_ {target} is not a class")
    return loaded


@cache
def hints(cls: Any) -> Mapping[str, Any]:
    """Types of a class's fields."""
    return get_type_hints(cls)


@cache
def takes(cls: type[Experiment]) -> Mapping[str, tuple[type, ...]]:
    """Group -> the classes of settings that an experiment takes, by the annotation of its field of
    that name."""
    names = {f.name for f in dataclasses.fields(cls)}
    taken = {}
    for group in GROUPS:
        if group in names:
            kind = hints(cls)[group]
            is_union = get_origin(kind) in (Union, types.UnionType)
            taken[group] = tuple(get_args(kind)) if is_union else (kind,)
    return taken


class Mismatch(ValueError):
    """A value that is not of its field's type."""


def typed(
    cls: type,
    values: Any,
    prefix: str,
    file: str,
    leave_out: tuple[str, ...] = (),
    given: Set[str] = frozenset(),
) -> dict[str, Any]:
    """Arguments of `cls` from `values`; fields that are absent keep their defaults.

    Unknown keys, values of another type and missing values raise SettingError, which names
    `prefix`.key. leave_out: fields that are not set here. given: keys that the command line sets,
    whose mistakes are not the file's.
    """
    dot = f"{prefix}." if prefix else ""

    def where(key: str) -> str:
        return f"{file}: " if file and f"{dot}{key}" not in given else ""

    if not isinstance(values, Mapping):
        raise SettingError(f"{where('')}{prefix}: expected keys and values, found {short(values)}")
    known = {f.name: f for f in dataclasses.fields(cls) if f.name not in leave_out}
    for key in map(str, values):
        if key not in known:
            hint = did_you_mean(f"{dot}{key}", [dot + name for name in known])
            raise SettingError(
                f"{where(key)}{dot}{short(key)} is not a setting{hint}; known: {', '.join(known)}"
            )
    arguments = {}
    for name, field in known.items():
        if values.get(name, "") == MISSING or (_is_required(field) and name not in values):
            raise SettingError(
                f"{where(name)}{dot}{name} has no value; set it there or on the command line"
            )
        if name not in values:
            continue
        value = values[name]
        kind = hints(cls)[name]
        if field.metadata.get("grid") and not isinstance(value, list):
            value = [value]
        try:
            arguments[name] = convert(value, kind)
        except (Mismatch, OverflowError) as error:
            expected = f"expected {readable(kind)}, found {short(repr(value))}"
            raise SettingError(f"{where(name)}{dot}{name}: {expected}") from error
    return arguments


def _is_required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def convert(value: Any, kind: Any) -> Any:
    """`value` as an instance of the annotation `kind`. Raises Mismatch."""
    origin = get_origin(kind)
    if origin is list and isinstance(value, list):
        return [convert(item, get_args(kind)[0]) for item in value]
    if origin is dict and isinstance(value, dict):
        return {str(key): convert(item, get_args(kind)[1]) for key, item in value.items()}
    if kind in (Any, object):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and number and isinstance(value, int):
        return value
    if kind is int and isinstance(value, str) and DIGITS.fullmatch(value):
        return int(value)
    if kind is float and (
        number or re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", str(value), re.ASCII)
    ):
        return float(value)
    if kind is str and (isinstance(value, str | bool) or number):
        return str(value)
    raise Mismatch


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
