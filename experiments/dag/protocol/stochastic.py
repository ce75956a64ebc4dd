"""Exact against stochastic GN-gap on the same network and images (DAG paper, Appendix N.6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations_with_replacement

import torch

from experiments.dag.protocol.measure import image_sets
from experiments.dag.protocol.training import Trained
from runner.contract import Context, Table
from runner.curvature import split_blocks
from runner.curvature.matrix_free.estimators import gn_gaps
from runner.curvature.metrics.inter_layer import gn_gap_of_sums, resonance
from runner.kinds.metric import InterLayerMetric
from runner.training import CHECKPOINTS


def compare_gaps(trained: Trained, metric: InterLayerMetric, probes: Sequence[int], draws: int, ctx: Context) -> Table:
    """Columns checkpoint, probes, draw, gap_exact, gap_stochastic, discrepancy_percent, status, on the first images.

    Both gaps are ratios of sums over all pairs. Each draw takes new Rademacher probes, the same ones for H, H^GN and
    H^T. discrepancy_percent = 100 (stochastic/exact − 1); NaN where the exact gap is 0.
    """
    _, x, y = next(image_sets(trained.data.test, metric, trained.device))
    rows = []
    for checkpoint in (c for c in CHECKPOINTS if c in trained.training.states):
        network = trained.at(checkpoint)
        dag = network.to_dag(trained.loss)
        if metric.double:
            dag, x = dag.to(torch.float64), x.double()
        pairs = list(combinations_with_replacement(network.measured, 2))
        blocks = split_blocks(dag, x, y, network.measured, memory_budget=int(metric.memory_gib * 2**30))
        exact = gn_gap_of_sums(*([resonance(part[p]) for p in pairs] for part in (blocks.tensor, blocks.gauss_newton)))
        generator = ctx.torch_generator(f"probes/{checkpoint}")
        for count in probes:
            for draw in range(draws):
                found = gn_gaps(dag, x, y, network.measured, pairs, count, generator, stream="shared").values()
                gap = gn_gap_of_sums([g.tensor.value for g in found], [g.gauss_newton.value for g in found])
                rows.append(
                    {
                        "checkpoint": checkpoint,
                        "probes": count,
                        "draw": draw,
                        "gap_exact": exact,
                        "gap_stochastic": gap,
                        "discrepancy_percent": 100 * (gap / exact - 1) if exact > 0 else math.nan,
                        "status": "ok" if exact > 0 else "no discrepancy: the exact gap is 0",
                    }
                )
    return rows
