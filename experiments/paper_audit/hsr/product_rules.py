"""HSR paper, Appendices A and B: the algebra of the proofs."""

from __future__ import annotations

import torch

from experiments.paper_audit import three_layer_pairs as t
from experiments.paper_audit.checks import (
    Check,
    Checks,
    Errors,
    Outcome,
    outcome_of,
    relative_error,
)
from experiments.paper_audit.formulas import Formula
from experiments.paper_audit.hsr.derivatives import cases
from experiments.paper_audit.tensors import gauss, kron, seeded

CHECKS = Checks()


def product_rule(matrix: Formula) -> Check:
    """Lemma 8: d(o_iᵀ P_ij o_j)/dθ = dvec P_ij/dθ (o_i ⊗ o_j) + do_i/dθ P_ij o_j + do_j/dθ P_ji
    o_i."""

    def check() -> Outcome:
        errors = []
        for case in cases():
            i, j = case.samples
            vectors = case.jacobian(lambda i, j: matrix(i, j).flatten())
            of_i = case.jacobian(t.oi)
            by_first = of_i @ matrix(i, j) @ j.o
            of_j = case.jacobian(t.oj)
            by_second = of_j @ matrix(j, i) @ i.o
            by_matrix = vectors @ kron(i.o, j.o)
            rule = by_matrix + by_first + by_second
            exact = case.jacobian(t.oi @ matrix @ t.oj)
            errors.append(relative_error(rule, exact))
        return outcome_of(errors)

    return check


CHECKS["hsr.eq99"] = product_rule(t.phi_matrix)
CHECKS["hsr.eq100"] = product_rule(t.psi_matrix)


@CHECKS.clause("hsr.eq103")
def omega_rule() -> Errors:
    for case in cases():
        i, j = case.samples
        by_first = case.jacobian(t.s1i) * j.s1
        by_second = case.jacobian(t.s1j) * i.s1
        exact = case.jacobian(t.omega)
        yield relative_error(by_first + by_second, exact)


@CHECKS.clause("hsr.eq63")
def leibniz() -> Errors:
    for case in cases():
        i, j = case.samples
        by_first = case.jacobian(t.fi) @ j.f
        by_second = case.jacobian(t.fj) @ i.f
        exact = case.jacobian(t.fi @ t.fj)
        yield relative_error(by_first + by_second, exact)


@CHECKS.clause("hsr.eq111")
def symmetries() -> Errors:
    for case in cases():
        i, j = case.samples
        transposed = t.phi_matrix(i, j).T
        yield relative_error(transposed, t.phi_matrix(j, i))
        corner = t.psi_matrix(i, j)[1, 0]
        of_pair = t.psi_matrix(j, i)[0, 1]
        yield relative_error(corner, of_pair)
        yield relative_error(t.omega(i, j), t.omega(j, i))
        reordered = t.G_phi(j, i)[:, [0, 2, 1, 3]]
        swapped = reordered @ kron(i.o, j.o)
        yield relative_error(swapped, t.G_phi(j, i) @ kron(j.o, i.o))
        ordered = [i.s1 * j.s1, i.s1 * j.delta, i.delta * j.s1, i.delta * j.delta]
        products = torch.stack(ordered)
        yield relative_error(kron(i.o, j.o), products)


@CHECKS.clause("hsr.lemma1")
def kronecker() -> Errors:
    generator = seeded(0)
    shapes = ((1, 1, 1), (3, 2, 4), (5, 4, 2))
    for rows, middle, columns in shapes:
        x = gauss(generator, 3, 1)
        A, C = gauss(generator, 2, rows, middle)
        B = gauss(generator, middle, columns)
        x_A = kron(x, A)
        x_C = kron(x, C)
        yield relative_error(kron(x, A @ B), x_A @ B)
        yield relative_error(kron(x, A + C), x_A + x_C)
        columns_of_both = torch.cat([x_A, x_C], 1)
        yield relative_error(kron(x, torch.cat([A, C], 1)), columns_of_both)
