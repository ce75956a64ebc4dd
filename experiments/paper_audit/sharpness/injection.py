"""Modules of a paper's audit with one node of their syntax tree changed, and what code a check can reach."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.abc
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from experiments.paper_audit.formula import Paper
from experiments.paper_audit.papers import ROOM
from experiments.paper_audit.sharpness.targets import TARGETS

PACKAGE = "experiments.paper_audit"


def source_of(name: str) -> str:
    """Text of a module of the audit, "dag.printed"."""
    return ROOM.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed syntax tree."""

    def __init__(self, name: str, tree: ast.Module, space: Mapping[str, Any]) -> None:
        self.name, self.tree, self.space = name, tree, space

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__.update(self.space)
        exec(compile(self.tree, self.name, "exec"), module.__dict__)


@contextmanager
def changed(key: str, name: str, tree: ast.Module, space: Mapping[str, Any] | None = None) -> Iterator[Paper]:
    """The paper with one of its modules replaced; everything is as before afterwards. space: names added to it."""
    prefixes = (f"{PACKAGE}.{key}", f"{PACKAGE}.three_layer")
    kept = {f"{PACKAGE}.{m}" for m in TARGETS[key].kept}
    own = [m for m in sys.modules if m.startswith(prefixes) and m not in kept]
    saved = {m: sys.modules.pop(m) for m in own}
    finder = _Finder(f"{PACKAGE}.{name}", tree, space or {})
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(f"{PACKAGE}.{key}").PAPER
    finally:
        sys.meta_path.remove(finder)
        for m in [m for m in sys.modules if m.startswith(prefixes) and m not in kept]:
            del sys.modules[m]
        sys.modules.update(saved)
        for m, module in saved.items():
            parent, _, child = m.rpartition(".")
            setattr(sys.modules[parent], child, module)


def reached(check: Callable[..., Any]) -> set[tuple[str, str, int]]:
    """(module, function name, first line) of all code that a check can reach, through closures, globals, containers."""
    found: set[tuple[str, str, int]] = set()
    seen: set[int] = set()

    def visit(item: Any) -> None:
        if id(item) in seen or isinstance(item, (str, int, float, bool, bytes, type(None))):
            return
        seen.add(id(item))
        if isinstance(item, types.FunctionType):
            if not item.__module__.startswith(PACKAGE):
                return
            code(item.__code__, item.__globals__, item.__module__)
            for cell in item.__closure__ or ():
                visit(cell.cell_contents)
        elif isinstance(item, types.MethodType):
            visit(item.__func__)
            for value in vars(item.__self__).values() if hasattr(item.__self__, "__dict__") else ():
                visit(value)
        elif isinstance(item, type):
            for value in vars(item).values() if item.__module__.startswith(PACKAGE) else ():
                visit(value.fget if isinstance(value, property) else value)
        elif isinstance(item, functools.partial):
            for part in (item.func, *item.args, *item.keywords.values()):
                visit(part)
        elif hasattr(item, "__wrapped__"):
            visit(item.__wrapped__)
        elif isinstance(item, (tuple, list, set, frozenset)):
            for part in item:
                visit(part)
        elif isinstance(item, dict):
            for part in item.values():
                visit(part)
        elif type(item).__module__.startswith(PACKAGE) and hasattr(item, "__dict__"):
            for part in vars(item).values():
                visit(part)

    def code(block: types.CodeType, space: dict[str, Any], module: str) -> None:
        found.add((module, block.co_name, block.co_firstlineno))
        for name in block.co_names:
            if name in space and not isinstance(space[name], types.ModuleType):
                visit(space[name])
            for other in (v for v in (space.get(n) for n in block.co_names) if isinstance(v, types.ModuleType)):
                if other.__name__.startswith(PACKAGE) and hasattr(other, name):
                    visit(getattr(other, name))
        for constant in block.co_consts:
            if isinstance(constant, types.CodeType):
                code(constant, space, module)

    visit(check)
    return found
