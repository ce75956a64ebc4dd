"""The bound of a three-layer network estimated from random probes, against its closed form:
measurement and report.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.certificates import of_hessian
from experiments.printed import statements
from experiments.three_layer.alternatives import STOCHASTIC
from experiments.three_layer.ends import columns, uniform
from experiments.three_layer.hsr_gradient.settings import HsrStochastic
from experiments.three_layer.network import Network
from experiments.three_layer.stochastic_bound import combine
from runner import stats
from runner.contract import Analysis, Cell, Claim, Context, Figures, Table, Tables
from runner.curvature.closed_form import three_layer as tl
from runner.data.synthetic import sample
from runner.kinds.dataset import GaussianData
from runner.report import figures as draw
from runner.report.figures import COLOURS, DASHES, MARKERS
from runner.stats import Statistic, judge
from runner.stats.tables import chosen

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
        z = torch.randint(0, 2, shape, generator=generator).double() * 2 - 1
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

    @property
    def _rates(self) -> list[Statistic]:
        return [rate(rows, seed) for seed, rows in self.tables["estimate"].groupby("seed")]

    def claims(self) -> list[Claim]:
        says = statements("hsr_stochastic")["Monte-Carlo rate"]
        return [judge.bound(says, [fit.slope for fit in self._rates])]

    def statistics(self) -> list[Statistic]:
        return self._rates

    def figures(self) -> Figures:
        return {"estimate": partial(estimate, self.tables)}


def estimate(tables: Tables) -> Figure:
    """Error and bias of the estimated bound against the number of probes, relative to the closed
    form.
    """
    rows = tables["estimate"]
    rows = rows.assign(
        error=rows["rms_error"] / rows["exact"],
        bias=(rows["mean"] - rows["exact"]) / rows["exact"],
        bars=2 * rows["standard_error"] / rows["exact"],
    )
    counts = sorted(rows["probes"].unique())
    start = float(chosen(rows, probes=counts[0])["error"].median())

    def panel(ax: Axes, part: str) -> None:
        for k, (seed, of_seed) in enumerate(rows.groupby("seed")):
            look: dict[str, Any] = {"color": COLOURS[k % 8], "marker": MARKERS[k % 8]}
            look["linestyle"] = DASHES[k % 8]
            probes = of_seed["probes"]
            if part == "error":
                ax.plot(probes, of_seed["error"], label=f"seed {seed}", **look)
            else:
                look |= {"capsize": 2, "elinewidth": 0.8}
                ax.errorbar(probes, of_seed["bias"], yerr=of_seed["bars"], **look)
        if part == "error":
            expected = [start * (k / counts[0]) ** -0.5 for k in counts]
            ax.plot(counts, expected, color="black", linestyle=":", label=r"$\propto K^{-1/2}$")
            ax.set_ylabel("root mean square error\nof $\\lambda_{sup}$, relative")
        else:
            ax.axhline(0, color="black", linewidth=0.9)
            ax.set_ylabel("mean error of $\\lambda_{sup}$, relative\n(± 2 standard errors)")
        draw.log_axis(ax, "both" if part == "error" else "x")
        ax.set_xticks(counts, [str(k) for k in counts], minor=False)
        ax.set_xticks([], minor=True)

    titles = {"error": "error of one estimate", "bias": "bias"}
    caption = "(b): bars are two standard errors"
    return draw.panels(
        titles, panel, x="probes $K$", caption=caption, sharey=False, width=8.0, height=3.6
    )
