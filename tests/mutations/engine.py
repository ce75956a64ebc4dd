"""What both mutation testers share: the text of a node, and a syntax tree with one node replaced.

`python -m tests.mutations` changes the code of runner (`__main__`) and runs its tests;
`python -m tests.mutations.audit` changes printed formulas (`formulas`) and checks the audit's
clauses.
"""

from __future__ import annotations

import ast
import copy


def text_of(node: ast.AST) -> str:
    """A node as code; the node is left as it is."""
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))


def joins_text(node: ast.AST) -> bool:
    """Whether an operator joins texts, where another operator is an error and no mutation."""
    return any(
        isinstance(n, ast.JoinedStr) or isinstance(getattr(n, "value", None), str)
        for n in ast.walk(node)
    )


def replaced(tree: ast.Module, old: ast.AST, new: ast.AST) -> ast.Module:
    """The tree with a node of it replaced."""
    changed = _Replace(old, copy.deepcopy(new)).visit(tree)
    return ast.fix_missing_locations(changed)


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.copy_location(self.new, node) if node is self.old else self.generic_visit(node)
