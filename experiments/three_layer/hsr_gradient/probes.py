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
from experiments.three_layer.ends import columns
from experiments.three_layer.hsr_gradient.settings import HsrStochastic
from experiments.three_layer.stochastic_bound import combine
from runner import stats
from runner.contract import Analysis, Cell, Claim, Context, Figures, Table, Tables
from runner.curvature.closed_form import three_layer as tl
from runner.data.synthetic import gaussian_classes
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
    x, q = gaussian_classes(
        data.train, data.inputs, data.mean, data.variance, ctx.torch_generator("data/train")
    )
    dimension = tl.parameter_count(data.inputs, experiment.hidden)
    theta = (
        4 * torch.rand(dimension, dtype=torch.float64, generator=ctx.torch_generator("theta")) - 2
    )
    hessian = tl.hessian(theta, x, q)
    exact = float(tl.upper_bound(theta, x, q))
    rows = []
    for count in experiment.probe_counts:
        generator = ctx.torch_generator(f"estimate/{count}")
        z = (
            torch.randint(
                0, 2, (experiment.repeats, count, dimension), generator=generator
            ).double()
            * 2
            - 1
        )
        image = z @ hessian
        bounds = combine((z * image).sum(-1), image.square().sum(-1), dimension).bound
        error = float((bounds - exact).square().mean().sqrt())
        rows.append(
            (
                count,
                exact,
                float(bounds.mean()),
                error,
                float(bounds.std()) / math.sqrt(experiment.repeats),
            )
        )
    estimates = columns(NAMES, rows)
    return {
        "estimate": estimates,
        "certificate": [of_hessian("Hessian", hessian, lambda t: tl.loss(t, x, q), theta, ctx)],
    }


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
        return [
            judge.bound(
                statements("hsr_stochastic")["Monte-Carlo rate"], [s.slope for s in self._rates]
            )
        ]

    def statistics(self) -> list[Statistic]:
        return self._rates

    def figures(self) -> Figures:
        return {"estimate": partial(estimate, self.tables)}


def estimate(tables: Tables) -> Figure:
    """Error and bias of the estimated bound against the number of probes, relative to the closed
    form.
    """
    rows = tables["estimate"]
    counts = sorted(rows["probes"].unique())
    first = chosen(rows, probes=counts[0])
    start = float((first["rms_error"] / first["exact"]).median())

    def panel(ax: Axes, part: str) -> None:
        for k, (seed, own) in enumerate(rows.groupby("seed")):
            look: dict[str, Any] = {
                "color": COLOURS[k % 8],
                "marker": MARKERS[k % 8],
                "linestyle": DASHES[k % 8],
            }
            if part == "error":
                ax.plot(
                    own["probes"], own["rms_error"] / own["exact"], label=f"seed {seed}", **look
                )
            else:
                bias = (own["mean"] - own["exact"]) / own["exact"]
                bars = 2 * own["standard_error"] / own["exact"]
                ax.errorbar(own["probes"], bias, yerr=bars, capsize=2, elinewidth=0.8, **look)
        if part == "error":
            rate = [start * (k / counts[0]) ** -0.5 for k in counts]
            ax.plot(counts, rate, color="black", linestyle=":", label=r"$\propto K^{-1/2}$")
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
