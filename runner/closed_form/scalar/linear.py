"""Hessian spectra of scalar linear and ReLU networks; moments and eigenvalue groups of both.

The Hessian of a one-hidden-layer scalar network is K ⊗ I_m + U S Uᵀ with a K of size 2 or 3 and a U
of one or two columns. Every vector outside the span of U is an eigenvector of K ⊗ I_m: that is the
bulk, few values with large multiplicities. What is left, the outliers, is the spectrum of a matrix
of size at most 5. So a spectrum is stored as a few groups, at a cost of O(m), and 2m (or 3m)
numbers and their eigenvectors are made only on request. All arithmetic is in float64, whatever the
type of the arguments.

The linear network f(x) = ⟨w, v⟩ x under mean squared error ½ mean (f − y)². With parameters θ = (v,
w), a = mean x², d = mean xδ: H = a u uᵀ + d J, u = (w, v), J = [[0, I], [I, 0]]. J is +1 on vectors
(z, z) and −1 on (z, −z). In these coordinates u has the parts p = (w+v)/√2 and r = (w−v)/√2, so +d
keeps m−1 eigenvectors (z ⟂ p), −d keeps m−1 (z ⟂ r), and the two outliers are the eigenvalues of

    [[ d + a|p|²,  a|p||r| ],
     [ a|p||r|,   −d + a|r|² ]].

This holds in every case, also for w = ±v, zero weights, zero residual and d < 0, where the paper's
eigenvector formulas (Theorems 2 and 3) give the zero vector or the wrong sign.

Operations: |w+v|², |w−v|² and ⟨w, v⟩, about 8m, then a 2×2 problem. A dense solver needs 4m²
entries and ~(2m)³.

The scalar ReLU network f(x) = wᵀ (v x)₊: a neuron with v_j > 0 sees only the samples x > 0, one
with v_j < 0 only x < 0. So the Hessian splits into two linear networks, the cells "+" and "-", each
on its own samples (Theorem 4, Corollary 5). The moments of a cell are divided by the number of all
samples, which puts the paper's factor n±/n in place and leaves no 0/0 when a cell has no samples.

Cases the corollary does not cover: a cell without neurons contributes nothing (the printed formula
would give ±d); a cell without samples gives zeros; a neuron with v_j = 0 is in no cell: (v_j x)₊ is
zero on both sides in the convention ReLU'(0) = 0 of automatic differentiation, and adds two zero
eigenvalues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

BLOCK = 1 << 15
"""Numbers of one pass over a vector."""


@dataclass(frozen=True)
class Moments:
    """Uncentred second moments of the samples, all that the Hessian sees of the data.

    Each is a 0-d float64 tensor, a sum over the samples divided by the number of ALL samples (also
    where only the samples of one ReLU cell are summed, which makes the weight n±/n of a cell part
    of its moments).

    xx: mean x² (σ²); xy: mean x y; yy: mean y².
    """

    xx: Tensor
    xy: Tensor
    yy: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Moments:
        """Moments of samples x, y of shape (n,), restricted to the samples where `mask` is true.

        O(n).
        """
        x, y = as_samples(x, y)
        keep = torch.ones_like(x) if mask is None else mask.to(x)
        xs = x * keep
        ys = y * keep
        return cls((xs * x).mean(), (xs * y).mean(), (ys * y).mean())

    def residual_covariance(self, slope: Tensor) -> Tensor:
        """mean x δ for the predictor slope·x: σ² slope − mean xy. The paper's \\overline{δx}."""
        return self.xx * slope - self.xy

    def loss(self, slope: Tensor) -> Tensor:
        """½ mean (slope·x − y)², never below zero through rounding."""
        return (0.5 * (self.xx * slope**2 - 2 * self.xy * slope + self.yy)).clamp_min(0.0)


@dataclass(frozen=True)
class EigenGroup:
    """One eigenvalue with its multiplicity.

    value: 0-d tensor; kind: "outlier", "bulk", or "dead" (neurons on which the loss does not
    depend); cell: "+" or "-" for the cells of a ReLU network, "" elsewhere; basis(): (D,
    multiplicity), orthonormal columns.
    """

    value: Tensor
    multiplicity: int
    kind: str
    cell: str
    basis: Callable[[], Tensor]


@dataclass(frozen=True)
class Spectrum:
    """All eigenvalues of a Hessian, as groups in descending order."""

    groups: tuple[EigenGroup, ...]

    @classmethod
    def of(cls, groups: Iterable[EigenGroup]) -> Spectrum:
        """Drop groups of multiplicity zero, sort by value."""
        kept = [g for g in groups if g.multiplicity > 0]
        return cls(tuple(sorted(kept, key=lambda g: float(g.value), reverse=True)))

    @property
    def eigenvalues(self) -> Tensor:
        """(k,) one value per group, descending.

        Two groups may hold the same value (zero residual, w = ±v).
        """
        return torch.stack([g.value for g in self.groups])

    @property
    def multiplicities(self) -> Tensor:
        """(k,) int64."""
        return torch.tensor([g.multiplicity for g in self.groups], dtype=torch.int64)

    @property
    def dimension(self) -> int:
        """Number of parameters D."""
        return sum(g.multiplicity for g in self.groups)

    @property
    def sharpness(self) -> Tensor:
        """Largest eigenvalue."""
        return self.groups[0].value

    @property
    def smallest(self) -> Tensor:
        """Most negative eigenvalue."""
        return self.groups[-1].value

    def trace(self) -> Tensor:
        return (self.eigenvalues * self.multiplicities).sum()

    def trace_of_square(self) -> Tensor:
        return (self.eigenvalues**2 * self.multiplicities).sum()

    def select(self, kind: str | None = None, cell: str | None = None) -> Spectrum:
        """The groups of one kind and/or one cell."""
        kept = [g for g in self.groups if kind in (None, g.kind) and cell in (None, g.cell)]
        return Spectrum(tuple(kept))

    def expanded(self) -> Tensor:
        """(D,) every eigenvalue as often as it occurs, descending."""
        return torch.repeat_interleave(self.eigenvalues, self.multiplicities)

    def eigenvectors(self) -> Tensor:
        """(D, D) orthonormal columns in the order of `expanded()`.

        After `select`, (D, sum of multiplicities). O(D) per column. For the outliers alone take
        `select("outlier").eigenvectors()`, which is O(m).
        """
        return torch.cat([g.basis() for g in self.groups], dim=1)


def as_samples(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x, y as float64 vectors of one length n >= 1. ValueError otherwise."""
    if x.ndim != 1 or x.shape != y.shape or x.numel() == 0:
        raise ValueError(
            "expected inputs x and targets y of one shape (n,) with n >= 1, found "
            f"{tuple(x.shape)} and {tuple(y.shape)}; pass flat vectors of samples"
        )
    return x.double(), y.double()


def as_weights(**vectors: Tensor) -> list[Tensor]:
    """The named weight vectors as float64 of one length m >= 1. ValueError otherwise."""
    shapes = {name: tuple(vector.shape) for name, vector in vectors.items()}
    first = next(iter(vectors.values()))
    if first.ndim != 1 or first.numel() == 0 or len(set(shapes.values())) != 1:
        raise ValueError(
            f"expected weights of one shape (m,) with m >= 1, found {shapes}; "
            "pass one vector per layer"
        )
    return [vector.double() for vector in vectors.values()]


def blocks(m: int) -> list[slice]:
    """Consecutive slices of a vector of length m.

    Passes over 256 KiB at a time stay in cache, which is five times faster at m = 10^6 than passes
    over the whole vector.
    """
    return [slice(start, min(start + BLOCK, m)) for start in range(0, m, BLOCK)]


def orthogonal_complement(basis: Tensor) -> Tensor:
    """(m, m − r) orthonormal columns orthogonal to the r orthonormal columns of `basis` (m, r).

    O(m² r).
    """
    m, rank = basis.shape
    if rank == 0:
        return torch.eye(m, dtype=basis.dtype)
    complete, _ = torch.linalg.qr(basis, mode="complete")
    return complete[:, rank:]


@dataclass(frozen=True)
class PairProblem:
    """The 2×2 problem of one linear network or one ReLU cell; every field a 0-d tensor.

    a: mean x²; d: mean xδ; plus: |w+v|²/2; minus: |w−v|²/2; slope: ⟨w, v⟩.
    """

    a: Tensor
    d: Tensor
    plus: Tensor
    minus: Tensor
    slope: Tensor

    @classmethod
    def of(cls, w: Tensor, v: Tensor, moments: Moments) -> PairProblem:
        sums = []
        for part in blocks(len(w)):
            total = w[part] + v[part]
            gap = w[part] - v[part]
            plus = torch.dot(total, total) / 2
            minus = torch.dot(gap, gap) / 2
            sums.append(torch.stack([plus, minus, torch.dot(w[part], v[part])]))
        plus, minus, slope = torch.stack(sums).sum(0)
        return cls(moments.xx, moments.residual_covariance(slope), plus, minus, slope)

    @property
    def trace(self) -> Tensor:
        """σ²(‖w‖² + ‖v‖²)."""
        return self.a * (self.plus + self.minus)

    def outliers(self) -> tuple[Tensor, Tensor]:
        """(larger, smaller) outlier, Eq. (1).

        The root of Eq. (1) is taken of a sum of squares, and the smaller one as product / larger:
        no cancellation.
        """
        diagonal, coupling = self._difference()
        larger = 0.5 * (self.trace + torch.hypot(diagonal, coupling))
        product = -self.d * (self.d + 2 * self.a * self.slope)
        divisor = larger.clamp_min(torch.finfo(larger.dtype).tiny)
        return larger, torch.where(larger > 0, product / divisor, 0.0)

    def _difference(self) -> tuple[Tensor, Tensor]:
        """Of the diagonal entries, and twice the entry next to them."""
        diagonal = self.a * (self.plus - self.minus) + 2 * self.d
        return diagonal, 2 * self.a * torch.sqrt(self.plus * self.minus)

    def mixing(self) -> tuple[float, float]:
        """(cos, sin) of the angle of the larger outlier's eigenvector from w+v towards w−v."""
        diagonal, coupling = map(float, self._difference())
        angle = 0.5 * math.atan2(coupling, diagonal)
        return math.cos(angle), math.sin(angle)


def direction(vector: Tensor) -> Tensor:
    """Unit vector; the first axis for the zero vector, where any direction is as good."""
    norm = torch.linalg.vector_norm(vector)
    if norm > 0:
        return vector / norm
    return torch.eye(len(vector), 1, dtype=vector.dtype)[:, 0]


def outlier_basis(w: Tensor, v: Tensor, pair: PairProblem, larger: bool) -> Tensor:
    """(2m, 1) unit eigenvector (z_v, z_w) of one outlier, Theorem 2 without its degenerate cases.

    O(m).
    """
    cos, sin = pair.mixing()
    alpha, beta = (cos, sin) if larger else (-sin, cos)
    p = alpha * direction(w + v)
    r = beta * direction(w - v)
    return (torch.cat([p + r, p - r]) / math.sqrt(2))[:, None]


def bulk_basis(w: Tensor, v: Tensor, sign: int) -> Tensor:
    """(2m, m−1) orthonormal eigenvectors (z, sign·z), z ⟂ w + sign·v, of sign·d (Theorem 3).

    The paper's sign is that of the eigenvalue; it has to be that of eigenvalue times d.
    """
    z = orthogonal_complement(direction(w + sign * v)[:, None])
    return torch.cat([z, sign * z]) / math.sqrt(2)


def pair_groups(
    w: Tensor,
    v: Tensor,
    moments: Moments,
    cell: str = "",
    embed: Callable[[Tensor], Tensor] = lambda basis: basis,
) -> list[EigenGroup]:
    """The four groups of a linear network, or of one ReLU cell.

    `embed` places vectors of the cell among all parameters.
    """
    pair = PairProblem.of(w, v, moments)
    larger, smaller = pair.outliers()
    bulk = w.numel() - 1
    return [
        EigenGroup(larger, 1, "outlier", cell, lambda: embed(outlier_basis(w, v, pair, True))),
        EigenGroup(smaller, 1, "outlier", cell, lambda: embed(outlier_basis(w, v, pair, False))),
        EigenGroup(pair.d, bulk, "bulk", cell, lambda: embed(bulk_basis(w, v, 1))),
        EigenGroup(-pair.d, bulk, "bulk", cell, lambda: embed(bulk_basis(w, v, -1))),
    ]


def linear_spectrum(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Spectrum:
    """All eigenvalues and eigenvectors of the Hessian, parameters ordered (v, w) (Theorems 1–3).

    w, v: (m,); x, y: (n,). Outliers of multiplicity 1, bulk ±mean xδ of multiplicity m−1 each. O(m
    + n). Raises ValueError on weights or samples of unequal or zero length.
    """
    w, v = as_weights(w=w, v=v)
    return Spectrum.of(pair_groups(w, v, Moments.of(x, y)))


@dataclass(frozen=True)
class CellMoments:
    """Moments of the samples x > 0 and x <= 0, each divided by the number of all samples."""

    plus: Moments
    minus: Moments

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> CellMoments:
        return cls(Moments.of(x, y, x > 0), Moments.of(x, y, x <= 0))


def _embed(mask: Tensor, basis: Tensor) -> Tensor:
    """Rows of a cell's (2q, k) basis moved to their places among all 2m parameters (v, w)."""
    full = torch.zeros(2 * mask.numel(), basis.shape[1], dtype=basis.dtype)
    full[torch.cat([mask, mask])] = basis
    return full


def relu_spectrum(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Spectrum:
    """All eigenvalues and eigenvectors of the Hessian (Theorem 4, Corollary 5).

    Parameters are ordered (v, w). w, v: (m,); x, y: (n,). Per cell with q >= 1 neurons: two
    outliers and ±(n±/n) mean_± xδ of multiplicity q−1 each. O(m + n). Raises ValueError on weights
    or samples of unequal or zero length.
    """
    w, v = as_weights(w=w, v=v)
    groups: list[EigenGroup] = []
    cells = CellMoments.of(x, y)
    for name, moments, mask in (("+", cells.plus, v > 0), ("-", cells.minus, v < 0)):
        if mask.any():
            groups += pair_groups(w[mask], v[mask], moments, name, partial(_embed, mask))
    dead = v == 0
    axes = torch.cat([dead, dead])

    def basis() -> Tensor:
        return torch.eye(len(axes), dtype=v.dtype)[:, axes]

    groups.append(EigenGroup(torch.zeros((), dtype=v.dtype), int(axes.sum()), "dead", "", basis))
    return Spectrum.of(groups)
