"""The bound of a three-layer network estimated from random probes, against its closed form:
measurement and report.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import torch

from experiments.certificates import of_hessian
from experiments.printed import statements
from experiments.three_layer.alternatives import STOCHASTIC
from experiments.three_layer.ends import columns, uniform
from experiments.three_layer.hsr_gradient.settings import HsrStochastic
from experiments.three_layer.network import Network
from experiments.three_layer.stochastic_bound import combine
from runner import stats
from runner.contract import Analysis, Cell, Claim, Context, Table
from runner.curvature.closed_form import three_layer as tl
from runner.curvature.estimators.estimate import rademacher
from runner.data.synthetic import sample
from runner.kinds.dataset import GaussianData
from runner.stats import Statistic, judge

NAMES = ("probes", "exact", "mean", "rms_error", "standard_error")


def measure(experiment: HsrStochastic, cell: Cell, ctx: Context) -> dict[str, Table]:
    """Mean and spread of the estimated bound of a three-layer network against its closed form, by
    number of probes.

    Probes multiply the closed-form Hessian, which gives the same numbers as products by
    differentiation.
    """
    data = GaussianData()
    network = Network(*sample(data, data.train, ctx, "data/train"), activation="sigmoid")
    dimension = tl.parameter_count(data.inputs, experiment.hidden)
    theta = uniform(1, dimension, 2.0, ctx.torch_generator("theta"))[0]
    hessian = network.hessian(theta)
    exact = float(network.bound(theta))
    rows = []
    for count in experiment.probe_counts:
        generator = ctx.torch_generator(f"estimate/{count}")
        shape = (experiment.repeats, count, dimension)
        z = rademacher(shape, torch.float64, generator)
        image = z @ hessian
        bounds = combine((z * image).sum(-1), image.square().sum(-1), dimension).bound
        error = float((bounds - exact).square().mean().sqrt())
        standard_error = float(bounds.std()) / math.sqrt(experiment.repeats)
        rows.append((count, exact, float(bounds.mean()), error, standard_error))
    certificate = of_hessian("Hessian", hessian, network.loss, theta, ctx)
    return {"estimate": columns(NAMES, rows), "certificate": [certificate]}


WHERE = "extension of Section VII"


def rate(rows: pd.DataFrame, seed: int) -> Statistic:
    """Exponent of the root mean square error in the number of probes."""
    name = "exponent of the error in probes"
    x = np.log(rows["probes"])
    y = np.log(rows["rms_error"])
    return stats.linear(x, y, name=name, group=f"seed={seed}", where=WHERE)


class HsrStochasticAnalysis(Analysis):
    """The Monte-Carlo rate of the estimate."""

    alternatives = STOCHASTIC

    def claims(self) -> list[Claim]:
        says = statements("hsr_stochastic")["Monte-Carlo rate"]
        return [judge.bound(says, [fit.slope for fit in self.statistics()])]

    def statistics(self) -> list[Statistic]:
        return [rate(rows, seed) for seed, rows in self.tables["estimate"].groupby("seed")]
