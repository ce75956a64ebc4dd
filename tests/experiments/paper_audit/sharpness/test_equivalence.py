"""Which changes of a formula are proved to be none, and which must not be."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import torch

from experiments.paper_audit.sharpness import equivalence
from experiments.paper_audit.sharpness.mutation import Mutation, mutations

pytestmark = pytest.mark.slow

VECTOR, MATRIX = (3,), (3, 3)


def made(shape: tuple[int, ...], seed: int, diagonal: bool = False) -> torch.Tensor:
    value = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.diag(torch.diagonal(value)) if diagonal else value


def proved(body: str, kind: str, one: bool = False, times: int = 4, **values: Any) -> str:
    """The reason why the first change of this kind in `def f(a, b, c): return <body>` is none."""
    source = f"import torch\ndef f({', '.join(values)}):\n    return {body}\n"
    (mutation, *_) = mutations(source, kinds=[kind])
    assert isinstance(mutation, Mutation)
    found = equivalence.candidates(ast.parse(source), mutation.apply(source), mutation.path)
    seen = [equivalence.Seen() for _ in found]
    space: dict[str, Any] = {equivalence.RECORD: equivalence.recorder(seen)}
    exec(compile(equivalence.instrumented(source, mutation.path, found), "f", "exec"), space)
    for k in range(times):
        space["f"](**{name: value(k) if callable(value) else value for name, value in values.items()})
    reasons = (equivalence.reason(w, s, one) for w, s in zip(found, seen, strict=True))
    return next((text for text in reasons if text), "")


@pytest.mark.parametrize(
    ("body", "kind", "values"),
    [
        ("a @ b", "order", {"a": lambda k: made(VECTOR, k), "b": lambda k: made(VECTOR, 9 + k)}),
        ("a @ b", "order", {"a": lambda k: made(MATRIX, k, True), "b": lambda k: made(MATRIX, 9 + k, True)}),
        ("a @ b", "order", {"a": lambda k: made(MATRIX, k, True), "b": lambda k: made(VECTOR, 9 + k)}),
        ("a + 0 * b", "term", {"a": lambda k: made(VECTOR, k), "b": lambda k: made(VECTOR, 9 + k)}),
        ("0 * a @ b", "double", {"a": lambda k: made(MATRIX, k), "b": lambda k: made(MATRIX, 9 + k)}),
    ],
)
def test_no_errors_are_recognised(body: str, kind: str, values: dict[str, Any]) -> None:
    assert "one function of their symbols" in proved(body, kind, **values)


@pytest.mark.parametrize(
    ("body", "kind", "values"),
    [
        ("a @ b", "order", {"a": lambda k: made(MATRIX, k), "b": lambda k: made(MATRIX, 9 + k)}),
        ("a @ b", "order", {"a": lambda k: made(MATRIX, k, True), "b": lambda k: made(MATRIX, 9 + k)}),
        ("a @ b", "order", {"a": lambda k: made((1, 1), k), "b": lambda k: made((1, 1), 9 + k)}),  # too small to tell
        ("a + b", "term", {"a": lambda k: made(VECTOR, k), "b": lambda k: made(VECTOR, 9 + k)}),
        ("abs(a)", "root", {"a": lambda k: made((), k).abs()}),  # positive in every instance: no type either
        ("a * b", "lost factor", {"a": lambda k: made((), k), "b": torch.ones(()).double()}),
        ("(a - b).norm()", "sign", {"a": lambda k: made(VECTOR, k), "b": torch.zeros(3).double()}),
    ],
)
def test_errors_are_not(body: str, kind: str, values: dict[str, Any]) -> None:
    assert proved(body, kind, **values) == ""


def test_two_symbols_are_one_only_where_every_case_was_seen() -> None:
    values = {"a": lambda k: made(VECTOR, k), "b": lambda k: made(VECTOR, k)}
    assert proved("2 * a - b + b", "repeated", **values) == ""
    assert "under the hypothesis" in proved("a * b", "repeated", one=True, **values)
    assert proved("a * b", "repeated", **values) == ""


def test_a_few_instances_prove_nothing() -> None:
    values = {"a": lambda k: made(VECTOR, k), "b": lambda k: made(VECTOR, 9 + k)}
    assert proved("a @ b", "order", times=2, **values) == ""
