"""HSR paper, Appendices A and B: the algebra of the proofs, and every lemma on derivatives of single and pair terms."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from experiments.paper_audit.checks import relative_error
from experiments.paper_audit.formula import Entry, Outcome
from experiments.paper_audit.hsr.derivatives import Pair, cases
from experiments.paper_audit.three_layer import pair_terms as t
from experiments.paper_audit.three_layer.oracle import Sample
from experiments.paper_audit.three_layer.pair_terms import kron


def _product_rule(matrix: Pair) -> Callable[[], Outcome]:
    """Lemma 8: d(o_iᵀ P_ij o_j)/dθ = dvec P_ij/dθ (o_i ⊗ o_j) + do_i/dθ P_ij o_j + do_j/dθ P_ji o_i."""

    def check() -> Outcome:
        errors = []
        for instance, a, b in cases():
            i, j = (instance.samples[k] for k in (a, b))
            by_matrix = instance.jacobian(lambda i, j: matrix(i, j).flatten(), a, b) @ kron(i.o, j.o)
            by_first = instance.jacobian(lambda i, j: i.o, a, b) @ matrix(i, j) @ j.o
            by_second = instance.jacobian(lambda i, j: j.o, a, b) @ matrix(j, i) @ i.o
            expected = instance.jacobian(lambda i, j: i.o @ matrix(i, j) @ j.o, a, b)
            errors.append(relative_error(by_matrix + by_first + by_second, expected))
        return Outcome(max(errors), instances=len(errors))

    return check


def _omega_rule() -> Outcome:
    errors = []
    for instance, a, b in cases():
        i, j = (instance.samples[k] for k in (a, b))
        slopes = [instance.jacobian(lambda i, j: i.s1, a, b), instance.jacobian(lambda i, j: j.s1, a, b)]
        expected = instance.jacobian(t.omega, a, b)
        errors.append(relative_error(slopes[0] * j.s1 + slopes[1] * i.s1, expected))
    return Outcome(max(errors), instances=len(errors))


def _symmetries() -> Outcome:
    errors = []
    for instance, a, b in cases():
        i, j = (instance.samples[k] for k in (a, b))
        errors.append(relative_error(t.phi_matrix(i, j).T, t.phi_matrix(j, i)))
        errors.append(relative_error(t.psi_matrix(i, j)[1, 0], t.psi_matrix(j, i)[0, 1]))
        errors.append(relative_error(t.omega(i, j), t.omega(j, i)))
        swapped = t.G_phi(j, i)[:, [0, 2, 1, 3]] @ kron(i.o, j.o)
        errors.append(relative_error(swapped, t.G_phi(j, i) @ kron(j.o, i.o)))
        ordered = torch.stack([i.s1 * j.s1, i.s1 * j.delta, i.delta * j.s1, i.delta * j.delta])
        errors.append(relative_error(kron(i.o, j.o), ordered))
    return Outcome(max(errors), instances=len(errors))


def _kronecker() -> Outcome:
    errors, generator = [], torch.Generator().manual_seed(0)
    for rows, middle, columns in ((1, 1, 1), (3, 2, 4), (5, 4, 2)):
        x = torch.randn(3, 1, generator=generator, dtype=torch.float64)
        A, C = (torch.randn(rows, middle, generator=generator, dtype=torch.float64) for _ in range(2))
        B = torch.randn(middle, columns, generator=generator, dtype=torch.float64)
        errors.append(relative_error(kron(x, A @ B), kron(x, A) @ B))
        errors.append(relative_error(kron(x, A + C), kron(x, A) + kron(x, C)))
        errors.append(relative_error(kron(x, torch.cat([A, C], 1)), torch.cat([kron(x, A), kron(x, C)], 1)))
    return Outcome(max(errors), instances=len(errors))


def _leibniz() -> Outcome:
    errors = []
    for instance, a, b in cases():
        i, j = (instance.samples[k] for k in (a, b))
        first = instance.jacobian(lambda i, j: i.f, a, b) @ j.f
        second = instance.jacobian(lambda i, j: j.f, a, b) @ i.f
        errors.append(relative_error(first + second, instance.jacobian(lambda i, j: i.f @ j.f, a, b)))
    return Outcome(max(errors), instances=len(errors))


def _third_sigmoid() -> Outcome:
    """The sigmoid's third derivative of Section VI-A on a grid."""
    y = torch.linspace(-6, 6, 49, dtype=torch.float64)
    f = 1 / (1 + torch.exp(-y))
    a = ((3 + math.sqrt(3)) / 6, (3 - math.sqrt(3)) / 6)
    sample = Sample(y, y, y, y, y[0], y[0], "sigmoid")
    printed = 6 * (f - a[0]) * (f - a[1]) * (1 - f) * f
    return Outcome(relative_error(printed, sample.d(3)), instances=len(y))


CHECKS: dict[str, Entry] = {
    "hsr.eq63": _leibniz,
    "hsr.lemma1": _kronecker,
    "hsr.eq99": _product_rule(t.phi_matrix),
    "hsr.eq100": _product_rule(t.psi_matrix),
    "hsr.eq103": _omega_rule,
    "hsr.eq111": _symmetries,
    "hsr.sigmoid": _third_sigmoid,
}
