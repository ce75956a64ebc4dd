"""Changes to one node of a syntax tree that make a formula wrong: sign, factor, power, index, transpose, term."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.paper_audit.sharpness import held_out, slips

SWAPS = {
    "i": "j",
    "j": "i",
    "w1": "w2",
    "w2": "w1",
    "v1": "v2",
    "v2": "v1",
    "z1": "z2",
    "z2": "z1",
    "m1": "m2",
    "m2": "m1",
    "x1": "x2",
    "w12": "w21",
    "w21": "w12",
    "y10": "y20",
    "y20": "y10",
    "f00": "h0",
    "f01": "f02",
    "f02": "f01",
    "h0": "f00",
    "h1": "h2",
    "h2": "h1",
    "s1": "s2",
    "ww": "vv",
    "vv": "ww",
    "dx": "d0",
    "d0": "dx",
}
"""Names and attributes that a slip turns into one another (f_{i0,i0} and f_{i0,i1} are equal where i0 = i1)."""
SAME = {"V", "full", "name"}
"""Attributes that do not depend on the sample: i.V is j.V."""
CALLS = {"F", "d", "F0", "f0"}
"""Methods whose argument is an order of differentiation."""


KINDS = ("sign", "factor", "power", "index", "transpose", "term")
"""Kinds that the checks were refined on; `held_out.KINDS` are others."""


@dataclass(frozen=True)
class Mutation:
    """One change: kind, function it lies in and its first line, line, text before and after, path to the node."""

    kind: str
    function: str
    start: int
    line: int
    change: str
    path: tuple[tuple[str, int], ...]

    def apply(self, source: str) -> ast.Module:
        """The module's tree with the change made."""
        tree = ast.parse(source)
        parent: ast.AST = tree
        for name, k in self.path[:-1]:
            parent = _child(parent, name, k)
        name, k = self.path[-1]
        new = _changed(_child(parent, name, k), self.kind)
        assert new is not None
        if k < 0:
            setattr(parent, name, new)
        else:
            getattr(parent, name)[k] = new
        return ast.fix_missing_locations(tree)


def mutations(source: str, only: Sequence[str] = (), kinds: Sequence[str] = KINDS) -> list[Mutation]:
    """Every change of these kinds that can be made within the functions named (all of them where none is)."""
    return list(_walk(ast.parse(source), (), ("", 0), tuple(only), tuple(kinds)))


def _walk(
    node: ast.AST,
    path: tuple[tuple[str, int], ...],
    within: tuple[str, int],
    only: tuple[str, ...],
    kinds: tuple[str, ...],
) -> Iterator[Mutation]:
    function, start = within
    if isinstance(node, ast.FunctionDef):
        first = node.decorator_list[0] if node.decorator_list else node
        function, start = node.name, first.lineno  # where the compiler says that the function begins
    elif isinstance(node, ast.Lambda) and (not only or "<lambda>" in only or function not in only):
        function, start = "<lambda>", node.lineno
    for name, value in ast.iter_fields(node):
        if name in (
            "annotation",
            "returns",
            "slice",
            "decorator_list",
            "test",
            "iter",
            "ifs",
            "generators",
            "keywords",
        ):
            continue
        children = value if isinstance(value, list) else [value]
        for k, child in enumerate(children):
            if not isinstance(child, ast.AST) or isinstance(child, ast.arguments):
                continue
            if isinstance(child, ast.Call) and _name(child.func) in ("zeros_like", "ones_like"):
                continue  # whatever it is given, the value is the same
            step = (*path, (name, k if isinstance(value, list) else -1))
            if function and (not only or function in only) and isinstance(child, ast.expr):
                if isinstance(node, ast.Attribute) and isinstance(child, ast.Name):
                    continue  # changed together with its attribute
                for kind in kinds:
                    new = _changed(copy.deepcopy(child), kind)
                    if new is not None:
                        change = f"{ast.unparse(child)[:60]} → {ast.unparse(ast.fix_missing_locations(new))[:60]}"
                        yield Mutation(kind, function, start, child.lineno, change, step)
            yield from _walk(child, step, (function, start), only, kinds)


def _child(node: ast.AST, name: str, k: int) -> ast.AST:
    value = getattr(node, name)
    found = value if k < 0 else value[k]
    assert isinstance(found, ast.AST)
    return found


def _changed(node: ast.AST, kind: str) -> ast.expr | None:
    """The node with the change of this kind, or None where it does not apply (or would not change the value)."""
    if kind in held_out.KINDS:
        return held_out.change(node, kind)
    if kind in slips.KINDS:
        return slips.change(node, kind)
    if kind == "sign":
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and not _text(node):
            return ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.USub)
            and not isinstance(node.operand, ast.Constant)
        ):
            return node.operand
    elif kind == "term":
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and not _text(node):
            return node.left
    elif kind == "factor":
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Constant):
            return node.right if node.left.value not in (0, 1) else None
    elif kind == "power":
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant):
            return node.left
    elif kind == "index":
        return _other_index(node)
    elif kind == "transpose":
        if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
            return node.value
        if isinstance(node, ast.Call) and _name(node.func) == "outer" and len(node.args) == 2:
            first, second = node.args
            if _letters(first) != _letters(second) and isinstance(node.func, ast.Attribute):
                return ast.Call(node.func, [second, first], node.keywords)
    return None


def _other_index(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Attribute) and node.attr in SWAPS and isinstance(node.value, ast.Name):
        return ast.Attribute(node.value, SWAPS[node.attr], node.ctx)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("i", "j"):
        return (
            None
            if node.attr in SAME
            else ast.Attribute(ast.Name(SWAPS[node.value.id], ast.Load()), node.attr, node.ctx)
        )
    if isinstance(node, ast.Name) and node.id in ("i", "j") and isinstance(node.ctx, ast.Load):
        return ast.Name(SWAPS[node.id], node.ctx)
    if isinstance(node, ast.Call) and _name(node.func) in CALLS and len(node.args) == 1:
        order = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        if isinstance(order, int):
            return ast.Call(node.func, [ast.Constant(order + 1 if order < 3 else 2)], node.keywords)
    return None


def _letters(node: ast.AST) -> list[str]:
    """Nodes of an expression without their order: F' V and V F' are one vector for a diagonal F'."""
    return sorted(ast.dump(n) for n in ast.walk(node) if isinstance(n, (ast.Attribute, ast.Constant)))


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _text(node: ast.BinOp) -> bool:
    """Is this an addition of strings?"""
    return any(
        isinstance(n, (ast.JoinedStr,)) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in ast.walk(node)
    )
