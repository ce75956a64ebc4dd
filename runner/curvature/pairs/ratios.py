"""R, C, D and the GN-gap of pairs from their squared norms and sigma_1, with errors, and what
counts as zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from runner.curvature.basics.estimate import Estimate, skewed, student_factor
from runner.curvature.basics.plots import frame, plot_map
from runner.curvature.basics.result import Result
from runner.curvature.basics.symmetric import Pair
from runner.curvature.basics.work import Work

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame


MOST_PROBES = 4096
"""On each node, whatever error is asked for."""
TOLERANCE = 2e-2
"""Relative error of sigma_1 where none is asked for and it needs products."""


@dataclass(frozen=True)
class Square:
    """A squared norm: its value, and the samples that it is the mean of, by the node that the
    probes were drawn on (none where it is exact)."""

    value: float
    samples: Mapping[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of(samples: Mapping[str, Tensor]) -> Square:
        """The mean of the nodes' means: a block and its transpose have one norm, so that both sides
        count."""
        total = math.fsum(float(s.mean()) for s in samples.values())
        return Square(max(0.0, total / len(samples)), samples)


Terms = Sequence[tuple[float, Square]]
"""(c_k, S_k) of sum_k c_k log S_k: the logarithm of a root, a product or a ratio of squares."""


def relative_error(terms: Terms) -> float:
    """Standard error of sum_k c_k log S_k over squares S_k, to first order; 0 when all are exact.

    Samples drawn on one node share their probes; their influences add up before they are squared.
    The error is widened by Student's factor, so that +-1.96 errors cover 95 % with few probes too.
    """
    influence: dict[str, Tensor] = {}
    for coefficient, square in terms:
        for node, s in square.samples.items():
            if square.value > 0:
                part = coefficient * s / (len(square.samples) * square.value)
                influence[node] = influence[node] + part if node in influence else part
    if not influence:
        return 0.0
    variance = math.fsum(float(i.var()) / len(i) for i in influence.values())
    return math.sqrt(variance) * student_factor(sum(len(i) - 1 for i in influence.values()))


QUANTITIES = ("R", "C", "D", "gap", "gauss_newton", "tensor")


class _PairMetrics(NamedTuple):
    R: Estimate
    C: Estimate
    D: Estimate
    gap: Estimate
    method: str
    gauss_newton: Estimate
    tensor: Estimate


class PairMetrics(Result, _PairMetrics):
    """R = ||H[v,w]||_F, C = R(v,w) / sqrt(R(v,v) R(w,w)), D = ||H[v,w]||_F^2 / sigma_1^2, gap =
    ||T[v,w]||_F /
    ||GN[v,w]||_F of a pair, each with its error (DAG paper, Definition 23, Eqs. 4, 7).

    R, gauss_newton and tensor have the unit of the loss over those of the outputs of v and w; C, D
    and gap have none. C <= 1 holds for positive semi-definite blocks alone. method: as in
    `inter_layer_metrics`. gauss_newton, tensor: norms of both parts, whose sums over pairs give the
    tables' GN-gap."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """R, R_error, C, C_error and so on, then the method and the products used."""
        row: dict[str, Any] = {}
        for name in QUANTITIES:
            row |= {name: getattr(self, name).value, f"{name}_error": getattr(self, name).error}
        return row | {"method": self.method, "products": self.R.products}

    def summary(self) -> str:
        values = ""
        for name in ("R", "C", "D", "gap"):
            estimate = getattr(self, name)
            values += f"{name}={estimate.value:.4g} ± {estimate.error:.2g}, "
        return values + self.method


class InterLayerMetrics(Result, dict[Pair, PairMetrics]):
    """R, C, D and the gap of each pair of nodes: a dictionary from (v, w) to `PairMetrics`.

    Attributes
    ----------
    phi, phi_gauss_newton
        Φ = 1 − Σ_v ‖H[v,v]‖_F² / ‖H‖_F², the share of the Hessian, and of its Gauss-Newton part,
        that a block-diagonal approximation discards, from 0 to 1, with a standard error. NaN with
        a reason where a pair of the nodes is missing, and for a zero matrix.
    """

    def __init__(
        self, pairs: Mapping[Pair, PairMetrics], phi: Estimate, phi_gauss_newton: Estimate
    ) -> None:
        super().__init__(pairs)
        self.phi = phi
        self.phi_gauss_newton = phi_gauss_newton

    def to_dict(self) -> dict[str, Any]:
        """One dictionary of numbers for each pair, under "v, w"."""
        return {f"{v}, {w}": metrics.to_dict() for (v, w), metrics in self.items()}

    def to_frame(self) -> DataFrame:
        """A pandas DataFrame, indexed by v and w, with the columns of `PairMetrics.to_dict`."""
        rows = ({"v": v, "w": w, **metrics.to_dict()} for (v, w), metrics in self.items())
        return frame(rows, ["v", "w"])

    def plot(self, quantity: str = "C", ax: Axes | None = None) -> Figure:
        """A map of one quantity (R, C, D, gap, gauss_newton or tensor) over all pairs. ax: default
        those of a new figure."""
        if quantity not in QUANTITIES:
            raise ValueError(f"expected one of {', '.join(QUANTITIES)}, found {quantity!r}")
        values = {pair: getattr(metrics, quantity).value for pair, metrics in self.items()}
        return plot_map(values, quantity, ax)

    def summary(self) -> str:
        return f"{len(self)} pairs of {len({node for pair in self for node in pair})} nodes"


@dataclass(frozen=True)
class Measured:
    """Squared Frobenius norms of the parts of one block, and sigma_1 of the block with its error
    (NaN: not known)."""

    total: Square
    gauss_newton: Square
    tensor: Square
    sigma: float = math.nan
    sigma_error: float = 0.0
    products: int = 0

    @property
    def gap(self) -> Terms:
        return (0.5, self.tensor), (-0.5, self.gauss_newton)

    def coupling(self, first: Measured, second: Measured) -> Terms:
        """first, second: the diagonal blocks."""
        return (0.5, self.total), (-0.25, first.total), (-0.25, second.total)


def spectral_norm(block: Tensor, symmetric: bool = False) -> float:
    """sigma_1 from the eigenvalues of the block, or of its smaller Gram matrix: the largest keeps
    its digits."""
    if symmetric:
        return float(torch.linalg.eigvalsh(block).abs().max())
    if len(block) > block.shape[1]:
        block = block.mT
    gram = block @ block.mT
    return math.sqrt(max(0.0, float(torch.linalg.eigvalsh(gram)[-1])))


@dataclass(frozen=True)
class Asked:
    """The pairs to measure; the relative error asked of every value, None for the default number of
    probes; the generator of the probes; whether D is wanted; how many probes are multiplied at
    once, 0 for all; why there is no Gauss-Newton matrix, "" where there is one."""

    pairs: list[Pair]
    error: float | None = None
    generator: torch.Generator | None = None
    ranks: bool = True
    together: int = 0
    no_gap: str = ""

    @property
    def with_diagonals(self) -> list[Pair]:
        """The pairs with the diagonal pairs that C needs."""
        return list(dict.fromkeys([*self.pairs, *((u, u) for pair in self.pairs for u in pair)]))

    @property
    def tolerance(self) -> float:
        """Relative error of sigma_1."""
        return TOLERANCE if self.error is None else self.error / 4


def require_error(relative: float | None) -> None:
    """Raises ValueError for a relative error that is none."""
    if relative is not None and not relative > 0:
        raise ValueError(f"relative_error must be positive, got {relative}")


class Measurement(Work[InterLayerMetrics]):
    """Of the metrics that are `asked` for, which are `found` in the end."""

    title = "R, C, D and gap"
    found: InterLayerMetrics | None = None

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    def result(self) -> InterLayerMetrics | None:
        return self.found

    def undefined(self, reason: str) -> InterLayerMetrics:
        nan = Estimate.undefined(0, reason)
        nothing = PairMetrics(nan, nan, nan, nan, "", nan, nan)
        return InterLayerMetrics(dict.fromkeys(self.asked.pairs, nothing), nan, nan)


def pair_metrics(
    measured: Mapping[Pair, Measured],
    asked: list[Pair],
    scale: float,
    eps: float,
    method: str,
    no_gap: str,
) -> InterLayerMetrics:
    """Metrics of the pairs `asked` from the measurements of these and of their diagonal blocks, in
    units of `scale`. no_gap: why there is no Gauss-Newton matrix, "" where there is one.

    A block is numerically zero when its norm is at most eps sqrt(R(v,v) R(w,w)), a diagonal block
    when it is zero."""
    found = {pair: _one(measured, pair, scale, eps, method) for pair in asked}
    products = max((measured[pair].products for pair in asked), default=0)
    shares = []
    for part in ("total", "gauss_newton"):
        squares = {pair: getattr(measured[pair], part) for pair in asked}
        shares.append(discarded_share(squares, products))
    if no_gap:
        shares[1] = Estimate.undefined(products, no_gap)
        for pair, metrics in found.items():
            nan = Estimate.undefined(metrics.R.products, no_gap)
            found[pair] = metrics._replace(gap=nan, gauss_newton=nan, tensor=nan)
    return InterLayerMetrics(found, *shares)


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


def discarded_share(squares: Mapping[Pair, Square], products: int) -> Estimate:
    """1 − Σ_v S[v,v] / Σ_vw S[v,w] of the squared norms of all blocks, each pair of nodes once; the
    error is that of log(Φ / (1 − Φ)), to first order."""
    nodes = {node for pair in squares for node in pair}
    every = {frozenset(pair) for pair in squares}
    if len(every) < len(nodes) * (len(nodes) + 1) / 2:
        return Estimate.undefined(products, "not all pairs of the nodes were asked for")
    inside = math.fsum(s.value for (v, w), s in squares.items() if v == w)
    outside = 2 * math.fsum(s.value for (v, w), s in squares.items() if v != w)
    if not inside + outside > 0:
        return Estimate.undefined(products, "the matrix is zero")
    value = outside / (inside + outside)
    terms = []
    for (v, w), square in squares.items():
        if v == w and inside > 0:
            terms.append((-square.value / inside, square))
        elif v != w and outside > 0:
            terms.append((2 * square.value / outside, square))
    return Estimate(value, value * (1 - value) * skewed(relative_error(terms)), products)


def _one(
    measured: Mapping[Pair, Measured], pair: Pair, scale: float, eps: float, method: str
) -> PairMetrics:
    v, w = pair
    block = measured[pair]
    ends = measured[v, v], measured[w, w]

    def estimate(value: float, relative: float) -> Estimate:
        return Estimate(value, value * relative, block.products)

    def root(square: Square) -> Estimate:
        return estimate(scale * math.sqrt(square.value), relative_error([(0.5, square)]))

    def nan(reason: str) -> Estimate:
        return Estimate.undefined(block.products, reason)

    norm = math.sqrt(block.total.value)
    smooth = math.sqrt(block.gauss_newton.value)
    diagonal = math.sqrt(ends[0].total.value) * math.sqrt(ends[1].total.value)
    if diagonal == 0:
        coupling = nan("diagonal block is numerically zero")
    elif v == w:
        coupling = estimate(1.0, 0.0)
    else:
        relative = skewed(relative_error(block.coupling(*ends)))
        coupling = estimate(norm / math.sqrt(diagonal), relative)
    if math.isnan(block.sigma):
        dimension = nan("not asked for")
    elif norm <= eps * math.sqrt(diagonal) or norm == 0 or block.sigma == 0:
        dimension = nan("block is numerically zero")
    else:
        uncertain = block.sigma_error > 8 * eps * block.sigma
        sigma = block.sigma_error / block.sigma if uncertain else 0.0
        relative = math.hypot(relative_error([(1.0, block.total)]), 2 * sigma)
        dimension = estimate(block.total.value / block.sigma**2, relative)
    if smooth <= eps * norm or smooth == 0:
        gap = nan("Gauss-Newton block is numerically zero")
    else:
        ratio = math.sqrt(block.tensor.value / block.gauss_newton.value)
        gap = estimate(ratio, relative_error(block.gap))
    parts = (root(block.gauss_newton), root(block.tensor))
    return PairMetrics(root(block.total), coupling, dimension, gap, method, *parts)
