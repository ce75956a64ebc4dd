"""Hessian spectrum of the scalar linear network f(x) = ⟨w, v⟩ x under mean squared error ½ mean (f − y)².

With parameters θ = (v, w), a = mean x², d = mean xδ:   H = a u uᵀ + d J,   u = (w, v),   J = [[0, I], [I, 0]].
J is +1 on vectors (z, z) and −1 on (z, −z). In these coordinates u has the parts p = (w+v)/√2 and r = (w−v)/√2, so
+d keeps m−1 eigenvectors (z ⟂ p), −d keeps m−1 (z ⟂ r), and the two outliers are the eigenvalues of

    [[ d + a|p|²,  a|p||r| ],
     [ a|p||r|,   −d + a|r|² ]].

This holds in every case, also for w = ±v, zero weights, zero residual and d < 0, where the paper's eigenvector formulas
(Theorems 2 and 3) give the zero vector or the wrong sign.

Operations: |w+v|², |w−v|² and ⟨w, v⟩, about 8m, then a 2×2 problem. A dense solver needs 4m² entries and ~(2m)³.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.closed_form.scalar.common import (
    EigenGroup,
    Moments,
    Spectrum,
    as_weights,
    blocks,
    orthogonal_complement,
    phase_of_slope,
    theta_star,
)


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
            total, gap = w[part] + v[part], w[part] - v[part]
            sums.append(
                torch.stack([torch.dot(total, total) / 2, torch.dot(gap, gap) / 2, torch.dot(w[part], v[part])])
            )
        plus, minus, slope = torch.stack(sums).sum(0)
        return cls(moments.xx, moments.residual_covariance(slope), plus, minus, slope)

    @property
    def trace(self) -> Tensor:
        """σ²(‖w‖² + ‖v‖²)."""
        return self.a * (self.plus + self.minus)

    def outliers(self) -> tuple[Tensor, Tensor]:
        """(larger, smaller) outlier, Eq. (1).

        The root of Eq. (1) is taken of a sum of squares, and the smaller one as product / larger: no cancellation.
        """
        diagonal = self.a * (self.plus - self.minus) + 2 * self.d
        coupling = 2 * self.a * torch.sqrt(self.plus * self.minus)
        larger = 0.5 * (self.trace + torch.hypot(diagonal, coupling))
        product = -self.d * (self.d + 2 * self.a * self.slope)
        return larger, torch.where(larger > 0, product / larger.clamp_min(torch.finfo(larger.dtype).tiny), 0.0)

    def mixing(self) -> tuple[float, float]:
        """(cos, sin) of the angle of the larger outlier's eigenvector between the directions of w+v and w−v."""
        diagonal = float(self.a * (self.plus - self.minus) + 2 * self.d)
        coupling = float(2 * self.a * torch.sqrt(self.plus * self.minus))
        angle = 0.5 * math.atan2(coupling, diagonal)
        return math.cos(angle), math.sin(angle)


def direction(vector: Tensor) -> Tensor:
    """Unit vector; the first axis for the zero vector, where any direction is as good."""
    norm = torch.linalg.vector_norm(vector)
    if norm > 0:
        return vector / norm
    axis = torch.zeros_like(vector)
    axis[0] = 1.0
    return axis


def outlier_basis(w: Tensor, v: Tensor, pair: PairProblem, larger: bool) -> Tensor:
    """(2m, 1) unit eigenvector (z_v, z_w) of one outlier, Theorem 2 without its degenerate cases. O(m)."""
    cos, sin = pair.mixing()
    alpha, beta = (cos, sin) if larger else (-sin, cos)
    p, r = alpha * direction(w + v), beta * direction(w - v)
    return (torch.cat([p + r, p - r]) / math.sqrt(2))[:, None]


def bulk_basis(w: Tensor, v: Tensor, sign: int) -> Tensor:
    """(2m, m−1) orthonormal eigenvectors (z, sign·z) with z ⟂ w + sign·v, of the bulk eigenvalue sign·d (Theorem 3).

    The paper's sign is that of the eigenvalue; it has to be that of eigenvalue times d.
    """
    z = orthogonal_complement(direction(w + sign * v)[:, None])
    return torch.cat([z, sign * z]) / math.sqrt(2)


def pair_groups(
    w: Tensor, v: Tensor, moments: Moments, cell: str = "", embed: Callable[[Tensor], Tensor] = lambda basis: basis
) -> list[EigenGroup]:
    """The four groups of a linear network, or of one ReLU cell whose vectors `embed` places among all parameters."""
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

    w, v: (m,); x, y: (n,). Outliers of multiplicity 1, bulk ±mean xδ of multiplicity m−1 each. O(m + n).
    Raises ValueError on weights or samples of unequal or zero length.
    """
    w, v = as_weights(w=w, v=v)
    return Spectrum.of(pair_groups(w, v, Moments.of(x, y)))


def linear_pair(w: Tensor, v: Tensor, moments: Moments) -> PairProblem:
    """The 2×2 problem of the network: all that loss, gradient and sharpness need of the weights. O(m), five passes."""
    w, v = as_weights(w=w, v=v)
    return PairProblem.of(w, v, moments)


def linear_sharpness(w: Tensor, v: Tensor, moments: Moments) -> Tensor:
    """Largest Hessian eigenvalue, 0-d, from the data's moments: O(m), made to be called at every training step.

    For m = 1 and m > 1 alike it is the larger outlier, since that is >= |mean xδ|: the 2×2 matrix is (d, −d) plus a
    positive semidefinite one.
    """
    return linear_pair(w, v, moments).outliers()[0]


def linear_loss(w: Tensor, v: Tensor, moments: Moments) -> Tensor:
    """½ mean (⟨w, v⟩ x − y)², 0-d. O(m)."""
    w, v = as_weights(w=w, v=v)
    return moments.loss(torch.dot(w, v))


def linear_gradient(w: Tensor, v: Tensor, moments: Moments) -> tuple[Tensor, Tensor]:
    """(∂ℓ/∂w, ∂ℓ/∂v) = (mean xδ · v, mean xδ · w), each (m,) (Eqs. 7, 8). O(m)."""
    w, v = as_weights(w=w, v=v)
    d = moments.residual_covariance(torch.dot(w, v))
    return d * v, d * w


def linear_phase(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> str:
    """Training phase "early", "late" or "divergent" (see `phase_of_slope`). ValueError when every x is zero."""
    w, v = as_weights(w=w, v=v)
    return phase_of_slope(float(torch.dot(w, v)), float(theta_star(x, y)))
