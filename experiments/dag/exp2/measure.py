"""Blocks across the narrow layer of a trained bottleneck network: their metrics, their estimates,
their ranks.

Tables: `far`, one row per checkpoint and set of images: means over the far pairs (i < L/2 < j) of
R, C and D, exact, and on the papers' images also the paper's estimates; `pairs`, the far pairs on
the papers' images; `ranks`, numerical ranks in float64 of far blocks, example by example and of the
batch mean; `networks`, loss and accuracy; `certificate`, `history` (of trained networks) and
`origin` as in experiments.dag.protocol.measure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.certificates import of_blocks
from experiments.dag.exp2.settings import Exp2Bottleneck
from experiments.dag.protocol.estimates import estimated_metrics
from experiments.dag.protocol.measure import Point, Row, at_every_point, mean_of, scores_at
from experiments.dag.protocol.training import Trained, train_images, untrained_images
from runner.contract import Cell, Context, Table
from runner.curvature import Dag, exact_blocks
from runner.curvature.exact.routing import Blocks
from runner.curvature.metrics.blocks import coupling, gauss_newton_factors, resonance, stable_rank
from runner.kinds.metric import InterLayerMetric
from runner.training import CHECKPOINTS

Pair = tuple[str, str]
EPS = torch.finfo(torch.float64).eps


def measure(experiment: Exp2Bottleneck, cell: Cell, ctx: Context) -> dict[str, Table]:
    """The network of a cell at init, or trained and measured at mid and final."""
    start = cell.params["phase"] == "init"
    build = untrained_images if start else train_images
    trained = build(experiment.network_settings(cell), experiment.dataset, experiment.training, ctx)
    counts = experiment.probes, experiment.rank_examples
    return measure_trained(
        trained, experiment.metric, *counts, ctx, ("init",) if start else ("mid", "final")
    )


def measure_trained(
    trained: Trained,
    metric: InterLayerMetric,
    probes: int,
    rank_examples: int,
    ctx: Context,
    checkpoints: Sequence[str] = CHECKPOINTS,
) -> dict[str, Table]:
    """All tables of one training; a checkpoint that it did not reach gives a row with the reason in
    `networks`."""
    budget = int(metric.memory_gib * 2**30)

    def read(at: Point) -> dict[str, list[Row]]:
        nodes = at.network.measured
        blocks = exact_blocks(at.dag, at.x, at.y, nodes, memory_budget=budget)
        rows = far_rows(blocks, nodes)
        found = {**at.where, **means(rows)}
        if not at.first:
            return {"far": [found]}
        here = {"checkpoint": at.checkpoint}
        estimates = estimated_metrics(
            blocks, nodes, probes, ctx.torch_generator(f"probes/{at.checkpoint}")
        )
        far = set(far_pairs(nodes))
        kept = [e for e in estimates if (e["v"], e["w"]) in far]
        own = means(kept) | {"C_cut": math.fsum(min(e["C"], 1.0) for e in kept) / len(kept)}
        ranks = rank_rows(at.dag, nodes, at.x, at.y, rank_examples, budget)
        return {
            "networks": [{**here, **scores_at(trained, at.checkpoint), "status": "ok"}],
            "certificate": of_blocks(at.dag, at.x, at.y, blocks, ctx, **here),
            "far": [found | {f"{name}_estimate": value for name, value in own.items()}],
            "pairs": [
                {**here, **row, "status": "ok" if row["D"] == row["D"] else "zero block"}
                for row in rows
            ],
            "ranks": [{**here, **row} for row in ranks],
        }

    return at_every_point(trained, metric, ctx, read, checkpoints)


def far_pairs(nodes: Sequence[str]) -> Iterator[Pair]:
    """Pairs (i, j) of measured blocks with i < L/2 < j: the narrow layer lies strictly between
    them."""
    middle = len(nodes) // 2
    return ((v, w) for v in nodes[:middle] for w in nodes[middle + 1 :])


def far_rows(blocks: Blocks, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Exact v, w, R, C, D of every far pair."""
    own = {v: resonance(blocks[v, v]) for v in nodes}
    rows = []
    for v, w in far_pairs(nodes):
        r = resonance(blocks[v, w])
        rows.append(
            {
                "v": v,
                "w": w,
                "R": r,
                "C": coupling(r, own[v], own[w]),
                "D": stable_rank(blocks[v, w]),
            }
        )
    return rows


def means(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Means of R, C and D over the rows; D over those that have one."""
    return {name: mean_of(row[name] for row in rows) for name in ("R", "C", "D")}


def rank_rows(
    dag: Dag, nodes: Sequence[str], x: Tensor, y: Tensor, examples: int, budget: int
) -> list[dict[str, Any]]:
    """Numerical ranks in float64 of every far pair: v, w, block ("example" or "mean"), part,
    examples, largest rank.

    part "gauss_newton": of the factors F_v = S^½ᵀJ_out,v of `gauss_newton_factors`, for each of the
    first `examples` examples (the largest is kept) and for the mean over all of them; "total": of
    the whole block of one example.
    """
    dag, x = dag.to(torch.float64), x.double()
    factors = gauss_newton_factors(dag, x, y, nodes).factors
    ranks: dict[Pair, int] = dict.fromkeys(far_pairs(nodes), 0)
    for n in range(
        examples
    ):  # one at a time: 8 nodes of width 512 in float64 are 2 GiB for eight examples
        total = exact_blocks(
            dag, x[n : n + 1], y[n : n + 1], nodes, memory_budget=budget, check=False
        )
        ranks = {
            pair: max(rank, int(torch.linalg.matrix_rank(total[pair])))
            for pair, rank in ranks.items()
        }
    rows = []
    for v, w in far_pairs(nodes):
        left, right = (factors[u].view(len(x), -1, factors[u].shape[1])[:examples] for u in (v, w))
        found = {
            ("example", "gauss_newton"): int(product_rank(left, right).max()),
            ("example", "total"): ranks[v, w],
            ("mean", "gauss_newton"): int(torch.linalg.matrix_rank(factors[v].mT @ factors[w])),
        }
        for (block, part), rank in found.items():
            n = len(x) if block == "mean" else examples
            rows.append({"v": v, "w": w, "block": block, "part": part, "examples": n, "rank": rank})
    return rows


def product_rank(left: Tensor, right: Tensor) -> Tensor:
    """Rank of leftᵀ right for each example, (B,): from the (r, r) core of both QR factorisations.
    Shapes (B, r, d)."""
    r_left, r_right = (torch.linalg.qr(f.mT, mode="r")[1] for f in (left, right))
    return torch.linalg.matrix_rank(
        r_left @ r_right.mT, rtol=max(left.shape[2], right.shape[2]) * EPS
    )
