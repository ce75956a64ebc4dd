"""Every experiment stores a certificate with its cells, or says why not: followed through the source of `measure`.

Measuring a cell of each would take minutes. Instead, every name that `measure` uses is followed to its definition in
`experiments`, and from there on; the key "certificate" has to be among what is reached.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import pytest

from experiments.certificates import of_blocks
from runner.contract import Experiment
from runner.contract.records import CERTIFICATE
from runner.run.config import experiment_names, preview

ROOTS = ("experiments", "tests.experiments")


@cache
def definitions(module: str) -> dict[str, ast.AST]:
    """What a module defines by name, imports inside of functions included."""
    file = importlib.import_module(module).__file__
    tree = ast.parse(Path(file).read_text() if file else "")
    found: dict[str, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, node)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    found[target.id] = node
    return found


def used(node: ast.AST) -> Iterator[str]:
    """Names used in a definition, and a.b as b: a function of a module, or a method of the class itself."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def is_key(node: ast.AST) -> bool:
    """Whether "certificate" is a key of a dictionary here, or an index."""
    keys = node.keys if isinstance(node, ast.Dict) else [node.slice] if isinstance(node, ast.Subscript) else []
    return any(isinstance(key, ast.Constant) and key.value == CERTIFICATE for key in keys)


@dataclass
class Reached:
    """Definitions reached from `measure`."""

    seen: set[tuple[str, str]]
    certified: bool = False

    def follow(self, module: str, name: str) -> None:
        if self.certified or (module, name) in self.seen or not module.startswith(ROOTS):
            return
        self.seen.add((module, name))
        node = definitions(module).get(name)
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            inner = f"{node.module}.{name}"
            try:  # `from package import module`: all of the module may be meant
                found = definitions(inner) if inner.startswith(ROOTS) else {}
            except ModuleNotFoundError:
                found = {}
            for own in found:
                self.follow(inner, own)
            self.follow(node.module, name)
        elif node is not None:
            self.into(module, node)

    def into(self, module: str, node: ast.AST) -> None:
        self.certified |= any(is_key(p) for p in ast.walk(node))
        for name in used(node):
            self.follow(module, name)


def certifies(kind: type[Experiment]) -> bool:
    """Whether the key "certificate" can be reached from the measuring function, named or a method."""
    owner = next(c for c in kind.__mro__ if "measure" in vars(c))
    reached = Reached(set())
    if isinstance(owner.measure, str):
        module, _, name = owner.measure.partition(":")
        reached.follow(module, name)
        return reached.certified
    tree = definitions(owner.__module__)[owner.__name__]
    measure = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "measure")
    reached.into(owner.__module__, measure)
    return reached.certified


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_certifies_its_cells_or_says_why_not(name: str) -> None:
    experiment = preview(name)
    assert certifies(type(experiment)) or experiment.uncertified, (
        f"{name}: measure() gives no table {CERTIFICATE!r} (experiments.certificates makes its rows); where there is "
        "nothing to certify, `uncertified` says why"
    )


def helper(dag, x, y, blocks, ctx):
    return of_blocks(dag, x, y, blocks, ctx)


class Without(Experiment):
    """A new experiment that does neither."""

    def measure(self, cell, ctx):
        from runner.curvature import exact_blocks

        return {"rows": [exact_blocks(None, None, None)]}


class With(Experiment):
    def measure(self, cell, ctx):
        return {"rows": [], "certificate": helper(None, None, None, {}, ctx)}


class Below(Without):
    uncertified: ClassVar[str] = "a reason"


def test_one_that_does_neither_is_found() -> None:
    assert not certifies(Without) and not Without.uncertified
    assert certifies(With)
    assert not certifies(Below) and Below.uncertified
