"""Blocks of a trained two-branch network: within the branches, across them, and at the merge.

Tables: `merge`, the block of the last nodes of both branches, one row per checkpoint and set of
images; `distances`, averages over the pairs of a relation ("a", "b": within that branch, by |i −
j|; "cross": between the branches, by the graph distance through the merge); `pairs` on the papers'
images; `networks` and `history` as in experiments.dag.protocol.measure.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.dag.exp4.settings import Exp4Diamond
from experiments.dag.protocol.averages import Row
from experiments.dag.protocol.dynamics import spectral_norms_of
from experiments.dag.protocol.measure import (
    block_row,
    blocks_of,
    by_distance,
    certificate_rows,
    first_pairs,
    network_row,
    pairs_of,
)
from experiments.dag.protocol.points import Point, at_every_point, on_images
from runner.contract import Cell, Context, Table
from runner.curvature.graphs.block_metrics import block_jacobians
from runner.kinds.metric import InterLayerMetric
from runner.models.architectures import graph_distance
from runner.training.trained import Trained

RELATIONS = ("a", "b", "cross")


def measure(experiment: Exp4Diamond, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell and measure it."""
    return measure_trained(on_images(experiment, cell, ctx), experiment.metric, ctx)


def measure_trained(trained: Trained, metric: InterLayerMetric, ctx: Context) -> dict[str, Table]:
    """All tables of one training; a checkpoint that it did not reach gives a row with the reason in
    `networks`."""
    depth = int(trained.settings["branch_depth"])
    last = (f"a{depth - 1}", f"b{depth - 1}")

    def read(at: Point) -> dict[str, list[Row]]:
        nodes = at.network.measured
        blocks = blocks_of(at.dag, nodes, at.x, at.y, metric)
        pairs = pairs_of(blocks, nodes, metric)
        network = {**at.where, **branch_dynamics(at), "status": "ok"}
        merge = at.where | block_row(blocks, last, "R")
        stored = first_pairs(at, pairs, metric)  # gives every pair R_examples
        distances = [at.where | row for row in by_relation(pairs, depth)]
        return {
            "networks": [network],
            "certificate": certificate_rows(at, blocks, ctx),
            "merge": [merge],
            "pairs": stored,
            "distances": distances,
        }

    return at_every_point(trained, metric, ctx, read)


def branch_dynamics(at: Point) -> dict[str, float]:
    """The row of `networks`: rho over all block Jacobians, without the exponents, which are defined
    on chains."""
    jacobians = block_jacobians(at.dag, at.x, at.network.measured)
    row = network_row(at) | spectral_norms_of(jacobians)
    return {name: value for name, value in row.items() if not name.startswith("lyapunov")}


def by_relation(pairs: Sequence[Row], depth: int) -> list[Row]:
    """Averages by distance (see by_distance) within each branch and across the branches of `depth`
    blocks."""
    rows = []
    for relation in RELATIONS:
        related = []
        for pair in pairs:
            v = pair["v"]
            w = pair["w"]
            if relation_of(v, w) == relation:
                related.append(pair | {"distance": distance(v, w, depth)})
        rows += [{"relation": relation, **row} for row in by_distance(related)]
    return rows


def relation_of(v: str, w: str) -> str:
    """The branch of two nodes, or "cross"."""
    if v[0] == w[0]:
        return v[0]
    return "cross"


def distance(v: str, w: str, depth: int) -> int:
    """|i − j| within a branch, the distance through the merge across."""
    i = int(v[1:])
    j = int(w[1:])
    if v[0] == w[0]:
        return abs(i - j)
    return graph_distance(depth, i, j)
