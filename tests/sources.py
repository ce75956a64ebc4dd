"""The Python files of the project and the nodes of their syntax trees, parsed once in a process."""

import ast
from functools import cache
from pathlib import Path

from tests import ROOT


@cache
def files(*folders: str) -> list[Path]:
    """Every Python file below folders of the project."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of the syntax tree of a file; the first one is the module."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
