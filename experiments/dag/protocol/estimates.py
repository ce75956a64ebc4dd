"""The DAG paper's stochastic estimates of R, C and D, drawn on exact blocks: Hutchinson's norm and
power iteration.

An estimator that sees a block through products alone does the same arithmetic on it, so its error
is that of the published estimates, without their cost of one pass through the network a product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement

import torch
from torch import Tensor
from torch.linalg import vector_norm

from experiments.dag.protocol.averages import Row, by_column, means

Pair = tuple[str, str]
POWER_STEPS = 20
"""Steps of the power iteration for ‖H‖₂ (DAG paper, Section 5)."""


def rademacher(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator | None
) -> Tensor:
    """Independent signs."""
    return torch.randint(0, 2, shape, generator=generator, device="cpu").to(dtype) * 2 - 1


def frobenius_estimates(blocks: Tensor, probes: int, generator: torch.Generator) -> Tensor:
    """√mean_k |H z_k|² of each block, (n,), from `probes` Rademacher vectors z_k that all blocks
    share.

    blocks: (n, d_v, d_w). Raises ValueError for fewer than one probe.
    """
    if probes < 1:
        raise ValueError(f"probes: expected at least 1, found {probes}")
    z = rademacher((blocks.shape[2], probes), blocks.dtype, generator).to(blocks.device)
    return (blocks @ z).double().square().sum(1).mean(1).sqrt()


def spectral_estimates(blocks: Tensor, steps: int, generator: torch.Generator) -> Tensor:
    """|H q| after `steps` steps q ← HᵀH q/|·| from a Gaussian start, (n,): never above ‖H‖₂ except
    for rounding."""
    tiny = torch.finfo(blocks.dtype).tiny
    normal = torch.randn(blocks.shape[2], 1, generator=generator)
    q = normal.to(blocks).expand(len(blocks), -1, -1)
    q = q / vector_norm(q, dim=1, keepdim=True)
    for _ in range(steps):
        back = blocks.mT @ (blocks @ q)
        q = back / vector_norm(back, dim=1, keepdim=True).clamp_min(tiny)
    return vector_norm((blocks @ q).double(), dim=(1, 2))


def estimated_metrics(
    total: Mapping[Pair, Tensor],
    nodes: Sequence[str],
    probes: int,
    generator: torch.Generator,
) -> list[Row]:
    """Rows v, w, distance |i − j|, R, C, D of every unordered pair, all from estimates; D is NaN
    where ‖H‖₂ is 0.

    D = R²/‖H‖₂² with both estimated: it falls below 1 where Hutchinson's error does, and rises
    where the power iteration has not converged.
    """
    pairs = list(combinations_with_replacement(nodes, 2))
    norms: dict[Pair, float] = {}
    tops: dict[Pair, float] = {}
    shapes = dict.fromkeys(total[pair].shape for pair in pairs)
    for shape in shapes:
        alike = [pair for pair in pairs if total[pair].shape == shape]
        stacked = torch.stack([total[pair] for pair in alike])
        estimates = frobenius_estimates(stacked, probes, generator).tolist()
        norms |= dict(zip(alike, estimates, strict=True))
        estimates = spectral_estimates(stacked, POWER_STEPS, generator).tolist()
        tops |= dict(zip(alike, estimates, strict=True))
    return [row_of(pair, nodes, norms, tops[pair]) for pair in pairs]


def row_of(pair: Pair, nodes: Sequence[str], norms: Mapping[Pair, float], top: float) -> Row:
    """v, w, distance |i − j|, R, C, D of one pair from estimates of ‖H‖_F of all pairs and of its
    own ‖H‖₂; C and D are NaN without a divisor."""
    v, w = pair
    norm = norms[pair]
    row = {"v": v, "w": w, "distance": nodes.index(w) - nodes.index(v), "R": norm}
    scale = math.sqrt(norms[v, v] * norms[w, w])
    row["C"] = _ratio(norm, scale)
    row["D"] = _ratio(norm, top) ** 2
    return row


def estimates_by_distance(rows: Sequence[Row]) -> list[Row]:
    """distance, pairs, means of R, C and D over the pairs at each distance, and the smallest D of
    one pair."""
    found = []
    for d, alike in by_column(rows, "distance"):
        stable_ranks = [row["D"] for row in alike if not math.isnan(row["D"])]
        row = {"distance": d, "pairs": len(alike)}
        row |= means(alike, ("R", "C", "D"))
        row["D_smallest"] = min(stable_ranks, default=math.nan)
        found.append(row)
    return found


def _ratio(a: float, b: float) -> float:
    if b > 0:
        return a / b
    return math.nan
