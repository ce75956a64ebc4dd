"""Metrics of pairs from their exact blocks, and from products alone where neither factors nor blocks are affordable."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from runner.curvature.exact.split import split_blocks
from runner.curvature.graph.dag import Dag
from runner.curvature.matrix_free.estimators import gn_gaps
from runner.curvature.matrix_free.operators import CurvatureOperator
from runner.curvature.metrics.golub_kahan import Requests, leading_singular_values
from runner.curvature.metrics.ratios import Measured, PairMetrics, pair_metrics
from runner.curvature.metrics.samples import Pair, Square


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
        parts = [Square(float((part[v, w].double() / unit).square().sum())) for part in (split.gauss_newton, split.tensor)]
        found[v, w] = Measured(Square(float(total.square().sum())), *parts, _spectral_norm(total, v == w), 0.0)
    eps = float(torch.finfo(split.total[nodes[0], nodes[0]].dtype).eps)
    return pair_metrics(found, list(asked), scale, eps, "exact blocks")


def _spectral_norm(block: Tensor, symmetric: bool) -> float:
    """sigma_1 from the eigenvalues of the block, or of its smaller Gram matrix: the largest keeps its digits."""
    if symmetric:
        return float(torch.linalg.eigvalsh(block).abs().max())
    gram = block @ block.mT if len(block) <= block.shape[1] else block.mT @ block
    return math.sqrt(max(0.0, float(torch.linalg.eigvalsh(gram)[-1])))


def metrics_from_products(
    dag: Dag,
    x: Tensor,
    y: Tensor,
    nodes: tuple[str, ...],
    asked: Sequence[Pair],
    probes: int,
    tolerance: float,
    generator: torch.Generator | None,
    memory_budget: int,
) -> dict[Pair, PairMetrics]:
    """The same from Hutchinson's probes and Golub-Kahan, for outputs too many for factors."""
    pairs = list(dict.fromkeys([*asked, *((u, u) for pair in asked for u in pair)]))
    gaps = gn_gaps(dag, x, y, nodes, pairs, probes, generator, memory_budget)
    operator = CurvatureOperator(dag, x, y, nodes, memory_budget=memory_budget, check=False)

    def products(requests: Requests) -> dict[Pair, Tensor]:
        found = {}
        for w in dict.fromkeys(w for _, w, _, _ in requests):
            here = [r for r in requests if r[1] == w]
            images = operator.apply({w: torch.stack([z for _, _, z, _ in here])})
            found |= {pair: images[v][k] for k, (pair, _, _, v) in enumerate(here)}
        return found

    starts = {p: torch.randn(operator.sizes[p[1]], generator=generator).to(operator.device) for p in pairs}
    leading = leading_singular_values(products, starts, tolerance, 40)
    measured = {}
    for pair in pairs:
        squares = {part: Square.of({pair[1]: s[pair]}) for part, s in _squares(gaps).items()}
        lead = leading[pair]
        cost = probes + 2 * lead.steps
        measured[pair] = Measured(
            squares["total"], squares["gauss_newton"], squares["tensor"], lead.value, lead.error, cost
        )
    return pair_metrics(measured, list(asked), 1.0, float(torch.finfo(operator.dtype).eps), "products")


def _squares(gaps: dict) -> dict[str, dict[Pair, Tensor]]:
    parts = ("total", "gauss_newton", "tensor")
    return {part: {pair: found.squares[part] for pair, found in gaps.items()} for part in parts}
