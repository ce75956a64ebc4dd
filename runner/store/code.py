"""Whether the present code is that which measured a cell.

A cell records one digest of the modules that can change its numbers: the experiment's own package,
except what only reports use, and the packages of `MEASURING`. The manifest of a published report
has the digests of the code for which its cells hold, of the files and of their syntax trees, since
comments and docstrings change no number.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Collection
from functools import cache
from pathlib import Path

from runner.contract import Experiment
from runner.store.identity import digest
from runner.store.tables import json_of

PUBLISHED = "published"
"""In place of the digest of a published cell."""
MEASURING = ("closed_form", "contract", "curvature", "data", "kinds", "models", "training")
"""Packages of runner/ that measure."""
REPORTING = re.compile(r"(.*_)?(report|claims|figures)")
"""Modules of an experiment that only reports use."""
ROOT = Path(__file__).resolve().parents[2]


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
def _of_bytes(module: str) -> str:
    return digest({name: _hash(path.read_bytes()) for name, path in _files(module).items()})


@cache
def _of_trees(module: str) -> str:
    return digest({name: tree_of(path) for name, path in _files(module).items()})


def digest_of(experiment: Experiment) -> str:
    """The digest of the code that measures an experiment; takes some milliseconds."""
    return _of_bytes(type(experiment).__module__)


def digests_of(experiment: Experiment) -> list[str]:
    """The same, and that of its syntax trees; takes a second."""
    module = type(experiment).__module__
    return [_of_bytes(module), _of_trees(module)]


def is_other(experiment: Experiment, digests: Collection[str], published: Path | None) -> bool:
    """Whether cells with these digests were measured by other code than the present one.

    Parameters
    ----------
    experiment
        Whose code it is.
    digests
        Of stored cells, `PUBLISHED` for published ones.
    published
        Folder of the published report, which names the code for which its cells hold.
    """
    if {*digests} - {PUBLISHED, digest_of(experiment)}:
        return True
    known = json_of(published / "manifest.json").get("code") if published is not None else None
    if PUBLISHED not in digests or not isinstance(known, list):
        return False
    return digest_of(experiment) not in known and set(known).isdisjoint(digests_of(experiment))


def tree_of(path: Path) -> str:
    """Hash of a module's syntax tree without docstrings."""
    return _tree(path.read_bytes())


@cache
def _tree(content: bytes) -> str:
    tree = ast.parse(content)
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
