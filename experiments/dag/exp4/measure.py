"""Blocks of a trained two-branch network: within the branches, across them, and at the merge.

Tables: `merge`, the block of the last nodes of both branches, one row per checkpoint and set of images; `distances`,
averages over the pairs of a relation ("a", "b": within that branch, by |i − j|; "cross": between the branches, by the
graph distance through the merge); `pairs` on the papers' images; `networks` and `history` as in
experiments.dag.protocol.measure.
"""

from __future__ import annotations

from typing import Any

import torch

from experiments.dag.protocol.measure import (
    as_columns,
    by_distance,
    example_norms,
    image_sets,
    network_row,
    pair_rows,
)
from experiments.dag.protocol.training import Trained
from runner.contract.experiment import BlockMetric, Context, Table
from runner.curvature import block_metrics, gn_gap, resonance, split_blocks
from runner.curvature.metrics.inter_layer import Columns
from runner.curvature.metrics.jacobians import block_jacobians, spectral_radius
from runner.models import graph_distance
from runner.training import CHECKPOINTS

RELATIONS = ("a", "b", "cross")


def measure(trained: Trained, metric: BlockMetric, ctx: Context) -> dict[str, Table]:
    """All tables of one training; a checkpoint that it did not reach gives a row with the reason in `networks`."""
    tables: dict[str, list[dict[str, Any]]] = {"networks": [], "merge": [], "distances": [], "pairs": []}
    sets = list(image_sets(trained.data.test, metric, trained.device))
    steps = [(checkpoint, *images) for checkpoint in CHECKPOINTS for images in sets]
    depth = int(trained.settings["branch_depth"])
    for done, (checkpoint, number, x, y) in enumerate(steps):
        where = {"checkpoint": checkpoint, "images": number}
        if checkpoint not in trained.training.states:
            if number == 0:
                tables["networks"].append({**where, "status": trained.training.status})
            continue
        network = trained.at(checkpoint)
        dag = network.to_dag(trained.loss)
        if metric.double:
            dag, x = dag.to(torch.float64), x.double()
        blocks = split_blocks(dag, x, y, network.measured, memory_budget=int(metric.memory_gib * 2**30))
        columns = block_metrics(blocks, order=network.measured)
        last = (f"a{depth - 1}", f"b{depth - 1}")
        tensor, gauss_newton = blocks.tensor[last], blocks.gauss_newton[last]
        parts = {"gn": resonance(gauss_newton), "tensor": resonance(tensor), "gap": gn_gap(tensor, gauss_newton)}
        tables["merge"].append({**where, "R": resonance(blocks.total[last]), **parts})
        if number == 0:
            columns["R_examples"] = example_norms(dag, network.measured, x, y, metric)
            tables["pairs"] += [{"checkpoint": checkpoint, **row} for row in pair_rows(columns)]
        tables["distances"] += [{**where, **row} for row in by_relation(columns, depth)]
        row = network_row(network, dag, trained, checkpoint, x)
        row |= {"rho": spectral_radius(block_jacobians(dag, x, network.measured))}
        kept = {name: value for name, value in row.items() if not name.startswith("lyapunov")}  # defined on chains
        tables["networks"].append({**where, **kept, "status": "ok"})
        ctx.progress(done + 1, len(steps), f"{checkpoint}, image set {number}")
    columns_of = {name: as_columns(rows) for name, rows in tables.items()}
    return {**columns_of, "history": trained.training.history, **trained.origin_table()}


def by_relation(columns: Columns, depth: int) -> list[dict[str, Any]]:
    """Averages by distance (see by_distance) within each branch and across the branches of `depth` blocks."""
    rows = []
    pairs = list(zip(columns["v"], columns["w"], strict=True))
    for relation in RELATIONS:
        at = [i for i, pair in enumerate(pairs) if relation_of(*pair) == relation]
        part = {name: [column[i] for i in at] for name, column in columns.items()}
        part["distance"] = [distance(*pairs[i], depth) for i in at]
        rows += [{"relation": relation, **row} for row in by_distance(part)]
    return rows


def relation_of(v: str, w: str) -> str:
    """The branch of two nodes, or "cross"."""
    return v[0] if v[0] == w[0] else "cross"


def distance(v: str, w: str, depth: int) -> int:
    """|i − j| within a branch, the distance through the merge across."""
    i, j = int(v[1:]), int(w[1:])
    return abs(i - j) if v[0] == w[0] else graph_distance(depth, i, j)
