"""WS-bound paper, Theorems 5 and 6 and Appendix B, L–Q: tr H² as a sum over pairs of samples, and its bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.paper_audit import three_layer as t
from experiments.paper_audit.checks import Entry, Outcome, equality as equal, relative_error
from experiments.paper_audit.tensors import gauss, seeded
from experiments.paper_audit.three_layer import (
    Instance,
    Sample,
    derivative,
    equality,
    inequality,
    instances,
    kron,
)
from experiments.paper_audit.ws_bound.traces import (
    PAIRED,
    block_vv,
    block_vw,
    block_wv,
    block_ww,
    stacked,
)


def pairs(instance: Instance) -> Iterator[tuple[Sample, Sample]]:
    return ((i, j) for i in instance.samples for j in instance.samples)


def _gram(instance: Instance, term: t.Pair) -> Tensor:
    return torch.stack(
        [torch.stack([term(i, j) for j in instance.samples]) for i in instance.samples]
    )


def _square(instance: Instance) -> Tensor:
    """Eq. 25 with Frobenius products."""
    ones = torch.ones(len(instance.x), len(instance.x), dtype=instance.x.dtype)
    inputs, R = ones + instance.x @ instance.x.T, stacked(instance, lambda i: i.f)
    first = (_gram(instance, t.phi) * inputs**2).sum() + 2 * (_gram(instance, t.psi) * inputs).sum()
    return first + (_gram(instance, t.omega) * (ones + R @ R.T) ** 2).sum()


class Grams(NamedTuple):
    """φ, ψ, ω, 1 + x_iᵀx_j and 1 + r_iᵀr_j of all pairs at once, (I, I): sums over hidden units written out."""

    phi: Tensor
    psi: Tensor
    omega: Tensor
    inputs: Tensor
    hidden: Tensor


def grams(instance: Instance) -> Grams:
    samples = instance.samples
    h, s, delta, r, f1, f2 = (
        torch.stack(rows)
        for rows in zip(*((i.hx, i.s1, i.delta, i.f, i.d(1), i.d(2)) for i in samples), strict=True)
    )
    V = samples[0].V
    s, delta, slope, bend = s[:, None], delta[:, None], f1 * V, f2 * V
    hidden = 1 + r @ r.T
    phi_mixed = s * (slope**2 @ bend.T) * delta.T
    phi = (
        (s @ s.T) * (slope @ slope.T) ** 2
        + phi_mixed
        + phi_mixed.T
        + (delta @ delta.T) * (bend @ bend.T)
    )
    psi_mixed = s * ((r * slope) @ f1.T) * delta.T
    psi = (
        (s @ s.T) * hidden * (slope @ slope.T)
        + psi_mixed
        + psi_mixed.T
        + (delta @ delta.T) * (f1 @ f1.T)
    )
    return Grams(phi, psi, s @ s.T, h @ h.T, hidden)


def _bound_of_square(instance: Instance) -> float:
    """Right-hand side of Eq. 29."""
    phi, psi, _, inputs, hidden = grams(instance)
    return float(
        psi.square().sum() + (1 + phi.max()) * inputs.square().sum() + hidden.square().sum() / 16
    )


def _excess_square(instance: Instance) -> float:
    bound = _bound_of_square(instance)
    return (float(instance.hessian.square().sum()) - bound) / bound


def _negative_phi(instance: Instance) -> float:
    return -float(grams(instance).phi.max())


def _steep(name: str) -> Iterator[Instance]:
    """One unit and one sample x = 0 with z = 0, where each term of the bound decides in turn: Ψ, ω (large r), φ."""
    zero = torch.zeros(1, dtype=torch.float64)
    for y, weight in ((0.0, 1.0), (0.0, 4.0), (0.0, 16.0), (30.0, 0.001)):
        value = float(derivative(name, 0)(zero + y))
        yield Instance(
            name, torch.tensor([y, 0.0, -weight * value, weight]).double(), zero[None], zero
        )


def _pairwise(
    trace: Callable[[Sample, Sample], Tensor], printed: Callable[[Sample, Sample], Tensor]
) -> Callable:
    """Largest error of a lemma on tr(H_i H_j) over all pairs."""

    def check() -> Outcome:
        errors = [
            relative_error(printed(i, j), trace(i, j))
            for instance in instances(sizes=PAIRED)
            for i, j in pairs(instance)
        ]
        return Outcome(max(errors), instances=len(errors))

    return check


def _lemma_four(i: Sample, j: Sample) -> Tensor:
    """Eq. 74 as printed in the proof: Ṽ F''(y_i) F''(y_j) Ṽᵀ in the last term."""
    V, weights = i.V, torch.diag(i.V)
    cross = i.s1 * j.delta * (V @ i.F(1) @ weights @ j.F(2) @ i.F(1) @ V)
    back = j.s1 * i.delta * (V @ j.F(1) @ weights @ i.F(2) @ j.F(1) @ V)
    last = i.delta * j.delta * (V @ i.F(2) @ j.F(2) @ V)
    return (i.hx @ j.hx) ** 2 * (i.s1 * j.s1 * (V @ i.F(1) @ j.F(1) @ V) ** 2 + cross + back + last)


def _lemma_five(i: Sample, j: Sample) -> Tensor:
    """Eq. 82."""
    V = i.V
    first = i.s1 * j.s1 * (1 + i.f @ j.f) * (V @ j.F(1) @ i.F(1) @ V)
    second = i.s1 * j.delta * (i.f @ j.F(1) @ i.F(1) @ V) + j.s1 * i.delta * (
        V @ j.F(1) @ i.F(1) @ j.f
    )
    return (i.hx @ j.hx) * (first + second + i.delta * j.delta * (i.d(1) @ j.d(1)))


def _scanned_square(instance: Instance) -> Tensor:
    """Eq. 25 with (Φ_ij)_22 as the scan has it, Ṽ F''(y_i) F'(y_j) Ṽᵀ."""
    lost = sum(
        (i.hx @ j.hx) ** 2 * i.delta * j.delta * (i.V @ i.F(2) @ (j.F(1) - j.F(2)) @ i.V)
        for i, j in pairs(instance)
    )
    return _square(instance) + lost


def _scanned_phi() -> Outcome:
    cases = instances(("sigmoid", "tanh", "softplus", "gelu"), ((2, 3, 3),))
    return equal(cases, lambda c: c.hessian.square().sum(), _scanned_square, _square)


def _kronecker() -> Outcome:
    """Lemma 3 and Eq. 80."""
    generator = seeded(0)
    errors = []
    for m, n in ((1, 1), (2, 3), (4, 2)):
        A, C = gauss(generator, 2, m, n)
        B, D = gauss(generator, 2, n, m)
        errors.append(
            relative_error((kron(A, C) @ kron(B, D)).trace(), (A @ B).trace() * (C @ D).trace())
        )
        a, b = gauss(generator, 2, n)
        errors.append(relative_error((torch.diag(a) @ torch.diag(b)).trace(), a @ b))
    return Outcome(max(errors), instances=len(errors))


def _block_square(instance: Instance) -> Tensor:
    """Lemma 2, Eq. 68."""
    total = torch.zeros((), dtype=instance.x.dtype)
    for i, j in pairs(instance):
        total = (
            total + (block_ww(i) @ block_ww(j)).trace() + 2 * (block_wv(i) @ block_vw(j)).trace()
        )
        total = total + (block_vv(i) @ block_vv(j)).trace()
    return total


def _summed_square(instance: Instance) -> Tensor:
    """Eq. 90."""
    phi, psi, omega, inputs, hidden = grams(instance)
    return (inputs**2 * phi + 2 * inputs * psi + hidden**2 * omega).sum()


def _excess_phi(instance: Instance) -> float:
    """Lemma 7, relative to ||J + XᵀX||²."""
    phi, _, _, inputs, _ = grams(instance)
    scale = inputs.square().sum()
    return float(((phi * inputs**2).sum() - phi.max() * scale) / scale)


def _excess_psi(instance: Instance) -> float:
    """Lemma 8, likewise."""
    _, psi, _, inputs, _ = grams(instance)
    scale = inputs.square().sum()
    return float((2 * (psi * inputs).sum() - psi.square().sum() - scale) / scale)


def _excess_omega(instance: Instance) -> float:
    """Lemma 9, relative to its bound."""
    _, _, omega, _, hidden = grams(instance)
    bound = hidden.square().sum() / 16
    return float(((omega * hidden**2).sum() - bound) / bound)


def _negative_terms(instance: Instance) -> float:
    """φ_ii >= 0 and ω > 0."""
    phi, _, omega, _, _ = grams(instance)
    return max(-float(phi.diagonal().min()), -float(omega.min()))


def _pair_terms(instance: Instance) -> Tensor:
    """φ, ψ and ω of all pairs from the printed bilinear forms, (3, I, I)."""
    return torch.stack([_gram(instance, term) for term in (t.phi, t.psi, t.omega)])


CHECKS: dict[str, Entry] = {
    "ws.theorem5": equality(_square, lambda c: c.hessian.square().sum(), PAIRED),
    "ws.eq26": equality(_pair_terms, lambda c: torch.stack(grams(c)[:3]), PAIRED),
    "ws.eq26.phi22": _scanned_phi,
    "ws.theorem6": inequality(_excess_square, _negative_phi, starts=_steep),
    "ws.eq68": equality(_block_square, lambda c: c.hessian.square().sum(), PAIRED),
    "ws.eq73": _kronecker,
    "ws.eq74": _pairwise(lambda i, j: (block_ww(i) @ block_ww(j)).trace(), _lemma_four),
    "ws.eq82": _pairwise(lambda i, j: (block_wv(i) @ block_vw(j)).trace(), _lemma_five),
    "ws.eq89": _pairwise(
        lambda i, j: (block_vv(i) @ block_vv(j)).trace(),
        lambda i, j: i.s1 * j.s1 * (1 + i.f @ j.f) ** 2,
    ),
    "ws.eq90": equality(_summed_square, lambda c: c.hessian.square().sum()),
    "ws.eq92": inequality(_excess_phi, _excess_psi, _excess_omega, _negative_terms, starts=_steep),
}
