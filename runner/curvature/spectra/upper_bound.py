"""The Wolkowicz–Styan bound of λ₁ from tr H and tr H², of any symmetric operator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.basics.adapters import Matrix, Symmetric, even_steps, own_generator
from runner.curvature.basics.errors import require_counts
from runner.curvature.basics.removed import refuses_removed
from runner.curvature.basics.result import NORMAL, Result
from runner.curvature.basics.work import Method
from runner.curvature.spectra.bounds import wolkowicz_styan_upper
from runner.curvature.spectra.samples import Samples, gamma_interval


@dataclass(frozen=True, repr=False)
class UpperBound(Result):
    """value: λ_sup; low, high: its 95 % interval (equal where exact); error: the standard error of
    a normal interval of that width; trace and trace_of_square with standard errors; products used;
    reason for a NaN, else ""."""

    value: float
    low: float
    high: float
    trace: tuple[float, float]
    trace_of_square: tuple[float, float]
    products: int
    reason: str = ""

    @property
    def error(self) -> float:
        return (self.high - self.low) / (2 * NORMAL)


@refuses_removed
def upper_bound_estimate(
    operator: Matrix,
    probes: int = 40,
    *,
    generator: torch.Generator | None = None,
    progress: bool | None = None,
) -> UpperBound:
    """Estimate λ_sup = μ + √(n−1) σ ≥ λ₁, μ = tr H / n, σ² = tr H² / n − μ² (WS bound, Eq. 7).

    Parameters
    ----------
    operator, generator, progress
        As for `trace_estimate`.
    probes
        Number of products, at least 4. With n or more of them the bound is exact.

    Returns
    -------
    UpperBound

    Raises
    ------
    ValueError
        For fewer than 4 probes.

    Notes
    -----
    Both traces come from the same vectors z on the sphere, zᵀHz and |Hz|². The bound holds for the
    exact traces: where an estimate lies below λ₁, its interval reaches above.

    Examples
    --------
    >>> import torch
    >>> from runner.curvature import upper_bound_estimate
    >>> round(upper_bound_estimate(torch.diag(torch.tensor([3.0, 1.0, 1.0])), 4).value, 4)
    3.0
    """
    require_counts(4, probes=probes)
    return _Bound(Symmetric(operator), probes, own_generator(generator)).run(progress)


class _Bound(Method[UpperBound]):
    """From samples."""

    title = "upper bound"

    def __init__(self, symmetric: Symmetric, probes: int, generator: torch.Generator) -> None:
        super().__init__(symmetric, probes)
        self.generator = generator
        self.samples = Samples(symmetric.size)

    def of_matrix(self, matrix: Tensor) -> UpperBound:
        unscaled = self.symmetric.unscaled
        trace = matrix.trace().cpu()
        square = matrix.square().sum().cpu()
        value = unscaled(float(wolkowicz_styan_upper(len(matrix), trace, square)))
        first = (unscaled(float(trace)), 0.0)
        second = (unscaled(float(square), 2), 0.0)
        return UpperBound(value, value, value, first, second, self.symmetric.products)

    def search(self) -> Iterator[None]:
        for count in even_steps(self.planned):
            yield
            z = self.symmetric.on_sphere(count, self.generator)
            self.samples.add(z, self.symmetric.rows(z))

    def result(self) -> UpperBound | None:
        unscaled = self.symmetric.unscaled
        n = self.symmetric.size
        samples = self.samples
        if len(samples.values) < 2:
            return None
        centred = (1 + 2 / n) * samples.square
        freedom = samples.freedom
        mean = samples.mean / n
        error = samples.deviation / n
        variance = (n - 1) / n * centred
        spread = math.sqrt(variance) / (1 - 1 / (4 * freedom))  # a root is small on average
        ends = gamma_interval(variance, freedom, 1 + 0.6 * samples.noise)
        low, high = (math.sqrt(end) for end in ends)
        value = mean + spread
        low = value - math.hypot(spread - low, 1.96 * error)
        high = value + math.hypot(high - spread, 1.96 * error)
        square = centred + samples.mean**2 / n
        of_mean = 2 * samples.mean / n * samples.deviation
        of_square = math.hypot(centred * math.sqrt(2 / freedom), of_mean)
        trace = (unscaled(samples.mean), unscaled(samples.deviation))
        trace_of_square = (unscaled(square, 2), unscaled(of_square, 2))
        ends = (unscaled(low), unscaled(high))
        return UpperBound(unscaled(value), *ends, trace, trace_of_square, self.symmetric.products)

    def undefined(self, reason: str) -> UpperBound:
        nan = math.nan
        return UpperBound(nan, nan, nan, (nan, nan), (nan, nan), self.symmetric.products, reason)
