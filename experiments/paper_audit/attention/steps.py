"""Attention paper, Sections G to I: steps of proofs that hold, each on networks of the norm that
Assumption G.1 admits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.paper_audit.attention.bounds import DRAWS, GRID, draw
from experiments.paper_audit.checks import Checks, Errors, relative_error
from experiments.paper_audit.tensors import gauss, ones, seeded, spectral_norm
from runner.closed_form import attention as att

CHECKS = Checks()
INSTANCES = len(GRID) * DRAWS


@dataclass(frozen=True)
class Factors:
    """The basic functions of a batch: f (..., i0, p), h = XᵀV (..., p, j0), keys XᵀW (..., p, j1),
    w(X) and z(X) (..., i0, j1), s (..., i0, j0); own = f_{i0,i0} (..., i0, 1)."""

    f: Tensor
    h: Tensor
    keys: Tensor
    left: Tensor

    @property
    def own(self) -> Tensor:
        return self.f.diagonal(dim1=-2, dim2=-1)[..., None]

    @property
    def z(self) -> Tensor:
        return self.f @ self.keys

    @property
    def s(self) -> Tensor:
        return self.f @ self.h

    @property
    def size(self) -> Tensor:
        """|f_{i0}|, (..., i0, 1)."""
        return self.f.norm(dim=-1, keepdim=True)

    @property
    def key_size(self) -> Tensor:
        """|XᵀW_{*,j1}|, (..., 1, j1)."""
        return self.keys.norm(dim=-2)[..., None, :]


def factors(x: Tensor, w: Tensor, v: Tensor) -> Factors:
    return Factors(att.attention(x, w), x.mT @ v, x.mT @ w, (w @ x).mT)


def gradient_terms(x: Tensor, w: Tensor, v: Tensor) -> list[Tensor]:
    """C_1, ..., C_5 of Lemma B.16, Part 1, (..., i0, j0, j1)."""
    b = factors(x, w, v)
    s = b.s[..., None]
    own = b.own[..., None]
    left = b.left[..., None, :]
    of_keys = torch.einsum("bip,bpj,bpk->bikj", b.f, b.keys, b.h)
    of_values = own * v.mT[..., None, :, :]
    terms = (-s * own * left, -s * b.z[..., None, :], own * b.h[..., None] * left)
    return [*terms, of_keys, of_values]


def at_limit(n: int, d: int, radius: float) -> tuple[Tensor, ...]:
    """X, Y, W, V of a batch of draws; X = W = V = R for n = d = 1."""
    x, y, w, v, _ = draw(n, d, radius)
    if (n, d) == (1, 1):
        x = w = v = radius * torch.ones_like(x)
    return x, y, w, v


def over(found: Tensor, bound: Tensor | float) -> float:
    """Largest excess of numbers over their bounds, relative to the largest bound."""
    scale = float(torch.as_tensor(bound).abs().max())
    return float((found - bound).max()) / scale


@CHECKS.clause("attention.g.3.proof", instances=INSTANCES)
def gradient_of_weights() -> Errors:
    """Proof of Lemma G.3, i0 = i1: |df| is at most |f|² |w| + |f|² |XᵀW| + |f| |w| + |f| |XᵀW|, and
    that at most 4 R²."""
    for n, d, radius in GRID:
        x, _, w, v = at_limit(n, d, radius)
        b = factors(x, w, v)
        inner = (b.own * b.left + b.z)[..., None]
        spread = torch.eye(n, dtype=x.dtype)[:, None] * b.left[..., None]
        shifted = spread + b.keys.mT[..., None, :, :]
        norms = (b.f[..., None, :] * (shifted - inner)).norm(dim=-1)
        bound = (b.size**2 + b.size) * (b.left.abs() + b.key_size)
        yield over(norms, bound)
        yield over(bound, 4 * radius**2)


@CHECKS.clause("attention.g.4.proof", instances=INSTANCES)
def gradient_of_output() -> Errors:
    """Proof of Lemma G.4, i0 = i1: each of the five moduli against its product of norms, and the
    sum 4 R⁴ + R² against 5 R⁴."""
    for n, d, radius in GRID:
        x, _, w, v = at_limit(n, d, radius)
        b = factors(x, w, v)
        values = b.h.norm(dim=-2)[..., None, :, None]  # |h_{j0}|
        f = b.size[..., None]
        left = b.left.abs()[..., None, :]
        column = w.norm(dim=-2)[..., None, None, :]
        reach = spectral_norm(x)[..., None, None, None]
        bounds = [
            f**2 * values * left,
            f * values * b.z.abs()[..., None, :],
            f * values * left,
            f * reach * column * values,
            f * spectral_norm(v)[..., None, None, None],
        ]
        for term, bound in zip(gradient_terms(x, w, v), bounds, strict=True):
            yield over(term.abs(), bound)
        yield over(sum(bounds, start=torch.zeros(())), 4 * radius**4 + radius**2)
        yield (4 * radius**4 + radius**2) / (5 * radius**4) - 1


@CHECKS.clause("attention.h.8.terms", instances=INSTANCES)
def first_order_terms() -> Errors:
    """Proof of Lemma H.8: |C_i(X)| <= R⁴, i = 1, ..., 5, attained at n = d = 1, X = W = V = R."""
    for n, d, radius in GRID:
        x, _, w, v = at_limit(n, d, radius)
        largest = max(float(term.abs().max()) for term in gradient_terms(x, w, v))
        yield largest / radius**4 - 1


@CHECKS.clause("attention.h.7.proof", instances=INSTANCES)
def difference_of_means() -> Errors:
    """Proof of Lemma H.7: |z(X) − z(Y)| <= R |X − Y| + R² |f(X) − f(Y)|, and R + 4 R⁴ <= 5 R⁴."""
    for n, d, radius in GRID:
        x, y, w, v = at_limit(n, d, radius)
        first = factors(x, w, v)
        second = factors(y, w, v)
        gap = (x - y).norm(dim=(-2, -1))[..., None, None]
        weights = (first.f - second.f).norm(dim=-1, keepdim=True)
        bound = radius * gap + radius**2 * weights
        yield over((first.z - second.z).abs(), bound + torch.zeros_like(first.z))
        yield (radius + 4 * radius**4) / (5 * radius**4) - 1


@CHECKS.clause("attention.h.10.norm")
def norms_by_entries() -> Errors:
    """Proof of Lemma H.10: |A| <= |A|_F <= n² d² max |A_ij| for nd × nd matrices."""
    generator = seeded(0)
    for size in (1, 2, 6, 12):
        for matrix in (*gauss(generator, 10, size, size), ones(size, size)):
            frobenius = matrix.norm()
            yield over(spectral_norm(matrix), frobenius)
            yield over(frobenius, size**2 * float(matrix.abs().max()))


@CHECKS.clause("attention.i.3.proof")
def lower_bound_of_the_loss() -> Errors:
    """Proof of Lemma I.3: Σ ∇c ∇cᵀ >= 0, and 2 R² · 21 R⁶ for each of n d terms is 42 n d R⁸."""
    generator = seeded(0)
    for terms, size in ((1, 1), (2, 4), (12, 12)):
        gradients = gauss(generator, terms, size)
        values = torch.linalg.eigvalsh(gradients.mT @ gradients)
        yield float(-values[0] / values[-1])
    for n, d, radius in GRID:
        total = torch.tensor(n * d * 2 * radius**2 * 21 * radius**6)
        yield relative_error(total, torch.tensor(42 * n * d * radius**8))
