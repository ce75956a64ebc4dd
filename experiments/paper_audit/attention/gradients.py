"""Attention paper, Sections B and F: definitions, first derivatives, gradient and Hessian of the loss."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.paper_audit.attention.terms import (
    SIZES,
    Index,
    Terms,
    by_hand,
    compare,
    derivative_lemma,
    instance,
    other1,
    relative_error,
    same1,
)
from experiments.paper_audit.formula import Entry, Outcome
from runner.curvature.closed_form.attention import hessian_block

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
        generator = torch.Generator().manual_seed(seed)
        a, b, c = torch.randn(3, 4, generator=generator, dtype=torch.float64)
        time = torch.randn((), generator=generator, dtype=torch.float64)
        slope = torch.func.jacfwd

        def f(t: Tensor, a: Tensor = a, b: Tensor = b) -> Tensor:
            return torch.sin(a * t + b)

        def g(t: Tensor, c: Tensor = c) -> Tensor:
            return torch.cos(c * t)

        inner = slope(f)(time) @ g(time) + f(time) @ slope(g)(time)
        errors.append(relative_error(inner, slope(lambda t: f(t) @ g(t))(time)))
        power = 3 * (f(time)[0]) ** 2 * slope(f)(time)[0]
        errors.append(relative_error(power, slope(lambda t: f(t)[0] ** 3)(time)))
        errors.append(relative_error(torch.exp(f(time)) * slope(f)(time), slope(lambda t: torch.exp(f(t)))(time)))
        scalars = slope(f)(time)[0] * g(time)[1] + f(time)[0] * slope(g)(time)[1]
        errors.append(relative_error(scalars, slope(lambda t: f(t)[0] * g(t)[1])(time)))
        errors.append(relative_error(torch.eye(4, dtype=torch.float64), slope(lambda x: x * 1)(a)))
        errors.append(relative_error(torch.zeros(4, dtype=torch.float64), slope(lambda y, a=a: a + 0 * y)(time)))
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
        for i0, j0 in itertools.product(range(n), range(d)):
            rows = [[hessian_block(t.x, t.w, t.v, (i0, j0), p, q) for q in range(n)] for p in range(n)]
            laid_out = torch.cat([torch.cat(row, dim=1) for row in rows])
            worst = max(worst, relative_error(laid_out, exact[i0, j0]))
            count += 1
    return Outcome(worst, instances=count)


CHECKS: dict[str, Entry] = {
    "attention.fact_b.1": _algebra,
    "attention.fact_b.2": _calculus,
    "attention.theorem_j.1.loss": lambda: _matrix_form(True),
    "attention.b.10.part_1": derivative_lemma(lambda t: t.scores, same1, lambda t: t.e0 * t.w1 + t.x1, wrt=1),
    "attention.b.10.part_2": derivative_lemma(lambda t: t.scores, other1, lambda t: t.e1 * t.w1, wrt=1),
    "attention.b.11.part_1": derivative_lemma(lambda t: t.u, same1, lambda t: t.u * (t.e0 * t.w1 + t.x1), wrt=1),
    "attention.b.11.part_2": derivative_lemma(lambda t: t.u, other1, lambda t: t.u * t.e1 * t.w1, wrt=1),
    "attention.b.12.part_1": derivative_lemma(
        lambda t: t.u.sum(), same1, lambda t: t.u[t.k.i0] * t.w1 + t.u @ t.x1, wrt=1
    ),
    "attention.b.12.part_2": derivative_lemma(lambda t: t.u.sum(), other1, lambda t: t.u[t.k.i1] * t.w1, wrt=1),
    "attention.b.13.part_1": derivative_lemma(
        lambda t: 1 / t.u.sum(), same1, lambda t: -(t.f00 * t.w1 + t.z1) / t.u.sum(), wrt=1
    ),
    "attention.b.13.part_2": derivative_lemma(
        lambda t: 1 / t.u.sum(), other1, lambda t: -t.f01 * t.w1 / t.u.sum(), wrt=1
    ),
    "attention.b.14.part_1": derivative_lemma(
        lambda t: t.f, same1, lambda t: -t.f * (t.f00 * t.w1 + t.z1) + t.f * (t.e0 * t.w1 + t.x1), wrt=1
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
        lambda t: t.s, other1, lambda t: -t.s * t.f01 * t.w1 + t.f01 * t.h1 * t.w1 + t.f01 * t.v1, wrt=1
    ),
    "attention.b.17": _loss_gradient,
    "attention.f.1": lambda: _loss_hessian(1.0),
    "attention.f.1.index": lambda: _loss_hessian(2.0, True),
    "attention.f.2": lambda: _loss_hessian(1.0),
    "attention.definition_e.3": _layout,
}
