"""Estimates of the GN-gap from common probes, drawn on exact blocks, and the error that theory predicts for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from experiments.certificates import of_blocks
from experiments.dag.exp3.settings import Exp3Stochastic
from experiments.dag.protocol.measure import blocks_of, image_sets
from experiments.dag.protocol.training import Trained, train_images
from runner.contract import Cell, Context, Table
from runner.curvature import BlockSplit, Dag
from runner.curvature.matrix_free.estimators import rademacher
from runner.curvature.metrics.inter_layer import gn_gap_of_sums, resonance
from runner.kinds.metric import InterLayerMetric
from runner.training import CHECKPOINTS


def measure(experiment: Exp3Stochastic, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell and compare estimates of its gap with the exact one."""
    trained = train_images(experiment.network_settings(cell), experiment.dataset, experiment.training, ctx)
    counts = experiment.probes, experiment.draws
    tables = compare(trained, experiment.metric, *counts, str(cell.params["activation"]), ctx)
    return {**tables, **trained.origin_table()}


def compare(
    trained: Trained, metric: InterLayerMetric, probes: Sequence[int], draws: int, activation: str, ctx: Context
) -> dict[str, Table]:
    """Tables `draws` (checkpoint, probes, draw, gap_exact, gap_stochastic, status) and `predicted` (checkpoint,
    probes, percent: relative standard deviation of one estimate by `predicted_error`), on the papers' images, and
    `certificate` of the exact blocks.

    Every draw has probes of its own, independent of those of other activations, checkpoints and numbers of probes.
    """
    _, x, y = next(image_sets(trained.data.test, metric, trained.device))
    rows, predicted, certificate = [], [], []
    for done, checkpoint in enumerate(CHECKPOINTS):
        if checkpoint not in trained.training.states:
            continue
        dag, inputs, nodes = _network(trained, checkpoint, x, metric)
        blocks = blocks_of(dag, nodes, inputs, y, metric)
        certificate += of_blocks(dag, inputs, y, blocks, ctx, checkpoint=checkpoint)
        norms = [[resonance(part[p]) for p in _pairs(nodes)] for part in (blocks.tensor, blocks.gauss_newton)]
        exact = gn_gap_of_sums(*norms)
        status = "ok" if exact > 0 else "no discrepancy: the exact gap is 0"
        for count in probes:
            generator = ctx.torch_generator(f"probes/{activation}/{checkpoint}/{count}")
            where = {"checkpoint": checkpoint, "probes": count}
            for draw in range(draws):
                found = estimate(blocks, nodes, count, generator)
                rows.append({**where, "draw": draw, "gap_exact": exact, "gap_stochastic": found, "status": status})
            percent = 100 * predicted_error(blocks, nodes, count) if exact > 0 else math.nan
            predicted.append({**where, "percent": percent, "status": status})
        ctx.progress(done + 1, len(CHECKPOINTS), checkpoint)
    return {"draws": rows, "predicted": predicted, "certificate": certificate}


def estimate(blocks: BlockSplit, nodes: Sequence[str], probes: int, generator: torch.Generator) -> float:
    """Σ‖H^T‖_F / Σ‖H^GN‖_F over all pairs v <= w with ‖A‖_F² = mean |A z_k|², one set of z_k on each w for both parts.

    The same sums as `runner.curvature.matrix_free.estimators.gn_gaps` has from products through the network.
    """
    sums = {"tensor": 0.0, "gauss_newton": 0.0}
    for w, sources in _targets(nodes):
        size = blocks.tensor[w, w].shape[1]
        z = rademacher((probes, size), blocks.tensor[w, w].dtype, generator).to(blocks.tensor[w, w].device)
        for part in sums:
            stacked = torch.cat([getattr(blocks, part)[v, w] for v in sources])
            images = (z @ stacked.mT).double().square().split([blocks.tensor[v, w].shape[0] for v in sources], 1)
            sums[part] += math.fsum(math.sqrt(float(image.sum(1).mean())) for image in images)
    return gn_gap_of_sums([sums["tensor"]], [sums["gauss_newton"]])


def predicted_error(blocks: BlockSplit, nodes: Sequence[str], probes: int) -> float:
    """Relative standard deviation of `estimate`, to first order in 1/√probes.

    zᵀAz has variance 2(‖A‖_F² − Σ A_ii²) for symmetric A and Rademacher z. The logarithm of the gap is, to first
    order, Σ_w zᵀM_w z with M_w = Σ_v TᵀT/(2 ‖T‖ Σ‖T‖) − GᵀG/(2 ‖G‖ Σ‖G‖), T and G the parts of H[v,w], the inner sums
    over all pairs: so the variance is Σ_w 2(‖M_w‖_F² − Σ_i (M_w)_ii²)/probes.
    """
    totals = {part: math.fsum(resonance(getattr(blocks, part)[p]) for p in _pairs(nodes)) for part in PARTS}
    variance = 0.0
    for w, sources in _targets(nodes):
        size = blocks.tensor[w, w].shape[1]
        m = torch.zeros(size, size, dtype=torch.float64, device=blocks.tensor[w, w].device)
        for v in sources:
            for part, sign in PARTS.items():
                block = getattr(blocks, part)[v, w].double()
                norm = resonance(block)
                if norm > 0:
                    m += sign * (block.mT @ block) / (2 * norm * totals[part])
        variance += 2 * float(m.square().sum() - m.diagonal().square().sum()) / probes
    return math.sqrt(variance)


PARTS = {"tensor": 1.0, "gauss_newton": -1.0}
"""Parts of a block, with the sign of their norm in the logarithm of the gap."""


def _pairs(nodes: Sequence[str]) -> list[tuple[str, str]]:
    return list(combinations_with_replacement(nodes, 2))


def _targets(nodes: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """(w, all v of the pairs (v, w)), in order."""
    return ((w, nodes[: i + 1]) for i, w in enumerate(nodes))


def _network(
    trained: Trained, checkpoint: str, x: Tensor, metric: InterLayerMetric
) -> tuple[Dag, Tensor, tuple[str, ...]]:
    network = trained.at(checkpoint)
    dag = network.to_dag(trained.loss)
    if metric.double:
        dag, x = dag.to(torch.float64), x.double()
    return dag, x, network.measured
