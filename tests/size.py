"""Size of the Python code: tokens and statements of each package, without comments and docstrings.

`python -m tests.size` prints a table; `make lint` prints it too. A token is what `tokenize` gives,
except comments, line breaks and indentation. A statement is a logical line (one NEWLINE token).
"""

import ast
import io
import subprocess
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tests import ROOT
from tests.sources import nodes

LONG_LINE = 100
NOT_COUNTED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FORMS = (ast.IfExp, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
PRODUCT = ("runner", "experiments")


@dataclass
class Size:
    """Counts of one file, or summed over several."""

    tokens: int = 0
    statements: int = 0
    long_lines: int = 0
    nested: int = 0

    def __iadd__(self, other: "Size") -> "Size":
        self.tokens += other.tokens
        self.statements += other.statements
        self.long_lines += other.long_lines
        self.nested += other.nested
        return self


def docstring_lines(nodes: list[ast.AST]) -> set[int]:
    lines: set[int] = set()
    for node in nodes:
        if isinstance(node, WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return lines


def nested_forms(nodes: list[ast.AST]) -> list[int]:
    """Lines of conditional expressions and comprehensions that contain another of their kind."""
    lines = []
    for outer, kind in product(nodes, FORMS):
        if isinstance(outer, kind) and sum(isinstance(n, kind) for n in ast.walk(outer)) > 1:
            lines.append(outer.lineno)
    return lines


def size_of(path: Path) -> Size:
    """Counts of one Python file."""
    source = path.read_text(encoding="utf-8")
    skipped_lines = docstring_lines(nodes(path))
    size = Size(nested=len(nested_forms(nodes(path))))
    size.long_lines = sum(len(line) > LONG_LINE for line in source.splitlines())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.start[0] in skipped_lines:
            continue
        size.statements += token.type == tokenize.NEWLINE
        size.tokens += token.type not in NOT_COUNTED
    return size


def python_files() -> list[Path]:
    """Python files that git knows, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "*.py"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return [Path(line) for line in listing.stdout.splitlines() if (ROOT / line).is_file()]


def package(path: Path) -> str:
    """The row of the table that a file belongs to."""
    if path.parts[0] in PRODUCT and len(path.parts) > 2:
        return "/".join(path.parts[:2])
    return path.parts[0]


def main() -> None:
    """Print the table, largest package first, and the sum of the product."""
    rows: dict[str, Size] = defaultdict(Size)
    for path in python_files():
        rows[package(path)] += size_of(ROOT / path)
    whole = Size()
    for name, size in rows.items():
        if name.startswith(PRODUCT):
            whole += size
    table = sorted(rows.items(), key=lambda row: -row[1].tokens)
    print(f"{'package':32} {'tokens':>8} {'a statement':>12} {'long lines':>11} {'nested':>7}")
    for name, size in [*table, ("runner + experiments", whole)]:
        density = size.tokens / max(size.statements, 1)
        print(f"{name:32} {size.tokens:8} {density:12.1f} {size.long_lines:11} {size.nested:7}")


if __name__ == "__main__":
    main()
