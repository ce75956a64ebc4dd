"""The ends of a spectrum by Lanczos with thick restarts, with a residual for every pair."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from runner.curvature.exact.checks import MEMORY_BUDGET
from runner.curvature.graph.errors import require_counts
from runner.curvature.graph.precision import full_precision
from runner.curvature.plots import plot_values
from runner.curvature.result import Estimated, short
from runner.curvature.spectra.lanczos import restarted
from runner.curvature.spectra.symmetric import NOT_FINITE, Symmetric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Which = Literal["largest", "smallest", "magnitude"]
DENSE = 64  # up to this size, n products and a dense decomposition cost less than Lanczos


@dataclass(frozen=True, repr=False)
class Eigenpairs(Estimated):
    """values (k,), from the end that was asked for inwards; vectors (n, k); residuals (k,): |H v - value v| by the
    operator's own products; converged (k,), against the tolerance; products used. Values are
    float64, vectors float64 or, of large operators, of the operator's dtype. reason: why all are NaN, else "".
    rounded: whether products are less precise than float64.

    value: the same as values; error: the residuals, twice as much where products are rounded; low, high: value ± error,
    which contain an eigenvalue. Of 15 MLPs trained in float32, five pairs each, residuals alone missed the float64
    eigenvalue by up to 1.2 times, in three MLPs."""

    _width = 1.0

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    converged: Tensor
    products: int
    reason: str = ""
    rounded: bool = False

    @property
    def value(self) -> Tensor:
        return self.values

    @property
    def error(self) -> Tensor:
        return 2 * self.residuals if self.rounded else self.residuals

    def summary(self) -> str:
        found = (
            f"{int(self.converged.sum())} of {len(self.values)} converged, {self.products} products"
        )
        return (
            f"nan: {self.reason}"
            if self.reason
            else f"{short(tuple(self.values.tolist()))}; {found}"
        )

    def plot(self, ax: Axes | None = None) -> Figure:
        """The eigenvalues in order, each with its residual. ax: default the axes of a new figure."""
        return plot_values(self.values, self.residuals, "eigenvalue", ax)


@full_precision()
def top_eigenpairs(
    operator: Any,
    k: int,
    which: Which = "largest",
    *,
    tolerance: float | None = None,
    max_products: int | None = None,
    memory_budget: int = MEMORY_BUDGET,
    generator: torch.Generator | None = None,
) -> Eigenpairs:
    """The k largest or smallest eigenvalues, or those of largest modulus, with vectors and residuals.

    operator: see Symmetric. tolerance: of a residual, relative to the size of the operator (default 1e-9 in float64,
    1e-4 in float32, where products have their own rounding). max_products: Lanczos stops near it (default 10 n, at
    least 1000); what has not converged then says so. memory_budget: bytes for vectors of length n, of which at least
    k + 4 are held and the more the fewer products are used; a RuntimeWarning tells when these do not fit. They are in
    host memory, float64 where they fit, else of the operator's dtype. An eigenvalue may repeat, as each does once per
    output in a linear layer under squared error: for k > 1, a second search of about 20 products looks for copies that
    the first one missed, and finds one that exceeds the k-th value by a tenth of the spectrum's width with 99 %
    probability. Raises ValueError for k outside 1..n and an unknown `which`.

    >>> found = top_eigenpairs(torch.diag(torch.tensor([3.0, -5.0, 1.0])), 1, "magnitude")
    >>> round(float(found.values[0]), 6), bool(found.converged.all())
    (-5.0, True)
    """
    symmetric = Symmetric(operator, squared=True)
    if which not in get_args(Which):
        raise ValueError(f"which must be one of {', '.join(get_args(Which))}, got {which!r}")
    require_counts(1, k=k)
    if k > symmetric.size:
        raise ValueError(
            f"expected k of at most {symmetric.size}, the size of the operator, got {k}"
        )
    if tolerance is None:
        tolerance = 1e-9 if symmetric.dtype == torch.float64 else 1e-4
    dense = symmetric.size <= DENSE or k > symmetric.size // 2
    start = None if dense else symmetric.gaussian(generator)
    # A random direction shows the size of the operator, which the smallest eigenvalues may be far below.
    size = float(symmetric.matvec(symmetric.gaussian(generator)).norm()) / math.sqrt(symmetric.size)

    def undefined() -> Eigenpairs:
        nothing = torch.full((symmetric.size, k), torch.nan, dtype=torch.float64, device="cpu")
        return Eigenpairs(
            nothing[0], nothing, nothing[0], nothing[0] == 0, symmetric.products, NOT_FINITE
        )

    if not math.isfinite(size):
        return undefined()
    try:
        if start is None:
            values, vectors = (t.cpu() for t in torch.linalg.eigh(symmetric.dense()))
            best = _order(values, which)[:k]
            values, vectors = values[best], vectors[:, best]
        elif size == 0:
            values = torch.zeros(k, dtype=torch.float64, device="cpu")
            vectors = torch.eye(symmetric.size, k, dtype=torch.float64, device="cpu")
        else:
            most = _vectors(symmetric, k, memory_budget)
            limit = max(10 * symmetric.size, 1000) if max_products is None else max_products
            values, basis = restarted(
                symmetric, start, k, lambda v: _order(v, which), tolerance / 10, limit, most, memory_budget,
                lambda: symmetric.gaussian(generator),
            )  # fmt: skip
            vectors = torch.empty(k, symmetric.size, dtype=basis.dtype, device="cpu").mT
            for i in range(k):  # one at a time: there is no room for all of them twice
                vectors[:, i] = basis.vectors[i]
                basis.vectors[i] = vectors[:, i]
    except torch.linalg.LinAlgError:  # a later product
        return undefined()
    residuals = torch.stack([
        (symmetric.matvec(v.to(symmetric.device)).cpu() - value * v.double()).norm()
        for value, v in zip(values, vectors.mT, strict=True)
    ])  # fmt: skip
    scale = max(float(values.abs().max()), size)
    converged = residuals <= tolerance * scale if scale > 0 else residuals == 0
    return Eigenpairs(
        values,
        vectors,
        residuals,
        converged,
        symmetric.products,
        rounded=symmetric.dtype != torch.float64,
    )


def _vectors(symmetric: Symmetric, k: int, budget: int) -> int:
    """How many vectors are held: more of them save products."""
    each = symmetric.dtype.itemsize * symmetric.size
    wanted, least = min(symmetric.size, max(4 * k, 40)), min(symmetric.size, k + 3)
    room = budget // each - 1
    if room < least:
        warnings.warn(
            f"memory_budget is {budget / 2**30:.3g} GiB, and {k} eigenpairs need {least + 1} vectors, "
            f"{(least + 1) * each / 2**30:.3g} GiB: it is exceeded",
            RuntimeWarning,
            stacklevel=4,
        )
    return max(least, min(wanted, room))


def _order(values: Tensor, which: Which) -> Tensor:
    return {"largest": -values, "smallest": values, "magnitude": -values.abs()}[which].argsort()
