"""What the parts of the study measured, as the judge reads it: tables with further columns, one row
a run of those that train, and the counts that the paper prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from experiments.scalar_spectrum.settings import ScalarSpectrum
from experiments.scalar_spectrum.wedge_scale import LAST, fitted, seen, shape, wedge_name
from runner.contract import Claim, Statement, Tables
from runner.stats.intervals import joined
from runner.stats.quantities import Functions
from runner.stats.statements import decided
from runner.stats.tables import chosen

TAIL = 20
"""Last steps of an edge run that tell whether it has settled."""
RUN = ["network", "width", "start", "factor", "seed"]
FUNCTIONS = Functions()


@FUNCTIONS.decision("data of a fitted scale stand next to it, in a table of their own")
def runs_and_fit(says: Statement, tables: Tables) -> Claim:
    made = decided(replace(says, test="runs"), tables, FUNCTIONS)
    if not len(tables.get("wedge_scale", ())):
        return made
    return replace(made, detail=joined(made.detail, fitted(tables["wedge_scale"])))


def judged(setup: ScalarSpectrum, tables: Tables) -> Tables:
    """The tables with the columns that statements read, and new ones: extremes of the spectrum, one
    row an end; runs, one row a training on the wedge."""
    found = {name: table for name, table in tables.items() if len(table)}
    for name, add in ADDED.items():
        if name in found:
            found |= add(setup, found)
    return found


def _scaling(setup: ScalarSpectrum, tables: Tables) -> Tables:
    table = tables["scaling"]
    network = "m = " + table["scaled_width"].astype(str) + ", seed " + table["seed"].astype(str)
    table = table.assign(network=network, unit=table["eigenvalue"] / table["sigma"] ** 2)
    by_spectrum = table.groupby(["targets", "network", "seed", "sigma"])["unit"]
    ends = by_spectrum.agg(["max", "min"]).melt(var_name="end", ignore_index=False).reset_index()
    return {"scaling": table, "extremes": ends.assign(line=ends["network"] + ", " + ends["end"])}


def _cells(setup: ScalarSpectrum, tables: Tables) -> Tables:
    cells = tables["relu_cells"]
    largest = cells["dense"].abs().groupby(cells["seed"]).transform("max")
    error = (cells["eigenvalue"] - cells["dense"]).abs() / largest
    return {"relu_cells": cells.assign(error=error)}


def _density(setup: ScalarSpectrum, tables: Tables) -> Tables:
    density = tables["density"]
    density = density.assign(unit=density["eigenvalue"] / density["share"])
    rank = density.groupby(["seed", "cell", "copies"])["unit"].rank(method="first")
    line = density["seed"].astype(str) + density["cell"] + rank.astype(str)
    return {"density": density.assign(line=line)}


def _bias(setup: ScalarSpectrum, tables: Tables) -> Tables:
    bias = tables["bias"]
    width = setup.bias_width
    counts = (bias["zeros"] == width - 1) & (bias[["plus", "minus"]] == width - 2).all(axis=1)
    below, above = bias["lower"] - bias["theorem"], bias["theorem"] - bias["upper"]
    return {"bias": bias.assign(wrong=~counts, excess=np.maximum(below, above))}


def _pairs(setup: ScalarSpectrum, tables: Tables) -> Tables:
    pairs = tables["pairs"]
    target, slope, trace = pairs["target"], pairs["slope"], pairs["trace"]
    printed = (slope >= target / 3) & (slope <= target)
    off = np.maximum((pairs["first"] - trace).abs(), pairs["second"].abs())
    steps = pairs.assign(
        sign=np.where(target > 0, "θ* > 0", "θ* < 0"),
        violation=(pairs["bound"] - pairs["smallest"]) / trace,
        printed_phase=_wrong_side(pairs, printed),
        phase_of_share=_wrong_side(pairs, pairs["phase"] == "late"),
        distance=((slope - target) / target).abs(),
        rank_error=off / trace,
    )
    return {"pairs": steps, "runs": runs_of(setup, paired_steps(tables))}


def _wrong_side(pairs: pd.DataFrame, late: pd.Series[bool]) -> pd.Series[float]:
    """How far λ1 − tr H or λ2 lies on the wrong side for its phase, relative to tr H."""
    side = np.where(late, -1.0, 1.0)
    wrong = np.maximum(side * (pairs["trace"] - pairs["first"]), side * pairs["second"])
    return wrong / pairs["trace"]


def paired_steps(tables: Tables) -> pd.DataFrame:
    """The recorded steps of the runs that did not diverge; cell: "" for linear networks."""
    return chosen(tables["pairs"].assign(cell=tables["pairs"]["cell"].fillna("")), status="ok")


def runs_of(setup: ScalarSpectrum, steps: pd.DataFrame) -> pd.DataFrame:
    """What Section 2 says of Fig. 3, run by run: the second outlier of the linear net, and of the
    positive cell of the ReLU net.

    overdamped: whether the rate is low enough for it to reach zero from above, as an overdamped
    heavy ball; end: the largest of its last values.
    """
    keys = ["network", "left", "rate", "seed"]
    rows = []
    steps = steps[steps["cell"] != "-"].sort_values("step")
    for key, run in steps.groupby(keys):
        second = run["second"].to_numpy()
        row: dict[str, Any] = dict(zip(keys, key, strict=True)) | shape(second)
        row["end"] = seen(second)[-LAST:].max()
        row["phase"] = run["phase"].iloc[0]
        limit = (1 - setup.momentum**0.5) ** 2 / row["rate"]
        row["overdamped"] = run["trace"].iloc[-1] < limit
        rows.append(row)
    runs = pd.DataFrame(rows)
    turns = (runs["first"] < 0) & (runs["changes"] == 1) & (runs["last"] > 0)
    return runs.assign(
        wedge=runs["left"].map(wedge_name),
        turns=turns,
        drops=(runs["lowest"] < runs["first"]) & (runs["first"] < runs["highest"]),
        as_damped=turns == runs["overdamped"],
    )


def _edge(setup: ScalarSpectrum, tables: Tables) -> Tables:
    runs = edge_runs(tables["edge"])
    crosses = (runs["low"] < 1) & (runs["high"] > 1)
    runs = runs.assign(
        catapults=runs["rose"] & runs["settled"],
        climb_error=(runs["high"] / runs["factor"] - 1).abs(),
        oscillates=~runs["diverged"] & ~runs["settled"] & crosses,
    )
    return {"edge_runs": tables["edge_runs"].merge(runs, on=RUN)}


def edge_runs(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per edge run: first, highest and last loss, range of sharpness·rate/2 over the last
    steps, settled."""
    frame = frame.sort_values("step").assign(ratio=frame["sharpness"] * frame["rate"] / 2)
    rows = []
    for key, run in frame.groupby(RUN):
        tail = run.tail(TAIL)
        last_losses = tail["loss"]
        still = np.ptp(last_losses) <= 1e-6 * last_losses.mean()
        loss = run["loss"].to_numpy()
        diverged = bool((run["status"] == "diverged").any())
        row = dict(zip(RUN, key, strict=True))
        row["rose"] = bool(loss.max() > 1.01 * loss[0])
        row["low"] = tail["ratio"].min()
        row["high"] = tail["ratio"].max()
        row["diverged"] = diverged
        row["settled"] = bool(not diverged and still)
        rows.append(row)
    return pd.DataFrame(rows)


ADDED: Mapping[str, Callable[[ScalarSpectrum, Tables], Tables]] = {
    "scaling": _scaling,
    "relu_cells": _cells,
    "density": _density,
    "bias": _bias,
    "pairs": _pairs,
    "edge": _edge,
}
"""Measured table -> tables with what statements read of it."""


def counts(setup: ScalarSpectrum, tables: Tables) -> pd.DataFrame:
    """What the paper's corollary and theorem state, counted among dense eigenvalues: by seed and
    cell the multiplicity of each sign of the bulk, and the outliers."""
    rows = []
    nothing = pd.DataFrame({"seed": []})
    of_cells = tables.get("relu_cells", nothing)
    for seed, frame in of_cells.groupby("seed"):
        sizes = frame["dense"].abs()
        near = 1e-9 * sizes.max()
        for cell, part in frame.groupby("cell"):
            bulk = chosen(part, kind="bulk")["eigenvalue"].abs()
            if len(bulk):
                count = int(((sizes - bulk.iloc[0]).abs() <= near).sum())
                rows.append((cell, seed, count / 2, len(part) - count))
    of_bias = tables.get("bias", nothing)
    for seed, frame in of_bias.groupby("seed"):
        first = chosen(frame, mix=0).iloc[0]
        in_bulk = int(first["zeros"] + first["plus"] + first["minus"])
        rows.append(("bias", seed, math.nan, 3 * setup.bias_width - in_bulk))
    return pd.DataFrame(rows, columns=["cell", "seed", "bulk_multiplicity", "outliers"])
