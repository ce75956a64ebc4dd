"""One block of a trained regression network: its norm and its Gauss–Newton and tensor parts, at every checkpoint.

Tables: `blocks`, one row per checkpoint and set of validation samples (0: the first, as in the paper; then random sets,
the same numbers for every seed); `networks` and `certificate`, one row per checkpoint; `history`, one row per epoch;
`origin`, which streams made network, inputs and order of the examples.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from experiments.certificates import of_blocks
from experiments.dag.exp5.settings import PAIRS, Exp5Attention
from experiments.dag.protocol.measure import epoch_of, image_sets
from experiments.dag.protocol.training import Trained, train_regression
from runner.contract import Cell, Context, Table
from runner.curvature import split_blocks
from runner.curvature.metrics.inter_layer import gn_gap, resonance
from runner.kinds.metric import InterLayerMetric
from runner.models import Network
from runner.training import CHECKPOINTS


def measure(experiment: Exp5Attention, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell under its protocol and measure its block."""
    network, protocol = str(cell.params["network"]), str(cell.params["protocol"])
    dataset, training = experiment.under(protocol)
    trained = train_regression(experiment.network_settings(network), dataset, training, ctx)
    metric = experiment.metric if protocol in experiment.resampled else replace(experiment.metric, subsamples=0)
    return measure_trained(trained, PAIRS[network], metric, ctx)


def measure_trained(
    trained: Trained, pair: tuple[str, str], metric: InterLayerMetric, ctx: Context
) -> dict[str, Table]:
    """All tables of one training for the block of `pair`."""
    sets = list(image_sets(trained.data.test, metric, trained.device))
    blocks: list[dict[str, Any]] = []
    networks: list[dict[str, Any]] = []
    certificate: list[dict[str, Any]] = []
    history = trained.training.history
    for done, checkpoint in enumerate(CHECKPOINTS):
        if checkpoint not in trained.training.states:
            networks.append({"checkpoint": checkpoint, "status": trained.training.status})
            continue
        network = trained.at(checkpoint)
        for number, x, y in sets:
            row, rows = block_row(trained, network, pair, metric, x, y, ctx if number == 0 else None)
            blocks.append({"checkpoint": checkpoint, "images": number, **row})
            certificate += [{"checkpoint": checkpoint, **verified} for verified in rows]
        about = {"checkpoint": checkpoint, "test_loss": history["test_loss"][epoch_of(checkpoint, history)]}
        size = {"parameters": network.parameter_count, **value_path(network)}
        networks.append({**about, **size, "status": "ok"})
        ctx.progress(done + 1, len(CHECKPOINTS), checkpoint)
    columns = ("epoch", "train_loss", "test_loss")
    return {
        "blocks": blocks,
        "networks": networks,
        "certificate": certificate,
        "history": {name: history[name] for name in columns},
        **trained.origin_table(),
    }


def block_row(
    trained: Trained,
    network: Network,
    pair: tuple[str, str],
    metric: InterLayerMetric,
    x: torch.Tensor,
    y: torch.Tensor,
    ctx: Context | None = None,
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """(row, certificate of its blocks where there is a ctx). full = ‖H‖_F, gn = ‖H^GN‖_F, tensor = ‖H^T‖_F and gap
    (Eq. 4) of the batch-mean block; loss on the samples."""
    dag = network.to_dag(trained.loss)
    if metric.double:
        dag, x, y = dag.to(torch.float64), x.double(), y.double()
    found = split_blocks(dag, x, y, pair, memory_budget=int(metric.memory_gib * 2**30))
    tensor, gauss_newton = found.tensor[pair], found.gauss_newton[pair]
    with torch.no_grad():
        loss = float((network(x).squeeze(-1) - y).square().mean())
    norms = {"full": resonance(found.total[pair]), "gn": resonance(gauss_newton), "tensor": resonance(tensor)}
    verified = of_blocks(dag, x, y, found, ctx) if ctx is not None else []
    return {**norms, "gap": gn_gap(tensor, gauss_newton), "loss": loss}, verified


def value_path(network: Network) -> dict[str, float]:
    """‖W_Vᵀ w‖, the length of the linear map from mean-pooled tokens to the output when attention is uniform, and the
    head's bias. H^T of (q, k) grows with its first power, H^GN with its square. NaN without values."""
    if "v" not in network.stages:
        return {"value_path": math.nan, "bias": math.nan}
    stages: Any = network.stages
    values, head = stages["v"].weight.detach(), stages["head"].linear
    return {"value_path": float((head.weight.detach() @ values).norm()), "bias": float(head.bias.detach())}
