"""Attention paper, Sections B and F: first derivatives of the factors of c, and derivatives of the
loss."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev

from experiments.paper_audit.attention.terms import (
    Index,
    Terms,
    by_x1,
    e0,
    e1,
    f,
    f00,
    f01,
    h,
    h0,
    h1,
    i0,
    i1,
    identity,
    m1,
    origins,
    other1,
    relative_error,
    s,
    same1,
    scores,
    u,
    v1,
    w1,
    x1,
    z1,
)
from experiments.paper_audit.checks import Checks, Errors
from experiments.paper_audit.formulas import Formula
from experiments.paper_audit.tensors import gauss, seeded, unit, zeros
from runner.closed_form.attention import output_hessians

CHECKS = Checks()


@CHECKS.clause("attention.fact_b.1")
def algebra() -> Errors:
    """Fact B.1 on three random vectors."""
    for t in origins():
        u = t.f
        v = t.h
        w = x1(t)
        triple = (u * v * w).sum()
        yield relative_error((u * v) @ w, triple)
        yield relative_error(u @ torch.diag(v) @ w, triple)


@CHECKS.clause("attention.fact_b.2")
def calculus() -> Errors:
    """Fact B.2: product rules, power rule, exp, unit vectors, against autodiff at random points."""
    for seed in range(4):
        generator = seeded(seed)
        a, b, c = gauss(generator, 3, 4)
        yield from _calculus_errors(a, b, c, gauss(generator, ()))


def _calculus_errors(a: Tensor, b: Tensor, c: Tensor, time: Tensor) -> Errors:
    """Of each rule at f = sin(a t + b), g = cos(c t)."""

    def f(t: Tensor) -> Tensor:
        return torch.sin(a * t + b)

    def g(t: Tensor) -> Tensor:
        return torch.cos(c * t)

    u = f(time)
    v = g(time)
    du = jacfwd(f)(time)
    dv = jacfwd(g)(time)
    exact = jacfwd(lambda t: f(t) @ g(t))(time)
    yield relative_error(du @ v + u @ dv, exact)
    exact = jacfwd(lambda t: f(t)[0] ** 3)(time)
    yield relative_error(3 * u[0] ** 2 * du[0], exact)
    exact = jacfwd(lambda t: torch.exp(f(t)))(time)
    yield relative_error(torch.exp(u) * du, exact)
    exact = jacfwd(lambda t: f(t)[0] * g(t)[1])(time)
    yield relative_error(du[0] * v[1] + u[0] * dv[1], exact)
    exact = jacfwd(lambda x: x * 1)(a)
    yield relative_error(unit(4), exact)
    exact = jacfwd(lambda y: a + 0 * y)(time)
    yield relative_error(zeros(4), exact)


def any_indices(k: Index) -> bool:
    return True


alpha = Formula(lambda t: t.u.sum())
CHECKS["attention.b.10.part_1"] = by_x1(scores, same1, e0 * w1 + x1)
CHECKS["attention.b.10.part_2"] = by_x1(scores, other1, e1 * w1)
CHECKS["attention.b.11.part_1"] = by_x1(u, same1, u * (e0 * w1 + x1))
CHECKS["attention.b.11.part_2"] = by_x1(u, other1, u * e1 * w1)
CHECKS["attention.b.12.part_1"] = by_x1(alpha, same1, u[i0] * w1 + u @ x1)
CHECKS["attention.b.12.part_2"] = by_x1(alpha, other1, u[i1] * w1)
CHECKS["attention.b.13.part_1"] = by_x1(1 / alpha, same1, -(f00 * w1 + z1) / alpha)
CHECKS["attention.b.13.part_2"] = by_x1(1 / alpha, other1, -f01 * w1 / alpha)

b14_part_1 = -f * (f00 * w1 + z1) + f * (e0 * w1 + x1)
CHECKS["attention.b.14.part_1"] = by_x1(f, same1, b14_part_1)
CHECKS["attention.b.14.part_2"] = by_x1(f, other1, -f * f01 * w1 + f * e1 * w1)
CHECKS["attention.b.15"] = by_x1(h, any_indices, e1 * v1)

b16_of_f = -s * f00 * w1 - s * z1
b16_part_1 = b16_of_f + f00 * h0 * w1 + m1 + f00 * v1
"""C_1 + C_2 + C_3 + C_4 + C_5."""
b16_part_2 = -s * f01 * w1 + f01 * h1 * w1 + f01 * v1
CHECKS["attention.b.16.part_1"] = by_x1(s, same1, b16_part_1)
CHECKS["attention.b.16.part_2"] = by_x1(s, other1, b16_part_2)


def residual(t: Terms, x: Tensor) -> Tensor:
    """c(X) (n, d) from Definitions B.4-B.8."""
    scores = (x.T @ t.w @ x).T
    f = torch.softmax(scores, -1)
    return f @ (x.T @ t.v) - t.b


def loss(t: Terms, x: Tensor) -> Tensor:
    """L(X) of Definition B.9."""
    return residual(t, x).square().sum()


def matrix_form(t: Terms, w: Tensor) -> Tensor:
    """|D(X)^-1 exp(X^T W X) X^T V - B|_F^2 of Theorem J.1."""
    a = torch.exp(t.x.T @ w @ t.x)
    attention = a / a.sum(1, keepdim=True)
    outputs = attention @ t.x.T @ t.v
    c = outputs - t.b
    return c.square().sum()


CHECKS["attention.theorem_j.1.loss"] = identity(
    lambda t: loss(t, t.x), lambda t: matrix_form(t, t.w), lambda t: matrix_form(t, t.w.T)
)


def residual_jacobian(t: Terms) -> Tensor:
    """dc/dx by automatic differentiation, axes (i0, j0, j1, i1)."""
    return jacrev(lambda x: residual(t, x))(t.x)


def residual_hessian(t: Terms) -> Tensor:
    """d2c/dx2 by automatic differentiation, axes (i0, j0, j1, i1, j2, i2)."""
    return hessian(lambda x: residual(t, x))(t.x)


def chain(t: Terms, factor: float) -> Tensor:
    """factor * sum_{i0,j0} c dc/dx as a vector over all entries of X."""
    summed = torch.einsum("ij,ijab->ab", residual(t, t.x), residual_jacobian(t))
    return factor * summed


CHECKS["attention.b.17"] = identity(
    lambda t: grad(lambda x: loss(t, x))(t.x), lambda t: chain(t, 1.0), lambda t: chain(t, 2.0)
)


def by_curvature(t: Terms) -> Tensor:
    """sum c d2c, axes (j1, i1, j2, i2)."""
    return torch.einsum("rs,rsaibk->aibk", residual(t, t.x), residual_hessian(t))


def second(t: Terms, factor: float) -> Tensor:
    """factor * sum (dc/dx_{i1,j1} dc/dx_{i2,j2} + c d2c), axes (j1, i1, j2, i2)."""
    jacobian = residual_jacobian(t)
    return factor * (torch.einsum("rsai,rsbk->aibk", jacobian, jacobian) + by_curvature(t))


def swapped(t: Terms) -> Tensor:
    """`second` with factor 2 and the second factor dc/dx_{i1,j2} that Lemma F.1 prints."""
    jacobian = residual_jacobian(t)
    products = torch.einsum("rsai,rsbi->aib", jacobian, jacobian)
    return 2.0 * (products.unsqueeze(-1) + by_curvature(t))


def dense_hessian(t: Terms) -> Tensor:
    return hessian(lambda x: loss(t, x))(t.x)


def without_factor(t: Terms) -> Tensor:
    return second(t, 1.0)


def right_hessian(t: Terms) -> Tensor:
    return second(t, 2.0)


CHECKS["attention.f.1"] = identity(dense_hessian, without_factor, right_hessian)
CHECKS["attention.f.1.index"] = identity(dense_hessian, swapped, right_hessian)
CHECKS["attention.f.2"] = identity(dense_hessian, without_factor, right_hessian)


@CHECKS.clause("attention.definition_e.3")
def layout() -> Errors:
    """Definition E.3: the closed-form blocks H_1..H_4, laid out as printed, are the Hessian of each
    c_{i0,j0}."""
    for t in origins():
        d, n = t.x.shape
        exact = residual_hessian(t).permute(0, 1, 3, 2, 5, 4).reshape(n, d, n * d, n * d)
        found = output_hessians(t.x, t.w, t.v)
        for place in itertools.product(range(n), range(d)):
            yield relative_error(found[place], exact[place])
