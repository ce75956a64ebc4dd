"""Corrections of the errata of the attention paper on the family of simplest networks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from torch import Tensor
from torch.func import grad

from experiments.attention.bounds import BOUNDS, left_side
from experiments.paper_audit.attention import cases, terms as t
from experiments.paper_audit.attention.blocks import FORMS, columns, entries, z
from experiments.paper_audit.attention.bounds import PROVED, third_derivative
from experiments.paper_audit.attention.matrix import C14, TABLES, D, table_sum, with_components
from experiments.paper_audit.attention.proofs import token_blocks
from experiments.paper_audit.attention.softmax import (
    chain,
    dense_hessian,
    loss,
    matrix_form,
    right_hessian,
)
from experiments.paper_audit.corrections import Corrections
from experiments.paper_audit.family import attention
from experiments.paper_audit.tensors import gauss, norm_of, seeded, spectral_norm
from runner.closed_form import attention as att

CORRECTIONS = Corrections()
Errors = Iterator[float]


def at(matrices: t.Matrices, case: t.Case) -> Iterator[t.Terms]:
    """Index tuples of the case."""
    d, n = matrices[0].shape
    for k in t.indices(n, d, case):
        yield t.Terms(*matrices, k)


def lemma(name: str, case: t.Case, exact: t.Expression, right: t.Expression) -> None:
    """Register a corrected right-hand side in one of the paper's index cases."""

    @CORRECTIONS.on(attention, name)
    def errors(matrices: t.Matrices) -> Errors:
        for terms in at(matrices, case):
            yield t.relative_error(right(terms), exact(terms))


def by_x2(name: str, quantity: t.Expression, case: t.Case, right: t.Expression) -> None:
    """The same of a derivative by x_{i2,j2}."""
    lemma(name, case, lambda terms: t.derivative(quantity, terms, 2), right)


by_x2("attention.d.1", t.f01, t.both_other, cases.df01)
by_x2("attention.c.5.2", t.z1, t.same_then_other, cases.right_c5_part_2)
by_x2("attention.c.10.1", -t.s * t.z1, t.all_same, table_sum(TABLES, 2))
by_x2("attention.d.5.1", t.f01 * t.h1, t.both_other_equal, cases.right_d5)
by_x2("attention.d.6", -t.s * t.f01 * t.w1, t.both_other, cases.right_d6)
by_x2("attention.c.7.1", t.f00 * t.w1, t.all_same, cases.right_c7_part_1)
by_x2("attention.h_index", t.f00 * t.h0 * t.w1, t.all_same, table_sum(TABLES, 3))
c6_part_1 = cases.df00 * t.h0 + t.f00 * t.v2
by_x2("attention.comma", t.f00 * t.h0, t.all_same, c6_part_1)
lemma("attention.e.4.d8", t.all_same, entries(D[8]), FORMS[8])
lemma("attention.e.5.b12", t.all_same, entries(D[12]), FORMS[12])
lemma("attention.e.5.b20", t.all_same, entries(D[20]), FORMS[20])
lemma("attention.e.4.d17", t.all_same, entries(D[17]), FORMS[17])
lemma("attention.e.4.d18", t.all_same, entries(D[18]), FORMS[18])
lemma("attention.e.4.z", t.all_same, entries(t.z1), columns(z))


def whole(matrices: t.Matrices) -> t.Terms:
    return t.Terms(*matrices, t.ORIGIN)


@CORRECTIONS.on(attention, "attention.b.17")
def factor_of_the_loss(matrices: t.Matrices) -> Errors:
    terms = whole(matrices)
    gradient = grad(lambda x: loss(terms, x))(terms.x)
    yield t.relative_error(chain(terms, 2.0), gradient)
    yield t.relative_error(right_hessian(terms), dense_hessian(terms))


@CORRECTIONS.on(attention, "attention.f.1")
def hessian_of_the_loss(matrices: t.Matrices) -> Errors:
    terms = whole(matrices)
    yield t.relative_error(right_hessian(terms), dense_hessian(terms))


@CORRECTIONS.on(attention, "attention.j.1.loss")
def display_of_the_loss(matrices: t.Matrices) -> Errors:
    terms = whole(matrices)
    yield t.relative_error(matrix_form(terms, terms.w.T), loss(terms, terms.x))


@CORRECTIONS.on(attention, "attention.tables")
def partner(matrices: t.Matrices) -> Errors:
    """Table 2: 1 and Table 1: 8 are each other's transpose."""
    first, last = C14[1][1], C14[1][0]
    for terms in at(matrices, t.all_same):
        index = terms.k
        transposed = with_components(terms, index.j2, index.j1)
        yield t.relative_error(TABLES[first](terms), TABLES[last](transposed))


@CORRECTIONS.on(attention, "attention.j.1")
def minimiser_is_not_the_data(matrices: t.Matrices) -> Errors:
    """With exact targets the gradient of L + γ|X|² at the data is 2 γ X, zero for X = 0 alone."""
    x, w, v, _ = matrices
    terms = t.Terms(x, w, v, att.outputs(x, w, v), t.ORIGIN)
    gradient = grad(lambda point: loss(terms, point) + point.square().sum())(x)
    yield t.relative_error(gradient, 2 * x)
    yield float((norm_of(gradient) < 1e-12) != (norm_of(x) == 0))


# Bounds: R is the least radius that Assumption G.1 admits

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def admitted(matrices: t.Matrices) -> tuple[Batch, float]:
    """The matrices as a batch of one, b clamped to R², and R > 1."""
    x, w, v, b = matrices
    radius = max(1.01, *(float(spectral_norm(m)) for m in (x, w, v)))
    limit = radius**2
    return (x[None], w[None], v[None], b.clamp(-limit, limit)[None]), radius


def bounded(
    limits: Mapping[str, Callable[[int, int, float], float]], matrices: t.Matrices
) -> Errors:
    """Measured over the limit, less 1, at X and between X and a point near it."""
    (x, w, v, b), radius = admitted(matrices)
    d, n = x.shape[1:]
    y = 0.9 * x + 0.01 * gauss(seeded(0), *x.shape)
    y = y / max(1.0, float(spectral_norm(y)) / radius)
    for name, limit in limits.items():
        yield float(left_side(name, x, y, w, v, b)) / limit(n, d, radius) - 1


@CORRECTIONS.on(attention, "attention.h.3")
def lipschitz_of_softmax(matrices: t.Matrices) -> Errors:
    yield from bounded({name: PROVED[name] for name in ("G.3", "H.3", "H.4")}, matrices)


@CORRECTIONS.on(attention, "attention.h.8")
def third_derivatives(matrices: t.Matrices) -> Errors:
    def of_loss(n: int, d: int, r: float) -> float:
        return 548 * n * d * r**10

    limits = {"H.7": BOUNDS["H.7"].printed, "H.10": of_loss}
    yield from bounded(limits, matrices)
    (x, w, v, _), r = admitted(matrices)
    for seed in range(3):
        direction = gauss(seeded(seed), *x[0].shape)
        third = third_derivative(x[0], w[0], v[0], direction / direction.norm())
        yield abs(float(third)) / (56 * r**8 + 48 * r**5 + 6 * r**2) - 1


@CORRECTIONS.on(attention, "attention.i.2", "attention.i.1")
def second_derivatives(matrices: t.Matrices) -> Errors:
    yield from bounded({name: PROVED[name] for name in ("I.1", "I.2")}, matrices)
    (x, w, v, _), _ = admitted(matrices)
    hessians = att.output_hessians(x, w, v)
    largest = spectral_norm(token_blocks(hessians, x.shape[2])).amax((-2, -1))
    yield float((spectral_norm(hessians) - x.shape[2] * largest).max())


@CORRECTIONS.on(attention, "attention.i.1.terms")
def norms_of_terms(matrices: t.Matrices) -> Errors:
    """|B_i| <= 4 R⁶, and |∇²c| <= 6 R⁶ + 3 R³."""
    _, radius = admitted(matrices)
    for terms in at(matrices, t.all_same):
        for form in FORMS.values():
            yield float(spectral_norm(form(terms))) / (4 * radius**6) - 1
    yield from bounded({"I.2": PROVED["I.2"]}, matrices)


@CORRECTIONS.on(attention, "attention.g.1")
def residuals(matrices: t.Matrices) -> Errors:
    """|c| <= 2 R² for |b| <= R²."""
    yield from bounded({"G.2.3": BOUNDS["G.2.3"].printed}, matrices)
