"""Measurements of pairs of nodes from their blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence

from torch import Tensor

from runner.curvature.basics.symmetric import Pair
from runner.curvature.pairs.ratios import (
    Asked,
    InterLayerMetrics,
    Measured,
    Measurement,
    Square,
    pair_metrics,
    spectral_norm,
)


def metrics_of_blocks(
    parts: Callable[[Pair], Sequence[Tensor]],
    asked: Asked,
    scale: float,
    eps: float,
    products: int = 0,
) -> InterLayerMetrics:
    """Exact metrics from each block, its Gauss-Newton and its tensor part, in float64 and in units
    of `scale`."""
    measured = {}
    for v, w in asked.with_diagonals:
        blocks = parts((v, w))
        total, gauss_newton, tensor = (Square(float(block.square().sum())) for block in blocks)
        sigma = math.nan
        if asked.ranks:
            sigma = spectral_norm(blocks[0], v == w)
        measured[v, w] = Measured(total, gauss_newton, tensor, sigma, 0.0, products)
    return pair_metrics(measured, asked.pairs, scale, eps, "exact blocks", asked.no_gap)


class ExactMetrics(Measurement):
    """From all blocks. measure: takes products, of which it yields how many before it takes them,
    and returns the metrics."""

    found: InterLayerMetrics | None = None

    def __init__(
        self, asked: Asked, planned: int, measure: Generator[int, None, InterLayerMetrics]
    ) -> None:
        super().__init__(asked)
        self.planned = planned
        self.measure = measure

    def steps(self) -> Iterator[None]:
        for ahead in self._measured():
            yield
            self.products += ahead

    def _measured(self) -> Iterator[int]:
        self.found = yield from self.measure

    def result(self) -> InterLayerMetrics | None:
        return self.found
