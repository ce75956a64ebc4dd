"""HSR paper, Appendix B: printed derivatives of the terms of one sample and of a pair, against autodiff of the term."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.paper_audit.formula import Formula, Outcome
from experiments.paper_audit.hsr import pair_terms as t
from experiments.paper_audit.hsr.pair_terms import kron
from experiments.paper_audit.three_layer_oracle import (
    Instance,
    Sample,
    instances,
    opposed_gelu,
    relative_error,
)

Pair = Callable[[Sample, Sample], Tensor]
W, V, THETA = "w", "v", "theta"

ROOT = (
    "Φ_11^{1/2} must be read as the signed sum Ṽ F'(y_j) F'(y_i) Ṽᵀ = Σ_n v_n² f'(y_in) f'(y_jn), as the proofs do. "
    "It is the non-negative root of Φ_11 only where that sum is not negative: f' >= 0 suffices, but GELU has f' < 0 "
    "below y = −0.752"
)


def outer(h: Tensor, block: Tensor) -> Tensor:
    """h(x) ⊗ A for a vector or a matrix A."""
    return kron(h, block) if block.ndim == 1 else kron(h[:, None], block)


def cases() -> Iterator[tuple[Instance, int, int]]:
    """Two different samples and one sample twice, for every activation, and the unit that tells the two roots apart."""
    for instance in instances(sizes=((2, 3, 2),)):
        yield instance, 0, 1
        yield instance, 1, 1
    yield opposed_gelu(), 0, 1


def compare(quantity: Pair, printed: Pair, block: str) -> tuple[float, str]:
    """(largest error of the printed derivative with respect to w, v or theta, where it was found)."""
    errors = []
    for instance, i, j in cases():
        expected = instance.jacobian(quantity, i, j)
        part = {W: slice(None, instance.count), V: slice(instance.count, None), THETA: slice(None)}[block]
        samples = instance.samples
        found = printed(samples[i], samples[j])
        errors.append((relative_error(found, expected[part]), f"{instance.sizes}, i = {i}, j = {j}"))
    return max(errors)


@dataclass(frozen=True)
class Derivative:
    """d quantity / d block = printed; `right` where the printed form is not right for every activation."""

    number: str
    place: str
    statement: str
    quantity: Pair
    printed: Pair
    block: str
    right: Pair | None = None

    def check(self) -> Outcome:
        error, where = compare(self.quantity, self.printed, self.block)
        count = len(list(cases()))
        if self.right is None:
            return Outcome(error, instances=count)
        corrected, _ = compare(self.quantity, self.right, self.block)
        return Outcome(error, corrected, count, f"{where}: relative error {error:.3g}")

    @property
    def formula(self) -> Formula:
        if self.right is None:
            return Formula(f"hsr.eq{self.number}", self.place, self.statement, self.check)
        return Formula(
            f"hsr.eq{self.number}",
            self.place,
            self.statement,
            self.check,
            expected="holds after correction",
            difference="missing assumption",
            correction=ROOT,
        )


def both(first: Pair, second: Pair | None = None) -> Pair:
    """h(x_i) ⊗ first_ij + h(x_j) ⊗ second_ji; second defaults to first."""
    other = second or first
    return lambda i, j: outer(i.hx, first(i, j)) + outer(j.hx, other(j, i))


def entry(matrix: Pair, row: int, column: int) -> Pair:
    return lambda i, j: matrix(i, j)[row - 1, column - 1]


def principal_a(i: Sample, j: Sample) -> Tensor:
    return t.a_phi(i, j, t.principal)


def principal_e(i: Sample, j: Sample) -> Tensor:
    return t.e_phi(i, j, t.principal) + t.e_phi(j, i, t.principal)


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
        both(principal_a),
        W,
        both(t.a_phi),
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
        principal_e,
        V,
        lambda i, j: t.e_phi(i, j) + t.e_phi(j, i),
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
