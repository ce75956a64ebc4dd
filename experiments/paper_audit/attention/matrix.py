"""Attention paper, Section E: matrix forms of the Hessian block i0 = i1 = i2 (Lemma E.4, Definition E.5).

Each matrix is held against the d x d matrix of the corrected D_i(X) of Lemma C.14, whose sum is held against automatic
differentiation there. z(X)_{i0} is taken as W^T X f in all terms, so that its wrong definition counts once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from experiments.paper_audit.attention.tables import d_term
from experiments.paper_audit.attention.terms import (
    Expression,
    Terms,
    all_same,
    both_other,
    compare,
    points,
    second_derivative,
)
from experiments.paper_audit.formula import Entry, Outcome


@dataclasses.dataclass(frozen=True)
class Block:
    """Vectors and scalars of Lemma E.4 at (i0, j0).

    w = W X_{*,i0}, y = W^T X_{*,i0}, z = W^T X f_{i0}, m = W^T X diag(f_{i0}) h_{j0}, v = V_{*,j0}.
    """

    t: Terms

    w = property(lambda b: b.t.w @ b.t.x[:, b.t.k.i0])
    y = property(lambda b: b.t.w.T @ b.t.x[:, b.t.k.i0])
    z = property(lambda b: b.t.w.T @ b.t.x @ b.t.f)
    m = property(lambda b: b.t.w.T @ b.t.x @ (b.t.f * b.t.h))
    v = property(lambda b: b.t.v[:, b.t.k.j0])
    xw = property(lambda b: b.t.x.T @ b.t.w)
    wide = property(lambda b: b.t.w + b.t.w.T)
    s = property(lambda b: b.t.s)
    f = property(lambda b: b.t.f00)
    h = property(lambda b: b.t.h0)


Form = Callable[[Block], Tensor]


def both(first: Tensor, second: Tensor) -> Tensor:
    """first second^T + second first^T."""
    return torch.outer(first, second) + torch.outer(second, first)


def square(vector: Tensor) -> Tensor:
    return torch.outer(vector, vector)


CORRECT: tuple[Form, ...] = (
    lambda b: 2 * b.s * b.f**2 * square(b.w),
    lambda b: 2 * b.f * b.s * both(b.w, b.z),
    lambda b: -(b.f**2) * b.h * square(b.w),
    lambda b: -b.f * both(b.m, b.w),
    lambda b: -(b.f**2) * both(b.w, b.v),
    lambda b: -b.s * b.f * square(b.w),
    lambda b: -b.s * b.f * both(b.w, b.y),
    lambda b: -b.s * b.f * b.wide,
    lambda b: b.s * square(b.z),
    lambda b: -b.f * b.h * both(b.z, b.w),
    lambda b: -both(b.z, b.m),
    lambda b: -b.f * both(b.z, b.v),
    lambda b: b.s * square(b.z),
    lambda b: -b.s * b.xw.T @ torch.diag(b.t.f) @ b.xw,
    lambda b: -(b.f**2) * b.h * square(b.w),
    lambda b: b.f * b.h * square(b.w),
    lambda b: b.f * b.h * both(b.w, b.y),
    lambda b: b.f * both(b.w, b.v),
    lambda b: b.f * b.h * b.wide,
    lambda b: b.xw.T @ torch.diag(b.t.f * b.t.h) @ b.xw,
    lambda b: b.f * both(b.y, b.v),
)
"""Matrix i of the block, i = 1..21 (clauses attention.e.4.d_i and attention.definition_e.5.b_i)."""

UNUSABLE = None
"""A matrix that is printed with factors that do not multiply."""

PRINTED: dict[str, dict[int, Form | None]] = {
    "E.4": {
        8: lambda b: b.s * b.f * (b.t.w.T - b.t.w),
        13: lambda b: b.s * b.f * square(b.z),
        17: UNUSABLE,
        18: lambda b: b.f * both(b.w, b.t.v.diagonal()),
        19: lambda b: b.f * b.t.hbad * b.wide,
    },
    "E.5": {
        8: lambda b: b.s * b.f * (b.t.w.T - b.t.w),
        12: lambda b: b.f * (torch.outer(b.v, b.z) - torch.outer(b.z, b.v)),
        13: lambda b: b.s * b.f * square(b.z),
        17: UNUSABLE,
        18: UNUSABLE,
        19: lambda b: b.f * b.t.hbad * b.wide,
        20: lambda b: b.xw.T @ torch.diag(b.t.f * b.t.h) @ b.t.x.T,
    },
}
"""Matrices that are printed differently, by lemma and number."""


def entries(expression: Expression) -> Expression:
    """The d x d matrix of a scalar expression over (j1, j2)."""

    def matrix(t: Terms) -> Tensor:
        d = t.x.shape[0]
        swap = [[dataclasses.replace(t, k=dataclasses.replace(t.k, j1=a, j2=c)) for c in range(d)] for a in range(d)]
        return torch.stack([torch.stack([expression(cell) for cell in row]) for row in swap])

    return matrix


def _form_check(place: str, i: int) -> Outcome:
    def truth(t: Terms) -> Tensor:
        return entries(lambda cell: d_term(cell, i))(t)

    def correct(t: Terms) -> Tensor:
        return CORRECT[i - 1](Block(t))

    if i not in PRINTED[place]:
        return compare(points(all_same), truth, correct)
    form = PRINTED[place][i]
    printed = None if form is None else (lambda t: form(Block(t)))
    return compare(points(all_same), truth, printed, correct, "factors that do not multiply")


def _z_definition() -> Outcome:
    return compare(
        points(all_same),
        entries(lambda t: t.z1),
        lambda t: (t.w @ t.x @ t.f).unsqueeze(-1).expand_as(t.w),
        lambda t: Block(t).z.unsqueeze(-1).expand_as(t.w),
    )


def _block_sum(printed: bool) -> Expression:
    """Sum of the matrices B_1..B_21, as printed where the factors multiply (else corrected), or corrected."""

    def matrix(t: Terms) -> Tensor:
        block, total = Block(t), torch.zeros_like(t.w)
        for i, correct in enumerate(CORRECT, start=1):
            form = PRINTED["E.5"].get(i) if printed else None
            total = total + (form or correct)(block)
        return total

    return matrix


def _selected(t: Terms) -> Tensor:
    """B_1 + B_3 + B_5 + B_15 with f_{i0,i1} f_{i0,i2} for f² and h_{j0,i1}, h_{j0,i2} for h; at i1 = i2 also
    B_6 + B_16 + B_18."""
    both_f = t.f01 * t.f02
    total = both_f * ((2 * t.s - t.h1 - t.h2) * t.w1 * t.w2 - t.w1 * t.v2 - t.v1 * t.w2)
    if t.k.i1 == t.k.i2:
        total = total + t.f01 * ((t.h1 - t.s) * t.w1 * t.w2 + t.w1 * t.v2 + t.v1 * t.w2)
    return total


CHECKS: dict[str, Entry] = {
    "attention.definition_e.5.others": lambda: compare(points(both_other), second_derivative, _selected),
    "attention.e.4.z": _z_definition,
    **{f"attention.e.4.d_{i}": partial(_form_check, "E.4", i) for i in range(1, 22)},
    **{f"attention.definition_e.5.b_{i}": partial(_form_check, "E.5", i) for i in range(1, 22)},
    "attention.definition_e.5": lambda: compare(
        points(all_same), entries(second_derivative), _block_sum(True), _block_sum(False)
    ),
}
