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
            by_first = case.jacobian(t.oi) @ matrix(i, j) @ j.o
            by_second = case.jacobian(t.oj) @ matrix(j, i) @ i.o
            by_matrix = vectors @ kron(i.o, j.o)
            rule = by_matrix + by_first + by_second
            errors.append(relative_error(rule, case.jacobian(t.oi @ matrix @ t.oj)))
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
        yield relative_error(by_first + by_second, case.jacobian(t.omega))


@CHECKS.clause("hsr.eq63")
def leibniz() -> Errors:
    for case in cases():
        i, j = case.samples
        by_first = case.jacobian(t.fi) @ j.f
        by_second = case.jacobian(t.fj) @ i.f
        yield relative_error(by_first + by_second, case.jacobian(t.fi @ t.fj))


@CHECKS.clause("hsr.eq111")
def symmetries() -> Errors:
    for case in cases():
        i, j = case.samples
        yield relative_error(t.phi_matrix(i, j).T, t.phi_matrix(j, i))
        corner = t.psi_matrix(i, j)[1, 0]
        of_pair = t.psi_matrix(j, i)[0, 1]
        yield relative_error(corner, of_pair)
        yield relative_error(t.omega(i, j), t.omega(j, i))
        swapped = t.G_phi(j, i)[:, [0, 2, 1, 3]] @ kron(i.o, j.o)
        yield relative_error(swapped, t.G_phi(j, i) @ kron(j.o, i.o))
        products = torch.stack([i.s1 * j.s1, i.s1 * j.delta, i.delta * j.s1, i.delta * j.delta])
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
        yield relative_error(kron(x, torch.cat([A, C], 1)), torch.cat([x_A, x_C], 1))
