"""Blocks across the narrow layer of a trained bottleneck network: their metrics, their estimates, their ranks.

Tables: `far`, one row per checkpoint and set of images: means over the far pairs (i < L/2 < j) of R, C and D, exact,
and on the papers' images also the paper's estimates; `pairs`, the far pairs on the papers' images; `ranks`, numerical
ranks in float64 of far blocks, example by example and of the batch mean; `networks`, loss and accuracy; `history` and
`origin` as in experiments.dag.protocol.measure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.dag.protocol.estimates import estimated_metrics
from experiments.dag.protocol.measure import as_columns, image_sets
from experiments.dag.protocol.training import Trained
from runner.contract.experiment import BlockMetric, Context, Table
from runner.curvature import Dag, exact_blocks
from runner.curvature.exact.routing import Blocks
from runner.curvature.metrics.inter_layer import coupling, resonance, stable_rank
from runner.curvature.metrics.low_rank import gauss_newton_factors
from runner.training import CHECKPOINTS

Pair = tuple[str, str]


def measure(trained: Trained, metric: BlockMetric, probes: int, rank_examples: int, ctx: Context) -> dict[str, Table]:
    """All tables of one training; a checkpoint that it did not reach gives a row with the reason in `networks`."""
    tables: dict[str, list[dict[str, Any]]] = {"networks": [], "far": [], "pairs": [], "ranks": []}
    sets = list(image_sets(trained.data.test, metric, trained.device))
    steps = [(checkpoint, *images) for checkpoint in CHECKPOINTS for images in sets]
    budget = int(metric.memory_gib * 2**30)
    for done, (checkpoint, number, x, y) in enumerate(steps):
        where: dict[str, Any] = {"checkpoint": checkpoint}
        if checkpoint not in trained.training.states:
            if number == 0:
                tables["networks"].append({**where, "status": trained.training.status})
            continue
        network = trained.at(checkpoint)
        dag, nodes = network.to_dag(trained.loss), network.measured
        if metric.double:
            dag, x = dag.to(torch.float64), x.double()
        blocks = exact_blocks(dag, x, y, nodes, memory_budget=budget)
        rows = far_rows(blocks, nodes)
        row = {**where, "images": number, **means(rows)}
        if number == 0:
            estimates = estimated_metrics(blocks, nodes, probes, ctx.torch_generator(f"probes/{checkpoint}"))
            far = set(far_pairs(nodes))
            row |= {f"{k}_estimate": v for k, v in means([e for e in estimates if (e["v"], e["w"]) in far]).items()}
            tables["pairs"] += [{**where, **r, "status": "ok" if r["D"] == r["D"] else "zero block"} for r in rows]
            tables["ranks"] += [{**where, **r} for r in rank_rows(dag, nodes, x, y, rank_examples, budget)]
            tables["networks"].append({**where, **scores(trained, checkpoint), "status": "ok"})
        tables["far"].append(row)
        ctx.progress(done + 1, len(steps), f"{checkpoint}, image set {number}")
    columns = {name: as_columns(found) for name, found in tables.items()}
    return {**columns, "history": trained.training.history, **trained.origin_table()}


def far_pairs(nodes: Sequence[str]) -> Iterator[Pair]:
    """Pairs (i, j) of measured blocks with i < L/2 < j: the narrow layer lies strictly between them."""
    middle = len(nodes) // 2
    return ((v, w) for v in nodes[:middle] for w in nodes[middle + 1 :])


def far_rows(blocks: Blocks, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Exact v, w, R, C, D of every far pair."""
    own = {v: resonance(blocks[v, v]) for v in nodes}
    rows = []
    for v, w in far_pairs(nodes):
        r = resonance(blocks[v, w])
        rows.append({"v": v, "w": w, "R": r, "C": coupling(r, own[v], own[w]), "D": stable_rank(blocks[v, w])})
    return rows


def means(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Means of R, C and D over the rows; D over those that have one."""
    found = {}
    for name in ("R", "C", "D"):
        values = [row[name] for row in rows if not math.isnan(row[name])]
        found[name] = math.fsum(values) / len(values) if values else math.nan
    return found


def rank_rows(dag: Dag, nodes: Sequence[str], x: Tensor, y: Tensor, examples: int, budget: int) -> list[dict[str, Any]]:
    """Numerical ranks in float64 of every far pair: v, w, block ("example" or "mean"), part, examples, largest rank.

    part "gauss_newton": of the factors F_v = S^½ᵀJ_out,v of `gauss_newton_factors`, for each of the first `examples`
    examples (the largest is kept) and for the mean over all of them; "total": of the whole block of one example.
    """
    dag, x = dag.to(torch.float64), x.double()
    factors = gauss_newton_factors(dag, x, y, nodes).factors
    total = exact_blocks(dag, x[:examples], y[:examples], nodes, per_example=True, memory_budget=budget, check=False)
    rows = []
    for v, w in far_pairs(nodes):
        left, right = (factors[u].view(len(x), -1, factors[u].shape[1])[:examples] for u in (v, w))
        found = {
            ("example", "gauss_newton"): int(product_rank(left, right).max()),
            ("example", "total"): int(torch.linalg.matrix_rank(total[v, w]).max()),
            ("mean", "gauss_newton"): int(torch.linalg.matrix_rank(factors[v].mT @ factors[w])),
        }
        for (block, part), rank in found.items():
            n = len(x) if block == "mean" else examples
            rows.append({"v": v, "w": w, "block": block, "part": part, "examples": n, "rank": rank})
    return rows


def product_rank(left: Tensor, right: Tensor) -> Tensor:
    """Rank of leftᵀ right for each example, (B,): from the (r, r) core of both QR factorisations. Shapes (B, r, d)."""
    r_left, r_right = (torch.linalg.qr(f.mT, mode="r")[1] for f in (left, right))
    return torch.linalg.matrix_rank(r_left @ r_right.mT, rtol=max(left.shape[2], right.shape[2]) * EPS)


EPS = torch.finfo(torch.float64).eps


def scores(trained: Trained, checkpoint: str) -> dict[str, float]:
    """test_loss and test_accuracy on the whole test set at the checkpoint."""
    history = trained.training.history
    epoch = {"init": 0, "mid": int(history["epoch"][-1]) // 2, "final": -1}[checkpoint]
    return {name: history[name][epoch] for name in ("test_loss", "test_accuracy")}
