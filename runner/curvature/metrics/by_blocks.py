"""Metrics of pairs from their exact blocks, and from products alone where neither factors nor blocks are affordable."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from runner.curvature.exact.split import split_blocks
from runner.curvature.graph.dag import Dag
from runner.curvature.matrix_free.estimators import rademacher
from runner.curvature.matrix_free.operators import CurvatureOperator
from runner.curvature.metrics.golub_kahan import Requests, leading_singular_values
from runner.curvature.metrics.ratios import Measured, PairMetrics, pair_metrics
from runner.curvature.metrics.samples import Pair, Square
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


def metrics_from_products(
    operator: CurvatureOperator,
    tensor: TensorPart,
    asked: Sequence[Pair],
    probes: int,
    tolerance: float,
    generator: torch.Generator | None,
) -> dict[Pair, PairMetrics]:
    """The same from Hutchinson's probes and Golub-Kahan, for outputs too many for factors.

    GN z = H z - T z: T is exactly zero where it is, so that only a Gauss-Newton part far below T loses digits.
    """
    pairs = list(dict.fromkeys([*asked, *((u, u) for pair in asked for u in pair)]))
    squares: dict[Pair, tuple[Square, Square, Square]] = {}
    for w in dict.fromkeys(w for _, w in pairs):
        z = rademacher((probes, operator.sizes[w]), operator.dtype, generator).to(operator.device)
        total, bent = operator.apply({w: z}), tensor.apply({w: z})
        for v in (v for v, other in pairs if other == w):
            h, t = total[v].double(), tensor.scale * bent[v].double()
            whole, smooth, curved = (Square.of({w: part.square().sum(1)}) for part in (h, h - t, t))
            squares[v, w] = whole, smooth, curved

    def products(requests: Requests) -> dict[Pair, Tensor]:
        found: dict[Pair, Tensor] = {}
        for w in dict.fromkeys(w for _, w, _, _ in requests):
            here = [r for r in requests if r[1] == w]
            images = operator.apply({w: torch.stack([z for _, _, z, _ in here])})
            found |= {pair: images[v][k] for k, (pair, _, _, v) in enumerate(here)}
        return found

    starts = {
        p: torch.randn(operator.sizes[p[1]], generator=generator, device="cpu").to(operator.device) for p in pairs
    }
    leading = leading_singular_values(products, starts, tolerance, 40)
    found = {
        p: Measured(*squares[p], leading[p].value, leading[p].error, 2 * probes + 2 * leading[p].steps) for p in pairs
    }
    return pair_metrics(found, list(asked), 1.0, float(torch.finfo(operator.dtype).eps), "products")
