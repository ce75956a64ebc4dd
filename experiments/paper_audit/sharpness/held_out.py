"""Kinds of errors that the checks were not refined on, for a sample that is drawn once.

`mutation` holds the kinds that were injected while the checks were written; what slipped through got a better check, so
that their share says little of errors nobody thought of. These kinds, the seed of their sample and its size were fixed
before any of them was tried. The share caught of the first run is the audit's sharpness; it is not raised by what is
mended afterwards.
"""

from __future__ import annotations

import ast
import csv
from pathlib import Path

FIRST_RUN = Path(__file__).with_name("held_out_first_run.csv")
"""The sample as it was first run, at commit b10929f, with the reason beside each error that slipped through."""
SAME = "leaves the value"
"""How the reason of a change begins that is no error."""


def first_run() -> list[dict[str, object]]:
    """Rows paper, kind, place, change, caught, by, why_not of the first run."""
    with open(FIRST_RUN, newline="", encoding="utf-8") as stream:
        return [{**row, "caught": row["caught"] == "True"} for row in csv.DictReader(stream)]


KINDS = ("other term", "lost factor", "order", "inverse", "constant", "double", "root", "subscript")
WORDS = {
    "other term": "first of two terms dropped",
    "lost factor": "factor that is no number dropped",
    "order": "order of a matrix product",
    "inverse": "divided for multiplied, or multiplied for divided",
    "constant": "coefficient or exponent one too large",
    "double": "factor 2 too much",
    "root": "root, absolute value, logarithm or exponential forgotten",
    "subscript": "two subscripts swapped, or one too small",
}
FORGOTTEN = {"sqrt", "abs", "log", "exp", "square", "log1p", "expm1"}


def change(node: ast.AST, kind: str) -> ast.expr | None:
    """The node with the change of this kind, or None where it does not apply.

    Changes that leave the value as it is are not made: numbers are not reordered, and factors 1 and terms 0 not lost.
    """
    if kind == "subscript":
        return _subscript(node)
    if kind == "root":
        return _forgotten(node)
    if not isinstance(node, ast.BinOp) or _says_text(node):
        return None
    return _of_operation(node, kind)


def _of_operation(node: ast.BinOp, kind: str) -> ast.expr | None:
    left, op, right = node.left, node.op, node.right
    numbers = isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
    if kind == "other term" and isinstance(op, ast.Add):
        return right
    if kind == "other term" and isinstance(op, ast.Sub):
        return ast.UnaryOp(ast.USub(), right)
    if kind == "lost factor" and isinstance(op, ast.Mult) and not numbers:
        return left
    if kind == "order" and isinstance(op, ast.MatMult) and ast.dump(left) != ast.dump(right):
        return ast.BinOp(right, op, left)
    if kind == "inverse" and isinstance(op, ast.Div):
        return ast.BinOp(left, ast.Mult(), right)
    if kind == "inverse" and isinstance(op, ast.Mult) and not numbers:
        return ast.BinOp(left, ast.Div(), right)
    if kind == "constant":
        return _larger(node)
    if kind == "double" and isinstance(op, ast.Mult | ast.MatMult | ast.Div):
        return ast.BinOp(ast.Constant(2), ast.Mult(), node)
    return None


def _larger(node: ast.BinOp) -> ast.expr | None:
    if isinstance(node.op, ast.Mult | ast.Div | ast.Pow):
        for name in ("left", "right"):
            value = getattr(node, name)
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and value.value != 0:
                changed = ast.Constant(value.value + 1)
                return ast.BinOp(*((changed, node.op, node.right) if name == "left" else (node.left, node.op, changed)))
    return None


def _forgotten(node: ast.AST) -> ast.expr | None:
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in FORGOTTEN:
        return node.args[0] if node.args else node.func.value
    if isinstance(node.func, ast.Name) and node.func.id in FORGOTTEN and node.args:
        return node.args[0]
    return None


def _subscript(node: ast.AST) -> ast.expr | None:
    if not isinstance(node, ast.Subscript):
        return None
    place = node.slice
    if isinstance(place, ast.Tuple) and len(place.elts) == 2:
        first, second = place.elts
        plain = not any(isinstance(e, ast.Slice | ast.Constant) for e in place.elts)
        if plain and ast.dump(first) != ast.dump(second):
            return ast.Subscript(node.value, ast.Tuple([second, first], place.ctx), node.ctx)
    if isinstance(place, ast.Name) or (isinstance(place, ast.BinOp) and isinstance(place.op, ast.Add | ast.Sub)):
        return ast.Subscript(node.value, ast.BinOp(place, ast.Sub(), ast.Constant(1)), node.ctx)
    return None


def _says_text(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in ast.walk(node)
    )
