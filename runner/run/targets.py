"""From `_target_` to a class, of the modules that may be imported; and which kinds an experiment takes.

Configuration can come from anywhere, and importing a module runs it. Only the project's own modules are imported, and
those whose package HESS_MODULES names.
"""

from __future__ import annotations

import ast
import os
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from runner.contract import GROUPS, Experiment, SettingError
from runner.run.sources import nearest, short

OWN = ("runner", "experiments")


def allowed() -> tuple[str, ...]:
    """Packages whose modules configuration may name: the project's, and those in HESS_MODULES (comma-separated)."""
    named = os.environ.get("HESS_MODULES", "").split(",")
    return (*OWN, *(name.strip() for name in named if name.strip()))


def may_import(target: str) -> bool:
    """Whether the module of a dotted name may be imported."""
    return any(target == package or target.startswith(f"{package}.") for package in allowed())


def load_class(target: Any, where: str) -> type:
    """The class that a configuration file names. Raises SettingError before any import for a module not allowed."""
    if not isinstance(target, str) or not all(part.isidentifier() for part in target.split(".")) or "." not in target:
        raise SettingError(f"{where}: expected _target_ as module.Class, found {short(target)}")
    if not may_import(target):
        package = target.split(".")[0]
        raise SettingError(
            f"{where}: _target_ {short(target)} is not a module of this project and was not imported; "
            f"if you trust it, allow it with HESS_MODULES={package}"
        )
    module, _, name = target.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # whatever a module does on import, the file that names it is to blame
        raise SettingError(f"{where}: _target_ {target} cannot be loaded: {short(error, 200)}") from error
    if not isinstance(found, type):
        raise SettingError(f"{where}: _target_ {target} is not a class")
    return found


def load_experiment(target: Any, where: str) -> type[Experiment]:
    """The experiment class that a file names."""
    found = load_class(target, where)
    if not issubclass(found, Experiment):
        raise SettingError(f"{where}: _target_ {target} is not an Experiment")
    return found


def load_kind(target: Any, where: str) -> type:
    """The settings class of a group's file."""
    found = load_class(target, where)
    if not is_dataclass(found) or "kind" not in {f.name for f in fields(found)}:
        raise SettingError(f"{where}: _target_ {target} is not a dataclass with a field kind")
    return found


@cache
def check_names(cls: type[Experiment]) -> None:
    """Raise SettingError where an experiment's `measure` or `analysis` names nothing; loads neither of them."""
    for role in ("measure", "analysis"):
        value = getattr(cls, role)
        if callable(value):
            continue
        where = f"{cls.__module__}.{cls.__name__}.{role}"
        module, _, name = str(value).partition(":")
        if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
            raise SettingError(f"{where}: expected 'module:name', found {short(repr(value))}")
        try:
            spec = find_spec(module)
        except ModuleNotFoundError:
            spec = None
        if spec is None or not spec.origin:
            raise SettingError(f"{where}: expected a module {module}, found none")
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        known = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        if name not in known:
            raise SettingError(f"{where}: {module} has no {name}{nearest(name, known)}")


@cache
def hints(cls: Any) -> Mapping[str, Any]:
    """Types of a class's fields."""
    return get_type_hints(cls)


@cache
def takes(cls: type[Experiment]) -> Mapping[str, tuple[type, ...]]:
    """Group -> the classes of settings that an experiment takes, by the annotation of its field of that name."""
    found = {}
    for group in GROUPS:
        if group in {f.name for f in fields(cls)}:
            kind = hints(cls)[group]
            union = get_origin(kind) in (Union, types.UnionType)
            found[group] = tuple(get_args(kind)) if union else (kind,)
    return found
