"""Hessian spectrum of the scalar ReLU network f(x) = wᵀ (v x)₊ under mean squared error ½ mean (f − y)².

A neuron with v_j > 0 sees only the samples x > 0, one with v_j < 0 only x < 0. So the Hessian splits into two linear
networks, the cells "+" and "-", each on its own samples (Theorem 4, Corollary 5). The moments of a cell are divided by
the number of all samples, which puts the paper's factor n±/n in place and leaves no 0/0 when a cell has no samples.

Cases the corollary does not cover: a cell without neurons contributes nothing (the printed formula would give ±d); a
cell without samples gives zeros; a neuron with v_j = 0 is in no cell: (v_j x)₊ is zero on both sides in the convention
ReLU'(0) = 0 of automatic differentiation, and adds two zero eigenvalues.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from runner.curvature.closed_form.scalar.common import EigenGroup, Moments, Spectrum, as_weights, blocks
from runner.curvature.closed_form.scalar.linear import PairProblem, pair_groups


@dataclass(frozen=True)
class CellMoments:
    """Moments of the samples x > 0 and x <= 0, each divided by the number of all samples."""

    plus: Moments
    minus: Moments

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> CellMoments:
        return cls(Moments.of(x, y, x > 0), Moments.of(x, y, x <= 0))

    def with_neurons(self, v: Tensor) -> list[tuple[str, Moments, Tensor]]:
        """(name, moments, mask over the neurons) of both cells."""
        return [("+", self.plus, v > 0), ("-", self.minus, v < 0)]


def _embed(mask: Tensor, basis: Tensor) -> Tensor:
    """Rows of a cell's (2q, k) basis moved to their places among all 2m parameters (v, w)."""
    full = torch.zeros(2 * mask.numel(), basis.shape[1], dtype=basis.dtype)
    full[torch.cat([mask, mask])] = basis
    return full


def relu_spectrum(w: Tensor, v: Tensor, x: Tensor, y: Tensor) -> Spectrum:
    """All eigenvalues and eigenvectors of the Hessian, parameters ordered (v, w) (Theorem 4, Corollary 5).

    w, v: (m,); x, y: (n,). Per cell with q >= 1 neurons: two outliers and ±(n±/n) mean_± xδ of multiplicity q−1 each.
    O(m + n). Raises ValueError on weights or samples of unequal or zero length.
    """
    w, v = as_weights(w=w, v=v)
    groups: list[EigenGroup] = []
    for name, moments, mask in CellMoments.of(x, y).with_neurons(v):
        if mask.any():
            groups += pair_groups(w[mask], v[mask], moments, name, partial(_embed, mask))
    dead = v == 0
    zero = torch.zeros((), dtype=v.dtype)
    axes = torch.cat([dead, dead])
    groups.append(
        EigenGroup(zero, int(axes.sum()), "dead", "", lambda: torch.eye(axes.numel(), dtype=v.dtype)[:, axes])
    )
    return Spectrum.of(groups)


def relu_pairs(w: Tensor, v: Tensor, cells: CellMoments) -> dict[str, PairProblem]:
    """The 2×2 problem of every cell with neurons, by name: all that loss, gradient and sharpness need of the weights.

    O(m), fourteen passes over the weights. A cell without neurons is left out: its problem would still give ±|d|.
    """
    w, v = as_weights(w=w, v=v)
    sums = torch.stack([_block_sums(w[part], v[part]) for part in blocks(len(w))]).sum(0)
    pairs = {}
    for (name, moments), (count, plus, minus, slope) in zip((("+", cells.plus), ("-", cells.minus)), sums, strict=True):
        if count > 0:
            pairs[name] = PairProblem(moments.xx, moments.residual_covariance(slope), plus, minus, slope)
    return pairs


def _block_sums(w: Tensor, v: Tensor) -> Tensor:
    """(2, 4): neurons, |w+v|²/2, |w−v|²/2 and ⟨w, v⟩ of the neurons v > 0 and of those v < 0."""
    keep = torch.stack([(v > 0).to(v.dtype), (v < 0).to(v.dtype)])
    values = torch.stack([torch.ones_like(v), (w + v).square_() / 2, (w - v).square_() / 2, w * v])
    return keep @ values.T


def relu_sharpness(w: Tensor, v: Tensor, cells: CellMoments) -> Tensor:
    """Largest Hessian eigenvalue, 0-d, from the moments of the cells; zero when every neuron is dead. O(m)."""
    tops = [pair.outliers()[0] for pair in relu_pairs(w, v, cells).values()]
    return torch.stack(tops).max() if tops else torch.zeros((), dtype=torch.float64)


def _slopes(w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """⟨w_+, v_+⟩ and ⟨w_-, v_-⟩."""
    return torch.dot(w, v.clamp_min(0.0)), torch.dot(w, v.clamp_max(0.0))


def relu_loss(w: Tensor, v: Tensor, cells: CellMoments) -> Tensor:
    """½ mean (wᵀ(v x)₊ − y)², 0-d. O(m)."""
    w, v = as_weights(w=w, v=v)
    plus, minus = _slopes(w, v)
    return cells.plus.loss(plus) + cells.minus.loss(minus)


def relu_gradient(w: Tensor, v: Tensor, cells: CellMoments) -> tuple[Tensor, Tensor]:
    """(∂ℓ/∂w, ∂ℓ/∂v), each (m,): the linear gradient of every neuron's own cell (Eqs. 35, 36). O(m)."""
    w, v = as_weights(w=w, v=v)
    plus, minus = _slopes(w, v)
    d = cells.plus.residual_covariance(plus) * (v > 0) + cells.minus.residual_covariance(minus) * (v < 0)
    return d * v, d * w
