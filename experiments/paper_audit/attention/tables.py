"""Attention paper, Section C, case i0 = i1 = i2: Tables 1-5, the derivatives of C_1..C_5, and Lemma C.14.

TABLES[m][k - 1] is term k of Table m (derivative of C_m), corrected; what is printed differently is in PRINTED. The
terms D_1..D_21 of Lemma C.14 are sums of one or two of them.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from experiments.paper_audit.attention.terms import (
    Expression,
    Terms,
    all_same,
    compare,
    derivative_lemma,
    points,
    relative_error,
    same_then_other,
    second_derivative,
)
from experiments.paper_audit.formula import Entry, Outcome, Witness

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

PARTNERS = {
    (1, 3): (4, 1),
    (1, 4): (5, 1),
    (1, 6): (2, 7),
    (1, 7): (2, 9),
    (1, 8): (2, 1),
    (2, 3): (3, 3),
    (2, 4): (4, 2),
    (2, 5): (5, 2),
    (3, 4): (4, 3),
    (3, 5): (5, 3),
    (3, 6): (4, 5),
    (4, 6): (5, 4),
}
"""Pairs of terms that are each other's transpose in (j1, j2), by the tables' last column, Table 2: 1 corrected."""
SYMMETRIC = ((1, 1), (1, 2), (1, 5), (2, 2), (2, 6), (2, 8), (3, 1), (3, 2), (4, 4))

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
"""D_1..D_21 as sums of table terms."""


def term(t: Terms, place: tuple[int, int], printed: bool = False) -> Tensor:
    """Term (table, number), as printed or corrected."""
    table, number = place
    expression = PRINTED.get(place) if printed else None
    return (expression or TABLES[table][number - 1])(t)


def table_sum(table: int, printed: bool) -> Expression:
    """dC_table/dx_{i2,j2} in the case i0 = i1 = i2."""
    return lambda t: torch.stack([term(t, (table, k + 1), printed) for k in range(len(TABLES[table]))]).sum()


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
    worst, corrected, count = math.inf, 0.0, 0  # Table 2: 1 names a term 9 of Table 1, which has eight
    for _, t in points(all_same):
        swapped = dataclasses.replace(t, k=dataclasses.replace(t.k, j1=t.k.j2, j2=t.k.j1))
        for place in SYMMETRIC:
            corrected = max(corrected, relative_error(term(t, place), term(swapped, place)))
        for place, partner in PARTNERS.items():
            corrected = max(corrected, relative_error(term(t, place), term(swapped, partner)))
        count += 1
    witness = Witness("partner of Table 2: 1", "Table 1: 9, of eight terms", "Table 1: 8", "error 0")
    return Outcome(worst, corrected, count, witness)


H2 = (
    "f_{i0,i2} ((f_{i0,i0} w1 + z1) (2 s w2 - h_{j0,i2} w2 - v_{j2,j0}) "
    "+ (h_{j0,i2} - s) (<W_{*,j1}, X_{*,i2}> w2 + w_{j2,j1}) "
    "+ <W_{*,j1}, X_{*,i2}> v_{j2,j0} - f_{i0,i0} w2 (h_{j0,i0} w1 + v_{j1,j0}) - m1 w2), m1 = <f o x1, h>"
)

CHECKS: dict[str, Entry] = {
    "attention.c.9.part_1": derivative_lemma(lambda t: -t.s * t.f00 * t.w1, all_same, table_sum(1, True)),
    "attention.c.10.part_1": derivative_lemma(lambda t: -t.s * t.z1, all_same, table_sum(2, True), table_sum(2, False)),
    "attention.c.11.part_1": derivative_lemma(
        lambda t: t.f00 * t.h0 * t.w1, all_same, table_sum(3, True), table_sum(3, False)
    ),
    "attention.c.12.part_1": derivative_lemma(lambda t: t.m1, all_same, table_sum(4, True)),
    "attention.c.13.part_1": derivative_lemma(lambda t: t.f00 * t.v1, all_same, table_sum(5, True)),
    "attention.tables_1-5": _pairs,
    "attention.c.14.part_1": lambda: compare(points(all_same), second_derivative, _d_sum(True), _d_sum(False)),
    "attention.c.14.part_2": lambda: compare(points(same_then_other), second_derivative, None, _h2),
}
