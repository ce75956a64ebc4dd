"""Figures of the parts that train, from saved tables alone."""

from __future__ import annotations

from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from experiments.scalar_spectrum.figures import NAMES, look
from experiments.scalar_spectrum.values import paired_steps
from experiments.scalar_spectrum.wedge_scale import wedge_name
from runner.contract import Tables
from runner.report.figures import COLOURS, DASHES, panels
from runner.stats.tables import chosen, first_seed


def outlier_pairs(tables: Tables, left: float) -> Figure:
    """Fig. 3: both outliers through training, linear and ReLU (positive cell), low and high rate,
    on one wedge."""
    frame = chosen(paired_steps(tables), left=left)
    frame = frame[frame["cell"] != "-"].sort_values("step")
    rates = sorted(frame["rate"].unique())
    networks = sorted(frame["network"].unique())
    runs = list(product(networks, rates))
    names = {"first": "λ₁ and trace of H", "second": "λ₂"}
    texts = {"first": "first outlier λ₁", "second": "second outlier λ₂"}

    def panel(ax: Axes, key: tuple[str, str, float]) -> None:
        value, network, rate = key
        part = chosen(frame, network=network, rate=rate)
        colour = COLOURS[value == "second"]
        text = texts[value]
        style: dict[str, Any] = {"linewidth": 1.6, "label": f"{text}, first seed"}
        by_seed = enumerate(part.groupby("seed"))
        for i, (_, run) in by_seed:
            steps = run["step"]
            ax.plot(steps, run[value], color=colour, **style)
            style = {"linewidth": 0.6, "alpha": 0.6, "label": f"{text}, other seeds"}
            if i == 0 and value == "first":
                trace_style: dict[str, Any] = {"linewidth": 1, "label": "trace of H, first seed"}
                ax.plot(steps, run["trace"], "--", color="black", **trace_style)
        if value == "second":
            ax.axhline(0, color="0.3", linestyle=":", linewidth=1)
        last_step = float(part["step"].max())
        if last_step > 200 and rate == rates[-1]:
            ax.set_xlim(0, 150)  # the rest is zero
        if (network, rate) == runs[0]:
            ax.set_ylabel(names[value])

    cell = {"linear": "linear", "relu": "ReLU, positive cell"}
    titles = {}
    for value, network, rate in product(names, networks, rates):
        titles[value, network, rate] = f"{cell[network]}, rate {rate:g}"
    caption = (
        "the paper's rate is 0.18 for both networks; teeth in a line: a neuron that changes its "
        "cell back and forth from step to step"
    )
    figure = panels(
        titles,
        panel,
        x="training step",
        columns=len(runs),
        height=4.9,
        sharex="col",
        sharey=False,
        legend_columns=3,
        caption=caption,
    )
    figure.suptitle(f"wedge data: {wedge_name(left)}", fontsize=9)
    return figure


def _ratio_axis(ax: Axes) -> None:
    """Logarithmic axis of sharpness over 2/rate with plain numbers."""
    ticks = {0.25: "1/4", 0.5: "1/2", 1: "1", 2: "2", 4: "4"}
    ax.set_yscale("log")
    ax.set_ylim(0.12, 7)
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.yaxis.set_minor_locator(NullLocator())


def edge_of_stability(tables: Tables) -> Figure:
    """Sharpness over 2/rate along gradient descent at the largest width, from small and from large
    weights."""
    frame = first_seed(tables["edge"]).sort_values("step")
    frame = frame.assign(ratio=frame["sharpness"] * frame["rate"] / 2)
    width = int(frame["width"].max())
    frame = chosen(frame, width=width)
    factors = sorted(frame["factor"].unique())

    def panel(ax: Axes, key: tuple[str, str]) -> None:
        network, start = key
        part = chosen(frame, network=network, start=start)
        for i, factor in enumerate(factors):
            if start == "small" and 1.2 < factor < 2 and len(factors) > 5:
                continue  # chaotic
            run = chosen(part, factor=factor)
            if (run["status"] == "settled").any():  # it stays where it is
                end = run.iloc[-1:]
                repeated = end.assign(step=max(40, run["step"].max()))
                run = pd.concat([run, repeated])
            shown = run[run["ratio"] < 6]
            steps = shown["step"]
            style = look(i, linewidth=1, markevery=5, markersize=3.5)
            style["linestyle"] = DASHES[i % 8] if factor < 1 else "-"
            style["label"] = f"rate = {factor:g} × 2/λ₁ of the reference"
            ax.plot(steps, shown["ratio"], **style)
            if len(shown) < len(run):
                ax.plot(steps.iloc[-1:], [5.5], **look(i, markersize=6))
        ax.axhline(1, color="black", linestyle=":", linewidth=1, label="edge of stability")
        ax.set_xlim(0, 40)
        _ratio_axis(ax)

    networks = sorted(frame["network"].unique())
    present = set(frame["start"])
    starts = [start for start in ("small", "large") if start in present]
    titles = {}
    for network, start in product(networks, starts):
        titles[network, start] = f"{NAMES[network]}, {start} start, m = {width:,}"
    caption = (
        "drawn: the first seed; a large mark at the top: the run diverges; reference: the start, "
        "and for small weights the solution"
    )
    return panels(
        titles,
        panel,
        x="training step",
        y="sharpness · rate / 2",
        columns=len(starts),
        height=2.6 * len(networks) + 0.7,
        sharex=True,
        legend_columns=2,
        caption=caption,
    )
