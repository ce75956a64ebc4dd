"""The ends of a spectrum by restarted Lanczos (ARPACK through scipy), with a residual for every pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from torch import Tensor

from runner.curvature.spectra.symmetric import Symmetric, as_linear_operator

Which = Literal["largest", "smallest", "magnitude"]
_ARPACK = {"largest": "LA", "smallest": "SA", "magnitude": "LM"}
DENSE = 64  # up to this size, n products and a dense decomposition cost less than Lanczos


@dataclass(frozen=True)
class Eigenpairs:
    """values (k,), from the end that was asked for inwards; vectors (n, k); residuals (k,): |H v - value v|,
    the distance to an eigenvalue at most; converged (k,), against the tolerance; products used. A pair that was not
    found is NaN and not converged."""

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    converged: Tensor
    products: int


def top_eigenpairs(
    operator: Any,
    k: int,
    which: Which = "largest",
    *,
    tolerance: float | None = None,
    max_products: int | None = None,
    generator: torch.Generator | None = None,
) -> Eigenpairs:
    """The k largest or smallest eigenvalues, or those of largest modulus, with vectors and residuals, in float64.

    operator: see Symmetric. tolerance: of a residual, relative to the size of the operator (default 1e-9 in float64,
    1e-4 in float32, where products have their own rounding). max_products: Lanczos stops near it (default 10 n, at
    least 1000); what has not converged then says so. Memory: max(2 k + 1, 20) vectors of n float64 numbers.
    Raises ValueError for k outside 1..n and an unknown `which`.

    >>> found = top_eigenpairs(torch.diag(torch.tensor([3.0, -5.0, 1.0])), 1, "magnitude")
    >>> round(float(found.values[0]), 6), bool(found.converged.all())
    (-5.0, True)
    """
    symmetric = Symmetric(operator)
    if which not in _ARPACK:
        raise ValueError(f"which must be one of {', '.join(_ARPACK)}, got {which!r}")
    if not 1 <= k <= symmetric.size:
        raise ValueError(f"k must lie between 1 and {symmetric.size}, the size of the operator; got {k}")
    if tolerance is None:
        tolerance = 1e-9 if symmetric.dtype == torch.float64 else 1e-4
    if symmetric.size <= DENSE or k > symmetric.size // 2:
        values, vectors = torch.linalg.eigh(symmetric.dense())
        values, vectors = _ordered(values, vectors, k, which)
    else:
        values, vectors = _arpack(symmetric, k, which, tolerance, max_products, generator)
    residuals = torch.stack(
        [(symmetric.matvec(v) - value * v).norm() for value, v in zip(values, vectors.mT, strict=True)]
    )
    # A random direction shows the size of the operator, which the smallest eigenvalues may be far below.
    size = symmetric.matvec(symmetric.gaussian(generator)).norm() / math.sqrt(symmetric.size)
    scale = max(float(values.abs().nan_to_num(0.0).max()), float(size))
    converged = residuals <= tolerance * scale if scale > 0 else residuals == 0
    return Eigenpairs(values, vectors, residuals, converged, symmetric.products)


def _arpack(
    symmetric: Symmetric,
    k: int,
    which: Which,
    tolerance: float,
    max_products: int | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    start = symmetric.gaussian(generator).cpu().numpy()
    width = min(symmetric.size, max(2 * k + 1, 20))
    limit = max(10 * symmetric.size, 1000) if max_products is None else max_products
    restarts = max(1, limit // max(1, width - k))
    try:
        values, vectors = eigsh(
            as_linear_operator(symmetric), k, which=_ARPACK[which], v0=start, ncv=width, maxiter=restarts,
            tol=tolerance / 10,
        )  # fmt: skip
    except ArpackNoConvergence as partial:
        values, vectors = partial.eigenvalues, partial.eigenvectors
    found, directions = _ordered(torch.from_numpy(values), torch.from_numpy(vectors), k, which)
    missing = k - len(found)
    if missing:
        found = torch.cat([found, found.new_full((missing,), torch.nan)])
        directions = torch.cat([directions, directions.new_full((symmetric.size, missing), torch.nan)], 1)
    return found.to(symmetric.device), directions.to(symmetric.device)


def _ordered(values: Tensor, vectors: Tensor, k: int, which: Which) -> tuple[Tensor, Tensor]:
    key = {"largest": -values, "smallest": values, "magnitude": -values.abs()}[which]
    order = key.argsort()[:k]
    return values[order], vectors[:, order]
