"""Slips of the pen, written down from the papers' own errata before any check was read: the second held-out sample.

The kinds are those that the five texts show (a bracket opened without its sign, a factor drawn into a product, an index
repeated, a comma for a plus, a sum for a mean, a matrix product for an entrywise one, a bound of one side for the
other), and none of them is among `mutation.KINDS` or `held_out.KINDS`. Kinds, seed and size were committed before the
sample was run; it is run once, and the share of that run is the audit's sharpness.
"""

from __future__ import annotations

import ast
import copy
import csv
from pathlib import Path

FIRST_RUN = Path(__file__).with_name("slips_first_run.csv")
"""The sample as it was run, at commit f491c895, with the reason beside each error that slipped through."""


def first_run() -> list[dict[str, object]]:
    """Rows paper, kind, place, change, caught, by, same, why_not of the run."""
    with open(FIRST_RUN, newline="", encoding="utf-8") as stream:
        return [{**row, "caught": row["caught"] == "True"} for row in csv.DictReader(stream)]


WORDS = {
    "bracket": "bracket forgotten: a (b + c) as a b + c",
    "drawn in": "summand drawn into a product: a b + c as a (b + c)",
    "half": "factor 1/2 too much",
    "repeated": "one operand written twice, the other lost",
    "arguments": "two arguments swapped",
    "reduction": "mean for sum, minimum for maximum, and the reverse",
    "entrywise": "entrywise for matrix product, and the reverse",
    "plus": "sum for product",
    "function": "a neighbouring function",
    "squared": "a factor squared",
    "offset": "summand one too large",
    "reversed": "comparison reversed",
}
KINDS = tuple(WORDS)
SEED, COUNT = 20261123, 45
"""Of the sample, and how many errors of each paper, those left out that were proved equal not counted."""
REDUCTIONS = {
    **{"sum": "mean", "mean": "sum", "max": "min", "min": "max", "amax": "amin", "amin": "amax", "prod": "sum"},
    **{"maximum": "minimum", "minimum": "maximum", "argmax": "argmin", "argmin": "argmax", "all": "any", "any": "all"},
}
FUNCTIONS = {
    **{"exp": "expm1", "log": "log1p", "tanh": "sin", "sqrt": "square", "square": "abs", "abs": "neg", "sin": "cos"},
    **{"cos": "sin", "sigmoid": "tanh", "softmax": "log_softmax", "pinv": "inv", "det": "trace", "relu": "abs"},
}


def change(node: ast.AST, kind: str) -> ast.expr | None:
    """The node with the slip of this kind, or None where it does not apply.

    >>> ast.unparse(ast.fix_missing_locations(change(ast.parse("a * (b + c)", mode="eval").body, "bracket")))
    'a * b + c'
    """
    node = copy.deepcopy(node)
    if isinstance(node, ast.BinOp):
        return None if _text(node) else _operation(node, kind)
    if isinstance(node, ast.Call):
        return _call(node, kind)
    if kind == "reversed" and isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.NotEq}
        new = other.get(type(node.ops[0]))
        return None if new is None else ast.Compare(node.left, [new()], node.comparators)
    return None


def _operation(node: ast.BinOp, kind: str) -> ast.expr | None:
    left, op, right = node.left, node.op, node.right
    sums, products = ast.Add | ast.Sub, ast.Mult | ast.MatMult
    if kind == "bracket" and isinstance(op, products):
        if isinstance(right, ast.BinOp) and isinstance(right.op, sums):
            return ast.BinOp(ast.BinOp(left, op, right.left), right.op, right.right)
        if isinstance(left, ast.BinOp) and isinstance(left.op, sums):
            return ast.BinOp(left.left, left.op, ast.BinOp(left.right, op, right))
    if kind == "drawn in" and isinstance(op, sums) and isinstance(left, ast.BinOp) and isinstance(left.op, products):
        return ast.BinOp(left.left, left.op, ast.BinOp(left.right, op, right))
    if kind == "half" and isinstance(op, products | ast.Div):
        return ast.BinOp(node, ast.Div(), ast.Constant(2))
    if kind == "repeated" and isinstance(op, sums | products) and ast.dump(left) != ast.dump(right):
        plain = not isinstance(left, ast.Constant) and not isinstance(right, ast.Constant)
        return ast.BinOp(left, op, copy.deepcopy(left)) if plain else None
    if kind == "entrywise" and isinstance(op, ast.MatMult):
        return ast.BinOp(left, ast.Mult(), right)
    if kind == "plus" and isinstance(op, ast.Mult):
        return ast.BinOp(left, ast.Add(), right)
    if kind == "squared" and isinstance(op, ast.Mult):
        return None if isinstance(right, ast.Constant) else ast.BinOp(node, ast.Mult(), copy.deepcopy(right))
    if kind == "offset" and isinstance(op, sums) and isinstance(right, ast.Constant):
        return ast.BinOp(left, op, ast.Constant(right.value + 1)) if isinstance(right.value, int | float) else None
    return None


def _call(node: ast.Call, kind: str) -> ast.expr | None:
    if kind == "arguments" and len(node.args) >= 2:
        first, second, *others = node.args
        starred = any(isinstance(a, ast.Starred | ast.Lambda) for a in (first, second))
        same = ast.dump(first) == ast.dump(second)
        return None if starred or same else ast.Call(node.func, [second, first, *others], node.keywords)
    table = {"reduction": REDUCTIONS, "function": FUNCTIONS}.get(kind)
    if table is None or not isinstance(node.func, ast.Attribute | ast.Name):
        return None
    name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
    if name not in table:
        return None
    if isinstance(node.func, ast.Name):
        known = {"min", "max", "sum", "abs", "any", "all"}  # what stands for a formula without a module before it
        return ast.Call(ast.Name(table[name], ast.Load()), node.args, node.keywords) if table[name] in known else None
    if isinstance(node.func.value, ast.Name) and node.func.value.id == "math" and table[name] in ("square", "neg"):
        return node.args[0]
    return ast.Call(ast.Attribute(node.func.value, table[name], ast.Load()), node.args, node.keywords)


def _text(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in ast.walk(node)
    )
