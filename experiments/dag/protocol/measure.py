"""Blocks, their metrics and their averages, of a trained network at init, mid and final on several
sets of images.

Tables (long format; cell parameters and seed are added by the runner):

- `networks`: one row per checkpoint and set of images: rho and both Lyapunov exponents, mean
  squared second derivative of the activations, loss and accuracy on the whole test set.
- `distances`: one row per checkpoint, set of images and distance: averages over the pairs at that
  distance.
- `pairs`: one row per checkpoint and pair of nodes, on the first set of images.
- `history`: one row per epoch.
- `certificate`: one row per checkpoint: the blocks on the papers' images against finite differences
  of gradients, and at the last checkpoint those of the Gauss-Newton part.
- `origin`: which streams made network and data order, and in what order the records are
  (`Trained.origin_table`).

Sets of images: `experiments.dag.protocol.points`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from experiments.certificates import of_blocks
from experiments.dag.protocol.averages import Row, by_column, mean_of, means
from experiments.dag.protocol.dynamics import chain_dynamics
from experiments.dag.protocol.inter_layer import InterLayer
from experiments.dag.protocol.points import Point, at_every_point, memory_of, on_images
from runner.contract import Cell, Context, Table
from runner.curvature import BlockSplit, Dag, exact_blocks, split_blocks
from runner.curvature.graphs.block_metrics import (
    COLUMNS,
    block_metrics,
    gn_gap,
    resonance,
)
from runner.kinds.metric import InterLayerMetric
from runner.models.network import Block, Network
from runner.training import CHECKPOINTS
from runner.training.trained import Trained

Nodes = tuple[str, ...]
Distance = Callable[[str, str], int | None]
"""Distance of two nodes, None for pairs that stay out of the averages."""
EXAMPLES_AT_ONCE = 8
"""Examples whose own blocks are held at the same time."""


def measure(experiment: InterLayer, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell and measure it."""
    return measure_trained(on_images(experiment, cell, ctx), experiment.metric, ctx)


def measure_trained(
    trained: Trained, metric: InterLayerMetric, ctx: Context, distance: Distance | None = None
) -> dict[str, Table]:
    """All tables of one training. distance: default |i − j| in the order of the measured nodes."""

    def read(at: Point) -> dict[str, list[Row]]:
        nodes = at.network.measured
        blocks = blocks_of(at.dag, nodes, at.x, at.y, metric)
        pairs = pairs_of(blocks, nodes, metric, distance)
        network = {**at.where, **network_row(at), "status": "ok"}
        certificate = certificate_rows(at, blocks, ctx)
        stored = first_pairs(at, pairs, metric)  # gives every pair R_examples
        return {
            "networks": [network],
            "certificate": certificate,
            "pairs": stored,
            "distances": [at.where | row for row in by_distance(pairs)],
        }

    return at_every_point(trained, metric, ctx, read)


def first_pairs(at: Point, pairs: Sequence[Row], metric: InterLayerMetric) -> list[Row]:
    """Rows of `pairs` on the papers' images, where every pair also gets R_examples; none on other
    images."""
    if not at.first:
        return []
    norms = example_norms(at.dag, at.network.measured, at.x, at.y, metric)
    for pair, norm in zip(pairs, norms, strict=True):
        pair["R_examples"] = norm
    return [{"checkpoint": at.checkpoint, **pair_row(pair)} for pair in pairs]


def certificate_rows(at: Point, blocks: BlockSplit, ctx: Context) -> list[Row]:
    """Rows of `certificate` on the papers' images: of the blocks, and of their Gauss-Newton part
    where training ended; none on other images."""
    if not at.first:
        return []
    reached = [c for c in CHECKPOINTS if c in at.trained.training.states]
    last = at.checkpoint == reached[-1]
    checked = blocks if last else dict(blocks.total)
    return of_blocks(at.dag, at.x, at.y, checked, ctx, checkpoint=at.checkpoint)


def blocks_of(dag: Dag, nodes: Nodes, x: Tensor, y: Tensor, metric: InterLayerMetric) -> BlockSplit:
    """The batch-mean blocks of every pair of nodes, within the metric's memory."""
    return split_blocks(dag, x, y, nodes, memory_budget=memory_of(metric))


def pairs_of(
    blocks: BlockSplit, nodes: Nodes, metric: InterLayerMetric, distance: Distance | None = None
) -> list[Row]:
    """Metrics of the blocks of every pair (`block_metrics`), and those that the metric's kind adds;
    distance −1 for None."""
    columns = block_metrics(blocks, order=nodes)
    names = list(zip(columns["v"], columns["w"], strict=True))
    columns |= metric.added(blocks, names)
    if distance is not None:
        found = [distance(v, w) for v, w in names]
        columns["distance"] = [-1 if number is None else number for number in found]
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, values, strict=True)) for values in rows]


def added(pair: Row) -> list[str]:
    """Names of the metrics that the metric's kind added to those of block_metrics."""
    return [name for name in pair if name not in (*COLUMNS, "R_examples")]


def by_distance(pairs: Sequence[Row]) -> list[Row]:
    """Averages over the pairs at each distance.

    R, C, D: means over the pairs (D over those that have one). gn, tensor: sums of ‖H^GN‖_F and
    ‖H^T‖_F over the pairs, whose ratio is the GN-gap of the papers' tables. On the papers' images
    (where the pairs have R_examples) also gap_of_pairs: mean of Eq. 4 over the pairs; R_examples:
    mean over pairs and examples of the norm of one example's block, as Remark 38 writes R (the
    tables hold the norm of the mean block).
    """
    rows = []
    for d, alike in by_column(pairs, "distance"):
        if d < 0:
            continue
        row = {"distance": d, "pairs": len(alike)}
        row |= means(alike, ("R", "C", "D", *added(alike[0])))
        row["gn"] = math.fsum(pair["frob_gn"] for pair in alike)
        row["tensor"] = math.fsum(pair["frob_tensor"] for pair in alike)
        if "R_examples" in alike[0]:
            row["gap_of_pairs"] = mean_of(pair["gap"] for pair in alike)
            row["R_examples"] = mean_of(pair["R_examples"] for pair in alike)
        lacking = sum(math.isnan(pair["D"]) for pair in alike)
        row["status"] = "ok"
        if lacking:
            row["status"] = f"no D for {lacking} pairs: numerically zero"
        rows.append(row)
    return rows


def pair_row(pair: Row) -> Row:
    """The metrics of a pair that cannot be had from the others."""
    names = ("v", "w", "distance", "R", "C", "D", "d_eff", "frob_gn", "frob_tensor", *added(pair))
    row = {name: pair[name] for name in names}
    row["status"] = pair["status"] or "ok"
    return row


def block_row(blocks: BlockSplit, pair: tuple[str, str], norm: str) -> dict[str, float]:
    """‖H‖_F under the name `norm`, gn = ‖H^GN‖_F, tensor = ‖H^T‖_F and gap (Eq. 4) of one
    batch-mean block."""
    tensor = resonance(blocks.tensor[pair])
    gauss_newton = resonance(blocks.gauss_newton[pair])
    return {
        norm: resonance(blocks.total[pair]),
        "gn": gauss_newton,
        "tensor": tensor,
        "gap": gn_gap(tensor, gauss_newton),
    }


def example_norms(
    dag: Dag, nodes: Nodes, x: Tensor, y: Tensor, metric: InterLayerMetric
) -> list[float]:
    """Mean over the examples of ‖H[v,w]‖_F of each example's own block, in the order of the rows of
    block_metrics."""
    pairs = list(combinations_with_replacement(nodes, 2))
    sums = dict.fromkeys(pairs, 0.0)
    budget = memory_of(metric)
    for start in range(0, len(x), EXAMPLES_AT_ONCE):
        stop = start + EXAMPLES_AT_ONCE
        inputs = x[start:stop]
        targets = y[start:stop]
        blocks = exact_blocks(
            dag, inputs, targets, nodes, per_example=True, memory_budget=budget, check=False
        )
        for pair in pairs:
            sums[pair] += float(torch.linalg.matrix_norm(blocks[pair]).sum())
    return [total / len(x) for total in sums.values()]


def network_row(at: Point) -> dict[str, float]:
    """rho, lyapunov_1 (QR), lyapunov_log_norm (Eq. 8) over the chain of measured nodes; curvature
    of the activations; test_loss and test_accuracy on the whole test set at the checkpoint."""
    return {
        **chain_dynamics(at.dag, at.network.measured, at.x),
        "sigma_pp_squared": activation_curvature(at.network, at.x),
        **scores_at(at.trained, at.checkpoint),
    }


def scores_at(
    trained: Trained, checkpoint: str, names: Sequence[str] = ("test_loss", "test_accuracy")
) -> dict[str, float]:
    """Columns of the history at a checkpoint (init, half of the epochs, the last), of the whole
    test set."""
    history = trained.training.history
    epochs = {"init": 0, "mid": int(history["epoch"][-1]) // 2, "final": -1}
    epoch = epochs[checkpoint]
    return {name: history[name][epoch] for name in names}


@torch.no_grad()
def activation_curvature(network: Network, x: Tensor) -> float:
    """E[σ''(z)²] over the pre-activations of projection and blocks and over the examples (DAG
    paper, Section 5.3).

    Without the projection the printed values are missed (GELU 0.627 instead of 0.618). 0 for
    piecewise-linear activations; NaN when no node is a Block with an activation.
    """
    inputs = x.to(next(network.parameters()).dtype)
    values = {"input": inputs} | network.activations(inputs)
    curvatures = []
    for stage in network.graph():
        block = stage.module
        if isinstance(block, Block) and block.activation_name != "linear":
            z = block.pre_activation(*[values[parent] for parent in stage.parents])
            curvatures.append(float(second_derivative(block.act, z).square().mean()))
    return mean_of(curvatures)


def second_derivative(act: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """σ''(z), elementwise, by differentiating twice; zero where σ is piecewise linear."""
    z = z.detach().requires_grad_()
    with torch.enable_grad():
        (first,) = torch.autograd.grad(act(z).sum(), z, create_graph=True)
        if not first.requires_grad:
            return torch.zeros_like(z)
        (second,) = torch.autograd.grad(first.sum(), z, allow_unused=True)
    if second is None:
        return torch.zeros_like(z)
    return second
