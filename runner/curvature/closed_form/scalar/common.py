"""What the closed forms of one-hidden-layer scalar networks share: data moments, eigenvalue groups, the spectrum.

The Hessian of such a network is  K ⊗ I_m + U S Uᵀ  with a K of size 2 or 3 and a U of one or two columns. Every vector
outside the span of U is an eigenvector of K ⊗ I_m: that is the bulk, few values with large multiplicities. What is
left, the outliers, is the spectrum of a matrix of size at most 5. So a spectrum is stored as a few groups, at a cost of
O(m), and 2m (or 3m) numbers and their eigenvectors are only made when somebody asks for them.

All arithmetic is in float64, whatever the type of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Uncentred second moments of the samples, all that the Hessian sees of the data.

    Each is a 0-d float64 tensor, a sum over the samples divided by the number of ALL samples (also where only the
    samples of one ReLU cell are summed, which makes the weight n±/n of a cell part of its moments).

    xx: mean x² (σ²); xy: mean x y; yy: mean y²; x, y: means; weight: share of the samples that were summed.
    """

    xx: Tensor
    xy: Tensor
    yy: Tensor
    x: Tensor
    y: Tensor
    weight: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor, mask: Tensor | None = None) -> Moments:
        """Moments of samples x, y of shape (n,), restricted to the samples where `mask` is true. O(n)."""
        x, y = as_samples(x, y)
        keep = torch.ones_like(x) if mask is None else mask.to(x)
        xs, ys = x * keep, y * keep
        return cls((xs * x).mean(), (xs * y).mean(), (ys * y).mean(), xs.mean(), ys.mean(), keep.mean())

    def residual_covariance(self, slope: Tensor) -> Tensor:
        """mean x δ for the predictor slope·x: σ² slope − mean xy. The paper's \\overline{δx}."""
        return self.xx * slope - self.xy

    def loss(self, slope: Tensor) -> Tensor:
        """½ mean (slope·x − y)², never below zero through rounding."""
        return (0.5 * (self.xx * slope**2 - 2 * self.xy * slope + self.yy)).clamp_min(0.0)


@dataclass(frozen=True)
class EigenGroup:
    """One eigenvalue with its multiplicity.

    value: 0-d tensor; kind: "outlier", "bulk", or "dead" (neurons on which the loss does not depend);
    cell: "+" or "-" for the cells of a ReLU network, "" elsewhere; basis(): (D, multiplicity), orthonormal columns.
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
        """(k,) one value per group, descending. Two groups may hold the same value (zero residual, w = ±v)."""
        return torch.stack([g.value for g in self.groups])

    @property
    def multiplicities(self) -> Tensor:
        """(k,) int64."""
        return torch.tensor([g.multiplicity for g in self.groups], dtype=torch.int64)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(g.kind for g in self.groups)

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(g.cell for g in self.groups)

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
        return Spectrum(tuple(g for g in self.groups if kind in (None, g.kind) and cell in (None, g.cell)))

    def expanded(self) -> Tensor:
        """(D,) every eigenvalue as often as it occurs, descending."""
        return torch.repeat_interleave(self.eigenvalues, self.multiplicities)

    def eigenvectors(self) -> Tensor:
        """(D, D) orthonormal columns in the order of `expanded()`; after `select`, (D, sum of multiplicities).

        O(D) per column. For the outliers alone take `select("outlier").eigenvectors()`, which is O(m).
        """
        return torch.cat([g.basis() for g in self.groups], dim=1)


def as_samples(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x, y as float64 vectors of one length n >= 1. ValueError otherwise."""
    if x.ndim != 1 or x.shape != y.shape or x.numel() == 0:
        raise ValueError(
            f"expected inputs x and targets y of one shape (n,) with n >= 1, found {tuple(x.shape)} and "
            f"{tuple(y.shape)}; pass flat vectors of samples"
        )
    return x.double(), y.double()


def as_weights(**vectors: Tensor) -> list[Tensor]:
    """The named weight vectors as float64 of one length m >= 1. ValueError otherwise."""
    shapes = {name: tuple(vector.shape) for name, vector in vectors.items()}
    first = next(iter(vectors.values()))
    if first.ndim != 1 or first.numel() == 0 or len(set(shapes.values())) != 1:
        raise ValueError(f"expected weights of one shape (m,) with m >= 1, found {shapes}; pass one vector per layer")
    return [vector.double() for vector in vectors.values()]


def blocks(m: int, size: int = 1 << 15) -> list[slice]:
    """Consecutive slices of a vector of length m: passes over 256 KiB at a time stay in cache, which is five times
    faster at m = 10^6 than passes over the whole vector."""
    return [slice(start, min(start + size, m)) for start in range(0, m, size)]


def orthogonal_complement(basis: Tensor) -> Tensor:
    """(m, m − r) orthonormal columns orthogonal to the r orthonormal columns of `basis` (m, r). O(m² r)."""
    m, rank = basis.shape
    if rank == 0:
        return torch.eye(m, dtype=basis.dtype)
    complete, _ = torch.linalg.qr(basis, mode="complete")
    return complete[:, rank:]


def smallest_eigenvalue_bound(loss: Tensor, xx: Tensor) -> Tensor:
    """−√(2ℓ) σ, never above the smallest Hessian eigenvalue of a linear or ReLU network (Eq. 34).

    loss: ½ mean δ²; xx: σ² = mean x². By Cauchy–Schwarz from λ_min >= −|mean xδ|; the paper writes it without the
    absolute value.
    """
    return -torch.sqrt(2 * loss * xx)


def theta_star(x: Tensor, y: Tensor) -> Tensor:
    """θ* = mean xy / mean x², least-squares slope of y on x. ValueError when every x is zero."""
    moments = Moments.of(x, y)
    if moments.xx == 0:
        raise ValueError("theta_star needs an input that is not zero, found mean x² = 0; no slope fits such data")
    return moments.xy / moments.xx


def phase_of_slope(slope: float, target: float) -> str:
    """Training phase of a linear network with slope ⟨w, v⟩ and θ* = target: "early", "late" or "divergent".

    late: the slope lies between θ*/3 and θ* (both included): the second outlier is >= 0 and the first <= tr H.
    divergent: beyond θ*; early: on the other side of θ*/3. In both the second outlier is <= 0 and the first >= tr H.
    The paper orders the phases along the real line, which is right for θ* > 0 only; for θ* < 0 the order is reversed.
    For θ* = 0 there is no early phase: every slope but zero is beyond the solution.
    """
    if target == 0:
        return "late" if slope == 0 else "divergent"
    share = slope / target
    if share > 1:
        return "divergent"
    return "late" if share >= 1 / 3 else "early"
