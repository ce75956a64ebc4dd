"""The published estimates of Table N.3 beside the exact blocks."""

from __future__ import annotations

from dataclasses import replace

import torch

from experiments.dag.exp1.settings import Exp1Deep
from experiments.dag.protocol.estimates import estimated_metrics, estimates_by_distance
from experiments.dag.protocol.measure import image_sets, measure_trained
from experiments.dag.protocol.training import Trained, on_images
from runner.contract import Cell, Context, Table
from runner.curvature import exact_blocks
from runner.kinds.metric import InterLayerMetric
from runner.training import CHECKPOINTS


def measure(experiment: Exp1Deep, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell, measure it, and estimate its metrics as the paper does."""
    trained = on_images(experiment, cell, ctx)
    paper_images = replace(experiment.metric, subsamples=0)
    tables = measure_trained(trained, experiment.metric, ctx)
    return {**tables, "estimates": estimates(trained, paper_images, experiment.probes, ctx)}


def estimates(trained: Trained, metric: InterLayerMetric, probes: int, ctx: Context) -> Table:
    """Columns checkpoint and those of `estimates_by_distance`, on the papers' images, from `probes` probes."""
    _, x, y = next(image_sets(trained.data.test, metric, trained.device))
    rows = []
    for checkpoint in (c for c in CHECKPOINTS if c in trained.training.states):
        network = trained.at(checkpoint)
        dag = network.to_dag(trained.loss)
        if metric.double:
            dag, x = dag.to(torch.float64), x.double()
        blocks = exact_blocks(dag, x, y, network.measured, memory_budget=int(metric.memory_gib * 2**30))
        found = estimated_metrics(blocks, network.measured, probes, ctx.torch_generator(f"probes/{checkpoint}"))
        rows += [{"checkpoint": checkpoint, **row} for row in estimates_by_distance(found)]
    return rows
