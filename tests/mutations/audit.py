"""Mutation testing of the audit: inject errors into printed formulas and count those that are
noticed.

An injected error changes one node of the syntax tree of a module that holds printed formulas
(`mutations`). The paper is read again with it, and the clauses whose checks reach the changed
function are checked. The error is noticed when one of them no longer has the agreement that is
expected of it, or, where the print is wrong anyway, gives another error, another mean error or
another instance. A change that leaves the value as it is counts as missed, so that the share is a
lower bound. Wrong constants in bounds are listed, not drawn: far from where a bound is attained
they may be true. Run by `python -m tests.mutations.audit`.
"""

from __future__ import annotations

import ast
import functools
import gc
import importlib
import importlib.abc
import importlib.util
import random
import sys
import tomllib
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.paper_audit.checks import Outcome
from experiments.paper_audit.formulas import Formula
from experiments.paper_audit.measure import check
from experiments.paper_audit.papers import ROOM, Clause, clauses, keys, read
from tests.mutations.engine import Mutation
from tests.mutations.formulas import errors, users

PACKAGE = "experiments.paper_audit"
COUNT, SEED, LIMIT = 45, 20261124, 30
"""Errors for each paper and the seed of the sample; most clauses that are checked for one error."""
KEPT = ("dag.oracle", "dag.parameter_oracle", "dag.instances", "scalar.networks", "scalar.cases")
"""Modules of instances and references, which are not imported again."""
DATA = tomllib.loads(Path(__file__).with_name("audit.toml").read_text(encoding="utf-8"))
TARGETS: dict[str, dict[str, str]] = DATA["targets"]
"""Functions that hold printed formulas, by paper and module."""


@dataclass(frozen=True)
class Wrong:
    """One wrong constant of a bound, or wrong condition: paper, clause, module, text and
    replacement."""

    paper: str
    clause: str
    module: str
    text: str
    wrong: str


WRONG = [Wrong(**entry) for entry in DATA["wrong"]]
"""Wrong constants in bounds that are nearly attained, and wrong conditions; the clause itself has
to notice each."""


def source_of(key: str, module: str) -> str:
    """Text of a module that holds formulas of a paper."""
    return _file(key, module).read_text(encoding="utf-8")


def _file(key: str, module: str) -> Any:
    own = ROOM / key / f"{module}.py"
    return own if own.exists() else ROOM / f"{module}.py"


def _full(key: str, module: str) -> str:
    return ".".join((PACKAGE, *_file(key, module).relative_to(ROOM).with_suffix("").parts))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a changed syntax tree."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self.tree, self.name, "exec"), module.__dict__)


@contextmanager
def changed(key: str, module: str, tree: ast.Module) -> Iterator[tuple[Clause, ...]]:
    """The paper's clauses with one of its modules replaced; everything is as before afterwards."""
    clauses(key)  # a module imported for the first time below would stay in its package, changed
    kept = {f"{PACKAGE}.{name}" for name in KEPT}

    def own() -> list[str]:
        prefixes = (f"{PACKAGE}.{key}", f"{PACKAGE}.three_layer")
        return [name for name in sys.modules if name.startswith(prefixes) and name not in kept]

    saved = {name: sys.modules.pop(name) for name in own()}
    for name in saved:  # `from package import module` reads the attribute of the package
        parent, _, child = name.rpartition(".")
        delattr(sys.modules.get(parent) or saved[parent], child)
    finder = _Finder(_full(key, module), tree)
    sys.meta_path.insert(0, finder)
    try:
        yield read(key)
    finally:
        sys.meta_path.remove(finder)
        for name in own():
            del sys.modules[name]
        sys.modules.update(saved)
        for name, before in saved.items():
            parent, _, child = name.rpartition(".")
            setattr(sys.modules[parent], child, before)


HOLDERS = (
    *(tuple, list, set, frozenset, dict, property),
    *(types.CellType, types.MethodType, functools.partial),
)


def formula_names() -> dict[int, list[tuple[str, str, int]]]:
    """(module, name, 0) of the formulas that have one, or are in a table that has one, by id."""
    names: dict[int, list[tuple[str, str, int]]] = {}
    for module in [*sys.modules.values()]:
        if not module.__name__.startswith(PACKAGE):
            continue
        for name, value in vars(module).items():
            for formula in value.values() if isinstance(value, dict) else [value]:
                if isinstance(formula, Formula):
                    names.setdefault(id(formula), []).append((module.__name__, name, 0))
    return names


def reached(check: Callable[..., Any]) -> set[tuple[str, str, int]]:
    """(module, function, first line) of all code of the audit that a check can reach, and (module,
    name, 0) of all formulas."""
    found: set[tuple[str, str, int]] = set()
    names = formula_names()
    seen: dict[int, Any] = {}
    todo: list[Any] = [check]
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        found.update(names.get(id(item), ()))
        if isinstance(item, types.FunctionType) and item.__module__.startswith(PACKAGE):
            todo += [item.__closure__, item.__defaults__]
            for code in _codes(item.__code__):
                found.add((item.__module__, code.co_name, code.co_firstlineno))
                todo += _named(code, item.__globals__)
        elif hasattr(item, "__wrapped__"):
            todo.append(item.__wrapped__)
        elif isinstance(item, HOLDERS) or (
            item if isinstance(item, type) else type(item)
        ).__module__.startswith(PACKAGE):
            todo += gc.get_referents(item)
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _named(code: types.CodeType, space: dict[str, Any]) -> Iterator[Any]:
    """What the names in a piece of code stand for, attributes of the audit's modules included."""
    for value in (space[name] for name in code.co_names if name in space):
        if not isinstance(value, types.ModuleType):
            yield value
        elif value.__name__.startswith(PACKAGE):
            yield from (getattr(value, name) for name in code.co_names if hasattr(value, name))


def injected(key: str, count: int = COUNT, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """`count` errors of one paper, a random one of each kind in turn: paper, kind, place, change,
    caught, by."""
    chance = random.Random(f"{key} {seed}")
    kinds: dict[str, list[tuple[str, Mutation]]] = {}
    for module, functions in TARGETS[key].items():
        for mutation in errors(source_of(key, module), functions.split()):
            kinds.setdefault(mutation.kind, []).append((module, mutation))
    for found in kinds.values():
        chance.shuffle(found)
    turns = [found[k] for k in range(count) for found in kinds.values() if k < len(found)]
    reach = {formula.id: reached(formula.check) for formula in clauses(key)}
    for module, mutation in turns[:count]:
        place = (_full(key, module), mutation.function, mutation.start)
        made: set[int | str] = {mutation.start}
        if mutation.function != "CHECKS":
            made |= users(source_of(key, module), mutation.function)
        places = {place, *((place[0], name, 0) for name in made)}
        near = [i for i in reach if i in made or places & reach[i]]
        near.sort(key=lambda i: len(reach[i]))
        by = _caught(key, module, mutation, near[:LIMIT])
        row = {
            "paper": key,
            "kind": mutation.kind,
            "place": f"{module}:{mutation.line}",
            "change": mutation.change,
        }
        yield row | {"caught": bool(by), "by": by}


def _caught(key: str, module: str, mutation: Mutation, near: Sequence[str]) -> str:
    """Id of the first clause that notices the error, "" where none does; checks that reach least
    come first."""
    for formula in clauses(key):
        if formula.id in near and formula.expected != "holds":
            _known(key, formula.id)  # before the changed modules are imported
    try:
        with changed(key, module, mutation.apply(source_of(key, module))) as mutant:
            formulas = {f.id: f for f in mutant}
            return next((found for i in near if (found := _notices(key, formulas[i]))), "")
    except Exception as error:
        return f"import: {type(error).__name__}"  # the module cannot even be read


@functools.cache
def _known(key: str, formula: str) -> Outcome:
    """Outcome of the formula as it is."""
    return next(f for f in clauses(key) if f.id == formula).check()


def _notices(key: str, formula: Clause) -> str:
    """The clause's id where its check notices, followed by the exception where it cannot be
    evaluated; else ""."""
    try:
        found = formula.check()
    except Exception as error:
        return f"{formula.id}: {type(error).__name__}"
    if found.agreement != formula.expected:
        return formula.id
    if formula.expected == "holds":
        return ""
    known = _known(key, formula.id)
    moved = any(
        abs(a - b) > 1e-6 * abs(b)
        for a, b in ((found.printed, known.printed), (found.mean, known.mean))
    )
    return formula.id if moved or found.witness != known.witness else ""


def noticed(error: Wrong) -> bool:
    """Whether the clause no longer has the agreement that is expected of it."""
    source = source_of(error.paper, error.module)
    if error.text not in source:
        raise ValueError(f"{error.module}: expected the text {error.text!r}, found none")
    with changed(
        error.paper, error.module, ast.parse(source.replace(error.text, error.wrong))
    ) as mutant:
        formula = next(f for f in mutant if f.id == error.clause)
        return check(formula)["agreement"] != formula.expected


def main() -> int:
    """The sample of every paper, then the constants of bounds; 1 where a constant is not
    noticed."""
    rows = [row for key in keys() for row in injected(key)]
    missed = [
        f"{row['paper']} {row['place']}, {row['kind']}: {row['change']}"
        for row in rows
        if not row["caught"]
    ]
    print(f"injected errors: {len(rows) - len(missed)} of {len(rows)} noticed", *missed, sep="\n  ")
    missed = [f"{error.clause}: {error.wrong}" for error in WRONG if not noticed(error)]
    print(
        f"constants and conditions: {len(WRONG) - len(missed)} of {len(WRONG)} noticed",
        *missed,
        sep="\n  ",
    )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
