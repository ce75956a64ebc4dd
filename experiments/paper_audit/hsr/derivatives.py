"""HSR paper, Appendices A and B: printed derivatives of the terms against autodiff."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.paper_audit import three_layer_pairs as t
from experiments.paper_audit.checks import (
    Check,
    Checks,
    Outcome,
    Worked,
    matches,
    relative_error,
    worked,
)
from experiments.paper_audit.formulas import Formula, lifted, outer as product
from experiments.paper_audit.tensors import grid, kron
from experiments.paper_audit.three_layer import (
    Instance,
    Sample,
    derivative as derivative_of,
    instances,
    opposed_gelu,
)
from experiments.paper_audit.three_layer_pairs import Pair
from experiments.paper_audit.three_layer_terms import (
    F01,
    F1,
    F2,
    F3,
    V,
    bend,
    d1,
    d2,
    delta,
    diag,
    f,
    f02,
    hidden_norm,
    hr,
    hx,
    identity,
    o,
    on_pair,
    s1,
    s2,
    s21,
    slope,
    squares,
    swapped,
    y,
    z,
)
from experiments.paper_audit.ws_bound.activations import sigmoid

CHECKS = Checks()


@dataclass(frozen=True)
class Case:
    """A network and the places of two of its samples."""

    instance: Instance
    first: int
    second: int

    def __str__(self) -> str:
        return f"{self.instance}, i = {self.first + 1}, j = {self.second + 1}"

    @property
    def samples(self) -> tuple[Sample, Sample]:
        samples = self.instance.samples
        return samples[self.first], samples[self.second]

    def jacobian(self, quantity: Pair) -> Tensor:
        """d quantity / dθ by automatic differentiation, the derivative in front."""
        return self.instance.jacobian(quantity, self.first, self.second)


def outer(h: Tensor, block: Tensor) -> Tensor:
    """h(x) ⊗ A for a vector or a matrix A."""
    if block.ndim == 1:
        return kron(h, block)
    return kron(h[:, None], block)


by_input = lifted(outer)


def cases() -> Iterator[Case]:
    """Two different samples, and one sample twice, of every instance; a GELU unit whose root
    Φ_11^{1/2} is negative."""
    cases_of_size = instances(sizes=((2, 3, 2),))
    for instance in (opposed_gelu(), *cases_of_size):
        yield Case(instance, 0, 1)
        yield Case(instance, 1, 1)


def derivative(quantity: Pair, printed: Pair, part: Callable[[Instance], slice]) -> Check:
    """d quantity / d part = printed: largest error against automatic differentiation."""

    def expected(case: Case) -> Tensor:
        return case.jacobian(quantity)[part(case.instance)]

    return matches(cases, expected, lambda case: printed(*case.samples))


def by_w(quantity: Pair, printed: Pair) -> Check:
    return derivative(quantity, printed, lambda instance: instance.w)


def by_v(quantity: Pair, printed: Pair) -> Check:
    return derivative(quantity, printed, lambda instance: instance.v)


def at_first(term: Formula) -> Formula:
    """A term of the first sample of a pair."""
    return on_pair(term)[0]


def term_by_w(quantity: Formula, printed: Formula) -> Check:
    """d quantity / dw = h(x_i) ⊗ printed, for a term of one sample."""
    by_first = by_input(hx, printed)
    return by_w(at_first(quantity), at_first(by_first))


def term_by_v(quantity: Formula, printed: Formula) -> Check:
    """d quantity / dv = printed, for a term of one sample."""
    return by_v(at_first(quantity), at_first(printed))


CHECKS["hsr.eq76"] = term_by_w(z, slope)
CHECKS["hsr.eq77"] = term_by_w(s1, s2 * slope)
CHECKS["hsr.eq78"] = term_by_w(y, identity)
CHECKS["hsr.eq79"] = term_by_w(slope, diag(V) @ F2)
CHECKS["hsr.eq82"] = term_by_w(delta, s1 * slope)
CHECKS["hsr.eq84"] = term_by_w(f, F1)
CHECKS["hsr.eq85"] = term_by_w(d1, F2)
CHECKS["hsr.eq86"] = term_by_w(d2, F3)
CHECKS["hsr.eq89"] = term_by_v(s1, s2 * hr)
CHECKS["hsr.eq90"] = term_by_v(slope, F01)
CHECKS["hsr.eq92"] = term_by_v(delta, s1 * hr)
CHECKS["hsr.eq104"] = term_by_w(o, product(slope, s21))
CHECKS["hsr.eq130"] = term_by_v(o, product(hr, s21))

first_trace_term = s1 * squares(slope)
second_trace_term = delta * bend
third_trace_term = s1 * hidden_norm
eq75 = (s2 * product(slope, slope) + 2 * s1 * diag(V) @ F2) @ slope
eq81 = s1 * slope * bend + delta * F3 @ V
eq87 = s2 * hidden_norm * slope + 2 * s1 * (F1 @ f)
eq88 = (s2 * product(hr, slope) + 2 * s1 * F01) @ slope
eq91 = s1 * hr * bend + delta * f02
eq93 = s2 * hidden_norm * hr
CHECKS["hsr.eq75"] = term_by_w(first_trace_term, eq75)
CHECKS["hsr.eq81"] = term_by_w(second_trace_term, eq81)
CHECKS["hsr.eq87"] = term_by_w(third_trace_term, eq87)
CHECKS["hsr.eq88"] = term_by_v(first_trace_term, eq88)
CHECKS["hsr.eq91"] = term_by_v(second_trace_term, eq91)
CHECKS["hsr.eq93"] = term_by_v(third_trace_term, eq93)


def both(first: Formula, second: Formula | None = None) -> Formula:
    """h(x_i) ⊗ first_ij + h(x_j) ⊗ second_ji; second defaults to first."""
    return by_input(t.hxi, first) + by_input(t.hxj, swapped(second or first))


def phi(row: int, column: int) -> Formula:
    return t.phi_matrix[row - 1, column - 1]


def psi(row: int, column: int) -> Formula:
    return t.psi_matrix[row - 1, column - 1]


CHECKS["hsr.eq105"] = by_w(phi(1, 1), both(t.a_phi))
CHECKS["hsr.eq106"] = by_w(phi(1, 2), both(t.b_phi, t.c_phi))
CHECKS["hsr.eq107"] = by_w(phi(2, 1), both(t.c_phi, t.b_phi))
CHECKS["hsr.eq108"] = by_w(phi(2, 2), both(t.d_phi))
CHECKS["hsr.eq115"] = by_w(psi(1, 1), both(t.a_psi))
CHECKS["hsr.eq117"] = by_w(psi(1, 2), both(t.b_psi, t.c_psi))
CHECKS["hsr.eq118"] = by_w(psi(2, 1), both(t.c_psi, t.b_psi))
CHECKS["hsr.eq120"] = by_w(
    t.F1j @ t.fi,
    by_input(t.hxi, t.F1j @ t.F1i) + by_input(t.hxj, t.F2j @ t.F0i),
)
CHECKS["hsr.eq123"] = by_w(psi(2, 2), both(t.d_psi))
CHECKS["hsr.eq131"] = by_v(phi(1, 1), t.e_phi + swapped(t.e_phi))
CHECKS["hsr.eq132"] = by_v(phi(1, 2), t.f_phi)
CHECKS["hsr.eq133"] = by_v(phi(2, 1), swapped(t.f_phi))
CHECKS["hsr.eq134"] = by_v(phi(2, 2), t.g_phi + swapped(t.g_phi))
CHECKS["hsr.eq136"] = by_v(psi(1, 1), t.e_psi + swapped(t.e_psi))
CHECKS["hsr.eq137"] = by_v(psi(1, 2), t.f_psi)
CHECKS["hsr.eq138"] = by_v(psi(2, 1), swapped(t.f_psi))
CHECKS["hsr.eq139"] = by_v(psi(2, 2), 0 * t.hr)


@CHECKS.clause("hsr.sigmoid")
def third_sigmoid() -> Outcome:
    """The sigmoid's third derivative of Section VI-A on a grid."""
    y = grid(-6, 6, 49)
    exact = derivative_of("sigmoid", 3)(y)
    return Outcome(relative_error(sigmoid(y)[3], exact), instances=len(y))


def root_example() -> Worked:
    """Φ_11^{1/2} of the instance that tells the two signs of the root apart."""
    instance = opposed_gelu()
    i, j = instance.samples
    exact = instance.jacobian(phi(1, 1), 0, 1)[instance.count + 1]
    gradient = t.e_phi + swapped(t.e_phi)
    signed = gradient(i, j)[1]
    unsigned = signed * float(torch.sign(t.signed(i, j)))
    return worked(
        "one GELU unit, y_1 = −1, y_2 = 3/2, Ṽ = 3/2: dΦ_11/dv_1",
        f"{float(unsigned):.5g} with the non-negative root",
        f"{float(signed):.5g} with the signed root",
        f"{float(exact):.5g}",
    )
