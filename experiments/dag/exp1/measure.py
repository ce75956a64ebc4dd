"""The published estimates of Table N.3 next to the exact blocks."""

from __future__ import annotations

from dataclasses import replace

from experiments.dag.exp1.settings import Exp1Deep
from experiments.dag.protocol.estimates import estimated_metrics, estimates_by_distance
from experiments.dag.protocol.measure import measure_trained
from experiments.dag.protocol.points import memory_of, on_images, on_papers_images, stream_of
from runner.contract import Cell, Context, Table
from runner.curvature import exact_blocks
from runner.kinds.metric import InterLayerMetric
from runner.training.trained import Trained


def measure(experiment: Exp1Deep, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell, measure it, and estimate its metrics as the paper does."""
    trained = on_images(experiment, cell, ctx)
    tables = measure_trained(trained, experiment.metric, ctx)
    paper_images = replace(experiment.metric, subsamples=0)
    return {**tables, "estimates": estimates(trained, paper_images, experiment.probes, ctx)}


def estimates(trained: Trained, metric: InterLayerMetric, probes: int, ctx: Context) -> Table:
    """Columns checkpoint and those of `estimates_by_distance`, on the papers' images, from `probes`
    probes."""
    rows = []
    for at in on_papers_images(trained, metric):
        nodes = at.network.measured
        blocks = exact_blocks(at.dag, at.x, at.y, nodes, memory_budget=memory_of(metric))
        pairs = estimated_metrics(blocks, nodes, probes, ctx.torch_generator(stream_of(at)))
        rows += [{"checkpoint": at.checkpoint, **row} for row in estimates_by_distance(pairs)]
    return rows
