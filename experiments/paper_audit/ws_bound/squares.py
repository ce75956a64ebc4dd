"""WS-bound paper, Theorems 5 and 6 and Appendix B, L–Q: tr H² as a sum over pairs of samples, and
its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.paper_audit import three_layer_pairs as t
from experiments.paper_audit.checks import (
    Check,
    Checks,
    Errors,
    Outcome,
    equality as equal,
    excess,
    outcome_of,
    relative_error,
)
from experiments.paper_audit.tensors import gauss, kron, ones, real, seeded, zeros
from experiments.paper_audit.three_layer import Instance, equality, instances
from experiments.paper_audit.three_layer_pairs import (
    F1i,
    F1j,
    F2i,
    F2j,
    Pair,
    V,
    d1i,
    d1j,
    fi,
    fj,
    hxi,
    hxj,
    pairs,
    s1i,
    s1j,
)
from experiments.paper_audit.three_layer_search import inequality
from experiments.paper_audit.three_layer_terms import d1, d2, delta, diag, f, hx, on_pair, s1
from experiments.paper_audit.ws_bound.trace_bounds import value
from experiments.paper_audit.ws_bound.traces import (
    block_vv,
    block_vw,
    block_wv,
    block_ww,
    stacked,
    trace,
)

CHECKS = Checks()
PAIRED = ((1, 1, 2), (2, 3, 3))


def dense_square(instance: Instance) -> Tensor:
    """tr H²."""
    return instance.hessian.square().sum()


def gram(instance: Instance, term: Pair) -> Tensor:
    """A term of all pairs, (I, I)."""
    samples = instance.samples
    terms = torch.stack([term(i, j) for i, j in pairs(samples)])
    return terms.view(len(samples), len(samples))


def square(instance: Instance) -> Tensor:
    """Eq. 25 with Frobenius products."""
    R = stacked(instance, f)
    samples = len(instance.x)
    J = ones(samples, samples)
    inputs = J + instance.x @ instance.x.T
    hidden = J + R @ R.T
    of_phi = gram(instance, t.phi) * inputs**2
    by_phi = of_phi.sum()
    of_psi = gram(instance, t.psi) * inputs
    by_psi = 2 * of_psi.sum()
    of_omega = gram(instance, t.omega) * hidden**2
    by_omega = of_omega.sum()
    return by_phi + by_psi + by_omega


CHECKS["ws.theorem5"] = equality(square, dense_square, PAIRED)


class Grams(NamedTuple):
    """φ, ψ, ω, 1 + x_iᵀx_j and 1 + r_iᵀr_j of all pairs at once, (I, I): sums over hidden units
    written out."""

    phi: Tensor
    psi: Tensor
    omega: Tensor
    inputs: Tensor
    hidden: Tensor


def grams(instance: Instance) -> Grams:
    V = instance.samples[0].V
    h = stacked(instance, hx)
    r = stacked(instance, f)
    f1 = stacked(instance, d1)
    f2 = stacked(instance, d2)
    s = stacked(instance, s1)[:, None]
    error = stacked(instance, delta)[:, None]
    slope = f1 * V
    bend = f2 * V
    hidden = 1 + r @ r.T
    omega = s @ s.T
    deltas = error @ error.T
    slopes = slope @ slope.T
    curved = slope**2 @ bend.T
    mixed = s * curved * error.T
    phi = omega * slopes**2 + mixed + mixed.T + deltas * (bend @ bend.T)
    mixed = s * ((r * slope) @ f1.T) * error.T
    psi = omega * hidden * slopes + mixed + mixed.T + deltas * (f1 @ f1.T)
    return Grams(phi, psi, omega, h @ h.T, hidden)


def pair_terms(instance: Instance) -> Tensor:
    """φ, ψ and ω of all pairs from the printed bilinear forms, (3, I, I)."""
    return torch.stack([gram(instance, term) for term in (t.phi, t.psi, t.omega)])


CHECKS["ws.eq26"] = equality(pair_terms, lambda c: torch.stack(grams(c)[:3]), PAIRED)


def scanned_square(instance: Instance) -> Tensor:
    """Eq. 25 with (Φ_ij)_22 as the scan has it, Ṽ F''(y_i) F'(y_j) Ṽᵀ."""
    found = square(instance)
    for i, j in pairs(instance.samples):
        difference = j.F(1) - j.F(2)
        lost = i.V @ i.F(2) @ difference @ i.V
        factor = t.inputs(i, j) ** 2 * i.delta * j.delta
        found = found + factor * lost
    return found


@CHECKS.clause("ws.eq26.phi22")
def scanned_phi() -> Outcome:
    cases = instances(("sigmoid", "tanh", "softplus", "gelu"), ((2, 3, 3),))
    return equal(cases, dense_square, scanned_square, square)


def excess_square(instance: Instance) -> float:
    """Theorem 6, Eq. 29."""
    phi, psi, _, inputs, hidden = grams(instance)
    by_inputs = psi.square().sum() + (1 + phi.max()) * inputs.square().sum()
    bound = float(by_inputs + hidden.square().sum() / 16)
    return excess(float(dense_square(instance)), bound)


def negative_phi(instance: Instance) -> float:
    return -float(grams(instance).phi.max())


def steep(name: str) -> Iterator[Instance]:
    """One unit and one sample x = 0 with z = 0, where each term of the bound decides in turn: Ψ, ω
    (large r), φ."""
    points = ((0.0, 1.0), (0.0, 4.0), (0.0, 16.0), (30.0, 0.001))
    for y, weight in points:
        offset = -weight * value(name, y)
        theta = real([y, 0.0, offset, weight])
        yield Instance(name, theta, zeros(1, 1), zeros(1))


CHECKS["ws.theorem6"] = inequality(excess_square, negative_phi, starts=steep)


deltai, deltaj = on_pair(delta)
ww_i, ww_j = on_pair(block_ww)
vv_i, vv_j = on_pair(block_vv)
wv_i, _ = on_pair(block_wv)
_, vw_j = on_pair(block_vw)
square_of_pair = trace(ww_i @ ww_j) + 2 * trace(wv_i @ vw_j) + trace(vv_i @ vv_j)


def block_square(instance: Instance) -> Tensor:
    """Lemma 2, Eq. 68."""
    return gram(instance, square_of_pair).sum()


CHECKS["ws.eq68"] = equality(block_square, dense_square, PAIRED)


@CHECKS.clause("ws.eq73")
def kronecker() -> Errors:
    """Lemma 3 and Eq. 80."""
    generator = seeded(0)
    shapes = ((1, 1), (2, 3), (4, 2))
    for m, n in shapes:
        A, C = gauss(generator, 2, m, n)
        B, D = gauss(generator, 2, n, m)
        whole = (kron(A, C) @ kron(B, D)).trace()
        yield relative_error(whole, (A @ B).trace() * (C @ D).trace())
        a, b = gauss(generator, 2, n)
        yield relative_error((torch.diag(a) @ torch.diag(b)).trace(), a @ b)


def pairwise(trace: Pair, printed: Pair) -> Check:
    """Largest error of a lemma on tr(H_i H_j) over all pairs."""

    def check() -> Outcome:
        errors = []
        for instance in instances(sizes=PAIRED):
            for i, j in pairs(instance.samples):
                errors.append(relative_error(printed(i, j), trace(i, j)))
        return outcome_of(errors)

    return check


four_first = s1i * s1j * (V @ F1i @ F1j @ V) ** 2
four_cross = s1i * deltaj * (V @ F1i @ diag(V) @ F2j @ F1i @ V)
four_back = s1j * deltai * (V @ F1j @ diag(V) @ F2i @ F1j @ V)
four_last = deltai * deltaj * (V @ F2i @ F2j @ V)
lemma_four = (hxi @ hxj) ** 2 * (four_first + four_cross + four_back + four_last)
"""Eq. 74 as printed in the proof: Ṽ F''(y_i) F''(y_j) Ṽᵀ in the last term."""
five_first = s1i * s1j * (1 + fi @ fj) * (V @ F1j @ F1i @ V)
five_cross = s1i * deltaj * (fi @ F1j @ F1i @ V)
five_back = s1j * deltai * (V @ F1j @ F1i @ fj)
five_last = deltai * deltaj * (d1i @ d1j)
lemma_five = (hxi @ hxj) * (five_first + (five_cross + five_back) + five_last)
"""Eq. 82."""
CHECKS["ws.eq74"] = pairwise(trace(ww_i @ ww_j), lemma_four)
CHECKS["ws.eq82"] = pairwise(trace(wv_i @ vw_j), lemma_five)
CHECKS["ws.eq89"] = pairwise(trace(vv_i @ vv_j), s1i * s1j * (1 + fi @ fj) ** 2)


def summed_square(instance: Instance) -> Tensor:
    """Eq. 90."""
    phi, psi, omega, inputs, hidden = grams(instance)
    by_psi = 2 * inputs * psi
    return (inputs**2 * phi + by_psi + hidden**2 * omega).sum()


CHECKS["ws.eq90"] = equality(summed_square, dense_square)


def excess_phi(instance: Instance) -> float:
    """Lemma 7, relative to ||J + XᵀX||²."""
    phi, _, _, inputs, _ = grams(instance)
    scale = inputs.square().sum()
    excess_of_sum = (phi * inputs**2).sum() - phi.max() * scale
    return float(excess_of_sum / scale)


def excess_psi(instance: Instance) -> float:
    """Lemma 8, likewise."""
    _, psi, _, inputs, _ = grams(instance)
    scale = inputs.square().sum()
    whole = 2 * (psi * inputs).sum()
    return float((whole - psi.square().sum() - scale) / scale)


def excess_omega(instance: Instance) -> float:
    """Lemma 9, relative to its bound."""
    _, _, omega, _, hidden = grams(instance)
    bound = hidden.square().sum() / 16
    whole = (omega * hidden**2).sum()
    return float((whole - bound) / bound)


def negative_terms(instance: Instance) -> float:
    """φ_ii >= 0 and ω > 0."""
    phi, _, omega, _, _ = grams(instance)
    least_phi = float(phi.diagonal().min())
    return max(-least_phi, -float(omega.min()))


CHECKS["ws.eq92"] = inequality(excess_phi, excess_psi, excess_omega, negative_terms, starts=steep)
