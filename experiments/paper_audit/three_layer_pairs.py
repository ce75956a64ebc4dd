"""Terms of pairs of samples of the three-layer network, and the gradients of their sums.

They are transcribed from the HSR paper, whose Eqs. 5–16 are Eqs. 26–28 of the WS-bound paper.
Φ_11^{1/2} in Eqs. 37 and 54 is `signed`, Ṽ F'(y_j) F'(y_i) Ṽᵀ, as the proofs of Lemmas 11 and 22
define it; it is negative where f' has opposite signs, as GELU's can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from experiments.paper_audit import tensors
from experiments.paper_audit.formulas import Formula, lifted, outer
from experiments.paper_audit.three_layer import Sample
from experiments.paper_audit.three_layer_terms import (
    F0,
    F01,
    F1,
    F2,
    F3,
    V as V_of_sample,
    d1,
    diag,
    f,
    f01,
    f02,
    full as full_of_sample,
    hr as hr_of_sample,
    hx,
    kron,
    o,
    on_pair,
    s1,
    s2,
    s21,
    stack,
)

Pair = Callable[[Sample, Sample], Tensor]

V, _ = on_pair(V_of_sample)
full, _ = on_pair(full_of_sample)
hr, _ = on_pair(hr_of_sample)
fi, fj = on_pair(f)
hxi, hxj = on_pair(hx)
oi, oj = on_pair(o)
s1i, s1j = on_pair(s1)
s2i, _ = on_pair(s2)
s21i, _ = on_pair(s21)
d1i, d1j = on_pair(d1)
F0i, F0j = on_pair(F0)
F1i, F1j = on_pair(F1)
F2i, F2j = on_pair(F2)
F3i, _ = on_pair(F3)
F01i, _ = on_pair(F01)
f01i, f01j = on_pair(f01)
f02i, f02j = on_pair(f02)
matrix = lifted(tensors.matrix)


def pairs(samples: list[Sample]) -> Iterator[tuple[Sample, Sample]]:
    """Every ordered pair, a sample with itself included."""
    return ((i, j) for i in samples for j in samples)


signed = V @ F1j @ F1i @ V
"""Φ_11^{1/2} (proofs of Lemmas 11 and 22)."""
phi_12 = V @ F1i @ diag(V) @ F2j @ F1i @ V
phi_21 = V @ F1j @ diag(V) @ F2i @ F1j @ V
phi_matrix = matrix([signed**2, phi_12], [phi_21, V @ F2i @ F2j @ V])
"""Φ_ij, (2, 2) (Eqs. 6–9)."""
hidden = 1 + fi @ fj
psi_12 = fi @ F1j @ F1i @ V
psi_21 = V @ F1j @ F1i @ fj
psi_matrix = matrix([hidden * signed, psi_12], [psi_21, d1i @ d1j])
"""Ψ_ij, (2, 2) (Eqs. 12–15)."""
phi = oi @ phi_matrix @ oj
psi = oi @ psi_matrix @ oj
omega = oi @ tensors.diagonal(1.0, 0.0) @ oj
inputs = hxi @ hxj
"""1 + x_iᵀ x_j."""

a_phi = 2 * signed * (F2i @ F1j @ V**2)
b_phi = 2 * F1i @ F2i @ F2j @ V**3
c_phi = F3i @ F1j @ F1j @ V**3
d_phi = F3i @ F2j @ V**2
a_psi_factor = outer(F1i @ fj, V @ F1i) + diag(V) @ F2i * hidden
a_psi = a_psi_factor @ F1j @ V
b_psi = (F1i @ F1i + F2i @ F0i) @ F1j @ V
c_psi = F2i @ F0j @ F1j @ V
d_psi = F2i @ d1j
e_phi = 2 * signed * full * f01j * f01i
f_phi = 3 * full**2 * f01i**2 * f02j
g_phi = full * f02i * f02j
e_psi = hidden * F01i @ F1j @ V
f_psi = F01i @ F1j @ fi

G_phi = stack([a_phi, b_phi, c_phi, d_phi], dim=1)
"""Eq. 36, (N, 4)."""
G_psi = stack([a_psi, b_psi, c_psi, d_psi], dim=1)
"""Eq. 41, (N, 4)."""
K_phi = stack([e_phi, f_phi, 0 * g_phi, g_phi], dim=1)
"""Eq. 53, (N+1, 4)."""
K_psi = stack([e_psi, f_psi, 0 * e_psi, 0 * e_psi], dim=1)
"""Eq. 57, (N+1, 4)."""


def product_rule(by_value: Formula, by_output: Formula, matrix: Formula) -> Formula:
    """Derivative of o_iᵀ P_ij o_j: by_value (o_i ⊗ o_j) + by_output s''/'(z_i) P_ij o_j."""
    by_second = by_output * (s21i @ matrix @ oj)
    return by_value @ kron(oi, oj) + by_second


w_phi = inputs**2 * product_rule(G_phi, F1i @ V, phi_matrix)
"""A^Φ + B^Φ (Eqs. 29, 32), (N,)."""
w_psi = 2 * inputs * product_rule(G_psi, F1i @ V, psi_matrix)
"""A^Ψ + B^Ψ (Eqs. 30, 33), (N,)."""
w_omega_of_s = hidden**2 * s2i * s1j * (F1i @ V)
w_omega = w_omega_of_s + 2 * s1i * s1j * hidden * (F1i @ fj)
"""A^Ω + B^Ω (Eqs. 31, 34), (N,)."""
v_phi = inputs**2 * product_rule(K_phi, hr, phi_matrix)
"""C^Φ + D^Φ (Eqs. 47, 50), (N+1,)."""
v_psi = 2 * inputs * product_rule(K_psi, hr, psi_matrix)
"""C^Ψ + D^Ψ (Eqs. 48, 51), (N+1,)."""
v_omega = s2i * s1j * hidden**2 * hr
"""C^Ω + D^Ω (Eqs. 49, 52), (N+1,)."""
