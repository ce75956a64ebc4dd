"""The density of a spectrum by stochastic Lanczos quadrature.

For a unit vector z, Lanczos gives nodes θ_i and weights w_i with Σ w_i f(θ_i) = zᵀf(H)z, exact for
polynomials below degree 2 steps; its mean over random z is tr f(H) / n. With f a Gaussian around t
this is the density of eigenvalues at t, smoothed. (Ghorbani, Krishnan and Xiao, An Investigation
into Neural Net Optimization via Hessian Eigenvalue Density, 2019.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d, pad
from torch.nn.utils.rnn import pad_sequence

from runner.curvature.basics.adapters import Matrix, Symmetric, own_generator
from runner.curvature.basics.errors import require_counts
from runner.curvature.basics.estimate import full, numbers
from runner.curvature.basics.plots import plot_band
from runner.curvature.basics.removed import refuses_removed
from runner.curvature.basics.result import TensorResult
from runner.curvature.basics.work import Method
from runner.curvature.spectra.krylov import MEMORY_BUDGET, Quadratures, Rule
from runner.curvature.spectra.samples import skewed_quantiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROBES = 5
STEPS = 40
NARROW = 0.01
RESOLVED = 0.8
"""Default bandwidth in ranges of the nodes: 0.01, or 0.8 / steps where this is more.

The nodes are at most 1.6 ranges / steps apart; Gaussians of half that width leave ripples below 1
%.
"""
MARGIN = 5
"""Bandwidths beyond the last node on each side of the grid."""


@dataclass(frozen=True, repr=False, eq=False)
class SpectralDensity(TensorResult):
    """The density of the eigenvalues of a matrix.

    Attributes
    ----------
    grid, density
        (g,): eigenvalues t; share of eigenvalues per unit of t, smoothed by a normal of standard
        deviation `bandwidth`.
    error, low, high
        (g,): standard error over the random vectors, and the ends of the 95 % interval, which holds
        the error of the Lanczos steps as well.
    bandwidth
    outliers
        Converged eigenvalues that stand apart from the rest by more than three bandwidths, from the
        ends inwards.
    nodes, weights
        (probes, steps): the quadrature, weights of a probe adding up to 1; the eigenvalues with
        equal weights where the whole matrix was decomposed.
    products, reason
        Products used; why all numbers are NaN, else "".
    """

    grid: Tensor
    density: Tensor
    error: Tensor
    low: Tensor
    high: Tensor
    bandwidth: float
    outliers: tuple[float, ...]
    nodes: Tensor
    weights: Tensor
    products: int
    reason: str = ""

    @property
    def value(self) -> Tensor:
        """The density."""
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


@refuses_removed
def spectral_density(  # noqa: PLR0913 (public: each is an option)
    operator: Matrix,
    probes: int = PROBES,
    steps: int = STEPS,
    *,
    points: int = 400,
    bandwidth: float | None = None,
    memory_budget: int = MEMORY_BUDGET,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> SpectralDensity:
    """Density of the eigenvalues from Lanczos with random vectors.

    Parameters
    ----------
    operator, generator, progress
        As for `trace_estimate`.
    probes, steps
        Number of random vectors, at least 2, and of products with each. With probes × steps ≥ n the
        density is exact.
    points
        Points of the grid.
    bandwidth
        Standard deviation of the smoothing; default 0.01 ranges of the nodes, at least 0.8 / steps.
        Structure that is finer than the distance of the nodes is uncertain: the band shows it.
    memory_budget
        Bytes for the bases, probes × steps vectors of length n. Where they do not fit, three
        vectors for each probe are held, eigenvalues that have converged come back as copies, and
        their weights are added up.

    Returns
    -------
    SpectralDensity

    Raises
    ------
    ValueError
        For fewer than two probes, and a bandwidth that is not positive.

    Examples
    --------
    >>> import torch
    >>> from runner.curvature import spectral_density
    >>> density = spectral_density(torch.diag(torch.linspace(0, 1, 500)))
    >>> float(torch.trapezoid(density.density, density.grid)).__round__(2)
    1.0
    """
    require_counts(2, probes=probes)
    require_counts(1, steps=steps)
    require_counts(2, points=points)
    if bandwidth is not None and not bandwidth > 0:
        raise ValueError(f"expected a bandwidth above 0, got {bandwidth}")
    symmetric = Symmetric(operator)
    density = _Density(symmetric, probes, steps, points, bandwidth)
    if not density.exact:
        start = symmetric.gaussian(probes, own_generator(generator))
        start = start / start.norm(dim=1, keepdim=True)
        density.quadratures = Quadratures(symmetric, start, steps, memory_budget)
    return density.run(progress)


class _Density(Method[SpectralDensity]):
    """One Lanczos step of all probes after the other."""

    title = "density"
    quadratures: Quadratures

    def __init__(
        self, symmetric: Symmetric, probes: int, steps: int, points: int, bandwidth: float | None
    ) -> None:
        super().__init__(symmetric, probes * steps)
        self.probes = probes
        self.points = points
        self.bandwidth = bandwidth

    def of_matrix(self, matrix: Tensor) -> SpectralDensity:
        values = self.symmetric.restored(torch.linalg.eigvalsh(matrix).cpu())
        rule = Rule(values, full(1 / len(values), len(values)), torch.zeros_like(values))
        grid, width = self._grid(values, len(values))
        density = _smoothed(grid, width, [rule])
        return self._of([rule], grid, width, density, torch.zeros_like(density), density, density)

    def _grid(self, nodes: Tensor, steps: int) -> tuple[Tensor, float]:
        """The grid and the bandwidth."""
        low = float(nodes.min())
        high = float(nodes.max())
        size = max(abs(low), abs(high))
        spread = high - low
        if spread <= 1e-9 * size:  # a multiple of the identity
            spread = size
        width = self.bandwidth or (spread or 1.0) * max(NARROW, RESOLVED / steps)
        ends = low - MARGIN * width, high + MARGIN * width
        return torch.linspace(*ends, self.points, dtype=torch.float64, device="cpu"), width

    def search(self) -> Iterator[None]:
        for _ in range(self.quadratures.steps):
            yield
            self.quadratures.step()

    def result(self) -> SpectralDensity | None:
        done = self.quadratures.done
        if not done:
            return None
        rules = self.quadratures.rules(done)
        grid, width = self._grid(torch.cat([rule.nodes for rule in rules]), done)
        density, error, low, high = _interval(grid, width, rules, self.symmetric.size)
        before = _smoothed(grid, width, self.quadratures.rules(max(1, done - 1)))
        bias = _largest_nearby((before - density).abs(), max(1, round((len(grid) - 1) / done)))
        low = (density - torch.hypot(density - low, bias)).clamp(min=0)
        high = density + torch.hypot(high - density, bias)
        return self._of(rules, grid, width, density, error, low, high)

    def _of(
        self, rules: list[Rule], grid: Tensor, width: float, *curves: Tensor
    ) -> SpectralDensity:
        """curves: density, error, low and high, in units of the largest value of a bell."""
        peak = 1 / (width * math.sqrt(2 * math.pi))
        density, error, low, high = (peak * curve for curve in curves)
        last = max(float(rule.nodes[-1]) for rule in rules)
        return SpectralDensity(
            grid,
            density,
            error,
            low,
            high,
            width,
            _outliers(rules[0].nodes, rules[0].residuals, width),
            pad_sequence([rule.nodes for rule in rules], True, last),
            pad_sequence([rule.weights for rule in rules], True),
            self.symmetric.products,
        )

    def undefined(self, reason: str) -> SpectralDensity:
        nothing = full(math.nan, self.points)
        curves = (nothing, nothing, nothing, nothing, nothing)
        none = nothing[:1, None]
        return SpectralDensity(*curves, math.nan, (), none, none, self.symmetric.products, reason)


def _smoothed(grid: Tensor, width: float, rules: list[Rule], power: int = 1) -> Tensor:
    """Mean over the probes of zᵀf(H)^power z, f a bell of height 1 around each t of the grid."""
    total = torch.zeros_like(grid)
    for rule in rules:
        apart = (grid[:, None] - rule.nodes) / width
        total += torch.exp(-power / 2 * apart.square()) @ rule.weights
    return total / len(rules)


def _interval(
    grid: Tensor, width: float, rules: list[Rule], size: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Density, standard error and 95 % interval: as of traces of f(H), see `samples`, whose moments
    are known here."""
    probes = len(rules)
    one, two, three, four = (_smoothed(grid, width, rules, power) for power in (1, 2, 3, 4))
    second = (two - one.square()).clamp(min=0)
    third = three - 3 * two * one + 2 * one**3
    fourth = four - 4 * three * one + 6 * two * one.square() - 3 * one**4
    fourth = fourth.clamp(min=0)
    error = (2 / (probes * (size + 2)) * second).sqrt()
    share = (fourth / (size * second.square()).clamp(min=1e-300)).clamp(1 / size, 1.0)
    skew = (third / (second * fourth).sqrt().clamp(min=1e-300)).clamp(-1, 1)
    ends = []
    for r, gamma in zip(share.tolist(), skew.tolist(), strict=True):
        ends.append(skewed_quantiles(probes / r, gamma, 1 + 0.3 * math.sqrt(r / probes)))
    low, high = numbers(ends).mT
    return one, error, one - high * error, one - low * error


def _largest_nearby(values: Tensor, reach: int) -> Tensor:
    """The error of the steps, which is seen where the nodes of one step less happen to differ."""
    return max_pool1d(pad(values[None], (reach, reach)), 2 * reach + 1, 1)[0]


def _outliers(nodes: Tensor, residuals: Tensor, width: float) -> tuple[float, ...]:
    """Converged nodes from both ends that stand apart."""
    values = nodes.tolist()
    errors = residuals.tolist()
    apart = _apart(values, errors, width) + _apart(values[::-1], errors[::-1], width)
    return tuple(sorted({*apart}, reverse=True))


def _apart(values: list[float], errors: list[float], width: float) -> list[float]:
    """The first ones, while the next is over three bandwidths away."""
    apart = []
    for i, value in enumerate(values[:-1]):
        if abs(value - values[i + 1]) <= 3 * width or errors[i] > width / 10:
            break
        apart.append(value)
    return apart
