"""Metrics of pairs from their exact blocks, and from products alone where neither factors nor blocks are affordable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runner.curvature.exact.split import split_blocks
from runner.curvature.graph.dag import Dag
from runner.curvature.matrix_free.estimators import rademacher
from runner.curvature.matrix_free.operators import CurvatureOperator
from runner.curvature.metrics.golub_kahan import Requests, leading_singular_values
from runner.curvature.metrics.ratios import Measured, PairMetrics, pair_metrics
from runner.curvature.metrics.samples import MOST_PROBES, TOLERANCE, Pair, Square, relative_error
from runner.curvature.metrics.tensor_part import TensorPart


def metrics_from_blocks(
    dag: Dag, x: Tensor, y: Tensor, nodes: tuple[str, ...], asked: Sequence[Pair], memory_budget: int
) -> dict[Pair, PairMetrics]:
    """Exact R, C, D, gap of the pairs `asked` by curvature routing."""
    split = split_blocks(dag, x, y, nodes, memory_budget=memory_budget, check=False)
    scale = max((float(split.total[v, v].abs().max()) for v in nodes), default=0.0)
    unit = scale if scale > 0 else 1.0
    found = {}
    for v, w in dict.fromkeys([*asked, *((u, u) for pair in asked for u in pair)]):
        total = split.total[v, w].double() / unit
        gauss_newton, tensor = (
            Square(float((part[v, w].double() / unit).square().sum())) for part in (split.gauss_newton, split.tensor)
        )
        found[v, w] = Measured(
            Square(float(total.square().sum())), gauss_newton, tensor, _spectral_norm(total, v == w), 0.0
        )
    eps = float(torch.finfo(split.total[nodes[0], nodes[0]].dtype).eps)
    return pair_metrics(found, list(asked), scale, eps, "exact blocks")


def _spectral_norm(block: Tensor, symmetric: bool) -> float:
    """sigma_1 from the eigenvalues of the block, or of its smaller Gram matrix: the largest keeps its digits."""
    if symmetric:
        return float(torch.linalg.eigvalsh(block).abs().max())
    gram = block @ block.mT if len(block) <= block.shape[1] else block.mT @ block
    return math.sqrt(max(0.0, float(torch.linalg.eigvalsh(gram)[-1])))


@dataclass
class Squares:
    """Squared norms of a block, of its Gauss-Newton and of its tensor part, from products with directions on a node."""

    found: tuple[Square, Square, Square] = (Square(0.0), Square(0.0), Square(0.0))
    sigma: float = math.nan
    """sigma_1 of the whole block; NaN where it is not known."""
    start: Tensor | None = None
    """The leading one of the directions, on the other node, that the first probes were sent to."""

    def add(self, node: str, total: Tensor, tensor: Tensor, exact: bool) -> None:
        """Images (k, d) of k more probes, or of all unit vectors (exact)."""
        parts = [part.square().sum(1) for part in (total, total - tensor, tensor)]
        if exact:
            first, second, third = (Square(float(part.sum())) for part in parts)
            self.sigma = _spectral_norm(total, symmetric=False)
        else:
            if self.start is None:
                self.start = _leading_row(total)
            first, second, third = (
                Square.of({node: torch.cat([before.samples[node], part]) if before.samples else part})
                for before, part in zip(self.found, parts, strict=True)
            )
        self.found = first, second, third


def metrics_from_products(
    operator: CurvatureOperator,
    tensor: TensorPart,
    asked: Sequence[Pair],
    probes: int,
    error: float | None,
    generator: torch.Generator | None,
    ranks: bool = True,
) -> dict[Pair, PairMetrics]:
    """The same from Hutchinson's probes and Golub-Kahan, for outputs too many for factors and networks without a graph.

    GN z = H z - T z: T is exactly zero where it is, so that only a Gauss-Newton part far below T loses digits. Nodes
    with no more components than probes are multiplied with all unit vectors, which makes them exact; the others take
    twice as many probes at every round until every error is as asked, or MOST_PROBES are drawn. ranks=False leaves D
    out.
    """
    pairs = list(dict.fromkeys([*asked, *((u, u) for pair in asked for u in pair)]))
    sides = {(v, w): v if operator.sizes[v] <= min(probes, operator.sizes[w] - 1) else w for v, w in pairs}
    squares = {pair: Squares() for pair in pairs}
    drawn = dict.fromkeys(sides.values(), 0)
    waiting, count = list(drawn), probes
    while waiting:
        for u in waiting:
            exact = operator.sizes[u] <= count
            z = _directions(operator, u, count, exact, generator)
            total, bent = operator.apply({u: z}), tensor.apply({u: z})
            drawn[u] += len(z)
            for pair in (pair for pair in pairs if sides[pair] == u):
                other = pair[0] if pair[1] == u else pair[1]
                squares[pair].add(u, total[other].double(), tensor.scale * bent[other].double(), exact)
        waiting = [] if error is None else _missing(squares, asked, sides, drawn, error)
        count *= 2

    def products(requests: Requests) -> dict[Pair, Tensor]:
        found: dict[Pair, Tensor] = {}
        for w in dict.fromkeys(w for _, w, _, _ in requests):
            here = [r for r in requests if r[1] == w]
            images = operator.apply({w: torch.stack([z for _, _, z, _ in here])})
            found |= {pair: images[v][k] for k, (pair, _, _, v) in enumerate(here)}
        return found

    # Transposed, each from where the probes of w went on v: a random start may take sigma_2 for sigma_1.
    open_pairs = [p for p in pairs if ranks and math.isnan(squares[p].sigma)]
    starts = {(w, v): start for v, w in open_pairs if (start := squares[v, w].start) is not None}
    leading = leading_singular_values(products, starts, TOLERANCE if error is None else error / 4, 40)
    found = {}
    for p in pairs:
        last = leading.get((p[1], p[0]))
        known = squares[p].sigma if ranks else math.nan
        value, uncertain, steps = (known, 0.0, 0) if last is None else (last.value, last.error, last.steps)
        found[p] = Measured(*squares[p].found, value, uncertain, 2 * drawn[sides[p]] + 2 * steps)
    return pair_metrics(found, list(asked), 1.0, float(torch.finfo(operator.dtype).eps), "products")


def _leading_row(images: Tensor) -> Tensor:
    """The leading right singular vector of images (k, d), up to a factor; any vector of images that are zero or not
    finite."""
    if not images.isfinite().all() or not images.any():
        return torch.ones_like(images[0])
    _, vectors = torch.linalg.eigh(images @ images.mT)
    return vectors[:, -1] @ images


def _directions(
    operator: CurvatureOperator, node: str, count: int, exact: bool, generator: torch.Generator | None
) -> Tensor:
    """Unit vectors, or probes, on a node: (k, d)."""
    if exact:
        return torch.eye(operator.sizes[node], dtype=operator.dtype, device=operator.device)
    return rademacher((count, operator.sizes[node]), operator.dtype, generator).to(operator.device)


def _missing(
    squares: Mapping[Pair, Squares],
    asked: Sequence[Pair],
    sides: Mapping[Pair, str],
    drawn: Mapping[str, int],
    error: float,
) -> list[str]:
    """Nodes whose probes leave R, C or gap of a pair with a larger error than asked, while more are allowed."""
    nodes: dict[str, None] = {}
    for pair in asked:
        ends = [pair, *((u, u) for u in pair)]
        total, a, b = (squares[p].found[0] for p in ends)
        _, smooth, bent = squares[pair].found
        terms = ([(0.5, total)], [(0.5, total), (-0.25, a), (-0.25, b)], [(0.5, bent), (-0.5, smooth)])
        if max(map(relative_error, terms)) > error:
            nodes |= {sides[p]: None for p in ends if squares[p].found[0].samples}
    return [u for u in nodes if drawn[u] < MOST_PROBES]
