"""Attention paper, Tables 1 to 5 and Lemma C.14: the second derivative for i0 = i1 = i2, term by
term.

The sums of the corrected terms are checked by automatic differentiation.
"""

from __future__ import annotations

import math
from dataclasses import replace

from experiments.paper_audit.attention.terms import (
    Terms,
    all_same,
    by_x2,
    f,
    f00,
    f02,
    h,
    h0,
    h2,
    hbad,
    lemma,
    m1,
    m2,
    points,
    relative_error,
    s,
    same_then_other,
    second_derivative,
    v1,
    v2,
    w1,
    w2,
    w12,
    w21,
    x1,
    x2,
    y10,
    y12,
    y20,
    z1,
    z2,
)
from experiments.paper_audit.checks import Checks, Outcome, worked
from experiments.paper_audit.formulas import Formula, total

CHECKS = Checks()
Place = tuple[int, int]

TABLES: dict[Place, Formula] = {}
"""Terms of dC_table/dx_{i2,j2} by (table, number)."""
TABLES[1, 1] = 2 * s * f00**2 * w1 * w2
TABLES[1, 2] = -(f00**2) * h0 * w2 * w1
TABLES[1, 3] = -f00 * m2 * w1
TABLES[1, 4] = -(f00**2) * v2 * w1
TABLES[1, 5] = -s * f00 * w2 * w1
TABLES[1, 6] = -s * f00 * y20 * w1
TABLES[1, 7] = -s * f00 * w12
TABLES[1, 8] = 2 * f00 * s * z2 * w1
TABLES[2, 1] = 2 * s * f00 * w2 * z1
TABLES[2, 2] = s * z2 * z1
TABLES[2, 3] = -f00 * h0 * w2 * z1
TABLES[2, 4] = -m2 * z1
TABLES[2, 5] = -f00 * v2 * z1
TABLES[2, 6] = s * z1 * z2
TABLES[2, 7] = -s * f00 * y10 * w2
TABLES[2, 8] = -s * (f * x2) @ x1
TABLES[2, 9] = -s * f00 * w21
TABLES[3, 1] = -(f00**2) * h0 * w2 * w1
TABLES[3, 2] = f00 * w2 * h0 * w1
TABLES[3, 3] = -f00 * z2 * h0 * w1
TABLES[3, 4] = f00 * y20 * h0 * w1
TABLES[3, 5] = f00 * v2 * w1
TABLES[3, 6] = f00 * h0 * w12
TABLES[4, 1] = -m1 * f00 * w2
TABLES[4, 2] = -m1 * z2
TABLES[4, 3] = f00 * h0 * y10 * w2
TABLES[4, 4] = (f * x2 * x1) @ h
TABLES[4, 5] = f00 * h0 * w21
TABLES[4, 6] = f00 * y10 * v2
TABLES[5, 1] = -(f00**2) * w2 * v1
TABLES[5, 2] = -f00 * z2 * v1
TABLES[5, 3] = f00 * w2 * v1
TABLES[5, 4] = f00 * y20 * v1

PRINTED = TABLES | {(2, 6): s * z1 * f00 * z2, (3, 6): f00 * hbad * w12}
"""The terms as printed."""

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


def with_components(t: Terms, j1: int, j2: int) -> Terms:
    """The same terms at other (j1, j2)."""
    return replace(t, k=replace(t.k, j1=j1, j2=j2))


def table_sum(terms: dict[Place, Formula], table: int) -> Formula:
    """dC_table/dx_{i2,j2} in the case i0 = i1 = i2."""
    return total([term for place, term in terms.items() if place[0] == table])


CHECKS["attention.c.9.part_1"] = by_x2(-s * f00 * w1, all_same, table_sum(PRINTED, 1))
CHECKS["attention.c.10.part_1"] = by_x2(
    -s * z1, all_same, table_sum(PRINTED, 2), table_sum(TABLES, 2)
)
CHECKS["attention.c.11.part_1"] = by_x2(
    f00 * h0 * w1, all_same, table_sum(PRINTED, 3), table_sum(TABLES, 3)
)
CHECKS["attention.c.12.part_1"] = by_x2(m1, all_same, table_sum(PRINTED, 4))
CHECKS["attention.c.13.part_1"] = by_x2(f00 * v1, all_same, table_sum(PRINTED, 5))


@CHECKS.clause("attention.tables_1-5")
def pairs() -> Outcome:
    """The tables' statements on symmetry under j1 <-> j2: Table 2: 1 names a term 9 of Table 1,
    which has eight."""
    corrected = 0.0
    count = 0
    for t in points(all_same):
        count += 1
        index = t.k
        transposed = with_components(t, index.j2, index.j1)
        for places in C14:
            error = relative_error(TABLES[places[0]](t), TABLES[places[-1]](transposed))
            corrected = max(corrected, error)
    witness = worked("partner of Table 2: 1", "Table 1: 9, of eight terms", "Table 1: 8", "error 0")
    printed = math.inf
    if (1, 9) in TABLES:
        printed = 0.0
    return Outcome(printed, corrected, count, witness)


def by_number(terms: dict[Place, Formula]) -> dict[int, Formula]:
    """D_i(X), i = 1..21, of Lemma C.14."""
    sums = {}
    for i, places in enumerate(C14, start=1):
        sums[i] = total([terms[place] for place in places])
    return sums


D = by_number(TABLES)
PRINTED_D = by_number(PRINTED) | {19: f00 * hbad * (w12 + w21)}
"""Both halves of D_19 are printed with h_{i0,i0}."""
CHECKS["attention.c.14.part_1"] = lemma(
    all_same, second_derivative, total(list(PRINTED_D.values())), total(list(D.values()))
)

pull = 2 * s * w2 - h2 * w2 - v2
spread = (h2 - s) * (y12 * w2 + w21) + y12 * v2
own = -f00 * w2 * (h0 * w1 + v1) - m1 * w2
other_block = f02 * ((f00 * w1 + z1) * pull + spread + own)
"""d2 c/dx_{i1,j1} dx_{i2,j2} for i0 = i1 != i2: the corrected Parts 2 of Lemmas C.9-C.13 added
up."""
CHECKS["attention.c.14.part_2"] = lemma(same_then_other, second_derivative, None, other_block)
