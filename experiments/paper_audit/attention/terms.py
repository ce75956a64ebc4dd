"""The attention paper's notation at one point, and checks of the derivatives of Section B.

`Terms` names every factor that occurs in Sections B-E for one choice of indices, so that a printed right-hand side is
one line of code. A check differentiates the left-hand side by forward mode in float64 and reports the largest
relative error of the printed and of the corrected right-hand side over instances of several sizes, smallest first.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from experiments.paper_audit import checks
from experiments.paper_audit.checks import Check, Entry, Outcome
from experiments.paper_audit.tensors import gauss, real, seeded, unit
from runner.curvature.closed_form.attention import output_hessians

SIZES: tuple[tuple[int, int], ...] = ((1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (4, 3))
TUPLES_PER_SIZE = 8
SCALE_FLOOR = 1e-2
"""Errors are relative to the derivative's norm, or to this where the derivative is nearly zero."""


@dataclass(frozen=True)
class Index:
    """One choice of the paper's indices, counted from zero."""

    i0: int
    i1: int
    i2: int
    j0: int
    j1: int
    j2: int

    def __str__(self) -> str:
        values = (self.i0, self.i1, self.i2, self.j0, self.j1, self.j2)
        return "(i0,i1,i2,j0,j1,j2) = (" + ",".join(str(k + 1) for k in values) + ")"


@dataclass(frozen=True)
class Terms:
    """X (d, n), W (d, d), V (d, d), B (n, d) and indices k; the paper's functions as properties (Section B.2).

    Vectors: u, f, h = h(X)_{j0}, x1 = X^T W_{*,j1}, x2, e0, e1, e2. Scalars: f00 = f_{i0,i0}, f01 = f_{i0,i1},
    f02 = f_{i0,i2}; h0, h1, h2 = h_{j0,i}; w1 = <W_{j1,*}, X_{*,i0}>, w2; z1 = <f, x1>, z2; s = <f, h>;
    y10 = <W_{*,j1}, X_{*,i0}>, y12 = <W_{*,j1}, X_{*,i2}>, y20; v1 = v_{j1,j0}, v2; w12 = w_{j1,j2}, w21;
    m1 = <f o x1, h>, m2. Where a lemma prints h(X)_{i0,i0}, that is hbad = <X_{*,i0}, V_{*,i0}>; it needs i0 <= d, and
    where i0 > d the lemma is given the benefit of the doubt.
    """

    x: Tensor
    w: Tensor
    v: Tensor
    b: Tensor
    k: Index

    def unit(self, i: int) -> Tensor:
        return torch.eye(self.x.shape[1], dtype=self.x.dtype)[i]

    @cached_property
    def scores(self) -> Tensor:
        return self.x.T @ (self.w @ self.x[:, self.k.i0])

    @cached_property
    def u(self) -> Tensor:
        return torch.exp(self.scores)

    @cached_property
    def f(self) -> Tensor:
        return self.u / self.u.sum()

    @cached_property
    def h(self) -> Tensor:
        return self.x.T @ self.v[:, self.k.j0]

    e0 = property(lambda t: t.unit(t.k.i0))
    e1 = property(lambda t: t.unit(t.k.i1))
    e2 = property(lambda t: t.unit(t.k.i2))
    f00 = property(lambda t: t.f[t.k.i0])
    f01 = property(lambda t: t.f[t.k.i1])
    f02 = property(lambda t: t.f[t.k.i2])
    h0 = property(lambda t: t.h[t.k.i0])
    h1 = property(lambda t: t.h[t.k.i1])
    h2 = property(lambda t: t.h[t.k.i2])
    hbad = property(lambda t: t.x[:, t.k.i0] @ t.v[:, t.k.i0] if t.k.i0 < t.x.shape[0] else t.h0)
    x1 = property(lambda t: t.x.T @ t.w[:, t.k.j1])
    x2 = property(lambda t: t.x.T @ t.w[:, t.k.j2])
    w1 = property(lambda t: t.w[t.k.j1] @ t.x[:, t.k.i0])
    w2 = property(lambda t: t.w[t.k.j2] @ t.x[:, t.k.i0])
    y10 = property(lambda t: t.w[:, t.k.j1] @ t.x[:, t.k.i0])
    y12 = property(lambda t: t.w[:, t.k.j1] @ t.x[:, t.k.i2])
    y20 = property(lambda t: t.w[:, t.k.j2] @ t.x[:, t.k.i0])
    z1 = property(lambda t: t.f @ t.x1)
    z2 = property(lambda t: t.f @ t.x2)
    s = property(lambda t: t.f @ t.h)
    m1 = property(lambda t: (t.f * t.x1) @ t.h)
    m2 = property(lambda t: (t.f * t.x2) @ t.h)
    v1 = property(lambda t: t.v[t.k.j1, t.k.j0])
    v2 = property(lambda t: t.v[t.k.j2, t.k.j0])
    w12 = property(lambda t: t.w[t.k.j1, t.k.j2])
    w21 = property(lambda t: t.w[t.k.j2, t.k.j1])


Expression = Callable[[Terms], Tensor]
Case = Callable[[Index], bool]


@cache
def instance(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X, W, V, B with standard normal entries, the scores of moderate size."""
    generator = seeded(1000 * n + 10 * d + seed)
    shapes = ((d, n), (d, d), (d, d), (n, d))
    x, w, v, b = (gauss(generator, shape) for shape in shapes)
    return x, w / d**0.5, v, b


def indices(n: int, d: int, case: Case, seed: int = 0) -> list[Index]:
    """A few index tuples of the case, the same ones each time; empty where the size has none."""
    tokens, components = (
        itertools.product(range(n), repeat=3),
        list(itertools.product(range(d), repeat=3)),
    )
    admitted = [k for k in (Index(*i, *j) for i in tokens for j in components) if case(k)]
    return random.Random(n + 10 * d + 1000 * seed).sample(
        admitted, min(TUPLES_PER_SIZE, len(admitted))
    )


def by_hand() -> Iterator[tuple[str, tuple[Tensor, Tensor, Tensor, Tensor]]]:
    """Instances to recompute by hand: X = (1, 0) or (1, 0, −1) with W = V = 1 and B = 0, and one with d = 2."""
    one = torch.ones(1, 1, dtype=torch.float64)
    for entries in ((1.0, 0.0), (1.0, 0.0, -1.0)):
        x = real([entries])
        yield (
            f"d = 1, X = {entries}, W = V = 1, B = 0",
            (x, one, one, torch.zeros(x.shape[1], 1, dtype=torch.float64)),
        )
    w = real([[1.0, 1.0], [0.0, 1.0]])
    v = real([[1.0, 2.0], [0.0, 1.0]])
    x = real([[1.0, 0.0], [0.0, 1.0]])
    yield (
        "X = I, W = ((1, 1), (0, 1)), V = ((1, 2), (0, 1)), B = 0",
        (x, w, v, torch.zeros(2, 2, dtype=torch.float64)),
    )


def points(case: Case) -> Iterator[tuple[str, Terms]]:
    """Terms of every instance and index tuple, those to recompute by hand first, with a description."""
    for text, values in by_hand():
        d, n = values[0].shape
        for k in indices(n, d, case):
            yield f"{text}, {k}", Terms(*values, k)
    for n, d in SIZES:
        for seed in (0, 1):
            for k in indices(n, d, case, seed):
                yield f"n = {n}, d = {d}, {k}", Terms(*instance(n, d, seed), k)


def derivative(quantity: Expression, terms: Terms, wrt: int) -> Tensor:
    """d quantity / d x_{i1,j1} (wrt 1) or / d x_{i2,j2} (wrt 2), by forward-mode differentiation."""
    k = terms.k
    i, j = (k.i1, k.j1) if wrt == 1 else (k.i2, k.j2)
    direction = torch.zeros_like(terms.x)
    direction[j, i] = 1.0

    def at(x: Tensor) -> Tensor:
        return quantity(Terms(x, terms.w, terms.v, terms.b, k))

    result: Tensor = torch.func.jvp(at, (terms.x,), (direction,))[1]
    return result


def relative_error(found: Tensor, exact: Tensor) -> float:
    """|found - exact| / max(|exact|, floor)."""
    return float((found - exact).norm() / exact.norm().clamp_min(SCALE_FLOOR))


def compare(
    cases: Iterable[tuple[str, Terms]],
    exact: Expression,
    printed: Expression | None,
    corrected: Expression | None = None,
    unusable: str = "nothing",
) -> Outcome:
    """Largest relative errors of the printed and of the corrected expression against the exact one."""

    def of(expression: Expression | None) -> Callable[[tuple[str, Terms]], Tensor] | None:
        return None if expression is None else lambda case: expression(case[1])

    return checks.equality(
        cases,
        lambda case: exact(case[1]),
        of(printed),
        of(corrected),
        relative_error,
        lambda case: case[0],
        unusable,
    )


def second_derivative(terms: Terms) -> Tensor:
    """d2 c_{i0,j0} / dx_{i1,j1} dx_{i2,j2}."""
    return derivative(lambda t: derivative(lambda inner: inner.s, t, 1), terms, 2)


def derivative_lemma(
    quantity: Expression,
    case: Case,
    printed: Expression | None,
    corrected: Expression | None = None,
    wrt: int = 2,
) -> Check:
    """Check of a lemma of the form d quantity / d x = right-hand side, in one of the paper's index cases."""
    return lambda: compare(points(case), lambda t: derivative(quantity, t, wrt), printed, corrected)


def same1(k: Index) -> bool:
    """i0 = i1."""
    return k.i0 == k.i1


def other1(k: Index) -> bool:
    """i0 != i1."""
    return k.i0 != k.i1


def all_same(k: Index) -> bool:
    """i0 = i1 = i2: case 1 of Definition E.2."""
    return k.i0 == k.i1 == k.i2


def same_then_other(k: Index) -> bool:
    """i0 = i1 != i2: case 2."""
    return k.i0 == k.i1 != k.i2


def both_other(k: Index) -> bool:
    """i0 != i1 and i0 != i2: case 4."""
    return k.i1 != k.i0 != k.i2


def both_other_equal(k: Index) -> bool:
    """i0 != i1 = i2."""
    return both_other(k) and k.i1 == k.i2


def all_different(k: Index) -> bool:
    """i0, i1, i2 with i1 != i2 and neither equal to i0."""
    return both_other(k) and k.i1 != k.i2


ORIGIN = Index(0, 0, 0, 0, 0, 0)


def origins() -> Iterator[tuple[str, Terms]]:
    """One set of terms per instance, for statements without indices, those to recompute by hand first."""
    for text, values in by_hand():
        yield text, Terms(*values, ORIGIN)
    for n, d in SIZES:
        yield f"n = {n}, d = {d}", Terms(*instance(n, d), ORIGIN)


def _algebra() -> Outcome:
    """Fact B.1 on three random vectors."""
    errors = []
    for t in (terms for _, terms in origins()):
        first, second, third = t.f, t.h, t.x1
        triple = (first * second * third).sum()
        errors.append(relative_error((first * second) @ third, triple))
        errors.append(relative_error(first @ torch.diag(second) @ third, triple))
    return Outcome(max(errors), instances=len(errors))


def _calculus() -> Outcome:
    """Fact B.2: product rules, power rule, exp, unit vectors, against autodiff at random points."""
    errors = []
    for seed in range(4):
        generator = seeded(seed)
        a, b, c = gauss(generator, 3, 4)
        time = gauss(generator, ())
        slope = torch.func.jacfwd

        def f(t: Tensor, a: Tensor = a, b: Tensor = b) -> Tensor:
            return torch.sin(a * t + b)

        def g(t: Tensor, c: Tensor = c) -> Tensor:
            return torch.cos(c * t)

        inner = slope(f)(time) @ g(time) + f(time) @ slope(g)(time)
        errors.append(relative_error(inner, slope(lambda t: f(t) @ g(t))(time)))
        power = 3 * (f(time)[0]) ** 2 * slope(f)(time)[0]
        errors.append(relative_error(power, slope(lambda t: f(t)[0] ** 3)(time)))
        errors.append(
            relative_error(
                torch.exp(f(time)) * slope(f)(time), slope(lambda t: torch.exp(f(t)))(time)
            )
        )
        scalars = slope(f)(time)[0] * g(time)[1] + f(time)[0] * slope(g)(time)[1]
        errors.append(relative_error(scalars, slope(lambda t: f(t)[0] * g(t)[1])(time)))
        errors.append(relative_error(unit(4), slope(lambda x: x * 1)(a)))
        errors.append(
            relative_error(
                torch.zeros(4, dtype=torch.float64), slope(lambda y, a=a: a + 0 * y)(time)
            )
        )
    return Outcome(max(errors), instances=len(errors))


def residual(t: Terms, x: Tensor) -> Tensor:
    """c(X) (n, d) from Definitions B.4-B.8."""
    scores = (x.T @ t.w @ x).T
    return torch.softmax(scores, -1) @ (x.T @ t.v) - t.b


def loss(t: Terms, x: Tensor) -> Tensor:
    """L(X) of Definition B.9."""
    return residual(t, x).square().sum()


def _matrix_form(transpose: bool) -> Outcome:
    """The matrix form of the loss in Theorem J.1 against Definition B.9."""

    def printed(t: Terms, transposed: bool) -> Tensor:
        a = torch.exp(t.x.T @ (t.w.T if transposed else t.w) @ t.x)
        return (a / a.sum(1, keepdim=True) @ t.x.T @ t.v - t.b).square().sum()

    return compare(
        origins(),
        lambda t: loss(t, t.x),
        lambda t: printed(t, False),
        (lambda t: printed(t, True)) if transpose else None,
    )


def _chain(t: Terms, factor: float) -> Tensor:
    """factor * sum_{i0,j0} c dc/dx as a vector over all entries of X."""
    c, jac = residual(t, t.x), torch.func.jacrev(lambda x: residual(t, x))(t.x)
    return factor * torch.einsum("ij,ijab->ab", c, jac)


def _second(t: Terms, factor: float, swapped: bool = False) -> Tensor:
    """factor * sum (dc/dx_{i1,j1} dc/dx_{i2,j2} + c d2c), axes (j1, i1, j2, i2).

    swapped: with the second factor dc/dx_{i1,j2} that Lemma F.1 prints.
    """
    c = residual(t, t.x)
    jac = torch.func.jacrev(lambda x: residual(t, x))(t.x)
    second = torch.func.hessian(lambda x: residual(t, x))(t.x)
    outer = torch.einsum("rsai,rsbi->aib" if swapped else "rsai,rsbk->aibk", jac, jac)
    outer = outer.unsqueeze(-1).expand(second.shape[2:]) if swapped else outer
    return factor * (outer + torch.einsum("rs,rsaibk->aibk", c, second))


def _loss_gradient() -> Outcome:
    return compare(
        origins(),
        lambda t: torch.func.grad(lambda x: loss(t, x))(t.x),
        lambda t: _chain(t, 1.0),
        lambda t: _chain(t, 2.0),
    )


def _loss_hessian(factor: float, swapped: bool = False) -> Outcome:
    return compare(
        origins(),
        lambda t: torch.func.hessian(lambda x: loss(t, x))(t.x),
        lambda t: _second(t, factor, swapped),
        lambda t: _second(t, 2.0),
    )


def _layout() -> Outcome:
    """Definition E.3: the closed-form blocks H_1..H_4, laid out as printed, are the Hessian of each c_{i0,j0}."""
    worst, count = 0.0, 0
    for t in (terms for _, terms in origins()):
        d, n = t.x.shape
        second = torch.func.hessian(lambda x, t=t: residual(t, x))(t.x)  # (i0, j0, j1, i1, j2, i2)
        exact = second.permute(0, 1, 3, 2, 5, 4).reshape(n, d, n * d, n * d)
        found = output_hessians(t.x, t.w, t.v)
        for i0, j0 in itertools.product(range(n), range(d)):
            worst = max(worst, relative_error(found[i0, j0], exact[i0, j0]))
            count += 1
    return Outcome(worst, instances=count)


CHECKS: dict[str, Entry] = {
    "attention.fact_b.1": _algebra,
    "attention.fact_b.2": _calculus,
    "attention.theorem_j.1.loss": lambda: _matrix_form(True),
    "attention.b.10.part_1": derivative_lemma(
        lambda t: t.scores, same1, lambda t: t.e0 * t.w1 + t.x1, wrt=1
    ),
    "attention.b.10.part_2": derivative_lemma(
        lambda t: t.scores, other1, lambda t: t.e1 * t.w1, wrt=1
    ),
    "attention.b.11.part_1": derivative_lemma(
        lambda t: t.u, same1, lambda t: t.u * (t.e0 * t.w1 + t.x1), wrt=1
    ),
    "attention.b.11.part_2": derivative_lemma(
        lambda t: t.u, other1, lambda t: t.u * t.e1 * t.w1, wrt=1
    ),
    "attention.b.12.part_1": derivative_lemma(
        lambda t: t.u.sum(), same1, lambda t: t.u[t.k.i0] * t.w1 + t.u @ t.x1, wrt=1
    ),
    "attention.b.12.part_2": derivative_lemma(
        lambda t: t.u.sum(), other1, lambda t: t.u[t.k.i1] * t.w1, wrt=1
    ),
    "attention.b.13.part_1": derivative_lemma(
        lambda t: 1 / t.u.sum(), same1, lambda t: -(t.f00 * t.w1 + t.z1) / t.u.sum(), wrt=1
    ),
    "attention.b.13.part_2": derivative_lemma(
        lambda t: 1 / t.u.sum(), other1, lambda t: -t.f01 * t.w1 / t.u.sum(), wrt=1
    ),
    "attention.b.14.part_1": derivative_lemma(
        lambda t: t.f,
        same1,
        lambda t: -t.f * (t.f00 * t.w1 + t.z1) + t.f * (t.e0 * t.w1 + t.x1),
        wrt=1,
    ),
    "attention.b.14.part_2": derivative_lemma(
        lambda t: t.f, other1, lambda t: -t.f * t.f01 * t.w1 + t.f * t.e1 * t.w1, wrt=1
    ),
    "attention.b.15": derivative_lemma(lambda t: t.h, lambda k: True, lambda t: t.e1 * t.v1, wrt=1),
    "attention.b.16.part_1": derivative_lemma(
        lambda t: t.s,
        same1,
        lambda t: -t.s * t.f00 * t.w1 - t.s * t.z1 + t.f00 * t.h0 * t.w1 + t.m1 + t.f00 * t.v1,
        wrt=1,
    ),
    "attention.b.16.part_2": derivative_lemma(
        lambda t: t.s,
        other1,
        lambda t: -t.s * t.f01 * t.w1 + t.f01 * t.h1 * t.w1 + t.f01 * t.v1,
        wrt=1,
    ),
    "attention.b.17": _loss_gradient,
    "attention.f.1": lambda: _loss_hessian(1.0),
    "attention.f.1.index": lambda: _loss_hessian(2.0, True),
    "attention.f.2": lambda: _loss_hessian(1.0),
    "attention.definition_e.3": _layout,
}
