"""Attention paper, Section E: the Hessian block i0 = i1 = i2 as matrices.

Each matrix of Lemma E.4 and Definition E.5 is compared with the d x d matrix of the corrected
D_i(X) of Lemma C.14. z(X)_{i0} is taken as W^T X f in all terms, so that its wrong definition
counts once.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from experiments.paper_audit.attention.matrix import D, with_components
from experiments.paper_audit.attention.terms import (
    Expression,
    Terms,
    V,
    W,
    X,
    all_same,
    both_other,
    column0,
    compare,
    f,
    f00,
    f01,
    f02,
    h,
    h0,
    h1,
    h2,
    hbad,
    j0,
    lemma,
    points,
    s,
    same2,
    second_derivative,
    v1,
    v2,
    w1,
    w2,
    z1,
)
from experiments.paper_audit.checks import Checks, Outcome
from experiments.paper_audit.formulas import Formula, lifted, outer, total

CHECKS = Checks()

# Vectors and matrices of Lemma E.4 at (i0, j0): w = W X_{*,i0}, y = W^T X_{*,i0}, z = W^T X f_{i0},
# m = W^T X diag(f_{i0}) h_{j0}, v = V_{*,j0}.

w = W @ column0
y = W.T @ column0
z = W.T @ X @ f
m = W.T @ X @ (f * h)
v = V.T[j0]
xw = X.T @ W
wide = W + W.T
diag = lifted(torch.diag)


def both(first: Formula, second: Formula) -> Formula:
    """first second^T + second first^T."""
    return outer(first, second) + outer(second, first)


def square(vector: Formula) -> Formula:
    return outer(vector, vector)


FORMS: dict[int, Formula] = {}
"""Matrix i of the block, i = 1..21 (clauses attention.e.4.d_i and attention.definition_e.5.b_i),
corrected."""
FORMS[1] = 2 * s * f00**2 * square(w)
FORMS[2] = 2 * f00 * s * both(w, z)
FORMS[3] = -(f00**2) * h0 * square(w)
FORMS[4] = -f00 * both(m, w)
FORMS[5] = -(f00**2) * both(w, v)
FORMS[6] = -s * f00 * square(w)
FORMS[7] = -s * f00 * both(w, y)
FORMS[8] = -s * f00 * wide
FORMS[9] = s * square(z)
FORMS[10] = -f00 * h0 * both(z, w)
FORMS[11] = -both(z, m)
FORMS[12] = -f00 * both(z, v)
FORMS[13] = s * square(z)
FORMS[14] = -s * xw.T @ diag(f) @ xw
FORMS[15] = -(f00**2) * h0 * square(w)
FORMS[16] = f00 * h0 * square(w)
FORMS[17] = f00 * h0 * both(w, y)
FORMS[18] = f00 * both(w, v)
FORMS[19] = f00 * h0 * wide
FORMS[20] = xw.T @ diag(f * h) @ xw
FORMS[21] = f00 * both(y, v)

UNUSABLE = None
"""A matrix that is printed with factors that do not multiply."""
Printed = dict[int, Formula | None]
"""Matrices that are printed differently, by number."""
LEMMA_E4: Printed = {
    8: s * f00 * (W.T - W),
    13: s * f00 * square(z),
    17: UNUSABLE,
    18: f00 * both(w, diag(V)),
    19: f00 * hbad * wide,
}
DEFINITION_E5: Printed = {
    8: s * f00 * (W.T - W),
    12: f00 * (outer(v, z) - outer(z, v)),
    13: s * f00 * square(z),
    17: UNUSABLE,
    18: UNUSABLE,
    19: f00 * hbad * wide,
    20: xw.T @ diag(f * h) @ X.T,
}


def entries(expression: Expression) -> Expression:
    """The d x d matrix of a scalar expression over (j1, j2)."""

    def matrix(t: Terms) -> Tensor:
        components = range(t.x.shape[0])
        rows = []
        for j1 in components:
            rows.append(torch.stack([expression(with_components(t, j1, j2)) for j2 in components]))
        return torch.stack(rows)

    return matrix


def form_check(printed: Printed, i: int) -> Outcome:
    exact = entries(D[i])
    correct = FORMS[i]
    if i not in printed:
        return compare(points(all_same), exact, correct)
    return compare(points(all_same), exact, printed[i], correct, "factors that do not multiply")


for i in FORMS:
    CHECKS[f"attention.e.4.d_{i}"] = partial(form_check, LEMMA_E4, i)
    CHECKS[f"attention.definition_e.5.b_{i}"] = partial(form_check, DEFINITION_E5, i)


def columns(vector: Formula) -> Expression:
    """A vector over j1, the same for every j2."""
    return lambda t: vector(t).unsqueeze(-1).expand_as(t.w)


CHECKS["attention.e.4.z"] = lemma(all_same, entries(z1), columns(W @ X @ f), columns(z))

printed_sum = total([DEFINITION_E5.get(i) or correct for i, correct in FORMS.items()])
"""Sum of the matrices B_1..B_21, as printed where the factors multiply (else corrected)."""
CHECKS["attention.definition_e.5"] = lemma(
    all_same, entries(second_derivative), printed_sum, total(list(FORMS.values()))
)

mixed = (2 * s - h1 - h2) * w1 * w2 - w1 * v2 - v1 * w2
same_token = (h1 - s) * w1 * w2 + w1 * v2 + v1 * w2
selected = f01 * f02 * mixed + same2 * f01 * same_token
"""B_1 + B_3 + B_5 + B_15 with f_{i0,i1} f_{i0,i2} for f² and h_{j0,i1}, h_{j0,i2} for h; at i1 = i2
also B_6 + B_16 + B_18."""
CHECKS["attention.definition_e.5.others"] = lemma(both_other, second_derivative, selected)
