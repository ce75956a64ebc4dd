"""Every change of a syntax tree that a set of rules allows.

`python -m tests.mutations.audit` changes printed formulas by the rules of `formulas` and checks the
audit's clauses.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Node = tuple[str, int | str, ast.AST]
"""Function, the line where it begins, and a node."""
Rules = Callable[[ast.AST], Iterator[tuple[str, ast.AST]]]
"""(kind, changed node) of every change of a node; parts of the node may be shared."""


@dataclass(frozen=True)
class Mutation:
    """One change: kind, function and the line where it begins (of a formula its name and 0, of one
    without a name "CHECKS" and its clause), line, text before and after, number of the node among
    all of the tree, and the node in its place."""

    kind: str
    function: str
    start: int | str
    line: int
    change: str
    position: int
    new: ast.AST

    def apply(self, source: str) -> ast.Module:
        """The module's tree with the change made."""
        tree = ast.parse(source)
        old = list(ast.walk(tree))[self.position]
        changed = _Replace(old, copy.deepcopy(self.new)).visit(tree)
        return ast.fix_missing_locations(changed)


def mutations(tree: ast.Module, nodes: Iterable[Node], rules: Rules) -> Iterator[Mutation]:
    """Every change of these nodes of a tree that changes its text."""
    position = {id(node): number for number, node in enumerate(ast.walk(tree))}
    for function, start, node in nodes:
        for kind, new in rules(node):
            before, after = _text(node), _text(new)
            if before != after:
                change = f"{_begin(before)} → {_begin(after)}"
                line = getattr(node, "lineno", 0)
                yield Mutation(kind, function, start, line, change, position[id(node)], new)


def joins_text(node: ast.AST) -> bool:
    """Whether an operator joins texts, where another operator is an error and no mutation."""
    return any(
        isinstance(n, ast.JoinedStr) or isinstance(getattr(n, "value", None), str)
        for n in ast.walk(node)
    )


def _text(node: ast.AST) -> str:
    """A node as code; the node is left as it is."""
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))


def _begin(text: str) -> str:
    return text.split("\n")[0][:60]


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(self.new, node) if node is self.old else self.generic_visit(node)
