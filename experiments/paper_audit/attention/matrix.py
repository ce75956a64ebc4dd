"""Attention paper, Section E: matrix forms of the Hessian block i0 = i1 = i2 (Lemma E.4, Definition E.5).

Each matrix is compared with the d x d matrix of the corrected D_i(X) of Lemma C.14, whose sum is checked by automatic
differentiation there. z(X)_{i0} is taken as W^T X f in all terms, so that its wrong definition counts once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from experiments.paper_audit.attention.terms import (
    Expression,
    Terms,
    all_same,
    both_other,
    compare,
    derivative_lemma,
    points,
    relative_error,
    same_then_other,
    second_derivative,
)
from experiments.paper_audit.checks import Entry, Outcome, Witness

TABLES: dict[int, tuple[Expression, ...]] = {
    1: (
        lambda t: 2 * t.s * t.f00**2 * t.w1 * t.w2,
        lambda t: -(t.f00**2) * t.h0 * t.w2 * t.w1,
        lambda t: -t.f00 * t.m2 * t.w1,
        lambda t: -(t.f00**2) * t.v2 * t.w1,
        lambda t: -t.s * t.f00 * t.w2 * t.w1,
        lambda t: -t.s * t.f00 * t.y20 * t.w1,
        lambda t: -t.s * t.f00 * t.w12,
        lambda t: 2 * t.f00 * t.s * t.z2 * t.w1,
    ),
    2: (
        lambda t: 2 * t.s * t.f00 * t.w2 * t.z1,
        lambda t: t.s * t.z2 * t.z1,
        lambda t: -t.f00 * t.h0 * t.w2 * t.z1,
        lambda t: -t.m2 * t.z1,
        lambda t: -t.f00 * t.v2 * t.z1,
        lambda t: t.s * t.z1 * t.z2,
        lambda t: -t.s * t.f00 * t.y10 * t.w2,
        lambda t: -t.s * (t.f * t.x2) @ t.x1,
        lambda t: -t.s * t.f00 * t.w21,
    ),
    3: (
        lambda t: -(t.f00**2) * t.h0 * t.w2 * t.w1,
        lambda t: t.f00 * t.w2 * t.h0 * t.w1,
        lambda t: -t.f00 * t.z2 * t.h0 * t.w1,
        lambda t: t.f00 * t.y20 * t.h0 * t.w1,
        lambda t: t.f00 * t.v2 * t.w1,
        lambda t: t.f00 * t.h0 * t.w12,
    ),
    4: (
        lambda t: -t.m1 * t.f00 * t.w2,
        lambda t: -t.m1 * t.z2,
        lambda t: t.f00 * t.h0 * t.y10 * t.w2,
        lambda t: (t.f * t.x2 * t.x1) @ t.h,
        lambda t: t.f00 * t.h0 * t.w21,
        lambda t: t.f00 * t.y10 * t.v2,
    ),
    5: (
        lambda t: -(t.f00**2) * t.w2 * t.v1,
        lambda t: -t.f00 * t.z2 * t.v1,
        lambda t: t.f00 * t.w2 * t.v1,
        lambda t: t.f00 * t.y20 * t.v1,
    ),
}
PRINTED: dict[tuple[int, int], Expression] = {
    (2, 6): lambda t: t.s * t.z1 * t.f00 * t.z2,
    (3, 6): lambda t: t.f00 * t.hbad * t.w12,
}
"""Terms (table, number) that are printed differently."""

C14: tuple[tuple[tuple[int, int], ...], ...] = (
    ((1, 1),),
    ((1, 8), (2, 1)),
    ((1, 2),),
    ((1, 3), (4, 1)),
    ((1, 4), (5, 1)),
    ((1, 5),),
    ((1, 6), (2, 7)),
    ((1, 7), (2, 9)),
    ((2, 2),),
    ((2, 3), (3, 3)),
    ((2, 4), (4, 2)),
    ((2, 5), (5, 2)),
    ((2, 6),),
    ((2, 8),),
    ((3, 1),),
    ((3, 2),),
    ((3, 4), (4, 3)),
    ((3, 5), (5, 3)),
    ((3, 6), (4, 5)),
    ((4, 4),),
    ((4, 6), (5, 4)),
)
"""D_1..D_21 as sums of table terms. The terms of a pair are each other's transpose in (j1, j2), by the tables' last
column, Table 2: 1 corrected; a single term is symmetric."""


def term(t: Terms, place: tuple[int, int], printed: bool = False) -> Tensor:
    """Term (table, number), as printed or corrected."""
    table, number = place
    expression = PRINTED.get(place) if printed else None
    return (expression or TABLES[table][number - 1])(t)


def table_sum(table: int, printed: bool) -> Expression:
    """dC_table/dx_{i2,j2} in the case i0 = i1 = i2."""
    return lambda t: torch.stack(
        [term(t, (table, k + 1), printed) for k in range(len(TABLES[table]))]
    ).sum()


def d_term(t: Terms, i: int, printed: bool = False) -> Tensor:
    """D_i(X), i = 1..21, of Lemma C.14."""
    if printed and i == 19:  # both halves are printed with h_{i0,i0}
        return t.f00 * t.hbad * (t.w12 + t.w21)
    return torch.stack([term(t, place, printed) for place in C14[i - 1]]).sum()


def _d_sum(printed: bool) -> Expression:
    return lambda t: torch.stack([d_term(t, i, printed) for i in range(1, 22)]).sum()


def _h2(t: Terms) -> Tensor:
    """d2 c/dx_{i1,j1} dx_{i2,j2} for i0 = i1 != i2: the corrected Parts 2 of Lemmas C.9-C.13 added up."""
    pull = 2 * t.s * t.w2 - t.h2 * t.w2 - t.v2
    spread = (t.h2 - t.s) * (t.y12 * t.w2 + t.w21) + t.y12 * t.v2
    own = -t.f00 * t.w2 * (t.h0 * t.w1 + t.v1) - t.m1 * t.w2
    result: Tensor = t.f02 * ((t.f00 * t.w1 + t.z1) * pull + spread + own)
    return result


def _pairs() -> Outcome:
    """Largest error of the tables' statements on symmetry under j1 <-> j2."""
    worst, corrected, count = (
        math.inf,
        0.0,
        0,
    )  # Table 2: 1 names a term 9 of Table 1, which has eight
    for _, t in points(all_same):
        swapped = dataclasses.replace(t, k=dataclasses.replace(t.k, j1=t.k.j2, j2=t.k.j1))
        for places in C14:
            corrected = max(
                corrected, relative_error(term(t, places[0]), term(swapped, places[-1]))
            )
        count += 1
    witness = Witness(
        "partner of Table 2: 1", "Table 1: 9, of eight terms", "Table 1: 8", "error 0"
    )
    return Outcome(worst, corrected, count, witness)


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

PRINTED_FORMS: dict[str, dict[int, Form | None]] = {
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
        swap = [
            [dataclasses.replace(t, k=dataclasses.replace(t.k, j1=a, j2=c)) for c in range(d)]
            for a in range(d)
        ]
        return torch.stack([torch.stack([expression(cell) for cell in row]) for row in swap])

    return matrix


def _form_check(place: str, i: int) -> Outcome:
    def truth(t: Terms) -> Tensor:
        return entries(lambda cell: d_term(cell, i))(t)

    def correct(t: Terms) -> Tensor:
        return CORRECT[i - 1](Block(t))

    if i not in PRINTED_FORMS[place]:
        return compare(points(all_same), truth, correct)
    form = PRINTED_FORMS[place][i]
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
            form = PRINTED_FORMS["E.5"].get(i) if printed else None
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
    "attention.c.9.part_1": derivative_lemma(
        lambda t: -t.s * t.f00 * t.w1, all_same, table_sum(1, True)
    ),
    "attention.c.10.part_1": derivative_lemma(
        lambda t: -t.s * t.z1, all_same, table_sum(2, True), table_sum(2, False)
    ),
    "attention.c.11.part_1": derivative_lemma(
        lambda t: t.f00 * t.h0 * t.w1, all_same, table_sum(3, True), table_sum(3, False)
    ),
    "attention.c.12.part_1": derivative_lemma(lambda t: t.m1, all_same, table_sum(4, True)),
    "attention.c.13.part_1": derivative_lemma(lambda t: t.f00 * t.v1, all_same, table_sum(5, True)),
    "attention.tables_1-5": _pairs,
    "attention.c.14.part_1": lambda: compare(
        points(all_same), second_derivative, _d_sum(True), _d_sum(False)
    ),
    "attention.c.14.part_2": lambda: compare(points(same_then_other), second_derivative, None, _h2),
    "attention.definition_e.5.others": lambda: compare(
        points(both_other), second_derivative, _selected
    ),
    "attention.e.4.z": _z_definition,
    **{f"attention.e.4.d_{i}": partial(_form_check, "E.4", i) for i in range(1, 22)},
    **{f"attention.definition_e.5.b_{i}": partial(_form_check, "E.5", i) for i in range(1, 22)},
    "attention.definition_e.5": lambda: compare(
        points(all_same), entries(second_derivative), _block_sum(True), _block_sum(False)
    ),
}
