"""The ends of a spectrum by restarted Lanczos (ARPACK through scipy), with a residual for every pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor

from runner.curvature.spectra.symmetric import NOT_FINITE, Symmetric, as_linear_operator

Which = Literal["largest", "smallest", "magnitude"]
_ARPACK = {"largest": "LA", "smallest": "SA", "magnitude": "LM"}
DENSE = 64  # up to this size, n products and a dense decomposition cost less than Lanczos

USUAL = 20  # operators of a size between 2^-20 and 2^20 are left as they are


@dataclass(frozen=True)
class Eigenpairs:
    """values (k,), from the end that was asked for inwards; vectors (n, k); residuals (k,): |H v - value v|,
    the distance to an eigenvalue at most; converged (k,), against the tolerance; products used. A pair that was not
    found is NaN and not converged; reason: why none was, else ""."""

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    converged: Tensor
    products: int
    reason: str = ""


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
    dense = symmetric.size <= DENSE or k > symmetric.size // 2
    start = None if dense else symmetric.gaussian(generator)
    # A random direction shows the size of the operator, which the smallest eigenvalues may be far below.
    size = float(symmetric.matvec(symmetric.gaussian(generator)).norm()) / math.sqrt(symmetric.size)
    if not math.isfinite(size):
        nothing = torch.full((symmetric.size, k), torch.nan, dtype=torch.float64, device=symmetric.device)
        never = torch.zeros(k, dtype=torch.bool, device=symmetric.device)
        return Eigenpairs(nothing[0], nothing, nothing[0], never, symmetric.products, NOT_FINITE)
    if start is None:
        values, vectors = torch.linalg.eigh(symmetric.dense())
        values, vectors = _ordered(values, vectors, k, which)
    elif size == 0:
        values = torch.zeros(k, dtype=torch.float64, device=symmetric.device)
        vectors = torch.eye(symmetric.size, k, dtype=torch.float64, device=symmetric.device)
    else:
        values, vectors = _arpack(symmetric, k, which, tolerance, max_products, start, size)
    residuals = torch.stack(
        [(symmetric.matvec(v) - value * v).norm() for value, v in zip(values, vectors.mT, strict=True)]
    )
    scale = max(float(values.abs().nan_to_num(0.0).max()), size)
    converged = residuals <= tolerance * scale if scale > 0 else residuals == 0
    return Eigenpairs(values, vectors, residuals, converged, symmetric.products)


def _arpack(
    symmetric: Symmetric,
    k: int,
    which: Which,
    tolerance: float,
    max_products: int | None,
    start: Tensor,
    size: float,
) -> tuple[Tensor, Tensor]:
    # ARPACK takes eigenvalues below 4e-11 for zero when it decides on convergence; powers of two change no digit.
    exponent = math.frexp(size)[1]
    unit = 1.0 if abs(exponent) <= USUAL else math.ldexp(1.0, exponent)
    view = as_linear_operator(symmetric)
    if unit != 1:
        view = LinearOperator(view.shape, matvec=lambda v, h=view: h.matvec(v) / unit, dtype=view.dtype)
    width = min(symmetric.size, max(2 * k + 1, 20))
    limit = max(10 * symmetric.size, 1000) if max_products is None else max_products
    restarts = max(1, limit // max(1, width - k))
    try:
        values, vectors = eigsh(
            view, k, which=_ARPACK[which], v0=start.cpu().numpy(), ncv=width, maxiter=restarts, tol=tolerance / 10,
        )  # fmt: skip
    except ArpackNoConvergence as partial:
        values, vectors = partial.eigenvalues, partial.eigenvectors
    found, directions = _ordered(unit * torch.from_numpy(values), torch.from_numpy(vectors), k, which)
    missing = k - len(found)
    if missing:
        found = torch.cat([found, found.new_full((missing,), torch.nan)])
        directions = torch.cat([directions, directions.new_full((symmetric.size, missing), torch.nan)], 1)
    return found.to(symmetric.device), directions.to(symmetric.device)


def _ordered(values: Tensor, vectors: Tensor, k: int, which: Which) -> tuple[Tensor, Tensor]:
    key = {"largest": -values, "smallest": values, "magnitude": -values.abs()}[which]
    order = key.argsort()[:k]
    return values[order], vectors[:, order]
