"""R, C, D and the GN-gap of pairs from their squared norms and sigma_1: one place for errors and for what is zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from runner.curvature.matrix_free.estimators import Estimate
from runner.curvature.metrics.samples import Pair, Square, relative_error


class PairMetrics(NamedTuple):
    """R = ||H[v,w]||_F, C = R(v,w) / sqrt(R(v,v) R(w,w)), D = ||H[v,w]||_F^2 / sigma_1^2, gap = ||T[v,w]||_F /
    ||GN[v,w]||_F of a pair, each with its error (DAG paper, Definition 23, Eqs. 4, 7).

    R, gauss_newton and tensor have the unit of the loss over those of the outputs of v and w; C, D and gap have none.
    C <= 1 holds for positive semi-definite blocks alone. method: as in `inter_layer_metrics`. gauss_newton, tensor:
    norms of both parts, whose sums over pairs give the tables' GN-gap.
    """

    R: Estimate
    C: Estimate
    D: Estimate
    gap: Estimate
    method: str
    gauss_newton: Estimate
    tensor: Estimate


@dataclass(frozen=True)
class Measured:
    """Squared Frobenius norms of the parts of one block, and sigma_1 of the block with its error."""

    total: Square
    gauss_newton: Square
    tensor: Square
    sigma: float
    sigma_error: float
    products: int = 0


def pair_metrics(
    measured: Mapping[Pair, Measured], asked: list[Pair], scale: float, eps: float, method: str
) -> dict[Pair, PairMetrics]:
    """Metrics of the pairs `asked` from the measurements of these and of their diagonal blocks, in units of `scale`.

    A block is numerically zero when its norm is at most eps sqrt(R(v,v) R(w,w)), a diagonal block when it is zero.
    """
    return {pair: _one(measured, pair, scale, eps, method) for pair in asked}


def _one(measured: Mapping[Pair, Measured], pair: Pair, scale: float, eps: float, method: str) -> PairMetrics:
    v, w = pair
    m, a, b = measured[pair], measured[v, v], measured[w, w]
    cost = m.products

    def root(square: Square) -> Estimate:
        value = scale * math.sqrt(square.value)
        return Estimate(value, value * relative_error([(0.5, square)]), cost)

    def undefined(reason: str) -> Estimate:
        return Estimate(math.nan, math.nan, cost, reason)

    diagonal = math.sqrt(a.total.value) * math.sqrt(b.total.value)
    zero = math.sqrt(m.total.value) <= eps * math.sqrt(diagonal) or m.total.value == 0 or m.sigma == 0
    resonance = root(m.total)
    if diagonal == 0:
        coupling = undefined("diagonal block is numerically zero")
    elif v == w:
        coupling = Estimate(1.0, 0.0, cost)
    else:
        value = math.sqrt(m.total.value) / math.sqrt(diagonal)
        terms = [(0.5, m.total), (-0.25, a.total), (-0.25, b.total)]
        coupling = Estimate(value, value * relative_error(terms), cost)
    if math.isnan(m.sigma):
        dimension = undefined("not asked for")
    elif zero:
        dimension = undefined("block is numerically zero")
    else:
        value = m.total.value / m.sigma**2
        sigma = m.sigma_error / m.sigma if m.sigma_error > 8 * eps * m.sigma else 0.0
        dimension = Estimate(value, value * math.hypot(relative_error([(1.0, m.total)]), 2 * sigma), cost)
    if math.sqrt(m.gauss_newton.value) <= eps * math.sqrt(m.total.value) or m.gauss_newton.value == 0:
        gap = undefined("Gauss-Newton block is numerically zero")
    else:
        value = math.sqrt(m.tensor.value / m.gauss_newton.value)
        gap = Estimate(value, value * relative_error([(0.5, m.tensor), (-0.5, m.gauss_newton)]), cost)
    return PairMetrics(resonance, coupling, dimension, gap, method, root(m.gauss_newton), root(m.tensor))
