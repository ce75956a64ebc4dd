"""Attention paper, Section E: the Hessian block i0 = i1 = i2 as matrices.

Each matrix of Lemma E.4 and Definition E.5 is compared with the d x d matrix of the corrected
D_i(X) of Lemma C.14. z(X)_{i0} is taken as W^T X f in all terms, so that its wrong definition
counts once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, outer

from experiments.paper_audit.attention.matrix import NUMBERS, d_term, with_components
from experiments.paper_audit.attention.terms import (
    Expression,
    Terms,
    all_same,
    both_other,
    compare,
    lemma,
    points,
    second_derivative,
)
from experiments.paper_audit.checks import Checks, Outcome
from experiments.paper_audit.tensors import total

CHECKS = Checks()


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
