"""The exact Gauss–Newton gap of a trained network, and stochastic estimates of it."""

from __future__ import annotations

from experiments.dag.exp3.settings import Exp3GnGap
from experiments.dag.protocol.measure import measure_trained
from experiments.dag.protocol.stochastic import compare_gaps
from experiments.dag.protocol.training import train_images
from runner.contract import Cell, Context, Table


def measure(experiment: Exp3GnGap, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Train the network of a cell and measure it; table `stochastic` where probes are drawn."""
    trained = train_images(experiment.network_settings(cell), experiment.dataset, experiment.training, ctx)
    tables = measure_trained(trained, experiment.metric, ctx)
    if experiment.probes and experiment.probe_draws:
        tables["stochastic"] = compare_gaps(trained, experiment.metric, experiment.probes, experiment.probe_draws, ctx)
    return tables
