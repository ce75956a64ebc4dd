"""One block of a trained regression network: its norm and its Gauss–Newton and tensor parts, at
every checkpoint.

Tables: `blocks`, one row per checkpoint and set of validation samples (0: the first, as in the
paper; then random sets, the same numbers for every seed); `networks` and `certificate`, one row per
checkpoint; `history`, one row per epoch; `origin`, which streams made network, inputs and order of
the examples.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from experiments.certificates import of_blocks
from experiments.dag.exp5.settings import PAIRS, Exp5Attention
from experiments.dag.protocol.averages import Row
from experiments.dag.protocol.measure import block_row, scores_at
from experiments.dag.protocol.points import Point, at_every_point, memory_of
from runner.contract import Cell, Context, Table
from runner.curvature import split_blocks
from runner.kinds.metric import InterLayerMetric
from runner.models.network import Network
from runner.training.trained import Trained, train_regression


def measure(experiment: Exp5Attention, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell under its protocol and measure its block."""
    network = str(cell.params["network"])
    protocol = str(cell.params["protocol"])
    dataset, training = experiment.under(protocol)
    trained = train_regression(experiment.network_settings(network), dataset, training, ctx)
    metric = experiment.metric
    if protocol not in experiment.resampled:
        metric = replace(metric, subsamples=0)
    return measure_trained(trained, PAIRS[network], metric, ctx)


def measure_trained(
    trained: Trained, pair: tuple[str, str], metric: InterLayerMetric, ctx: Context
) -> dict[str, Table]:
    """All tables of one training for the block of `pair`."""

    def read(at: Point) -> dict[str, list[Row]]:
        y = at.y.double() if metric.double else at.y
        blocks = split_blocks(at.dag, at.x, y, pair, memory_budget=memory_of(metric))
        with torch.no_grad():
            residual = at.network(at.x).squeeze(-1) - y
        loss = float(residual.square().mean())
        block = {**at.where, **block_row(blocks, pair, "full"), "loss": loss}
        found = {"blocks": [block]}
        if not at.first:
            return found
        here = {"checkpoint": at.checkpoint}
        row = {
            **here,
            **scores_at(trained, at.checkpoint, ("test_loss",)),
            "parameters": at.network.parameter_count,
            **value_path(at.network),
            "status": "ok",
        }
        certificate = of_blocks(at.dag, at.x, y, blocks, ctx, **here)
        return {**found, "networks": [row], "certificate": certificate}

    history = trained.training.history
    kept = {name: history[name] for name in ("epoch", "train_loss", "test_loss")}
    return at_every_point(trained, metric, ctx, read) | {"history": kept}


def value_path(network: Network) -> dict[str, float]:
    """‖W_Vᵀ w‖, the length of the linear map from mean-pooled tokens to the output when attention
    is uniform, and the head's bias. H^T of (q, k) grows with its first power, H^GN with its square.
    NaN without values."""
    if "v" not in network.stages:
        return {"value_path": math.nan, "bias": math.nan}
    stages: Any = network.stages
    values = stages["v"].weight.detach()
    head = stages["head"].linear
    norm = float((head.weight.detach() @ values).norm())
    return {"value_path": norm, "bias": float(head.bias.detach())}
