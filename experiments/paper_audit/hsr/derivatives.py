"""HSR paper, Appendices A and B: the algebra of the proofs, and printed derivatives of the terms against autodiff."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from experiments.paper_audit import three_layer as t
from experiments.paper_audit.checks import Check, Entry, Outcome, Witness, equality, relative_error
from experiments.paper_audit.tensors import gauss, seeded
from experiments.paper_audit.three_layer import Instance, Sample, instances, kron, opposed_gelu

Pair = t.Pair
W, V = "w", "v"


def outer(h: Tensor, block: Tensor) -> Tensor:
    """h(x) ⊗ A for a vector or a matrix A."""
    return kron(h, block) if block.ndim == 1 else kron(h[:, None], block)


def cases() -> Iterator[tuple[Instance, int, int]]:
    """Two different samples, and one sample twice, of every instance; a GELU unit whose root Φ_11^{1/2} is negative."""
    for instance in (opposed_gelu(), *instances(sizes=((2, 3, 2),))):
        yield instance, 0, 1
        yield instance, 1, 1


def derivative(quantity: Pair, printed: Pair, block: str) -> Check:
    """d quantity / d block = printed, for one sample or a pair: largest error against automatic differentiation."""
    part = {W: lambda n: slice(None, n), V: lambda n: slice(n, None)}[block]

    def expected(case: tuple[Instance, int, int]) -> Tensor:
        instance, i, j = case
        return instance.jacobian(quantity, i, j)[part(instance.count)]

    def found(case: tuple[Instance, int, int]) -> Tensor:
        instance, i, j = case
        samples = instance.samples
        return printed(samples[i], samples[j])

    return lambda: equality(
        cases(), expected, found, describe=lambda c: f"{c[0]}, i = {c[1] + 1}, j = {c[2] + 1}"
    )


def both(first: Pair, second: Pair | None = None) -> Pair:
    """h(x_i) ⊗ first_ij + h(x_j) ⊗ second_ji; second defaults to first."""
    other = second or first
    return lambda i, j: outer(i.hx, first(i, j)) + outer(j.hx, other(j, i))


def entry(matrix: Pair, row: int, column: int) -> Pair:
    return lambda i, j: matrix(i, j)[row - 1, column - 1]


def root_witness() -> Witness:
    """Φ_11^{1/2} of the instance that tells the two signs of the root apart."""
    instance = opposed_gelu()
    i, j = instance.samples
    truth = instance.jacobian(lambda a, b: t.phi_matrix(a, b)[0, 0], 0, 1)[instance.count + 1]
    signed = (t.e_phi(i, j) + t.e_phi(j, i))[1]
    unsigned = signed * float(torch.sign(t.signed(i, j)))
    return Witness(
        "one GELU unit, y_1 = −1, y_2 = 3/2, Ṽ = 3/2: dΦ_11/dv_1",
        f"{float(unsigned):.5g} with the non-negative root",
        f"{float(signed):.5g} with the signed root",
        f"{float(truth):.5g}",
    )


def _product_rule(matrix: Pair) -> Callable[[], Outcome]:
    """Lemma 8: d(o_iᵀ P_ij o_j)/dθ = dvec P_ij/dθ (o_i ⊗ o_j) + do_i/dθ P_ij o_j + do_j/dθ P_ji o_i."""

    def check() -> Outcome:
        errors = []
        for instance, a, b in cases():
            i, j = (instance.samples[k] for k in (a, b))
            by_matrix = instance.jacobian(lambda i, j: matrix(i, j).flatten(), a, b) @ kron(
                i.o, j.o
            )
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
        slopes = [
            instance.jacobian(lambda i, j: i.s1, a, b),
            instance.jacobian(lambda i, j: j.s1, a, b),
        ]
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
    errors, generator = [], seeded(0)
    for rows, middle, columns in ((1, 1, 1), (3, 2, 4), (5, 4, 2)):
        x = gauss(generator, 3, 1)
        A, C = (gauss(generator, rows, middle) for _ in range(2))
        B = gauss(generator, middle, columns)
        errors.append(relative_error(kron(x, A @ B), kron(x, A) @ B))
        errors.append(relative_error(kron(x, A + C), kron(x, A) + kron(x, C)))
        errors.append(
            relative_error(kron(x, torch.cat([A, C], 1)), torch.cat([kron(x, A), kron(x, C)], 1))
        )
    return Outcome(max(errors), instances=len(errors))


def _leibniz() -> Outcome:
    errors = []
    for instance, a, b in cases():
        i, j = (instance.samples[k] for k in (a, b))
        first = instance.jacobian(lambda i, j: i.f, a, b) @ j.f
        second = instance.jacobian(lambda i, j: j.f, a, b) @ i.f
        errors.append(
            relative_error(first + second, instance.jacobian(lambda i, j: i.f @ j.f, a, b))
        )
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
    "hsr.eq76": derivative(lambda i, j: i.z, lambda i, j: outer(i.hx, i.F(1) @ i.V), W),
    "hsr.eq77": derivative(lambda i, j: i.s1, lambda i, j: outer(i.hx, i.s2 * (i.F(1) @ i.V)), W),
    "hsr.eq78": derivative(
        lambda i, j: i.y, lambda i, j: outer(i.hx, torch.eye(len(i.y)).double()), W
    ),
    "hsr.eq79": derivative(
        lambda i, j: i.F(1) @ i.V, lambda i, j: outer(i.hx, torch.diag(i.V) @ i.F(2)), W
    ),
    "hsr.eq75": derivative(
        lambda i, j: i.s1 * (i.F(1) @ i.V).square().sum(),
        lambda i, j: outer(
            i.hx,
            (i.s2 * torch.outer(i.F(1) @ i.V, i.V @ i.F(1)) + 2 * i.s1 * torch.diag(i.V) @ i.F(2))
            @ i.F(1)
            @ i.V,
        ),
        W,
    ),
    "hsr.eq81": derivative(
        lambda i, j: i.delta * (i.V @ i.d(2)),
        lambda i, j: outer(i.hx, i.s1 * (i.F(1) @ i.V) * (i.V @ i.d(2)) + i.delta * i.F(3) @ i.V),
        W,
    ),
    "hsr.eq82": derivative(
        lambda i, j: i.delta, lambda i, j: outer(i.hx, i.s1 * (i.F(1) @ i.V)), W
    ),
    "hsr.eq84": derivative(lambda i, j: i.f, lambda i, j: outer(i.hx, i.F(1)), W),
    "hsr.eq85": derivative(lambda i, j: i.d(1), lambda i, j: outer(i.hx, i.F(2)), W),
    "hsr.eq86": derivative(lambda i, j: i.d(2), lambda i, j: outer(i.hx, i.F(3)), W),
    "hsr.eq87": derivative(
        lambda i, j: i.s1 * (1 + i.f @ i.f),
        lambda i, j: outer(
            i.hx, i.s2 * (1 + i.f @ i.f) * (i.F(1) @ i.V) + 2 * i.s1 * (i.F(1) @ i.f)
        ),
        W,
    ),
    "hsr.eq88": derivative(
        lambda i, j: i.s1 * (i.F(1) @ i.V).square().sum(),
        lambda i, j: (i.s2 * torch.outer(i.hr, i.V @ i.F(1)) + 2 * i.s1 * i.F0(1)) @ i.F(1) @ i.V,
        V,
    ),
    "hsr.eq89": derivative(lambda i, j: i.s1, lambda i, j: i.s2 * i.hr, V),
    "hsr.eq90": derivative(lambda i, j: i.F(1) @ i.V, lambda i, j: i.F0(1), V),
    "hsr.eq91": derivative(
        lambda i, j: i.delta * (i.V @ i.d(2)),
        lambda i, j: i.s1 * i.hr * (i.V @ i.d(2)) + i.delta * i.f0(2),
        V,
    ),
    "hsr.eq92": derivative(lambda i, j: i.delta, lambda i, j: i.s1 * i.hr, V),
    "hsr.eq93": derivative(
        lambda i, j: i.s1 * (1 + i.f @ i.f), lambda i, j: i.s2 * (1 + i.f @ i.f) * i.hr, V
    ),
    "hsr.eq104": derivative(
        lambda i, j: i.o, lambda i, j: outer(i.hx, torch.outer(i.F(1) @ i.V, i.s21)), W
    ),
    "hsr.eq130": derivative(lambda i, j: i.o, lambda i, j: torch.outer(i.hr, i.s21), V),
    "hsr.eq105": derivative(entry(t.phi_matrix, 1, 1), both(t.a_phi), W),
    "hsr.eq106": derivative(entry(t.phi_matrix, 1, 2), both(t.b_phi, t.c_phi), W),
    "hsr.eq107": derivative(entry(t.phi_matrix, 2, 1), both(t.c_phi, t.b_phi), W),
    "hsr.eq108": derivative(entry(t.phi_matrix, 2, 2), both(t.d_phi), W),
    "hsr.eq115": derivative(entry(t.psi_matrix, 1, 1), both(t.a_psi), W),
    "hsr.eq117": derivative(entry(t.psi_matrix, 1, 2), both(t.b_psi, t.c_psi), W),
    "hsr.eq118": derivative(entry(t.psi_matrix, 2, 1), both(t.c_psi, t.b_psi), W),
    "hsr.eq120": derivative(
        lambda i, j: j.F(1) @ i.f,
        lambda i, j: outer(i.hx, j.F(1) @ i.F(1)) + outer(j.hx, j.F(2) @ i.F(0)),
        W,
    ),
    "hsr.eq123": derivative(entry(t.psi_matrix, 2, 2), both(t.d_psi), W),
    "hsr.eq131": derivative(
        entry(t.phi_matrix, 1, 1), lambda i, j: t.e_phi(i, j) + t.e_phi(j, i), V
    ),
    "hsr.eq132": derivative(entry(t.phi_matrix, 1, 2), t.f_phi, V),
    "hsr.eq133": derivative(entry(t.phi_matrix, 2, 1), lambda i, j: t.f_phi(j, i), V),
    "hsr.eq134": derivative(
        entry(t.phi_matrix, 2, 2), lambda i, j: t.g_phi(i, j) + t.g_phi(j, i), V
    ),
    "hsr.eq136": derivative(
        entry(t.psi_matrix, 1, 1), lambda i, j: t.e_psi(i, j) + t.e_psi(j, i), V
    ),
    "hsr.eq137": derivative(entry(t.psi_matrix, 1, 2), t.f_psi, V),
    "hsr.eq138": derivative(entry(t.psi_matrix, 2, 1), lambda i, j: t.f_psi(j, i), V),
    "hsr.eq139": derivative(entry(t.psi_matrix, 2, 2), lambda i, j: torch.zeros_like(i.hr), V),
    "hsr.eq63": _leibniz,
    "hsr.lemma1": _kronecker,
    "hsr.eq99": _product_rule(t.phi_matrix),
    "hsr.eq100": _product_rule(t.psi_matrix),
    "hsr.eq103": _omega_rule,
    "hsr.eq111": _symmetries,
    "hsr.sigmoid": _third_sigmoid,
}
WITNESSES = {"hsr.root": root_witness}
