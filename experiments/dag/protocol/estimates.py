"""The DAG paper's stochastic estimates of R, C and D, drawn on exact blocks: Hutchinson's norm and
power iteration.

An estimator that sees a block through products alone does the same arithmetic on it, so its error
is that of the published estimates, without their cost of one pass through the network a product.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.dag.protocol.measure import mean_of
from runner.curvature.matrix_free.base import rademacher

POWER_STEPS = 20
"""Steps of the power iteration for ‖H‖₂ (DAG paper, Section 5)."""


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
    q = (
        torch.randn(blocks.shape[2], 1, generator=generator)
        .to(blocks.device, blocks.dtype)
        .expand(len(blocks), -1, -1)
    )
    q = q / torch.linalg.vector_norm(q, dim=1, keepdim=True)
    for _ in range(steps):
        back = blocks.mT @ (blocks @ q)
        q = back / torch.linalg.vector_norm(back, dim=1, keepdim=True).clamp_min(
            torch.finfo(blocks.dtype).tiny
        )
    return torch.linalg.vector_norm((blocks @ q).double(), dim=(1, 2))


def estimated_metrics(
    total: Mapping[tuple[str, str], Tensor],
    nodes: Sequence[str],
    probes: int,
    generator: torch.Generator,
    steps: int = POWER_STEPS,
) -> list[dict[str, Any]]:
    """Rows v, w, distance |i − j|, R, C, D of every unordered pair, all from estimates; D is NaN
    where ‖H‖₂ is 0.

    D = R²/‖H‖₂² with both estimated: it falls below 1 where Hutchinson's error does, and rises
    where the power iteration has not converged.
    """
    pairs = [(v, w) for i, v in enumerate(nodes) for w in nodes[i:]]
    norms: dict[tuple[str, str], float] = {}
    tops: dict[tuple[str, str], float] = {}
    for shape in dict.fromkeys(total[p].shape for p in pairs):
        at = [p for p in pairs if total[p].shape == shape]
        stacked = torch.stack([total[p] for p in at])
        norms |= dict(
            zip(at, frobenius_estimates(stacked, probes, generator).tolist(), strict=True)
        )
        tops |= dict(zip(at, spectral_estimates(stacked, steps, generator).tolist(), strict=True))
    place = {v: i for i, v in enumerate(nodes)}
    return [
        {
            "v": v,
            "w": w,
            "distance": place[w] - place[v],
            "R": norms[v, w],
            "C": _ratio(norms[v, w], math.sqrt(norms[v, v] * norms[w, w])),
            "D": _ratio(norms[v, w], tops[v, w]) ** 2,
        }
        for v, w in pairs
    ]


def estimates_by_distance(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """distance, pairs, means of R, C and D over the pairs at each distance, and the smallest D of
    one pair."""
    found = []
    for d in sorted({row["distance"] for row in rows}):
        at = [row for row in rows if row["distance"] == d]
        means = {name: mean_of(row[name] for row in at) for name in ("R", "C", "D")}
        smallest = min((row["D"] for row in at if not math.isnan(row["D"])), default=math.nan)
        found.append({"distance": d, "pairs": len(at), **means, "D_smallest": smallest})
    return found


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan
