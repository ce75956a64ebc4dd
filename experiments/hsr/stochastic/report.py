"""Claim, fits and figure of the estimated bound, one value per seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from experiments.printed import statements
from runner import stats
from runner.contract import Analysis, Claim, Tables
from runner.report import figures as draw
from runner.report.plot_style import COLOURS, DASHES, MARKERS
from runner.stats import Statistic, judge

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

WHERE = "extension of Section VII"


def rate(rows: pd.DataFrame, seed: int) -> Statistic:
    """Exponent of the root mean square error in the number of probes."""
    import numpy as np

    name = "exponent of the error in probes"
    x, y = np.log(rows["probes"]), np.log(rows["rms_error"])
    return stats.linear(x, y, name=name, group=f"seed={seed}", where=WHERE)


class HsrStochasticAnalysis(Analysis):
    """The Monte-Carlo rate of the estimate."""

    @property
    def _rates(self) -> list[Statistic]:
        return [rate(rows, seed) for seed, rows in self.tables["estimate"].groupby("seed")]

    def claims(self) -> list[Claim]:
        return [judge.bound(statements("hsr_stochastic")["Monte-Carlo rate"], [s.slope for s in self._rates])]

    def statistics(self) -> list[Statistic]:
        return self._rates

    def figures(self) -> Mapping[str, Callable[[], Figure]]:
        return {"estimate": partial(estimate, self.tables)}


def estimate(tables: Tables) -> Figure:
    """Error and bias of the estimated bound against the number of probes, relative to the closed form."""
    figure, axes = draw.new_figure(1, 2, width=8.0, height=3.4)
    rows = tables["estimate"]
    for k, (seed, part) in enumerate(rows.groupby("seed")):
        look = {"color": COLOURS[k % 8], "marker": MARKERS[k % 8], "linestyle": DASHES[k % 8]}
        axes[0, 0].plot(part["probes"], part["rms_error"] / part["exact"], label=f"seed {seed}", **look)
        bias, error = (part["mean"] - part["exact"]) / part["exact"], 2 * part["standard_error"] / part["exact"]
        axes[0, 1].errorbar(part["probes"], bias, yerr=error, capsize=2, elinewidth=0.8, **look)
    counts = sorted(rows["probes"].unique())
    first = rows[rows["probes"] == counts[0]]
    start = float((first["rms_error"] / first["exact"]).median())
    axes[0, 0].plot(
        counts,
        [start * (k / counts[0]) ** -0.5 for k in counts],
        color="black",
        linestyle=":",
        label=r"$\propto K^{-1/2}$",
    )
    axes[0, 1].axhline(0, color="black", linewidth=0.9)
    draw.log_axis(axes[0, 0], "both")
    draw.log_axis(axes[0, 1], "x")
    for ax in axes[0]:
        ax.set_xticks(counts, [str(k) for k in counts], minor=False)
        ax.set_xticks([], minor=True)
        ax.set_xlabel("probes $K$")
    axes[0, 0].set_ylabel("root mean square error\nof $\\lambda_{sup}$, relative")
    axes[0, 1].set_ylabel("mean error of $\\lambda_{sup}$, relative\n(± 2 standard errors)")
    draw.note(figure, "(b): bars are two standard errors")
    draw.letter(axes, ["error of one estimate", "bias"])
    draw.shared_legend(figure)
    return figure
