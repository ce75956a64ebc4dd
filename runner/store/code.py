"""Which code measured a cell, and which files have changed since.

A cell records one hash of the modules that can change its numbers: the experiment's own package,
except what only reports use, and the packages of `MEASURING`. `code.json` next to the cells has the
table behind each hash, file by file, so that a later run names the files. The published one has the
table of the code for which its cells hold.

A file of published cells counts as changed when its syntax tree differs, since comments and
docstrings change no number; of other cells any change counts, since trees take seconds to make.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from runner.contract import Experiment
from runner.files import write_bytes
from runner.store.identity import digest
from runner.store.tables import json_of

FILE = "code.json"
PUBLISHED = "published"
"""Key of the table of the published cells."""
MEASURING = ("contract", "curvature", "data", "kinds", "models", "training")
"""Packages of runner/ that measure."""
REPORTING = re.compile(r"(.*_)?(report|claims|figures)")
"""Modules of an experiment that only reports use."""
ROOT = Path(__file__).resolve().parents[2]

Table = Mapping[str, Sequence[str]]
"""File -> hash of its bytes, hash of its syntax tree or ""."""


def package_of(module: str) -> list[Path]:
    """Every file of the package that a module is in: the paper's below experiments/, else the top
    one; a module outside any package is its own."""
    names = module.split(".")
    file = sys.modules[module].__file__
    if file is None:
        return []
    own = Path(file).resolve()
    depth = len(names) - (2 if names[0] == "experiments" else 1)
    inside = own.parents[depth - 1].rglob("*") if depth else own.parent.glob(f"{own.stem}.*")
    return sorted(path for path in inside if path.is_file() and "__pycache__" not in path.parts)


@cache
def _files(module: str) -> dict[str, Path]:
    """Name -> file of the code that measures an experiment, whose settings are in this module."""
    own = (path for path in package_of(module) if path.suffix == ".py")
    found = [path for path in own if not REPORTING.fullmatch(path.stem)]
    for package in MEASURING:
        found += (ROOT / "runner" / package).rglob("*.py")
    return {_name(path): path for path in sorted(found)}


def _name(path: Path) -> str:
    if path.is_relative_to(ROOT):
        return str(path.relative_to(ROOT))
    return path.name


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


@cache
def _bytes_of(module: str) -> dict[str, str]:
    """File -> hash of its bytes."""
    return {name: _hash(path.read_bytes()) for name, path in _files(module).items()}


def digest_of(experiment: Experiment) -> str:
    """The hash of the code that measures an experiment; takes some milliseconds."""
    return digest(_bytes_of(type(experiment).__module__))


@cache
def _tree(path: Path) -> str:
    """Hash of a module's syntax tree without docstrings."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            body[0] = ast.Pass()
    return _hash(ast.dump(tree).encode())


def _is_text(node: ast.AST) -> bool:
    constant = None
    if isinstance(node, ast.Expr):
        constant = node.value
    return isinstance(constant, ast.Constant) and isinstance(constant.value, str)


def read(folder: Path) -> dict[str, Table]:
    """Digest -> table, of a folder with cells; none where there is no such file, or it cannot be
    read."""
    return json_of(folder / FILE)


def record(folder: Path, experiment: Experiment) -> None:
    """Write the table of the present code into code.json of a folder with cells, where it is not
    there yet."""
    known = read(folder)
    key = digest_of(experiment)
    if key not in known:
        files = _bytes_of(type(experiment).__module__)
        _write(folder, {**known, key: {name: [value, ""] for name, value in files.items()}})


def publish(folder: Path, experiment: Experiment) -> None:
    """Write the table of the present code as that for which the published cells hold."""
    module = type(experiment).__module__
    trees = {name: _tree(path) for name, path in _files(module).items()}
    table = {name: [value, trees[name]] for name, value in _bytes_of(module).items()}
    if read(folder) != {PUBLISHED: table}:
        _write(folder, {PUBLISHED: table})


def _write(folder: Path, tables: Mapping[str, Table]) -> None:
    write_bytes(folder / FILE, json.dumps(tables, indent=0, sort_keys=True).encode() + b"\n")


def changed(experiment: Experiment, table: Table) -> list[str]:
    """The files whose code differs from that of a table."""
    module = type(experiment).__module__
    of_bytes = _bytes_of(module)
    files = _files(module)
    found = [name for name in table if name not in of_bytes]
    for name, value in of_bytes.items():
        old_bytes, old_tree = table.get(name, ("", ""))
        if value != old_bytes and (not old_tree or _tree(files[name]) != old_tree):
            found.append(name)
    return sorted(found)


UNRECORDED = f"files that no {FILE} next to the cells names"


def changes(experiment: Experiment, digests: Iterable[str], folders: Iterable[Path]) -> list[str]:
    """The files that have changed since cells with these digests were measured, and `UNRECORDED`
    for other code of which no table is known.

    Parameters
    ----------
    experiment
        Whose code it is.
    digests
        Of stored cells, `PUBLISHED` for published ones.
    folders
        With code.json; that of the published cells last.
    """
    tables: dict[str, Table] = {}
    for folder in folders:
        tables |= read(folder)
    others = {*digests} - {digest_of(experiment)}
    found = {name for key in others & {*tables} for name in changed(experiment, tables[key])}
    if others - {*tables, PUBLISHED}:
        found.add(UNRECORDED)
    return sorted(found)
