"""HSR paper, Appendix B: printed derivatives of the terms of one sample and of a pair, against autodiff of the term."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.paper_audit.checks import equality
from experiments.paper_audit.formula import Formula, Outcome, Witness
from experiments.paper_audit.three_layer import pair_terms as t
from experiments.paper_audit.three_layer.oracle import (
    Instance,
    instances,
    opposed_gelu,
)
from experiments.paper_audit.three_layer.pair_terms import kron

Pair = t.Pair
W, V, THETA = "w", "v", "theta"


def outer(h: Tensor, block: Tensor) -> Tensor:
    """h(x) ⊗ A for a vector or a matrix A."""
    return kron(h, block) if block.ndim == 1 else kron(h[:, None], block)


def cases() -> Iterator[tuple[Instance, int, int]]:
    """Two different samples, and one sample twice, of every instance; a GELU unit whose root Φ_11^{1/2} is negative."""
    for instance in (opposed_gelu(), *instances(sizes=((2, 3, 2),))):
        yield instance, 0, 1
        yield instance, 1, 1


@dataclass(frozen=True)
class Derivative:
    """d quantity / d block = printed, for one sample or a pair; root: id of the erratum it belongs to."""

    number: str
    place: str
    statement: str
    quantity: Pair
    printed: Pair
    block: str
    root: str = ""

    def check(self) -> Outcome:
        """Largest error against autodiff of the quantity with respect to w, v or theta."""

        def expected(case: tuple[Instance, int, int]) -> Tensor:
            instance, i, j = case
            part = {W: slice(None, instance.count), V: slice(instance.count, None), THETA: slice(None)}[self.block]
            return instance.jacobian(self.quantity, i, j)[part]

        def found(case: tuple[Instance, int, int]) -> Tensor:
            instance, i, j = case
            samples = instance.samples
            return self.printed(samples[i], samples[j])

        return equality(cases(), expected, found, describe=lambda c: f"{c[0]}, i = {c[1] + 1}, j = {c[2] + 1}")

    @property
    def formula(self) -> Formula:
        return Formula(f"hsr.eq{self.number}", self.place, self.statement, self.check, root=self.root)


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


SINGLE = (
    Derivative("76", "Eq. 76", "dz/dw = h(x) ⊗ F'(y) Ṽᵀ", lambda i, j: i.z, lambda i, j: outer(i.hx, i.F(1) @ i.V), W),
    Derivative(
        "77",
        "Eq. 77",
        "ds'(z)/dw = h(x) ⊗ s''(z) F'(y) Ṽᵀ",
        lambda i, j: i.s1,
        lambda i, j: outer(i.hx, i.s2 * (i.F(1) @ i.V)),
        W,
    ),
    Derivative(
        "78",
        "Eq. 78",
        "dy/dw = h(x) ⊗ E_N",
        lambda i, j: i.y,
        lambda i, j: outer(i.hx, torch.eye(len(i.y)).double()),
        W,
    ),
    Derivative(
        "79",
        "Eq. 79",
        "dF'(y)Ṽᵀ/dw = h(x) ⊗ diag(Ṽᵀ) F''(y)",
        lambda i, j: i.F(1) @ i.V,
        lambda i, j: outer(i.hx, torch.diag(i.V) @ i.F(2)),
        W,
    ),
    Derivative(
        "75",
        "Lemma 2, Eq. 75",
        "d s'(z)||F'(y)Ṽᵀ||²/dw = h(x) ⊗ (s'' F'ṼᵀṼF' + 2 s' diag(Ṽᵀ) F'') F'Ṽᵀ",
        lambda i, j: i.s1 * (i.F(1) @ i.V).square().sum(),
        lambda i, j: outer(
            i.hx,
            (i.s2 * torch.outer(i.F(1) @ i.V, i.V @ i.F(1)) + 2 * i.s1 * torch.diag(i.V) @ i.F(2)) @ i.F(1) @ i.V,
        ),
        W,
    ),
    Derivative(
        "81",
        "Lemma 3, Eq. 81",
        "d delta Ṽf''(y)/dw = h(x) ⊗ (s' F'Ṽᵀ Ṽf'' + delta F'''Ṽᵀ)",
        lambda i, j: i.delta * (i.V @ i.d(2)),
        lambda i, j: outer(i.hx, i.s1 * (i.F(1) @ i.V) * (i.V @ i.d(2)) + i.delta * i.F(3) @ i.V),
        W,
    ),
    Derivative(
        "82",
        "Eq. 82",
        "d delta/dw = h(x) ⊗ s'(z) F'(y) Ṽᵀ",
        lambda i, j: i.delta,
        lambda i, j: outer(i.hx, i.s1 * (i.F(1) @ i.V)),
        W,
    ),
    Derivative("84", "Eq. 84", "df(y)/dw = h(x) ⊗ F'(y)", lambda i, j: i.f, lambda i, j: outer(i.hx, i.F(1)), W),
    Derivative("85", "Eq. 85", "df'(y)/dw = h(x) ⊗ F''(y)", lambda i, j: i.d(1), lambda i, j: outer(i.hx, i.F(2)), W),
    Derivative("86", "Eq. 86", "df''(y)/dw = h(x) ⊗ F'''(y)", lambda i, j: i.d(2), lambda i, j: outer(i.hx, i.F(3)), W),
    Derivative(
        "87",
        "Lemma 4, Eq. 87",
        "d s'(z)(1 + f(y)ᵀf(y))/dw = h(x) ⊗ (s''(1 + fᵀf) F'Ṽᵀ + 2 s' F'f)",
        lambda i, j: i.s1 * (1 + i.f @ i.f),
        lambda i, j: outer(i.hx, i.s2 * (1 + i.f @ i.f) * (i.F(1) @ i.V) + 2 * i.s1 * (i.F(1) @ i.f)),
        W,
    ),
    Derivative(
        "88",
        "Lemma 5, Eq. 88",
        "d s'(z)||F'(y)Ṽᵀ||²/dv = (s'' h(f) ṼF' + 2 s' F_0') F'Ṽᵀ",
        lambda i, j: i.s1 * (i.F(1) @ i.V).square().sum(),
        lambda i, j: (i.s2 * torch.outer(i.hr, i.V @ i.F(1)) + 2 * i.s1 * i.F0(1)) @ i.F(1) @ i.V,
        V,
    ),
    Derivative("89", "Eq. 89", "ds'(z)/dv = s''(z) h(f(y))", lambda i, j: i.s1, lambda i, j: i.s2 * i.hr, V),
    Derivative("90", "Eq. 90", "dF'(y)Ṽᵀ/dv = F_0'(y)", lambda i, j: i.F(1) @ i.V, lambda i, j: i.F0(1), V),
    Derivative(
        "91",
        "Lemma 6, Eq. 91",
        "d delta Ṽf''(y)/dv = s' h(f) Ṽf'' + delta f_0''",
        lambda i, j: i.delta * (i.V @ i.d(2)),
        lambda i, j: i.s1 * i.hr * (i.V @ i.d(2)) + i.delta * i.f0(2),
        V,
    ),
    Derivative("92", "Eq. 92", "d delta/dv = s'(z) h(f(y))", lambda i, j: i.delta, lambda i, j: i.s1 * i.hr, V),
    Derivative(
        "93",
        "Lemma 7, Eq. 93",
        "d s'(z)(1 + fᵀf)/dv = s''(1 + fᵀf) h(f)",
        lambda i, j: i.s1 * (1 + i.f @ i.f),
        lambda i, j: i.s2 * (1 + i.f @ i.f) * i.hr,
        V,
    ),
    Derivative(
        "104",
        "Lemma 10, Eq. 104",
        "do/dw = h(x) ⊗ F'(y) Ṽᵀ s''/'(z)ᵀ",
        lambda i, j: i.o,
        lambda i, j: outer(i.hx, torch.outer(i.F(1) @ i.V, i.s21)),
        W,
    ),
    Derivative(
        "130",
        "Lemma 21, Eq. 130",
        "do/dv = h(f(y)) s''/'(z)ᵀ",
        lambda i, j: i.o,
        lambda i, j: torch.outer(i.hr, i.s21),
        V,
    ),
)

PAIRS = (
    Derivative(
        "105",
        "Lemma 11, Eq. 105",
        "dΦ_11/dw = h(x_i) ⊗ a_ij + h(x_j) ⊗ a_ji, a = 2 Φ_11^{1/2} F''(y_i) F'(y_j) Ṽ²ᵀ",
        entry(t.phi_matrix, 1, 1),
        both(t.a_phi),
        W,
        "hsr.root",
    ),
    Derivative(
        "106",
        "Lemma 12, Eq. 106",
        "dΦ_12/dw = h(x_i) ⊗ b_ij + h(x_j) ⊗ c_ji",
        entry(t.phi_matrix, 1, 2),
        both(t.b_phi, t.c_phi),
        W,
    ),
    Derivative(
        "107",
        "Lemma 12, Eq. 107",
        "dΦ_21/dw = h(x_i) ⊗ c_ij + h(x_j) ⊗ b_ji",
        entry(t.phi_matrix, 2, 1),
        both(t.c_phi, t.b_phi),
        W,
    ),
    Derivative(
        "108",
        "Lemma 13, Eq. 108",
        "dΦ_22/dw = h(x_i) ⊗ d_ij + h(x_j) ⊗ d_ji",
        entry(t.phi_matrix, 2, 2),
        both(t.d_phi),
        W,
    ),
    Derivative(
        "115",
        "Lemma 15, Eq. 115",
        "dΨ_11/dw = h(x_i) ⊗ a_ij + h(x_j) ⊗ a_ji",
        entry(t.psi_matrix, 1, 1),
        both(t.a_psi),
        W,
    ),
    Derivative(
        "117",
        "Lemma 16, Eq. 117",
        "dΨ_12/dw = h(x_i) ⊗ b_ij + h(x_j) ⊗ c_ji",
        entry(t.psi_matrix, 1, 2),
        both(t.b_psi, t.c_psi),
        W,
    ),
    Derivative(
        "118",
        "Lemma 16, Eq. 118",
        "dΨ_21/dw = h(x_i) ⊗ c_ij + h(x_j) ⊗ b_ji",
        entry(t.psi_matrix, 2, 1),
        both(t.c_psi, t.b_psi),
        W,
    ),
    Derivative(
        "120",
        "Eq. 120",
        "dF'(y_j)f(y_i)/dw = h(x_i) ⊗ F'(y_j)F'(y_i) + h(x_j) ⊗ F''(y_j)F(y_i)",
        lambda i, j: j.F(1) @ i.f,
        lambda i, j: outer(i.hx, j.F(1) @ i.F(1)) + outer(j.hx, j.F(2) @ i.F(0)),
        W,
    ),
    Derivative(
        "123",
        "Lemma 17, Eq. 123",
        "dΨ_22/dw = h(x_i) ⊗ d_ij + h(x_j) ⊗ d_ji",
        entry(t.psi_matrix, 2, 2),
        both(t.d_psi),
        W,
    ),
    Derivative(
        "131",
        "Lemma 22, Eq. 131",
        "dΦ_11/dv = e_ij + e_ji, e = 2 Φ_11^{1/2} Vᵀ ⊙ f_0'(y_j) ⊙ f_0'(y_i)",
        entry(t.phi_matrix, 1, 1),
        lambda i, j: t.e_phi(i, j) + t.e_phi(j, i),
        V,
        "hsr.root",
    ),
    Derivative("132", "Lemma 23, Eq. 132", "dΦ_12/dv = f_ij", entry(t.phi_matrix, 1, 2), t.f_phi, V),
    Derivative("133", "Lemma 23, Eq. 133", "dΦ_21/dv = f_ji", entry(t.phi_matrix, 2, 1), lambda i, j: t.f_phi(j, i), V),
    Derivative(
        "134",
        "Lemma 24, Eq. 134",
        "dΦ_22/dv = g_ij + g_ji",
        entry(t.phi_matrix, 2, 2),
        lambda i, j: t.g_phi(i, j) + t.g_phi(j, i),
        V,
    ),
    Derivative(
        "136",
        "Lemma 26, Eq. 136",
        "dΨ_11/dv = e_ij + e_ji",
        entry(t.psi_matrix, 1, 1),
        lambda i, j: t.e_psi(i, j) + t.e_psi(j, i),
        V,
    ),
    Derivative("137", "Lemma 27, Eq. 137", "dΨ_12/dv = f_ij", entry(t.psi_matrix, 1, 2), t.f_psi, V),
    Derivative("138", "Lemma 27, Eq. 138", "dΨ_21/dv = f_ji", entry(t.psi_matrix, 2, 1), lambda i, j: t.f_psi(j, i), V),
    Derivative(
        "139", "Lemma 28, Eq. 139", "dΨ_22/dv = 0", entry(t.psi_matrix, 2, 2), lambda i, j: torch.zeros_like(i.hr), V
    ),
)
