"""Fig. 3 on wedge data of several scales: the caption prints the rate, not the scale, and the scale
decides.

With x ~ N(0, σ²) and y the wedge of x, every Hessian eigenvalue scales with σ²: a small σ at the
printed rate 0.18 and momentum 0.9 is an overdamped ball, whose second outlier turns positive once
and stays so; σ = 1 is an oscillating one. The scale that gives the printed sentences is chosen by
looking at them: *fitted*, never evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.printed import statements
from experiments.scalar_spectrum.network import Network, default_weights, descend
from experiments.scalar_spectrum.settings import ScalarSpectrum
from runner.contract import Cell, Context, Table, Tables
from runner.data.synthetic import wedge
from runner.report.figures import COLOURS, DASHES, MARKERS, panels
from runner.stats.tables import chosen

STEPS = 5000
STILL = 1e-4
"""A run ends after so many steps, or once ⟨w,v⟩ is so near θ*, relative to it."""
LAST = 10
"""Values at the end that show where a run stays."""
PATTERNS = {
    "turns_positive": "λ₂ changes sign once, stays positive",
    "wiggles": "λ₂ wiggles around zero",
}


def measure(setup: ScalarSpectrum, cell: Cell, ctx: Context) -> dict[str, Table]:
    """One row a run: scale, start, how often λ2 changes sign, and where it is at first and at the
    end."""
    rows = []
    sigmas = setup.wedge_scales
    for done, sigma in enumerate(sigmas):
        for start in range(setup.wedge_starts):
            rows.append({"sigma": sigma, "start": start} | _run(setup, cell, ctx, sigma, start))
        ctx.progress(done + 1, len(sigmas), f"σ = {sigma:g}")
    return {"wedge_scale": rows}


def _run(
    setup: ScalarSpectrum, cell: Cell, ctx: Context, sigma: float, start: int
) -> dict[str, Any]:
    """Second outlier (ReLU: of the positive cell) along one training at the highest rate of the
    settings."""
    kind = str(cell.params["network"])
    generator = ctx.numpy_generator(f"scalar_spectrum.wedge_scale/{start}")
    data = wedge(setup.samples, generator, left=float(cell.params["left"]))
    network = Network(kind, *(sigma * torch.from_numpy(a) for a in data))
    stream = ctx.torch_generator(f"scalar_spectrum.wedge_scale.weights/{start}")
    w, v = default_weights(setup.pair_width, stream)
    name = ""
    if network.relu:
        name = "+"
    moments = network.moments[name]
    target = float(moments.xy / moments.xx)
    limit = setup.diverged * network.read(0, w, v).loss
    second = []
    away = 0
    status = "no neuron in this cell"
    states = descend(network, w, v, max(setup.rate), setup.momentum, STEPS, limit)
    for state in states:
        if name not in state.pairs:
            break
        pair = state.pairs[name]
        second.append(float(pair.outliers()[1]))
        near = abs(float(pair.slope) - target) <= STILL * abs(target)
        away = 0 if near else state.step
        status = "moving"
        if near:
            status = "settled"
        if not state.loss <= limit:
            status = "diverged"
        if state.step - away > LAST:
            break
    return {**shape(second), "steps": len(second), "status": status}


def shape(second: Sequence[float]) -> dict[str, float]:
    """first, lowest, highest and last (that is not zero on the run's scale), and the changes of
    sign."""
    if not len(second):
        return dict.fromkeys(("first", "lowest", "highest", "last", "changes"), float("nan"))
    values = np.asarray(second)
    return {
        "first": values[0],
        "lowest": values.min(),
        "highest": values.max(),
        "last": float(seen(values)[-1]),
        "changes": float(changes(values)),
    }


def seen(second: np.ndarray) -> np.ndarray:
    """The values that are not zero on the scale of the run: beyond them only rounding changes
    sign."""
    size = np.abs(second)
    return second[size > 1e-6 * size.max()]


def changes(second: np.ndarray) -> int:
    """How often the sign changes."""
    return int((np.diff(np.sign(seen(second))) != 0).sum())


def wedge_name(left: float) -> str:
    """The data y = x for x > 0, −left·x for x <= 0 in words."""
    if left == 1:
        return "y = |x|"
    return f"left slope {-left:g}"


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The runs that start in the early phase (λ2 < 0), with a column for each printed pattern."""
    known = table["status"].isin(["settled", "moving", "diverged"])
    runs = table[(table["first"] < 0) & known]
    once = runs["changes"] == 1
    stays = (runs["last"] > 0) & (runs["status"] == "settled")
    wiggles = runs["changes"].map(statements("scalar_spectrum")["wiggles"].holds)
    return runs.assign(turns_positive=once & stays, wiggles=wiggles)


def shares(table: pd.DataFrame) -> pd.DataFrame:
    """network, left, sigma, n and the share of runs with each pattern."""
    by = shown(table).groupby(["network", "left", "sigma"])
    return by[list(PATTERNS)].mean().assign(n=by.size()).reset_index()


def best(runs: pd.DataFrame) -> tuple[float, float]:
    """The largest scale with the highest share of `turns_positive`, over networks and wedges
    together, and that share."""
    by_scale = runs.groupby("sigma")["turns_positive"].mean()
    highest = by_scale[by_scale == by_scale.max()]
    return max(highest.index), by_scale.max()


def fitted(table: pd.DataFrame) -> str:
    """What the scale that gives most runs as Fig. 3 says, at the low rate, gives."""
    runs = shown(table)
    sigma, _ = best(runs)
    of_scale = chosen(runs, sigma=sigma)["turns_positive"]
    return (
        f"fitted: at the printed rate {int(of_scale.sum())} of {len(of_scale)} runs with data of "
        f"scale σ = {sigma:g}"
    )


def figure(tables: Tables) -> Figure:
    """Fig. 3's two patterns against the scale of the wedge data, at the printed rate and momentum.

    Share of the runs whose second outlier starts negative: it turns positive once and stays so (the
    text's low rate), or changes sign three times or more (its high rate).
    """
    table = shares(tables["wedge_scale"])

    def panel(ax: Axes, name: str) -> None:
        by_network = enumerate(table.groupby(["network", "left"]))
        for i, ((network, left), part) in by_network:
            kind = {"relu": "ReLU"}.get(str(network), network)
            style: dict[str, Any] = {"color": COLOURS[i], "marker": MARKERS[i]}
            style["label"] = f"{kind}, {wedge_name(float(left))}"
            place = part["sigma"] * 1.03 ** (i - 1.5)  # lines that agree are seen side by side
            ax.plot(place, part[name], linestyle=DASHES[i], **style)
        ax.set_ylim(-0.03, 1.03)

    runs = f"{int(table['n'].min())} to {int(table['n'].max())} runs a mark"
    caption = f"{runs}, marks of one scale side by side; the paper prints no scale"
    x = "scale σ of the wedge data"
    return panels(PATTERNS, panel, x=x, y="share of runs", log="x", height=3.3, caption=caption)
