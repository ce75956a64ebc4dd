"""Attention paper, Section E: matrix forms of the Hessian block i0 = i1 = i2 (Lemma E.4, Definition E.5).

Each matrix is held against the d x d matrix of the corrected D_i(X) of Lemma C.14, whose sum is held against automatic
differentiation there. z(X)_{i0} is taken as W^T X f in all terms, so that its wrong definition counts once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from experiments.paper_audit.attention.tables import d_term
from experiments.paper_audit.attention.terms import (
    Expression,
    Terms,
    all_same,
    compare,
    formula,
    points,
    second_derivative,
)
from experiments.paper_audit.formula import Formula, Outcome


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


CORRECT: tuple[tuple[str, Form], ...] = (
    ("2 s f^2 w w^T", lambda b: 2 * b.s * b.f**2 * square(b.w)),
    ("2 f s (w z^T + z w^T)", lambda b: 2 * b.f * b.s * both(b.w, b.z)),
    ("-f^2 h w w^T", lambda b: -(b.f**2) * b.h * square(b.w)),
    ("-f (m w^T + w m^T), m = W^T X diag(f_{i0}) h_{j0}", lambda b: -b.f * both(b.m, b.w)),
    ("-f^2 (w V^T + V w^T)", lambda b: -(b.f**2) * both(b.w, b.v)),
    ("-s f w w^T", lambda b: -b.s * b.f * square(b.w)),
    ("-s f (w X_{*,i0}^T W + W^T X_{*,i0} w^T)", lambda b: -b.s * b.f * both(b.w, b.y)),
    ("-s f (W + W^T)", lambda b: -b.s * b.f * b.wide),
    ("s z z^T", lambda b: b.s * square(b.z)),
    ("-f h (z w^T + w z^T)", lambda b: -b.f * b.h * both(b.z, b.w)),
    ("-(z m^T + m z^T), m = W^T X diag(f_{i0}) h_{j0}", lambda b: -both(b.z, b.m)),
    ("-f (z V^T + V z^T)", lambda b: -b.f * both(b.z, b.v)),
    ("s z z^T", lambda b: b.s * square(b.z)),
    ("-s W^T X diag(f_{i0}) X^T W", lambda b: -b.s * b.xw.T @ torch.diag(b.t.f) @ b.xw),
    ("-f^2 h w w^T", lambda b: -(b.f**2) * b.h * square(b.w)),
    ("f h w w^T", lambda b: b.f * b.h * square(b.w)),
    ("f h (w X_{*,i0}^T W + W^T X_{*,i0} w^T)", lambda b: b.f * b.h * both(b.w, b.y)),
    ("f (w V^T + V w^T)", lambda b: b.f * both(b.w, b.v)),
    ("f h (W + W^T)", lambda b: b.f * b.h * b.wide),
    ("W^T X diag(f_{i0}) diag(h_{j0}) X^T W", lambda b: b.xw.T @ torch.diag(b.t.f * b.t.h) @ b.xw),
    ("f (W^T X_{*,i0} V^T + V X_{*,i0}^T W)", lambda b: b.f * both(b.y, b.v)),
)
"""Matrix i of the block, i = 1..21, in words (f = f_{i0,i0}, h = h_{j0,i0}, V = V_{*,j0}) and as a function."""


@dataclasses.dataclass(frozen=True)
class Slip:
    """A matrix that is printed differently: its form (None where the factors do not multiply), root and correction."""

    form: Form | None
    root: str
    correction: str


SIGN = Slip(
    lambda b: b.s * b.f * (b.t.w.T - b.t.w), "attention.e.4.d8", "-s f_{i0,i0} (W + W^T): printed s f_{i0,i0} (W^T - W)"
)
EXTRA = Slip(
    lambda b: b.s * b.f * square(b.z), "attention.c.10.1", "z s z^T without f_{i0,i0} (inherited from Lemma C.10)"
)
TRANSPOSE = Slip(
    None, "attention.e.4.d17", "w(X)_{i0,*}^T at the end: the transpose is missing and the factors do not multiply"
)
FREE = Slip(
    lambda b: b.f * both(b.w, b.t.v.diagonal()),
    "attention.e.4.d18",
    "f_{i0,i0} (w V_{*,j0}^T + V_{*,j0} w^T): printed with V_{j1,*} and V_{j2,*}, entry indices in a matrix",
)
INDEX = Slip(lambda b: b.f * b.t.hbad * b.wide, "attention.h_index", "h_{j0,i0} for h_{i0,i0}")

SLIPS: dict[str, dict[int, Slip]] = {
    "E.4": {8: SIGN, 13: EXTRA, 17: TRANSPOSE, 18: FREE, 19: INDEX},
    "E.5": {
        8: SIGN,
        12: Slip(
            lambda b: b.f * (torch.outer(b.v, b.z) - torch.outer(b.z, b.v)),
            "attention.e.5.b12",
            "-z f_{i0,i0} V_{*,j0}^T - V_{*,j0} f_{i0,i0} z^T: a minus sign is printed as plus",
        ),
        13: EXTRA,
        17: TRANSPOSE,
        18: dataclasses.replace(FREE, form=None),
        19: INDEX,
        20: Slip(
            lambda b: b.xw.T @ torch.diag(b.t.f * b.t.h) @ b.t.x.T,
            "attention.e.5.b20",
            "W^T X diag(f) diag(h) X^T W: the last factor W is missing",
        ),
    },
}


def entries(expression: Expression) -> Expression:
    """The d x d matrix of a scalar expression over (j1, j2)."""

    def matrix(t: Terms) -> Tensor:
        d = t.x.shape[0]
        swap = [[dataclasses.replace(t, k=dataclasses.replace(t.k, j1=a, j2=c)) for c in range(d)] for a in range(d)]
        return torch.stack([torch.stack([expression(cell) for cell in row]) for row in swap])

    return matrix


def _form_check(i: int, slip: Slip | None) -> Outcome:
    def truth(t: Terms) -> Tensor:
        return entries(lambda cell: d_term(cell, i))(t)

    def correct(t: Terms) -> Tensor:
        return CORRECT[i - 1][1](Block(t))

    if slip is None:
        return compare(points(all_same), truth, correct)
    form = slip.form
    printed = None if form is None else (lambda t: form(Block(t)))
    return compare(points(all_same), truth, printed, correct, "factors that do not multiply")


def _form(place: str, letter: str, i: int) -> Formula:
    slip = SLIPS[place].get(i)
    name = f"{'Lemma' if place == 'E.4' else 'Definition'} {place}, {letter}_{i}"
    return formula(
        name,
        f"{letter}_{i}(X) = {CORRECT[i - 1][0]}" + (", printed otherwise" if slip else ""),
        lambda: _form_check(i, slip),
        slip is not None,
        slip.root if slip else "",
        slip.correction if slip else "",
    )


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
        for i, (_, correct) in enumerate(CORRECT, start=1):
            slip = SLIPS["E.5"].get(i) if printed else None
            total = total + (slip.form if slip and slip.form else correct)(block)
        return total

    return matrix


MATRIX_FORMS: tuple[Formula, ...] = (
    formula(
        "Lemma E.4, z",
        "z(X)_{i0} = W X f(X)_{i0} has the entries z(X)_{i0,j1} = <f, X^T W_{*,j1}>",
        _z_definition,
        True,
        "attention.e.4.z",
        "z(X)_{i0} = W^T X f(X)_{i0}, also in Definition E.5. It enters matrices 2, 9, 10, 11, 12 and 13, which are "
        "checked below with the corrected z",
    ),
    *(_form("E.4", "D", i) for i in range(1, 22)),
    *(_form("E.5", "B", i) for i in range(1, 22)),
    formula(
        "Definition E.5",
        "H_1^{(i0,i0)} = sum of B_1..B_21 (z corrected; B_17 and B_18 too, as their factors do not multiply)",
        lambda: compare(points(all_same), entries(second_derivative), _block_sum(True), _block_sum(False)),
        True,
        "attention.c.10.1",
        "the sum of the corrected B_i",
    ),
)
