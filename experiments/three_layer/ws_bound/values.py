"""What the searches measured, as the judge reads it.

The calibrated stop rule with the paper's activation decides, except on critical points; the printed
rule, whose learning rate the paper does not give, and further activations are variants. `mark`: the
variant, as verdicts name it; `rival`: see `Case.rival`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.three_layer.contours import contour_length
from experiments.three_layer.study import (
    CRITICAL,
    Study,
    listed_kinds,
    share_of_kinds,
    signed_rank,
)
from experiments.three_layer.ws_bound.analysis import (
    F1,
    KEYS,
    PAPER_ACTIVATION,
    Case,
    cases,
    marked_by_size,
    penalty_weights,
    polished_cases,
    where_led,
)
from runner.contract import Claim, Statement, Tables, decide
from runner.stats.claims import claim, together
from runner.stats.quantities import Functions
from runner.stats.tables import chosen

VANISHED = 1e-6
"""Share of their first value below which the errors of a path count as vanished."""
INFINITE = 1.0
"""Slack that `theorems` writes where a bound is infinite: there is nothing to test."""
BY_SEED = "fitted seed by seed"
"""The calibrated rule's few data sets, where further draws of the data decide."""
FUNCTIONS = Functions()
FUNCTIONS.remark(signed_rank)
FUNCTIONS.quantity("kind", "nearest_kind")(share_of_kinds)


# ------------------------------------------------------------------ points


@FUNCTIONS.quantity("degeneracy", "ratio")
def looseness_and_degeneracy(rows: pd.DataFrame) -> float:
    """Spearman's ρ of λ₁²/tr H², 1 for a Hessian of rank one, and λ_sup/λ₁."""
    return float(rows["degeneracy"].corr(rows["ratio"], method="spearman"))


@FUNCTIONS.remark
def trace_lowers(rows: pd.DataFrame) -> str:
    """Which of the two impacts of tr H wins at the points, at a given tr H²."""
    # D, from λ_sup + λ_inf = 2 tr H/D
    sums = rows["lambda_sup"] + rows["lambda_inf"]
    d = float(round((2 * rows["trace"] / sums).median()))
    mean = rows["trace"] / d
    std = (rows["trace_of_square"] / d - mean**2) ** 0.5
    slope = 1 - (d - 1) ** 0.5 * mean / std
    lowers = int((slope < 0).sum())
    return f"at a given tr H², a larger trace lowers the bound at {lowers} of {len(slope)} points"


@FUNCTIONS.quantity("score", "low")
def spread(rows: pd.DataFrame) -> float:
    """Standard deviation of a score of the points with a high bound over that of the others."""
    below = float(rows.loc[rows["low"], "score"].std())
    if below > 0:
        return float(rows.loc[~rows["low"], "score"].std()) / below
    return math.nan


@FUNCTIONS.quantity("score", "low")
def gain_of_medians(rows: pd.DataFrame) -> float:
    """Median score of the points with a low bound less that of the others."""
    low = rows["low"]
    return float(rows.loc[low, "score"].median() - rows.loc[~low, "score"].median())


@FUNCTIONS.remark
def kinds(rows: pd.DataFrame) -> str:
    """Where the ends of a search lead, and what the stop rule leaves."""
    by_data_set = rows.groupby("seed")
    shares = [share_of_kinds(of_seed) for _, of_seed in by_data_set]
    most = [share_of_kinds(of_seed, (*CRITICAL, "unfinished")) for _, of_seed in by_data_set]
    return (
        f"downhill: {listed_kinds(rows['kind'])}; nearest point without gradient: "
        f"{listed_kinds(rows['nearest_kind'])}; the stop rule leaves a gradient of "
        f"{rows['left'].median():.2g} in the median, {rows['left_ratio'].median():.2g} of the "
        f"first; least and largest share: {min(shares):.3g}, {max(shares):.3g}; with unfinished "
        f"searches as critical: {min(most):.3g}, {max(most):.3g}"
    )


def points_of(c: Case) -> pd.DataFrame:
    """The points of the width that most figures show."""
    rows = c.narrow
    rows = rows.assign(ratio=rows["lambda_sup"] / rows["lambda_max"], polished=c.polished)
    if c.polished:
        return rows
    return rows.assign(degeneracy=rows["lambda_max"] ** 2 / rows["trace_of_square"])


def scores_of(c: Case, drawn: bool) -> pd.DataFrame:
    """F1 of the points on every test set, and whether a point is in the group with a low bound.

    reading: the variant in words, where further draws stand for the calibrated rule's.
    """
    low = pd.concat([c.low_and_high(rows)[0] for _, rows in c.narrow.groupby("seed")]).index
    parts = []
    for size in c.experiment.dataset.test:
        mark = marked_by_size(c, size)
        reading = BY_SEED if drawn and mark == "fitted" else mark
        scores = c.narrow[["seed"]].assign(score=c.narrow[f"f1_test{size}"])
        scores = scores.assign(low=scores.index.isin(low))
        parts.append(c.marked(scores).assign(mark=mark, reading=reading))
    return pd.concat(parts)


def ends_of(c: Case) -> pd.DataFrame:
    """Where the ends of a search lead, each with the gradient that the stop rule leaves."""
    narrow = c.experiment.portrait_hidden
    rows = where_led(c.rows("polished", narrow))
    left = c.rows("gradients", narrow)[["seed", "start", "gradient", "gradient_ratio"]]
    left = left.rename(columns={"gradient": "left", "gradient_ratio": "left_ratio"})
    return rows.merge(left, on=["seed", "start"], how="left").assign(mark=_stopped(c))


def _stopped(c: Case) -> str:
    return c.mark.removesuffix(" polished")


def draws_of(table: pd.DataFrame, sizes: Iterable[int]) -> pd.DataFrame:
    """Fig. 7 with further draws of the data: mean F1, low less high, and its standard deviation,
    high less low."""
    paper = (table["stage"] == "stopped") & (table["test_samples"] == min(sizes))
    mark = "fitted draws " + table["stage"] + " " + table["test_samples"].astype(str)
    table = table.assign(mark=(mark + " test samples").mask(paper, "fitted"))
    means = table.assign(of="mean", gain=table["f1_low"] - table["f1_high"])
    spreads = table.assign(of="spread", gain=table["spread_high"] - table["spread_low"])
    return pd.concat([means, spreads], ignore_index=True)


def sharp_points(table: pd.DataFrame, weights: Iterable[float], level: float) -> pd.DataFrame:
    """A high quantile of the bound with a penalty over that without; NaN where one is missing."""
    bounds = table.groupby(["seed", "penalty"])["lambda_sup"].quantile(level).unstack()
    parts = []
    for weight in weights:
        parts.append((bounds[weight] / bounds[0.0]).reset_index(name="ratio").assign(weight=weight))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


# ------------------------------------------------------------------ single points in detail


@FUNCTIONS.quantity("lambda_sup", "lambda_max")
def following(rows: pd.DataFrame) -> float:
    """Median over the paths of the correlation of log λ_sup and log λ₁ along a path."""
    kept = rows[(rows["lambda_sup"] > 0) & (rows["lambda_max"] > 0)]
    correlations = []
    for _, part in kept.groupby("point"):
        if len(part) > 2:
            logarithms = np.log(part[["lambda_sup", "lambda_max"]])
            correlations.append(float(np.corrcoef(logarithms.T)[0, 1]))
    return float(pd.Series(correlations, dtype=float).median())


@FUNCTIONS.quantity("over_start")
def middle_of_largest(rows: pd.DataFrame) -> float:
    """The largest bound on the way over that at the start, the median over data sets."""
    return float(rows.groupby("seed")["over_start"].max().median())


@FUNCTIONS.quantity("over_start")
def middle_of_ends(rows: pd.DataFrame) -> float:
    """The bound at the end over that at the start, the median over data sets."""
    return float(_ends(rows).median())


@FUNCTIONS.remark
def bounds_on_the_way(rows: pd.DataFrame) -> str:
    """The bound over that at the start, of each data set."""
    ends = ", ".join(f"{value:.3g}" for value in _ends(rows))
    largest = ", ".join(f"{v:.3g}" for v in rows.groupby("seed")["over_start"].max())
    return f"bound at the end over the start {ends}, the largest on the way {largest}"


def _ends(rows: pd.DataFrame) -> pd.Series[float]:
    return rows.sort_values("step").groupby("seed")["over_start"].last()


def paths_of(c: Case) -> pd.DataFrame:
    """The bound along the descents, over_start: over that at the start."""
    rows = c.rows("trajectories").sort_values("step")
    first = rows.groupby(["seed", "point"])["lambda_sup"].transform("first")
    return rows.assign(over_start=rows["lambda_sup"] / first)


@FUNCTIONS.quantity("alpha")
def rise_sharp_over_flat(rows: pd.DataFrame) -> float:
    """Of the loss along the eigenvectors."""
    return _sharp_over_flat(rows, largest_rise)


@FUNCTIONS.quantity("x1", "x2")
def boundary_sharp_over_flat(rows: pd.DataFrame) -> float:
    """Of the length of the decision boundary."""
    return _sharp_over_flat(rows, boundary_length)


def _sharp_over_flat(rows: pd.DataFrame, size: Callable[[pd.DataFrame, str], float]) -> float:
    """Mean size over the sharpest points, over that of the flattest; NaN where one side has
    none."""
    means = []
    for side in ("sharpest", "flattest"):
        sizes = []
        for name in rows:
            if name.startswith(side) and rows[name].notna().all():
                sizes.append(size(rows, name))
        means.append(sum(sizes) / len(sizes) if sizes else math.nan)
    if means[1] > 0:
        return means[0] / means[1]
    return math.nan


def largest_rise(rows: pd.DataFrame, column: str) -> float:
    """L(θ* + α u_d) − L(θ*) at the ends of the lines, the largest over directions and sides."""
    reach = rows["alpha"].abs().max()
    middle = rows["alpha"].abs().min()
    ends = rows.loc[rows["alpha"].abs() == reach, column].max()
    inner = rows.loc[rows["alpha"].abs() == middle, column]
    return float(ends - inner.mean())


def boundary_length(rows: pd.DataFrame, column: str) -> float:
    """Euclidean length of the decision boundary in the stored square, in units of the input."""
    import torch

    grid = rows.pivot(index="x2", columns="x1", values=column)
    columns = grid.columns
    step = float(columns[1] - columns[0])
    return step * float(contour_length(torch.from_numpy(grid.to_numpy(float, copy=True))))


# ------------------------------------------------------------------ without a draw of data


@FUNCTIONS.decision(
    "without a point to test, or with an infinite bound, a variant is not run; what decides is "
    "'up to rounding', a count that the measurement makes"
)
def at_every_point(says: Statement, tables: Tables) -> Claim:
    """An inequality at the points of every variant, over its widths, rates and data sets."""
    table = tables.get("theorems", pd.DataFrame())
    if table.empty:
        return claim(says, "not run", detail="no point to test")
    claims = {}
    for mark, rows in table.groupby("mark", sort=False):
        claims[str(mark)] = _inequality(says, str(mark), rows)
    return together(claims)


def _inequality(says: Statement, mark: str, rows: pd.DataFrame) -> Claim:
    threshold = "slack >= 0 up to rounding"
    tested = rows[(rows["inequality"] == says.name) & (rows["points"] > 0)]
    points = int(tested["points"].sum())
    holding = int(tested["holding"].sum())
    if not points or (tested["slack_min"] == INFINITE).all():
        why = "the bound is infinite for this activation" if points else "no point to test"
        return claim(says, "not run", detail=why, threshold=threshold)
    slack = float(tested["slack_min"].min())
    detail = (
        f"{mark}: holds at {holding} of {points} points; slack (bound - value) / bound at least "
        f"{slack:.3g}, typically {tested['slack_median'].median():.3g}"
    )
    if says.name == "Theorem 4":
        detail += f"; {_constants(str(tested['activation'].iloc[0]))}"
    if says.name == "Prop. 8, right":
        every = int(chosen(rows, inequality="Prop. 8, left")["points"].sum())
        detail += (
            f"; only {points} of {every} points where the search stops are positive semi-definite"
        )
    return claim(says, decide(holding == points), slack, detail, threshold=threshold)


def _constants(activation: str) -> str:
    """The constants that Theorem 4 was tested with."""
    from runner.closed_form.three_layer.model import get_activation

    known = get_activation(activation)
    text = f"with ζ₁ = sup f'² = {known.sup_slope**2:.6g} and ζ₂ = sup |f''| = {known.sup_bend:.6g}"
    if activation == "gelu":
        return f"{text}; the printed ζ₁ = 1.272 is below the true constant"
    return text


@FUNCTIONS.quantity("gap")
def largest_gap(rows: pd.DataFrame) -> float:
    """Of bound and eigenvalue, where the condition is met."""
    return float(chosen(rows, condition=1)["gap"].max())


@FUNCTIONS.remark
def attained(rows: pd.DataFrame) -> str:
    """Spectra and networks that attain the bound, and those that do not."""
    from experiments.printed import statements

    near = rows["gap"] <= statements("ws_bound")["Prop. 1"].high
    others = rows["condition"] == 0
    text = f"{int((~others).sum())} constructed spectra and networks of rank one"
    apart = rows.loc[others & ~near, "case"].unique()
    if len(apart):
        text += f"; not attained by: {', '.join(apart)}"
    also = rows.loc[others & near, "case"].unique()
    if len(also):
        text += f"; sufficient but not necessary, also attained by: {', '.join(also)}"
    return text


@FUNCTIONS.quantity("lambda_sup", "error_max")
def largest_end(rows: pd.DataFrame) -> float:
    """λ_sup at the end over its largest value, of the paths on which the errors vanish."""
    return max(_path_ends(rows), default=math.nan)


@FUNCTIONS.remark
def paths(rows: pd.DataFrame) -> str:
    """How many paths count."""
    return f"{len(_path_ends(rows))} paths"


def _path_ends(rows: pd.DataFrame) -> list[float]:
    ends = []
    for _, part in rows.groupby(["hidden", "rate", "seed"], sort=True):
        ordered = part.sort_values("error_max", ascending=False)
        errors = ordered["error_max"]
        if errors.iloc[-1] < VANISHED * min(1.0, errors.iloc[0]):
            ends.append(float(ordered["lambda_sup"].iloc[-1] / ordered["lambda_sup"].max()))
    return ends


@FUNCTIONS.remark
def errors_of_hessians(rows: pd.DataFrame) -> str:
    """How far the differences are from the Hessian."""
    return (
        f"{len(rows)} points; mean ||ΔH|| {rows['hessian_error'].mean():.3g}, the error of the "
        "differences"
    )


@FUNCTIONS.remark
def number_of_points(rows: pd.DataFrame) -> str:
    """How many points there are."""
    return f"{len(rows)} points"


@FUNCTIONS.remark
def counts(rows: pd.DataFrame) -> str:
    """What the calibrated search finds, by width."""
    listed = []
    for width, row in rows.groupby("hidden")[["converged", "unique"]].mean().iterrows():
        found = f"{row['converged']:.0f} converge, {row['unique']:.0f} unique"
        listed.append(f"N = {width}: {found}")
    return f"fitted, mean over data sets: {'; '.join(listed)}"


def hessians_of(c: Case) -> pd.DataFrame:
    """The points whose numerical Hessian was taken, with the relative error of the Hessian."""
    points = c.points
    relative = points["hessian_error"] / points["trace_of_square"] ** 0.5
    return points.assign(relative=relative).dropna(subset=["relative"])


def traces_of(c: Case) -> pd.DataFrame:
    """The larger relative error of the numerical traces of H and H²."""
    if "traces" not in c.tables:
        return pd.DataFrame()
    both = c.rows("traces").merge(c.points, on=KEYS)
    pairs = [both[f"{n}_numerical"] / both[n] - 1 for n in ("trace", "trace_of_square")]
    return both.assign(relative=pd.concat(pairs, axis=1).abs().max(axis=1))


# ------------------------------------------------------------------ tables


def judged(analysis: Study, tests: pd.DataFrame) -> Tables:
    """The tables that statements read."""
    tables = analysis.tables
    experiment: Any = analysis.experiment
    drawn = "draws" in tables
    stopped = cases(analysis)
    polished = polished_cases(analysis)
    with_points = [case for case in (*stopped, *polished) if len(case.narrow)]
    seen = [case for case in with_points if not case.polished]

    def joined(which: Iterable[Case], read: Callable[[Case], pd.DataFrame]) -> pd.DataFrame:
        parts = [(case, read(case)) for case in which]
        marked = [case.marked(rows) for case, rows in parts if len(rows)]
        return pd.concat(marked, ignore_index=True) if marked else pd.DataFrame()

    def rows_of(name: str) -> Callable[[Case], pd.DataFrame]:
        return lambda case: case.rows(name, every_rate=True)

    scores = [scores_of(case, drawn) for case in with_points]
    ends = [ends_of(case) for case in with_points if case.polished]
    theorems = [joined(stopped, rows_of("theorems"))]
    theorems.append(joined(polished, rows_of("theorems_polished")))
    found = {
        "points": joined(with_points, points_of),
        "scores": pd.concat(scores, ignore_index=True) if scores else pd.DataFrame(),
        "ends": pd.concat(ends, ignore_index=True) if ends else pd.DataFrame(),
        "paths": joined(seen, paths_of) if "trajectories" in tables else pd.DataFrame(),
        "landscapes": joined(seen, lambda case: case.rows("landscapes")),
        "boundaries": joined(seen, lambda case: case.rows("boundaries")),
        "theorems": pd.concat(theorems, ignore_index=True),
        "equality": joined(stopped, rows_of("equality")),
        "limits": joined(stopped, rows_of("limits")),
        "hessians": joined(stopped, hessians_of),
        "traces": joined(stopped, traces_of),
        "tests": tests,
    }
    if len(found["equality"]):
        equality = found["equality"]
        gap = (equality["lambda_sup"] / equality["lambda_max"] - 1).abs()
        found["equality"] = equality.assign(gap=gap)
    if "search" in tables:
        fitted = {"protocol": "fitted", "activation": PAPER_ACTIVATION}
        found["search"] = chosen(tables["search"], **fitted)
    if drawn:
        found["draws"] = draws_of(tables["draws"], experiment.dataset.test)
        if len(tests):
            few = tests["compared"].eq(F1) & tests["mark"].eq("fitted")
            found["tests"] = tests.assign(mark=tests["mark"].mask(few, BY_SEED))
    if "penalised" in tables:
        weights = penalty_weights(tables)
        found["sharp_points"] = sharp_points(tables["penalised"], weights, experiment.low_share)
    return {name: table for name, table in found.items() if len(table)}


def counted(of_paper: Sequence[Case]) -> Tables:
    """What printed numbers count. both_widths: the points of both widths, which Fig. 9 employs;
    groups: those of one width, with a low bound or a high one; entries: of Hessians, with the
    number of the row from 1."""
    parts: dict[str, list[pd.DataFrame]] = {"both_widths": [], "groups": [], "entries": []}
    for case in of_paper:
        parts["both_widths"].append(case.points)
        for _, rows in case.narrow.groupby("seed"):
            low = rows.index.isin(case.low_and_high(rows)[0].index)
            parts["groups"].append(rows.assign(low=low, high=~low))
        entries = case.rows("hessian_entries", case.experiment.portrait_hidden)
        if len(entries):
            parts["entries"].append(entries.assign(number=entries["row"] + 1))
    return {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items() if tables}
