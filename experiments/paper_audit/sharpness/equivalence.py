"""Changes that are no errors: an injected change whose formula is the same function of its symbols.

u · v = v · u for two vectors, F G = G F for two diagonal matrices, 0 x = 0: such a change cannot be caught and must not
be counted. It is decided without any check's verdict, as an identity: the changed expression (or, where that differs,
the expression around it) is taken apart into symbols; the clauses' own instances tell of each symbol only its type,
that is shape and which entries of a matrix are zero by structure; then both forms are evaluated at random values of
these types. Two rational functions that agree at random points are the same (Schwartz and Zippel; the probability of an
accident is that of a random real hitting a zero set). A symbol is identified with another one only where the clause's
hypothesis makes them one: at *all* index tuples that it admits. What cannot be decided counts as an error.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

RECORD = "__record__"
DRAWS, AGREE, FEWEST = 4, 1e-9, 3
"""Random points of each type; relative difference of rounding; fewest instances that tell of a type."""
ATTRIBUTES = {"T", "mT"}
METHODS = {"norm", "square", "abs", "sum", "trace"}
FUNCTIONS = {"outer", "diag", "abs", "float", "stack", "cat"}


@dataclass
class Seen:
    """Values that the symbols of one expression took: number of instances, and for each tuple of shapes its pattern."""

    count: int = 0
    shapes: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    differ: set[frozenset[str]] = field(default_factory=set)


@dataclass(frozen=True)
class Candidate:
    """An expression and what the change makes of it; symbols: the texts of its parts that are not taken apart."""

    before: ast.expr
    after: ast.expr
    symbols: tuple[str, ...]


def reason(wanted: Candidate, seen: Seen, one: bool) -> str:
    """Why a change is none, "" where it is one or that is not decided. one: as in `identical`."""
    before, after = (ast.unparse(e) for e in (wanted.before, wanted.after))
    if identical(wanted, seen):
        return f"{before} and {after} are one function of their symbols ({seen.count} instances, {_types(seen)})"
    if one and identical(wanted, seen, True):
        return f"{before} and {after} are one under the hypothesis, at all {seen.count} instances that it admits"
    return ""


def _types(seen: Seen) -> str:
    shapes = {"×".join(map(str, part[2:])) or part[1] for key in seen.shapes for part in key if part[1] == "tensor"}
    return "sizes " + ", ".join(sorted(shapes)) if shapes else "numbers"


def candidates(original: ast.Module, changed: ast.Module, path: tuple[tuple[str, int], ...]) -> list[Candidate]:
    """The changed expression and those around it, the smallest first."""
    found: list[Candidate] = []
    before: Any = original
    after: Any = changed
    for name, k in path:
        before, after = (_step(node, name, k) for node in (before, after))
        if isinstance(before, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            found.clear()  # its body has names that mean nothing outside
        elif isinstance(before, ast.expr) and isinstance(after, ast.expr):
            symbols = tuple(sorted({*_symbols(before), *_symbols(after)}))
            found.append(Candidate(before, after, symbols))
        else:
            found.clear()  # what lies outside a statement is no expression around it
    return found[::-1][:4]


def _step(node: Any, name: str, k: int) -> Any:
    value = getattr(node, name)
    return value if k < 0 else value[k]


def _parts(node: ast.AST) -> list[ast.expr] | None:
    """Operands of an operation that is taken apart, None for a symbol."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
        return [node.value]
    if isinstance(node, ast.List | ast.Tuple):
        return list(node.elts)
    if isinstance(node, ast.Call) and not node.keywords:
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS and not node.args:
            return [node.func.value]
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        module = not isinstance(node.func, ast.Attribute) or ast.unparse(node.func.value) in ("torch", "math")
        if name in FUNCTIONS and module and not any(isinstance(a, ast.Starred) for a in node.args):
            return list(node.args)
    return None


def _symbols(node: ast.AST) -> Iterator[str]:
    parts = _parts(node)
    if parts is None:
        if not isinstance(node, ast.Constant):
            yield ast.unparse(node)
        return
    for part in parts:
        yield from _symbols(part)


class _Rename(ast.NodeTransformer):
    """Symbols replaced by plain names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and _parts(node) is None and not isinstance(node, ast.Constant):
            name = self.names.get(ast.unparse(node))
            if name is not None:
                return ast.Name(name, ast.Load())
        return self.generic_visit(node)


def instrumented(source: str, path: tuple[tuple[str, int], ...], found: list[Candidate]) -> ast.Module:
    """The module with every evaluation of the expressions reported: RECORD(k, value, {symbol: value}) gives the value.

    The k-th of `found` lies k steps of the path above the changed node.
    """
    tree = ast.parse(source)
    for up, wanted in enumerate(found):
        steps = path[: len(path) - up]
        parent: Any = tree
        for name, k in steps[:-1]:
            parent = _step(parent, name, k)
        name, k = steps[-1]
        values = [ast.parse(s, mode="eval").body for s in wanted.symbols]
        symbols = ast.Dict([ast.Constant(s) for s in wanted.symbols], values)
        call = ast.Call(ast.Name(RECORD, ast.Load()), [ast.Constant(up), _step(parent, name, k), symbols], [])
        if k < 0:
            setattr(parent, name, call)
        else:
            getattr(parent, name)[k] = call
    return ast.fix_missing_locations(tree)


def recorder(all_seen: list[Seen]) -> Callable[[int, Any, dict[str, Any]], Any]:
    """What RECORD does: notes the types of the symbols, and which of them ever differ."""

    def record(up: int, value: Any, symbols: dict[str, Any]) -> Any:
        seen = all_seen[up]
        known: dict[str, Tensor | float | int] = {}
        for name, found in symbols.items():
            number = plain(found)
            if number is None:
                seen.shapes[()] = {}  # a symbol that is no number: nothing can be decided
                return value
            known[name] = number
        seen.count += 1
        key = tuple((name, *_shape(found)) for name, found in sorted(known.items()))
        patterns = seen.shapes.setdefault(key, {})
        for name, number in known.items():
            nonzero = number != 0 if isinstance(number, Tensor) else torch.tensor(True)
            patterns[name] = patterns[name] | nonzero if name in patterns else nonzero
        names = sorted(known)
        for i, a in enumerate(names):
            for b in names[i + 1 :]:
                if not _same(known[a], known[b]):
                    seen.differ.add(frozenset((a, b)))
        return value

    return record


def plain(value: Any) -> Tensor | float | int | None:
    """A value out of the wrappers of torch.func, detached; None for what is no real number or batched."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, Tensor):
        return None
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        if torch._C._functorch.is_batchedtensor(value):
            return None
        value = torch._C._functorch.get_unwrapped(value)
    value = value.detach()
    return value if value.is_floating_point() else None


def _shape(value: Tensor | float | int) -> tuple[Any, ...]:
    if isinstance(value, Tensor):
        return ("tensor", *value.shape)
    return ("int", value) if isinstance(value, int) else ("float",)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool(torch.equal(a, b))
    return type(a) is type(b) and not isinstance(a, Tensor) and bool(a == b)


def identical(wanted: Candidate, seen: Seen, one: bool = False) -> bool:
    """Are both forms the same function on every type that was seen, one of them with more than one entry?

    one: symbols that never differed are one symbol (only where every case that the hypothesis admits was seen).
    """
    if seen.count < FEWEST or () in seen.shapes or not seen.shapes:
        return False
    names = {s: f"s{k}" for k, s in enumerate(wanted.symbols)}
    if len({*names.values()}) < len(names) or "s0" in ast.unparse(wanted.before):
        return False
    forms = [
        compile(ast.fix_missing_locations(ast.Expression(_Rename(names).visit(copy.deepcopy(e)))), "form", "eval")
        for e in (wanted.before, wanted.after)
    ]
    generator = torch.Generator().manual_seed(0)
    for key, patterns in seen.shapes.items():
        for _ in range(DRAWS):
            drawn = _draw(key, patterns, seen, generator, one)
            space = {names[s]: v for s, v in drawn.items()} | {"torch": torch, "math": math}
            try:
                first, second = (eval(form, space) for form in forms)
            except Exception:  # a form that cannot be evaluated is not the same
                return False
            if not _close(first, second):
                return False
    return _wide(seen)


def _wide(seen: Seen) -> bool:
    """Some type has a tensor of several entries along each of its dimensions, or none has any dimension."""
    shapes = [[part[2:] for part in key if part[1] == "tensor" and len(part) > 2] for key in seen.shapes]
    return not any(shapes) or any(every and all(min(s) > 1 for s in every) for every in shapes)


def _draw(key: Any, patterns: Mapping[str, Any], seen: Seen, generator: torch.Generator, one: bool) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    for name, kind, *shape in key:
        twin = next((d for d in drawn if one and frozenset((d, name)) not in seen.differ), None)
        if twin is not None and _shape(drawn[twin]) == (kind, *shape):
            drawn[name] = drawn[twin]
        elif kind == "int":
            drawn[name] = shape[0]
        elif kind == "float":
            drawn[name] = float(torch.randn((), generator=generator, dtype=torch.float64))
        else:
            value = torch.randn(tuple(shape), generator=generator, dtype=torch.float64)
            keep = patterns[name] if len(shape) == 2 else torch.ones(tuple(shape), dtype=torch.bool)
            drawn[name] = value * keep
    return drawn


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(_close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Tensor) != isinstance(b, Tensor):
        return False
    a, b = torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64)
    if a.shape != b.shape or not bool(torch.isfinite(a).all()):
        return False
    return float((a - b).abs().max()) <= AGREE * max(1.0, float(a.abs().max())) if a.numel() else True
