"""Terms of pairs of samples of the three-layer network, and the gradients of their sums.

They are transcribed from the HSR paper, whose Eqs. 5–16 are Eqs. 26–28 of the WS-bound paper.
Φ_11^{1/2} in Eqs. 37 and 54 is `signed`, Ṽ F'(y_j) F'(y_i) Ṽᵀ, as the proofs of Lemmas 11 and 22
define it; it is negative where f' has opposite signs, as GELU's can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, diag

from experiments.paper_audit.tensors import diagonal, kron, matrix
from experiments.paper_audit.three_layer import Sample

Pair = Callable[[Sample, Sample], Tensor]


def pairs(samples: list[Sample]) -> Iterator[tuple[Sample, Sample]]:
    """Every ordered pair, a sample with itself included."""
    return ((i, j) for i in samples for j in samples)


def signed(i: Sample, j: Sample) -> Tensor:
    """Φ_11^{1/2} (proofs of Lemmas 11 and 22)."""
    return i.V @ j.F(1) @ i.F(1) @ i.V


def phi_matrix(i: Sample, j: Sample) -> Tensor:
    """Φ_ij, (2, 2) (Eqs. 6–9)."""
    V, weights = i.V, diag(i.V)
    one_two = V @ i.F(1) @ weights @ j.F(2) @ i.F(1) @ V
    two_one = V @ j.F(1) @ weights @ i.F(2) @ j.F(1) @ V
    two_two = V @ i.F(2) @ j.F(2) @ V
    return matrix([signed(i, j) ** 2, one_two], [two_one, two_two])


def psi_matrix(i: Sample, j: Sample) -> Tensor:
    """Ψ_ij, (2, 2) (Eqs. 12–15)."""
    V = i.V
    one_one = (1 + i.f @ j.f) * signed(i, j)
    one_two = i.f @ j.F(1) @ i.F(1) @ V
    two_one = V @ j.F(1) @ i.F(1) @ j.f
    return matrix([one_one, one_two], [two_one, i.d(1) @ j.d(1)])


def phi(i: Sample, j: Sample) -> Tensor:
    return i.o @ phi_matrix(i, j) @ j.o


def psi(i: Sample, j: Sample) -> Tensor:
    return i.o @ psi_matrix(i, j) @ j.o


def omega(i: Sample, j: Sample) -> Tensor:
    return i.o @ diagonal(1.0, 0.0) @ j.o


def inputs(i: Sample, j: Sample) -> Tensor:
    """1 + x_iᵀ x_j."""
    return i.hx @ j.hx


def hidden(i: Sample, j: Sample) -> Tensor:
    """1 + f(y_i)ᵀ f(y_j)."""
    return 1 + i.f @ j.f


def a_phi(i: Sample, j: Sample) -> Tensor:
    return 2 * signed(i, j) * (i.F(2) @ j.F(1) @ i.V**2)


def b_phi(i: Sample, j: Sample) -> Tensor:
    return 2 * i.F(1) @ i.F(2) @ j.F(2) @ i.V**3


def c_phi(i: Sample, j: Sample) -> Tensor:
    return i.F(3) @ j.F(1) @ j.F(1) @ i.V**3


def d_phi(i: Sample, j: Sample) -> Tensor:
    return i.F(3) @ j.F(2) @ i.V**2


def a_psi(i: Sample, j: Sample) -> Tensor:
    first = torch.outer(i.F(1) @ j.f, i.V @ i.F(1))
    return (first + diag(i.V) @ i.F(2) * hidden(i, j)) @ j.F(1) @ i.V


def b_psi(i: Sample, j: Sample) -> Tensor:
    return (i.F(1) @ i.F(1) + i.F(2) @ i.F(0)) @ j.F(1) @ i.V


def c_psi(i: Sample, j: Sample) -> Tensor:
    return i.F(2) @ j.F(0) @ j.F(1) @ i.V


def d_psi(i: Sample, j: Sample) -> Tensor:
    return i.F(2) @ j.d(1)


def e_phi(i: Sample, j: Sample) -> Tensor:
    return 2 * signed(i, j) * i.full * j.f0(1) * i.f0(1)


def f_phi(i: Sample, j: Sample) -> Tensor:
    return 3 * i.full**2 * i.f0(1) ** 2 * j.f0(2)


def g_phi(i: Sample, j: Sample) -> Tensor:
    return i.full * i.f0(2) * j.f0(2)


def e_psi(i: Sample, j: Sample) -> Tensor:
    return hidden(i, j) * i.F0(1) @ j.F(1) @ i.V


def f_psi(i: Sample, j: Sample) -> Tensor:
    return i.F0(1) @ j.F(1) @ i.f


def G_phi(i: Sample, j: Sample) -> Tensor:
    """Eq. 36, (N, 4)."""
    return torch.stack([a_phi(i, j), b_phi(i, j), c_phi(i, j), d_phi(i, j)], dim=1)


def G_psi(i: Sample, j: Sample) -> Tensor:
    """Eq. 41, (N, 4)."""
    return torch.stack([a_psi(i, j), b_psi(i, j), c_psi(i, j), d_psi(i, j)], dim=1)


def K_phi(i: Sample, j: Sample) -> Tensor:
    """Eq. 53, (N+1, 4)."""
    g = g_phi(i, j)
    return torch.stack([e_phi(i, j), f_phi(i, j), torch.zeros_like(g), g], dim=1)


def K_psi(i: Sample, j: Sample) -> Tensor:
    """Eq. 57, (N+1, 4)."""
    e = e_psi(i, j)
    return torch.stack([e, f_psi(i, j), torch.zeros_like(e), torch.zeros_like(e)], dim=1)


def product_rule(by_value: Tensor, by_output: Tensor, matrix: Pair, i: Sample, j: Sample) -> Tensor:
    """Derivative of o_iᵀ P_ij o_j: by_value (o_i ⊗ o_j) + by_output s''/'(z_i) P_ij o_j."""
    return by_value @ kron(i.o, j.o) + by_output * (i.s21 @ matrix(i, j) @ j.o)


def w_phi(i: Sample, j: Sample) -> Tensor:
    """A^Φ + B^Φ (Eqs. 29, 32), (N,)."""
    return inputs(i, j) ** 2 * product_rule(G_phi(i, j), i.F(1) @ i.V, phi_matrix, i, j)


def w_psi(i: Sample, j: Sample) -> Tensor:
    """A^Ψ + B^Ψ (Eqs. 30, 33), (N,)."""
    return 2 * inputs(i, j) * product_rule(G_psi(i, j), i.F(1) @ i.V, psi_matrix, i, j)


def w_omega(i: Sample, j: Sample) -> Tensor:
    """A^Ω + B^Ω (Eqs. 31, 34), (N,)."""
    first = hidden(i, j) ** 2 * i.s2 * j.s1 * (i.F(1) @ i.V)
    return first + 2 * i.s1 * j.s1 * hidden(i, j) * (i.F(1) @ j.f)


def v_phi(i: Sample, j: Sample) -> Tensor:
    """C^Φ + D^Φ (Eqs. 47, 50), (N+1,)."""
    return inputs(i, j) ** 2 * product_rule(K_phi(i, j), i.hr, phi_matrix, i, j)


def v_psi(i: Sample, j: Sample) -> Tensor:
    """C^Ψ + D^Ψ (Eqs. 48, 51), (N+1,)."""
    return 2 * inputs(i, j) * product_rule(K_psi(i, j), i.hr, psi_matrix, i, j)


def v_omega(i: Sample, j: Sample) -> Tensor:
    """C^Ω + D^Ω (Eqs. 49, 52), (N+1,)."""
    return i.s2 * j.s1 * hidden(i, j) ** 2 * i.hr
