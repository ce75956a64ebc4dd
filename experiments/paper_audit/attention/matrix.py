"""Attention paper, Tables 1 to 5 and Section E: the Hessian block i0 = i1 = i2, term by term and as
matrices.

Each matrix of Lemma E.4 and Definition E.5 is compared with the d x d matrix of the corrected
D_i(X) of Lemma C.14, whose sum is checked by automatic differentiation. z(X)_{i0} is taken as W^T X
f in all terms, so that its wrong definition counts once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, outer

from experiments.paper_audit.attention.terms import (
    Expression,
    Terms,
    all_same,
    both_other,
    by_x2,
    compare,
    lemma,
    points,
    relative_error,
    same_then_other,
    second_derivative,
)
from experiments.paper_audit.checks import Checks, Outcome, worked
from experiments.paper_audit.tensors import total

CHECKS = Checks()
Place = tuple[int, int]

TABLES: dict[Place, Expression] = {}
"""Terms of dC_table/dx_{i2,j2} by (table, number)."""
TABLES[1, 1] = lambda t: 2 * t.s * t.f00**2 * t.w1 * t.w2
TABLES[1, 2] = lambda t: -(t.f00**2) * t.h0 * t.w2 * t.w1
TABLES[1, 3] = lambda t: -t.f00 * t.m2 * t.w1
TABLES[1, 4] = lambda t: -(t.f00**2) * t.v2 * t.w1
TABLES[1, 5] = lambda t: -t.s * t.f00 * t.w2 * t.w1
TABLES[1, 6] = lambda t: -t.s * t.f00 * t.y20 * t.w1
TABLES[1, 7] = lambda t: -t.s * t.f00 * t.w12
TABLES[1, 8] = lambda t: 2 * t.f00 * t.s * t.z2 * t.w1
TABLES[2, 1] = lambda t: 2 * t.s * t.f00 * t.w2 * t.z1
TABLES[2, 2] = lambda t: t.s * t.z2 * t.z1
TABLES[2, 3] = lambda t: -t.f00 * t.h0 * t.w2 * t.z1
TABLES[2, 4] = lambda t: -t.m2 * t.z1
TABLES[2, 5] = lambda t: -t.f00 * t.v2 * t.z1
TABLES[2, 6] = lambda t: t.s * t.z1 * t.z2
TABLES[2, 7] = lambda t: -t.s * t.f00 * t.y10 * t.w2
TABLES[2, 8] = lambda t: -t.s * (t.f * t.x2) @ t.x1
TABLES[2, 9] = lambda t: -t.s * t.f00 * t.w21
TABLES[3, 1] = lambda t: -(t.f00**2) * t.h0 * t.w2 * t.w1
TABLES[3, 2] = lambda t: t.f00 * t.w2 * t.h0 * t.w1
TABLES[3, 3] = lambda t: -t.f00 * t.z2 * t.h0 * t.w1
TABLES[3, 4] = lambda t: t.f00 * t.y20 * t.h0 * t.w1
TABLES[3, 5] = lambda t: t.f00 * t.v2 * t.w1
TABLES[3, 6] = lambda t: t.f00 * t.h0 * t.w12
TABLES[4, 1] = lambda t: -t.m1 * t.f00 * t.w2
TABLES[4, 2] = lambda t: -t.m1 * t.z2
TABLES[4, 3] = lambda t: t.f00 * t.h0 * t.y10 * t.w2
TABLES[4, 4] = lambda t: (t.f * t.x2 * t.x1) @ t.h
TABLES[4, 5] = lambda t: t.f00 * t.h0 * t.w21
TABLES[4, 6] = lambda t: t.f00 * t.y10 * t.v2
TABLES[5, 1] = lambda t: -(t.f00**2) * t.w2 * t.v1
TABLES[5, 2] = lambda t: -t.f00 * t.z2 * t.v1
TABLES[5, 3] = lambda t: t.f00 * t.w2 * t.v1
TABLES[5, 4] = lambda t: t.f00 * t.y20 * t.v1

PRINTED: dict[Place, Expression] = {}
"""Terms that are printed differently."""
PRINTED[2, 6] = lambda t: t.s * t.z1 * t.f00 * t.z2
PRINTED[3, 6] = lambda t: t.f00 * t.hbad * t.w12

C14: tuple[tuple[Place, ...], ...] = (
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
"""D_1..D_21 as sums of table terms. The terms of a pair are each other's transpose in (j1, j2), by
the tables' last column, Table 2: 1 corrected; a single term is symmetric."""
NUMBERS = range(1, len(C14) + 1)


def with_components(t: Terms, j1: int, j2: int) -> Terms:
    """The same terms at other (j1, j2)."""
    return replace(t, k=replace(t.k, j1=j1, j2=j2))


def term(t: Terms, place: Place, printed: bool = False) -> Tensor:
    """Term (table, number), as printed or corrected."""
    if printed and place in PRINTED:
        return PRINTED[place](t)
    return TABLES[place](t)


def table_sum(table: int, printed: bool) -> Expression:
    """dC_table/dx_{i2,j2} in the case i0 = i1 = i2."""
    places = [place for place in TABLES if place[0] == table]
    return lambda t: total(term(t, place, printed) for place in places)


CHECKS["attention.c.9.part_1"] = by_x2(lambda t: -t.s * t.f00 * t.w1, all_same, table_sum(1, True))
CHECKS["attention.c.10.part_1"] = by_x2(
    lambda t: -t.s * t.z1, all_same, table_sum(2, True), table_sum(2, False)
)
CHECKS["attention.c.11.part_1"] = by_x2(
    lambda t: t.f00 * t.h0 * t.w1, all_same, table_sum(3, True), table_sum(3, False)
)
CHECKS["attention.c.12.part_1"] = by_x2(lambda t: t.m1, all_same, table_sum(4, True))
CHECKS["attention.c.13.part_1"] = by_x2(lambda t: t.f00 * t.v1, all_same, table_sum(5, True))


@CHECKS.clause("attention.tables_1-5")
def pairs() -> Outcome:
    """The tables' statements on symmetry under j1 <-> j2: Table 2: 1 names a term 9 of Table 1,
    which has eight."""
    corrected, count = 0.0, 0
    for _, t in points(all_same):
        count += 1
        transposed = with_components(t, t.k.j2, t.k.j1)
        for places in C14:
            error = relative_error(term(t, places[0]), term(transposed, places[-1]))
            corrected = max(corrected, error)
    witness = worked("partner of Table 2: 1", "Table 1: 9, of eight terms", "Table 1: 8", "error 0")
    printed = 0.0 if (1, 9) in TABLES else math.inf
    return Outcome(printed, corrected, count, witness)


def d_term(t: Terms, i: int, printed: bool = False) -> Tensor:
    """D_i(X), i = 1..21, of Lemma C.14."""
    if printed and i == 19:  # both halves are printed with h_{i0,i0}
        return t.f00 * t.hbad * (t.w12 + t.w21)
    return total(term(t, place, printed) for place in C14[i - 1])


def d_sum(t: Terms, printed: bool) -> Tensor:
    return total(d_term(t, i, printed) for i in NUMBERS)


def other_block(t: Terms) -> Tensor:
    """d2 c/dx_{i1,j1} dx_{i2,j2} for i0 = i1 != i2: the corrected Parts 2 of Lemmas C.9-C.13 added
    up."""
    pull = 2 * t.s * t.w2 - t.h2 * t.w2 - t.v2
    spread = (t.h2 - t.s) * (t.y12 * t.w2 + t.w21) + t.y12 * t.v2
    own = -t.f00 * t.w2 * (t.h0 * t.w1 + t.v1) - t.m1 * t.w2
    return t.f02 * ((t.f00 * t.w1 + t.z1) * pull + spread + own)


CHECKS["attention.c.14.part_1"] = lemma(
    all_same, second_derivative, lambda t: d_sum(t, True), lambda t: d_sum(t, False)
)
CHECKS["attention.c.14.part_2"] = lemma(same_then_other, second_derivative, None, other_block)


@dataclass(frozen=True)
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
    return outer(first, second) + outer(second, first)


def square(vector: Tensor) -> Tensor:
    return outer(vector, vector)


FORMS: dict[int, Form] = {}
"""Matrix i of the block, i = 1..21 (clauses attention.e.4.d_i and attention.definition_e.5.b_i),
corrected."""
FORMS[1] = lambda b: 2 * b.s * b.f**2 * square(b.w)
FORMS[2] = lambda b: 2 * b.f * b.s * both(b.w, b.z)
FORMS[3] = lambda b: -(b.f**2) * b.h * square(b.w)
FORMS[4] = lambda b: -b.f * both(b.m, b.w)
FORMS[5] = lambda b: -(b.f**2) * both(b.w, b.v)
FORMS[6] = lambda b: -b.s * b.f * square(b.w)
FORMS[7] = lambda b: -b.s * b.f * both(b.w, b.y)
FORMS[8] = lambda b: -b.s * b.f * b.wide
FORMS[9] = lambda b: b.s * square(b.z)
FORMS[10] = lambda b: -b.f * b.h * both(b.z, b.w)
FORMS[11] = lambda b: -both(b.z, b.m)
FORMS[12] = lambda b: -b.f * both(b.z, b.v)
FORMS[13] = lambda b: b.s * square(b.z)
FORMS[14] = lambda b: -b.s * b.xw.T @ torch.diag(b.t.f) @ b.xw
FORMS[15] = lambda b: -(b.f**2) * b.h * square(b.w)
FORMS[16] = lambda b: b.f * b.h * square(b.w)
FORMS[17] = lambda b: b.f * b.h * both(b.w, b.y)
FORMS[18] = lambda b: b.f * both(b.w, b.v)
FORMS[19] = lambda b: b.f * b.h * b.wide
FORMS[20] = lambda b: b.xw.T @ torch.diag(b.t.f * b.t.h) @ b.xw
FORMS[21] = lambda b: b.f * both(b.y, b.v)

UNUSABLE = None
"""A matrix that is printed with factors that do not multiply."""
PRINTED_FORMS: dict[tuple[str, int], Form | None] = {}
"""Matrices that are printed differently, by lemma and number."""
PRINTED_FORMS["E.4", 8] = lambda b: b.s * b.f * (b.t.w.T - b.t.w)
PRINTED_FORMS["E.4", 13] = lambda b: b.s * b.f * square(b.z)
PRINTED_FORMS["E.4", 17] = UNUSABLE
PRINTED_FORMS["E.4", 18] = lambda b: b.f * both(b.w, b.t.v.diagonal())
PRINTED_FORMS["E.4", 19] = lambda b: b.f * b.t.hbad * b.wide
PRINTED_FORMS["E.5", 8] = lambda b: b.s * b.f * (b.t.w.T - b.t.w)
PRINTED_FORMS["E.5", 12] = lambda b: b.f * (outer(b.v, b.z) - outer(b.z, b.v))
PRINTED_FORMS["E.5", 13] = lambda b: b.s * b.f * square(b.z)
PRINTED_FORMS["E.5", 17] = UNUSABLE
PRINTED_FORMS["E.5", 18] = UNUSABLE
PRINTED_FORMS["E.5", 19] = lambda b: b.f * b.t.hbad * b.wide
PRINTED_FORMS["E.5", 20] = lambda b: b.xw.T @ torch.diag(b.t.f * b.t.h) @ b.t.x.T


def entries(expression: Expression) -> Expression:
    """The d x d matrix of a scalar expression over (j1, j2)."""

    def matrix(t: Terms) -> Tensor:
        components = range(t.x.shape[0])
        rows = []
        for j1 in components:
            row = [expression(with_components(t, j1, j2)) for j2 in components]
            rows.append(torch.stack(row))
        return torch.stack(rows)

    return matrix


def of_block(form: Form) -> Expression:
    """A form of the block as one of the terms."""
    return lambda t: form(Block(t))


def form_check(place: str, i: int) -> Outcome:
    exact = entries(lambda t: d_term(t, i))
    correct = of_block(FORMS[i])
    if (place, i) not in PRINTED_FORMS:
        return compare(points(all_same), exact, correct)
    form = PRINTED_FORMS[place, i]
    printed = of_block(form) if form else None
    return compare(points(all_same), exact, printed, correct, "factors that do not multiply")


for i in NUMBERS:
    CHECKS[f"attention.e.4.d_{i}"] = partial(form_check, "E.4", i)
    CHECKS[f"attention.definition_e.5.b_{i}"] = partial(form_check, "E.5", i)


def columns(t: Terms, vector: Tensor) -> Tensor:
    """A vector over j1, the same for every j2."""
    return vector.unsqueeze(-1).expand_as(t.w)


CHECKS["attention.e.4.z"] = lemma(
    all_same,
    entries(lambda t: t.z1),
    lambda t: columns(t, t.w @ t.x @ t.f),
    lambda t: columns(t, Block(t).z),
)


def block_sum(t: Terms, printed: bool) -> Tensor:
    """Sum of the matrices B_1..B_21, as printed where the factors multiply (else corrected), or
    corrected."""
    matrices = []
    for i, correct in FORMS.items():
        form = PRINTED_FORMS.get(("E.5", i)) if printed else None
        matrices.append((form or correct)(Block(t)))
    return total(matrices)


CHECKS["attention.definition_e.5"] = lemma(
    all_same,
    entries(second_derivative),
    lambda t: block_sum(t, True),
    lambda t: block_sum(t, False),
)


def selected(t: Terms) -> Tensor:
    """B_1 + B_3 + B_5 + B_15 with f_{i0,i1} f_{i0,i2} for f² and h_{j0,i1}, h_{j0,i2} for h; at i1
    = i2 also B_6 + B_16 + B_18."""
    mixed = (2 * t.s - t.h1 - t.h2) * t.w1 * t.w2 - t.w1 * t.v2 - t.v1 * t.w2
    if t.k.i1 != t.k.i2:
        return t.f01 * t.f02 * mixed
    own = (t.h1 - t.s) * t.w1 * t.w2 + t.w1 * t.v2 + t.v1 * t.w2
    return t.f01 * t.f02 * mixed + t.f01 * own


CHECKS["attention.definition_e.5.others"] = lemma(both_other, second_derivative, selected)
