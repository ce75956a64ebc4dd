"""The density of a spectrum by stochastic Lanczos quadrature.

For a unit vector z, Lanczos gives nodes theta_i and weights w_i with sum_i w_i f(theta_i) = z^T f(H) z, exact for
polynomials below degree 2 steps; its mean over random z is tr f(H) / n. With f a Gaussian around t this is the
density of eigenvalues at t, smoothed. (Ghorbani, Krishnan and Xiao, An Investigation into Neural Net Optimization via
Hessian Eigenvalue Density.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from runner.curvature.exact.checks import MEMORY_BUDGET
from runner.curvature.graph.errors import require_counts
from runner.curvature.graph.precision import full_precision
from runner.curvature.matrix_free.base import student
from runner.curvature.plots import plot_band
from runner.curvature.result import Estimated
from runner.curvature.spectra.lanczos import Run, lanczos
from runner.curvature.spectra.symmetric import NOT_FINITE, Symmetric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class SpectralDensity(Estimated):
    """grid (g,): eigenvalues t; density (g,): share of eigenvalues per unit of t, smoothed by a normal of standard
    deviation `bandwidth`; error (g,): standard error over the probes, widened for their number and skewness: +-1.96
    errors cover 90 to 98 % of the points for the Hessians of five networks, with 4 to 30 probes (200 seeds). outliers:
    converged eigenvalues that stand apart from the rest by more than three bandwidths, from the ends inwards. nodes,
    weights (probes, steps): the quadrature, weights of a probe adding up to 1. products used. reason why all of it is
    NaN, else "". value: the same as density; low, high: the 95 % interval density ± 1.96 error."""

    grid: Tensor
    density: Tensor
    error: Tensor
    bandwidth: float
    outliers: tuple[float, ...]
    nodes: Tensor
    weights: Tensor
    products: int
    reason: str = ""

    @property
    def value(self) -> Tensor:
        return self.density

    def summary(self) -> str:
        if self.reason:
            return f"nan: {self.reason}"
        ends = f"eigenvalues from {float(self.nodes.min()):.4g} to {float(self.nodes.max()):.4g}"
        return f"{ends}, {len(self.outliers)} outliers, {self.products} products"

    def plot(self, ax: Axes | None = None) -> Figure:
        """The density with its 95 % band. ax: default the axes of a new figure."""
        return plot_band(
            self.grid, self.density, self.low, self.high, ("eigenvalue", "density"), ax
        )


@full_precision()
def spectral_density(
    operator: Any,
    probes: int = 10,
    steps: int = 80,
    *,
    points: int = 400,
    bandwidth: float | None = None,
    memory_budget: int = MEMORY_BUDGET,
    generator: torch.Generator | None = None,
) -> SpectralDensity:
    """Density of the eigenvalues from `probes` runs of `steps` products. operator: see Symmetric.

    bandwidth: default 1/100 of the range of the nodes. memory_budget: bytes for a basis of `steps` vectors of length n,
    which stays orthogonal where it fits; otherwise three vectors are held, eigenvalues that have converged come back as
    copies, and their weights are added up. Raises ValueError for fewer than two probes, of which the error is made.

    >>> found = spectral_density(torch.diag(torch.linspace(0, 1, 50)), 4, 20)
    >>> float(torch.trapezoid(found.density, found.grid)).__round__(2)
    1.0
    """
    require_counts(2, probes=probes)
    require_counts(1, steps=steps)
    if bandwidth is not None and not bandwidth > 0:
        raise ValueError(f"expected a bandwidth above 0, got {bandwidth}")
    symmetric = Symmetric(operator)
    runs = [
        lanczos(symmetric, symmetric.gaussian(generator), steps, memory_budget)
        for _ in range(probes)
    ]
    if not all(bool(run.nodes.isfinite().all()) for run in runs):
        nothing = torch.full((points,), torch.nan, dtype=torch.float64, device="cpu")
        none = nothing[:1].expand(probes, 1)
        return SpectralDensity(
            nothing,
            nothing,
            nothing,
            math.nan,
            (),
            none,
            none,
            symmetric.products,
            reason=NOT_FINITE,
        )
    longest = max(len(run.nodes) for run in runs)
    nodes = torch.stack([_padded(run.nodes, longest, float(run.nodes[-1])) for run in runs])
    weights = torch.stack([_padded(run.weights, longest, 0.0) for run in runs])
    low, high = float(nodes.min()), float(nodes.max())
    size = max(abs(low), abs(high))
    spread = (
        high - low if high - low > 1e-9 * size else size if size > 0 else 1.0
    )  # a multiple of the identity
    width = spread / 100 if bandwidth is None else bandwidth
    grid = torch.linspace(
        low - 5 * width, high + 5 * width, points, dtype=torch.float64, device="cpu"
    )
    normal = torch.exp(-(((grid[:, None, None] - nodes) / width) ** 2) / 2) / (
        width * math.sqrt(2 * math.pi)
    )
    each = (normal * weights).sum(2)
    # Where few eigenvalues make the density, a probe's weight is the square of a normal number and rarely large: few
    # probes spread too little, by a skewness that falls with the root of their number.
    error = (1 + probes**-0.5) * each.std(1) / math.sqrt(probes) * student(probes - 1)
    return SpectralDensity(
        grid,
        each.mean(1),
        error,
        width,
        _outliers(runs[0], width),
        nodes,
        weights,
        symmetric.products,
    )


def _padded(values: Tensor, length: int, filling: float) -> Tensor:
    return torch.cat([values, values.new_full((length - len(values),), filling)])


def _outliers(run: Run, width: float) -> tuple[float, ...]:
    """Converged nodes from both ends, while the next one inwards is more than three bandwidths away."""
    found: list[float] = []
    nodes, residuals = run.nodes.tolist(), run.residuals.tolist()
    for order in (range(len(nodes) - 1, 0, -1), range(len(nodes) - 1)):
        step = -1 if order.start > 0 else 1
        for i in order:
            if abs(nodes[i] - nodes[i + step]) <= 3 * width or residuals[i] > width / 10:
                break
            found.append(nodes[i])
    return tuple(dict.fromkeys(sorted(found, reverse=True)))
