"""Attention paper, Tables 1 to 5 and Lemma C.14: the second derivative for i0 = i1 = i2, term by
term.

The sums of the corrected terms are checked by automatic differentiation.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from experiments.paper_audit.attention.terms import (
    Expression,
    Terms,
    all_same,
    by_x2,
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
