"""HSR paper, Appendix B: printed derivatives of the terms of one sample and of a pair, against autodiff of the term."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.paper_audit.checks import equality
from experiments.paper_audit.formula import Check, Entry, Witness
from experiments.paper_audit.three_layer import pair_terms as t
from experiments.paper_audit.three_layer.oracle import (
    Instance,
    instances,
    opposed_gelu,
)
from experiments.paper_audit.three_layer.pair_terms import kron

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

    return lambda: equality(cases(), expected, found, describe=lambda c: f"{c[0]}, i = {c[1] + 1}, j = {c[2] + 1}")


def both(first: Pair, second: Pair | None = None) -> Pair:
    """h(x_i) ⊗ first_ij + h(x_j) ⊗ second_ji; second defaults to first."""
    other = second or first
    return lambda i, j: outer(i.hx, first(i, j)) + outer(j.hx, other(j, i))


def entry(matrix: Pair, row: int, column: int) -> Pair:
    return lambda i, j: matrix(i, j)[row - 1, column - 1]


def root_witness() -> Witness:
    """Φ_11^{1/2} of the instance that tells the two readings of the root apart."""
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


CHECKS: dict[str, Entry] = {
    "hsr.eq76": derivative(lambda i, j: i.z, lambda i, j: outer(i.hx, i.F(1) @ i.V), W),
    "hsr.eq77": derivative(lambda i, j: i.s1, lambda i, j: outer(i.hx, i.s2 * (i.F(1) @ i.V)), W),
    "hsr.eq78": derivative(lambda i, j: i.y, lambda i, j: outer(i.hx, torch.eye(len(i.y)).double()), W),
    "hsr.eq79": derivative(lambda i, j: i.F(1) @ i.V, lambda i, j: outer(i.hx, torch.diag(i.V) @ i.F(2)), W),
    "hsr.eq75": derivative(
        lambda i, j: i.s1 * (i.F(1) @ i.V).square().sum(),
        lambda i, j: outer(
            i.hx,
            (i.s2 * torch.outer(i.F(1) @ i.V, i.V @ i.F(1)) + 2 * i.s1 * torch.diag(i.V) @ i.F(2)) @ i.F(1) @ i.V,
        ),
        W,
    ),
    "hsr.eq81": derivative(
        lambda i, j: i.delta * (i.V @ i.d(2)),
        lambda i, j: outer(i.hx, i.s1 * (i.F(1) @ i.V) * (i.V @ i.d(2)) + i.delta * i.F(3) @ i.V),
        W,
    ),
    "hsr.eq82": derivative(lambda i, j: i.delta, lambda i, j: outer(i.hx, i.s1 * (i.F(1) @ i.V)), W),
    "hsr.eq84": derivative(lambda i, j: i.f, lambda i, j: outer(i.hx, i.F(1)), W),
    "hsr.eq85": derivative(lambda i, j: i.d(1), lambda i, j: outer(i.hx, i.F(2)), W),
    "hsr.eq86": derivative(lambda i, j: i.d(2), lambda i, j: outer(i.hx, i.F(3)), W),
    "hsr.eq87": derivative(
        lambda i, j: i.s1 * (1 + i.f @ i.f),
        lambda i, j: outer(i.hx, i.s2 * (1 + i.f @ i.f) * (i.F(1) @ i.V) + 2 * i.s1 * (i.F(1) @ i.f)),
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
        lambda i, j: i.delta * (i.V @ i.d(2)), lambda i, j: i.s1 * i.hr * (i.V @ i.d(2)) + i.delta * i.f0(2), V
    ),
    "hsr.eq92": derivative(lambda i, j: i.delta, lambda i, j: i.s1 * i.hr, V),
    "hsr.eq93": derivative(lambda i, j: i.s1 * (1 + i.f @ i.f), lambda i, j: i.s2 * (1 + i.f @ i.f) * i.hr, V),
    "hsr.eq104": derivative(lambda i, j: i.o, lambda i, j: outer(i.hx, torch.outer(i.F(1) @ i.V, i.s21)), W),
    "hsr.eq130": derivative(lambda i, j: i.o, lambda i, j: torch.outer(i.hr, i.s21), V),
    "hsr.eq105": derivative(entry(t.phi_matrix, 1, 1), both(t.a_phi), W),
    "hsr.eq106": derivative(entry(t.phi_matrix, 1, 2), both(t.b_phi, t.c_phi), W),
    "hsr.eq107": derivative(entry(t.phi_matrix, 2, 1), both(t.c_phi, t.b_phi), W),
    "hsr.eq108": derivative(entry(t.phi_matrix, 2, 2), both(t.d_phi), W),
    "hsr.eq115": derivative(entry(t.psi_matrix, 1, 1), both(t.a_psi), W),
    "hsr.eq117": derivative(entry(t.psi_matrix, 1, 2), both(t.b_psi, t.c_psi), W),
    "hsr.eq118": derivative(entry(t.psi_matrix, 2, 1), both(t.c_psi, t.b_psi), W),
    "hsr.eq120": derivative(
        lambda i, j: j.F(1) @ i.f, lambda i, j: outer(i.hx, j.F(1) @ i.F(1)) + outer(j.hx, j.F(2) @ i.F(0)), W
    ),
    "hsr.eq123": derivative(entry(t.psi_matrix, 2, 2), both(t.d_psi), W),
    "hsr.eq131": derivative(entry(t.phi_matrix, 1, 1), lambda i, j: t.e_phi(i, j) + t.e_phi(j, i), V),
    "hsr.eq132": derivative(entry(t.phi_matrix, 1, 2), t.f_phi, V),
    "hsr.eq133": derivative(entry(t.phi_matrix, 2, 1), lambda i, j: t.f_phi(j, i), V),
    "hsr.eq134": derivative(entry(t.phi_matrix, 2, 2), lambda i, j: t.g_phi(i, j) + t.g_phi(j, i), V),
    "hsr.eq136": derivative(entry(t.psi_matrix, 1, 1), lambda i, j: t.e_psi(i, j) + t.e_psi(j, i), V),
    "hsr.eq137": derivative(entry(t.psi_matrix, 1, 2), t.f_psi, V),
    "hsr.eq138": derivative(entry(t.psi_matrix, 2, 1), lambda i, j: t.f_psi(j, i), V),
    "hsr.eq139": derivative(entry(t.psi_matrix, 2, 2), lambda i, j: torch.zeros_like(i.hr), V),
}
