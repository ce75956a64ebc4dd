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
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor
from torch.linalg import matrix_rank

from experiments.certificates import of_blocks
from experiments.dag.exp2.settings import Exp2Bottleneck
from experiments.dag.protocol.averages import Row, means
from experiments.dag.protocol.estimates import estimated_metrics
from experiments.dag.protocol.measure import scores_at
from experiments.dag.protocol.points import Point, at_every_point, memory_of, stream_of
from runner.contract import Cell, Context, Table
from runner.curvature import Dag, exact_blocks
from runner.curvature.graphs.block_metrics import (
    coupling,
    gauss_newton_factors,
    resonance,
    stable_rank,
)
from runner.curvature.graphs.routing import Blocks
from runner.training.trained import Trained, train_images, untrained_images

Pair = tuple[str, str]
METRICS = ("R", "C", "D")
EPS = torch.finfo(torch.float64).eps


def measure(experiment: Exp2Bottleneck, cell: Cell, ctx: Context) -> dict[str, Table]:
    """The network of a cell at init, or trained and measured at mid and final."""
    start = cell.params["phase"] == "init"
    train = untrained_images if start else train_images
    checkpoints = ("init",) if start else ("mid", "final")
    trained = train(experiment.network_settings(cell), experiment.dataset, experiment.training, ctx)
    return measure_trained(trained, experiment, ctx, checkpoints)


def measure_trained(
    trained: Trained, experiment: Exp2Bottleneck, ctx: Context, checkpoints: Sequence[str]
) -> dict[str, Table]:
    """All tables of one training; a checkpoint that it did not reach gives a row with the reason in
    `networks`."""
    metric = experiment.metric
    budget = memory_of(metric)

    def read(at: Point) -> dict[str, list[Row]]:
        nodes = at.network.measured
        blocks = exact_blocks(at.dag, at.x, at.y, nodes, memory_budget=budget)
        rows = far_rows(blocks, nodes)
        far = {**at.where, **means(rows, METRICS)}
        if not at.first:
            return {"far": [far]}
        here = {"checkpoint": at.checkpoint}
        far |= estimates(blocks, nodes, experiment.probes, ctx.torch_generator(stream_of(at)))
        ranks = rank_rows(at.dag, nodes, at.x, at.y, experiment.rank_examples, budget)
        network = {**here, **scores_at(trained, at.checkpoint), "status": "ok"}
        certificate = of_blocks(at.dag, at.x, at.y, blocks, ctx, **here)
        return {
            "networks": [network],
            "certificate": certificate,
            "far": [far],
            "pairs": [{**here, **row, "status": status_of(row)} for row in rows],
            "ranks": [here | row for row in ranks],
        }

    return at_every_point(trained, metric, ctx, read, checkpoints)


def status_of(pair: Row) -> str:
    """Whether a pair has a stable rank."""
    if math.isnan(pair["D"]):
        return "zero block"
    return "ok"


def far_pairs(nodes: Sequence[str]) -> list[Pair]:
    """Pairs (i, j) of measured blocks with i < L/2 < j: the narrow layer lies strictly between
    them."""
    middle = len(nodes) // 2
    return list(product(nodes[:middle], nodes[middle + 1 :]))


def far_rows(blocks: Blocks, nodes: Sequence[str]) -> list[Row]:
    """Exact v, w, R, C, D of every far pair."""
    diagonal = {v: resonance(blocks[v, v]) for v in nodes}
    rows = []
    for v, w in far_pairs(nodes):
        row: Row = {"v": v, "w": w, "R": resonance(blocks[v, w])}
        row["C"] = coupling(row["R"], diagonal[v], diagonal[w])
        row["D"] = stable_rank(blocks[v, w])
        rows.append(row)
    return rows


def estimates(
    blocks: Blocks, nodes: Sequence[str], probes: int, generator: torch.Generator
) -> dict[str, float]:
    """Means of the estimates over the far pairs; C_cut: with the coupling of each pair cut at 1."""
    far = set(far_pairs(nodes))
    rows = estimated_metrics(blocks, nodes, probes, generator)
    rows = [row for row in rows if (row["v"], row["w"]) in far]
    found = means(rows, METRICS)
    cut = [min(row["C"], 1.0) for row in rows]
    found["C_cut"] = math.fsum(cut) / len(cut)
    return {f"{name}_estimate": value for name, value in found.items()}


def rank_rows(
    dag: Dag, nodes: Sequence[str], x: Tensor, y: Tensor, examples: int, budget: int
) -> list[Row]:
    """Numerical ranks in float64 of every far pair: v, w, block ("example" or "mean"), part,
    examples, largest rank.

    part "gauss_newton": of the factors F_v = S^½ᵀJ_out,v of `gauss_newton_factors`, for each of the
    first `examples` examples (the largest is kept) and for the mean over all of them; "total": of
    the whole block of one example.
    """
    dag = dag.to(torch.float64)
    x = x.double()
    pairs = far_pairs(nodes)
    ranks = dict.fromkeys(pairs, 0)
    # one example at a time: 8 nodes of width 512 in float64 are 2 GiB for eight examples
    for n in range(examples):
        one = slice(n, n + 1)
        total = exact_blocks(dag, x[one], y[one], nodes, memory_budget=budget, check=False)
        for pair in pairs:
            ranks[pair] = max(ranks[pair], int(matrix_rank(total[pair])))
    factors = gauss_newton_factors(dag, x, y, nodes)
    by_example = {}
    for v, factor in factors.items():
        by_example[v] = factor.view(len(x), -1, factor.shape[1])[:examples]
    rows: list[Row] = []
    for v, w in pairs:
        here = {"v": v, "w": w, "block": "example"}
        rank = int(product_rank(by_example[v], by_example[w]).max())
        rows.append({**here, "part": "gauss_newton", "examples": examples, "rank": rank})
        rows.append({**here, "part": "total", "examples": examples, "rank": ranks[v, w]})
        here["block"] = "mean"
        rank = int(matrix_rank(factors[v].mT @ factors[w]))
        rows.append({**here, "part": "gauss_newton", "examples": len(x), "rank": rank})
    return rows


def product_rank(left: Tensor, right: Tensor) -> Tensor:
    """Rank of leftᵀ right for each example, (B,): from the (r, r) core of both QR factorisations.
    Shapes (B, r, d)."""
    _, r_left = torch.linalg.qr(left.mT, mode="r")
    _, r_right = torch.linalg.qr(right.mT, mode="r")
    tolerance = max(left.shape[2], right.shape[2]) * EPS
    return matrix_rank(r_left @ r_right.mT, rtol=tolerance)
