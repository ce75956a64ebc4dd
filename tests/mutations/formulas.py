"""Kinds of errors that are injected into printed formulas: changes of one node of a syntax tree.

The kinds come from the errors that the five papers contain: a lost sign, factor, term or bracket,
an index for its neighbour, a comma for a plus, a sum for a mean, a matrix product for an entrywise
one, one bound for the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tests.mutations.engine import Mutation, Node, joins_text, mutations


def _one(pairs: str) -> dict[str, str]:
    """What the first word of each pair becomes."""
    return dict(pair.split() for pair in pairs.split(","))


def _both(pairs: str) -> dict[str, str]:
    """What either word of each pair becomes."""
    forward = _one(pairs)
    return forward | {other: one for one, other in forward.items()}


PAIRS = (
    "i j,w1 w2,v1 v2,z1 z2,m1 m2,w12 w21,y10 y20,f00 h0,f01 f02,h1 h2,s1 s2,ww vv,dx d0,"
    "fi fj,oi oj,s1i s1j,d1i d1j,F0i F0j,F1i F1j,F2i F2j,f01i f01j,f02i f02j,deltai deltaj"
)
INDICES = _both(PAIRS) | {"x1": "x2"}
"""Names and attributes that an error turns into one another."""
SHARED = {"V", "full", "name"}
"""Attributes that are the same for samples i and j."""
ORDERS = {"F", "d", "F0", "f0"}
"""Methods whose argument is an order of differentiation."""
REDUCTIONS = _both("sum mean,max min,amax amin,maximum minimum,argmax argmin,all any")
REDUCTIONS |= {"prod": "sum"}
FUNCTIONS = _one("exp expm1,log log1p,tanh sin,sqrt square,square abs,abs neg,sin cos,cos sin")
FUNCTIONS |= _one("sigmoid tanh,softmax log_softmax,pinv inv,det trace,relu abs")
FORGOTTEN = {"sqrt", "abs", "log", "exp", "square", "log1p", "expm1"}
SYMMETRIC = {"both", "inputs", "signed", "hidden", "relative_error"}
"""Functions whose first two arguments commute."""
BUILT_IN = {"min", "max", "sum", "abs", "any", "all"}
REVERSED = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE, ast.Eq: ast.NotEq}
PRODUCTS, SUMS = ast.Mult | ast.MatMult, ast.Add | ast.Sub
Changes = Iterator[tuple[str, ast.expr]]


def changes(node: ast.AST) -> Changes:
    """(kind, changed node) of every error that can be made at one node; parts of the node may be
    shared.

    >>> difference = ast.parse("a - b", mode="eval").body
    >>> {kind: ast.unparse(new) for kind, new in changes(difference)}
    {'sign': 'a + b', 'term': 'a', 'other term': '-b', 'repeated': 'a - a'}
    """
    match node:
        case ast.BinOp() if not joins_text(node):
            yield from _operation(node)
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "sign", operand
        case ast.Call():
            yield from _call(node)
        case ast.Attribute(value=value, attr="T" | "mT"):
            yield "transpose", value
        case ast.Attribute(value=ast.Name() as name, attr=attr) if attr in INDICES:
            yield "index", ast.Attribute(name, INDICES[attr], node.ctx)
        case ast.Attribute(value=ast.Name("i" | "j" as name), attr=attr) if attr not in SHARED:
            yield "index", ast.Attribute(ast.Name(INDICES[name], ast.Load()), attr, node.ctx)
        case ast.Name(name, ast.Load()) if name in INDICES:
            yield "index", ast.Name(INDICES[name], ast.Load())
        case ast.Subscript():
            yield from _subscript(node)
        case ast.Compare(ops=[op]) if type(op) in REVERSED:
            yield "reversed", ast.Compare(node.left, [REVERSED[type(op)]()], node.comparators)


def _operation(node: ast.BinOp) -> Changes:
    left, op, right = node.left, node.op, node.right
    numbers = isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
    if isinstance(op, SUMS):
        yield "sign", ast.BinOp(left, ast.Sub() if isinstance(op, ast.Add) else ast.Add(), right)
        yield "term", left
        yield "other term", right if isinstance(op, ast.Add) else ast.UnaryOp(ast.USub(), right)
        if isinstance(left, ast.BinOp) and isinstance(left.op, PRODUCTS):
            yield "drawn in", ast.BinOp(left.left, left.op, ast.BinOp(left.right, op, right))
        if isinstance(right, ast.Constant) and isinstance(right.value, int | float):
            yield "offset", ast.BinOp(left, op, ast.Constant(right.value + 1))
    if isinstance(op, PRODUCTS | ast.Div):
        yield "half", ast.BinOp(node, ast.Div(), ast.Constant(2))
        yield "double", ast.BinOp(ast.Constant(2), ast.Mult(), node)
    if isinstance(op, PRODUCTS) and isinstance(right, ast.BinOp) and isinstance(right.op, SUMS):
        yield "bracket", ast.BinOp(ast.BinOp(left, op, right.left), right.op, right.right)
    elif isinstance(op, PRODUCTS) and isinstance(left, ast.BinOp) and isinstance(left.op, SUMS):
        yield "bracket", ast.BinOp(left.left, left.op, ast.BinOp(left.right, op, right))
    if isinstance(op, SUMS | PRODUCTS) and not numbers and ast.dump(left) != ast.dump(right):
        yield "repeated", ast.BinOp(left, op, left)
    if isinstance(op, ast.MatMult):
        yield "entrywise", ast.BinOp(left, ast.Mult(), right)
    if isinstance(op, ast.Mult):
        yield "plus", ast.BinOp(left, ast.Add(), right)
        if not isinstance(right, ast.Constant):
            yield "squared", ast.BinOp(node, ast.Mult(), right)
        if not numbers:
            yield "lost factor", left
            yield "inverse", ast.BinOp(left, ast.Div(), right)
        elif isinstance(left, ast.Constant) and left.value not in (0, 1):
            yield "lost factor", right
    if isinstance(op, ast.Div):
        yield "inverse", ast.BinOp(left, ast.Mult(), right)
    if isinstance(op, ast.Pow) and isinstance(right, ast.Constant):
        yield "power", left
    if isinstance(op, ast.Mult | ast.Div | ast.Pow):
        for name in ("left", "right"):
            value = getattr(getattr(node, name), "value", None)
            if isinstance(value, int | float) and value:
                sides = {"left": left, "right": right} | {name: ast.Constant(value + 1)}
                yield "constant", ast.BinOp(sides["left"], op, sides["right"])
                break


def _call(node: ast.Call) -> Changes:
    arguments, name = node.args, _name(node.func)
    first = arguments[:2]
    plain = not any(isinstance(a, ast.Starred | ast.Lambda) for a in first)
    if len(first) == 2 and plain and name not in SYMMETRIC:
        yield "arguments", ast.Call(node.func, [*first[::-1], *arguments[2:]], node.keywords)
    match node.args:
        case [ast.Constant(int(order))] if name in ORDERS:
            other = ast.Constant(order + 1 if order < 3 else 2)
            yield "index", ast.Call(node.func, [other], node.keywords)
    if name in FORGOTTEN and (arguments or isinstance(node.func, ast.Attribute)):
        yield "root", arguments[0] if arguments else node.func.value  # type: ignore[attr-defined]
    for kind, table in (("reduction", REDUCTIONS), ("function", FUNCTIONS)):
        if name not in table:
            continue
        if isinstance(node.func, ast.Attribute):
            from_math = isinstance(node.func.value, ast.Name) and node.func.value.id == "math"
            other = ast.Attribute(node.func.value, table[name], ast.Load())
            kept = from_math and table[name] in ("square", "neg")
            yield kind, arguments[0] if kept else ast.Call(other, arguments, node.keywords)
        elif table[name] in BUILT_IN:
            yield kind, ast.Call(ast.Name(table[name], ast.Load()), arguments, node.keywords)


def _subscript(node: ast.Subscript) -> Changes:
    fixed = ast.Slice | ast.Constant
    match node.slice:
        case ast.Tuple([first, second]) if not isinstance(first, fixed):
            if not isinstance(second, fixed):
                places: ast.expr = ast.Tuple([second, first], ast.Load())
                yield "subscript", ast.Subscript(node.value, places, node.ctx)
        case ast.Name() | ast.BinOp(op=ast.Add() | ast.Sub()):
            places = ast.BinOp(node.slice, ast.Sub(), ast.Constant(1))
            yield "subscript", ast.Subscript(node.value, places, node.ctx)


def errors(source: str, functions: Sequence[str] = ()) -> list[Mutation]:
    """Every error that can be made within the functions and formulas named (all where none is);
    <lambda>: outside of functions."""
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    nodes = [node for node in _nodes(tree) if not functions or node[0] in functions]
    return [
        error
        for error in mutations(tree, nodes, changes)
        if not isinstance(error.new, ast.Name) or error.new.id in names
    ]


def users(source: str, name: str) -> set[str]:
    """Names of a module that are made of this one, directly or through others, and clauses whose
    checks are.

    >>> sorted(users("b = a + 1\\nc = 2 * b\\nCHECKS['eq1'] = f(c)\\nd = 3", "a"))
    ['a', 'b', 'c', 'eq1']
    """
    made_of: dict[str, set[str]] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef):
            maker: str | int = statement.name
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            maker = _assigned(statement)[1] or _assigned(statement)[0]
        else:
            continue
        used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        made_of.setdefault(str(maker), set()).update(used)
    found, before = {name}, 0
    while len(found) > before:
        before = len(found)
        found |= {maker for maker, used in made_of.items() if used & found}
    return found


NO_FORMULA = {
    *("targets", "annotation", "returns", "slice", "decorator_list"),
    *("test", "iter", "ifs", "generators", "keywords"),
}


def _nodes(node: ast.AST, function: str = "", start: int | str = 0) -> Iterator[Node]:
    """(function, its first line, expression) of all expressions within functions and formulas."""
    if isinstance(node, ast.FunctionDef):
        function, start = node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)])
    elif isinstance(node, ast.Lambda) and (
        function == "<lambda>" or not start or isinstance(start, str)
    ):
        function, start = "<lambda>", node.lineno
    elif isinstance(node, ast.Assign | ast.AnnAssign) and not function:
        function, start = _assigned(node)
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if (
                name in NO_FORMULA
                or not isinstance(child, ast.AST)
                or isinstance(child, ast.arguments | ast.ClassDef)
            ):
                continue
            if isinstance(child, ast.Call) and _name(child.func) in ("zeros_like", "ones_like"):
                continue  # whatever it is given, the value is the same
            of_attribute = isinstance(node, ast.Attribute) and isinstance(child, ast.Name)
            if function and isinstance(child, ast.expr) and not of_attribute:
                yield function, start, child
            yield from _nodes(child, function, start)


def _assigned(node: ast.Assign | ast.AnnAssign) -> tuple[str, int | str]:
    """(name, 0) of an assignment, or ("CHECKS", clause) where a check is given to a clause."""
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    match target:
        case ast.Subscript(value=ast.Name("CHECKS"), slice=ast.Constant(str(clause))):
            return "CHECKS", clause
        case ast.Subscript():
            return _name(target.value), 0
    return _name(target), 0


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
