"""Hessian spectrum of f(x) = wᵀ(v x + b).

It is the case d = 2 of f(x) = wᵀ A x with x in R^d: A = [v, b], inputs (x, 1). With S = mean x xᵀ
(d, d), g = mean δ x (d,) and parameters θ = (w, a_1, ..., a_d), a_k the columns of A (the order of
the paper's Eq. 79):

    H = K ⊗ I_m + U S Uᵀ,   K = [[0, gᵀ], [g, 0]],   column k of U: a_k in block 0, w in block k.

K has the eigenvalues |g|, −|g| and 0 (d−1 times). Writing each eigenvector as e = (e_0, e_1..e_d),
the part of U along it is the (m, d) matrix U_e = e_0 A + w ⊗ (e_1..e_d), of rank <= d, and of rank
<= 1 where e_0 = 0. Outside its column span the eigenvalue of K survives: in general ±|g| have
multiplicity m−d each and 0 has (d−1)(m−1). What remains is a dense problem of size 3d−1: five
outliers. No assumption on the data or the weights is needed; the paper's Theorem 6 is the case S =
I, ⟨v, b⟩ = 0, ‖v‖ = ‖b‖, mean xy = mean y = 0, in which the five are explicit.

Operations: d+1 thin QR factorisations of (m, d), O(m d³), then an eigenproblem of size <= d(d+1).
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from runner.closed_form.scalar.linear import (
    EigenGroup,
    Spectrum,
    as_samples,
    as_weights,
    orthogonal_complement,
)


def _kernel_eigenvectors(g: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues |g|, -|g|, 0 and eigenvectors (3, 3), one per ROW, of K = [[0, gᵀ], [g, 0]].

    Chosen by hand because eigh may mix e_0 into the null space of K, which would cost the rank-one
    parts; for g = 0 any unit vector serves as the direction of g.
    """
    norm = torch.linalg.vector_norm(g)
    axis = g / norm if norm > 0 else torch.eye(2, dtype=g.dtype)[0]
    zero = g.new_zeros(1)
    half = torch.full((1,), 0.5, dtype=g.dtype).sqrt()
    null = orthogonal_complement(axis[:, None])[:, 0]
    rows = [(half, half * axis), (half, -half * axis), (zero, null)]
    return torch.stack([norm, -norm, zero[0]]), torch.stack([torch.cat(row) for row in rows])


def _column_space(part: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal basis Q (m, r) of the column span of `part` and QᵀU_e (r, d).

    Rank by comparison with `scale`.
    """
    q, r = torch.linalg.qr(part)
    left, sizes, _ = torch.linalg.svd(r)
    rank = int((sizes > torch.finfo(part.dtype).eps * max(part.shape) * scale).sum())
    basis = q @ left[:, :rank]
    return basis, left[:, :rank].T @ r


def bias_spectrum(w: Tensor, v: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Spectrum:
    """All eigenvalues and eigenvectors for f(x) = wᵀ(v x + b), any weights and data.

    Parameters are ordered (w, v, b). w, v, b: (m,); x, y: (n,). In general position five outliers,
    ±√(mean(xδ)² + mean(δ)²) with multiplicity m−2 each, and 0 with multiplicity m−1 (Theorem 6
    leaves the multiplicities unstated). O(m + n). Raises ValueError on weights or samples of
    unequal or zero length.
    """
    w, v, b = as_weights(w=w, v=v, b=b)
    x, y = as_samples(x, y)
    a = torch.stack([v, b], dim=1)
    inputs = torch.stack([x, torch.ones_like(x)], dim=1)
    moments = inputs.T @ inputs / len(y)
    g = moments @ (a.T @ w) - inputs.T @ y / len(y)
    values, vectors = _kernel_eigenvectors(g)
    scale = torch.sqrt(torch.dot(w, w) + (a * a).sum())
    # U_e (m, d) of every eigenvector e of K; K's eigenvalues on the diagonal plus R S Rᵀ, R their
    # coordinates stacked.
    spaces = [_column_space(e[0] * a + w[:, None] * e[1:], scale) for e in vectors]
    bases = [basis for basis, _ in spaces]
    ranks = [basis.shape[1] for basis in bases]
    stacked = torch.cat([coordinates for _, coordinates in spaces])
    diagonal = torch.repeat_interleave(values, torch.tensor(ranks))
    reduced = torch.diag(diagonal) + stacked @ moments @ stacked.T
    reduced_values, reduced_vectors = torch.linalg.eigh(reduced)

    def outlier(column: int) -> Tensor:
        pieces = torch.split(reduced_vectors[:, column], ranks)
        along = [basis @ piece for basis, piece in zip(bases, pieces, strict=True)]
        kron = [torch.outer(e, part) for e, part in zip(vectors, along, strict=True)]
        return torch.stack(kron).sum(0).reshape(-1, 1)

    def bulk(i: int) -> Tensor:
        kron = torch.einsum("k,mj->kmj", vectors[i], orthogonal_complement(bases[i]))
        return kron.flatten(0, 1)

    groups = []
    for i, value in enumerate(reduced_values):
        groups.append(EigenGroup(value, 1, "outlier", "", partial(outlier, i)))
    for i, value in enumerate(values):
        groups.append(EigenGroup(value, len(w) - ranks[i], "bulk", "", partial(bulk, i)))
    return Spectrum.of(groups)
