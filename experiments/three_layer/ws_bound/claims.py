"""The paper's statements as claims: those about data, decided data set by data set, then the exact
ones.

One row for each statement. The fitted protocol with the paper's activation decides, except on
critical points; the printed stop rule, whose learning rate the paper does not give, and further
activations are variants. A statement that one stop rule confirms and the other refutes is not
comparable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from experiments.printed import statements
from experiments.three_layer.contours import contour_length
from experiments.three_layer.study import Made, Tests, decided_by_draws, listed_kinds, over_draws
from experiments.three_layer.ws_bound.analysis import (
    PAPER_ACTIVATION,
    Case,
    polished_variants,
    split_low_high,
    variants,
    where_led,
)
from experiments.three_layer.ws_bound.exact_claims import exact_claims, inequalities
from experiments.three_layer.ws_bound.settings import WsBound
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.judge import by_seed
from runner.stats.tables import chosen

NO_RELATION = "ws.fig10, class B"
"""Root cause, in the errata, of the sentence on the norm of W in Fig. 10."""


def claims(experiment: WsBound, tables: Tables, tests: Tests) -> list[Claim]:
    """One claim per statement, with what became of it under every variant."""
    says = statements("ws_bound")
    found: list[tuple[str, Claim]] = []
    exact: list[tuple[str, Claim]] = []
    for variant in [*variants(experiment, tables), *polished_variants(experiment, tables)]:
        case = Case(experiment, variant, tables, tests, says)
        if not case.narrow.empty:
            for make in _OF_POLISHED if variant.polished else _OF_STOPPED:
                found += make(case)
        made = inequalities(case, "theorems_polished") if variant.polished else exact_claims(case)
        exact += [(variant.mark, claim) for claim in made]
    found = decided_by_draws(found, list(_over_draws(experiment, tables, says)))
    rows = [of_the_fit_alone(row) for row in judge.gathered(found, main="fitted")]
    printed = judge.gathered(
        [(m, made) for m, made in found if made.name == "critical points"], main="printed"
    )
    by_name = {row.name: row for row in [*rows, *printed]}
    if "W norm" in by_name:
        by_name["W norm"] = judge.minor_error(by_name["W norm"], NO_RELATION)
    rows = [by_name[row.name] for row in rows]
    return [*rows, *_counts(tables, says), *judge.gathered(exact)]


def of_the_fit_alone(claim: Claim) -> Claim:
    """A statement that one stop rule confirms and the other refutes is not comparable: a fit is no
    evidence.
    """
    printed = claim.variants.get("printed", claim.verdict)
    if {claim.verdict, printed} != {"confirmed", "refuted"}:
        return claim
    why = (
        f"{claim.verdict} under the calibrated stop rule, {printed} under the printed one; the "
        "paper prints no rate"
    )
    return replace(
        claim, verdict="not comparable", detail=f"{claim.detail}; {why}", seeds_needed=math.nan
    )


def _sharpness(c: Case) -> Made:
    ratio = by_seed(
        c.narrow, lambda rows: float((rows["lambda_sup"] / rows["lambda_max"]).median())
    )
    yield c.mark, c.evidence.compared(replace(c.says["tightness"], high=c.experiment.tight), ratio)
    skew = by_seed(c.narrow, lambda rows: float(rows["lambda_sup"].skew()))
    yield c.mark, c.evidence.compared(c.says["right skew"], skew)


def _sizes(c: Case) -> list[tuple[str, int]]:
    """(mark, test samples), the paper's number first."""
    sizes = sorted(c.experiment.dataset.test)
    return [
        (c.mark if i == 0 else f"{c.mark}, {size} test samples", size)
        for i, size in enumerate(sizes)
    ]


def _generalisation(c: Case) -> Made:
    for name, size in _sizes(c):
        yield (
            name,
            c.evidence.tested(
                c.says["low bound generalises better"], f"F1 on {size}, low - high", sign=1
            ),
        )

        def spread(rows: pd.DataFrame, size: int = size) -> float:
            low, high = split_low_high(rows, c.experiment.low_share)
            below = float(low[f"f1_test{size}"].std())
            return float(high[f"f1_test{size}"].std()) / below if below > 0 else math.nan

        yield name, c.evidence.compared(c.says["sharp points vary more"], by_seed(c.narrow, spread))

        def middle(rows: pd.DataFrame, size: int = size) -> float:
            low, high = split_low_high(rows, c.experiment.low_share)
            return (
                float(low[f"f1_test{size}"].median() - high[f"f1_test{size}"].median()) or math.nan
            )  # NaN: a tie

        yield name, c.evidence.compared(c.says["lower median score"], by_seed(c.narrow, middle))


def _critical(c: Case) -> Made:
    """Whether the ends are critical points: what polishing makes of them, downhill or to the
    nearest one.

    The printed stop ratio decides; degenerate points count, since their gradient is zero too.
    """
    rows = c.variant.rows(where_led(c.tables), c.experiment.portrait_hidden)
    critical = ("minimum", "saddle", "degenerate")

    def share(of: pd.DataFrame, kinds: Sequence[str] = critical) -> float:
        return float((of["kind"].isin(kinds) | of["nearest_kind"].isin(kinds)).mean())

    says = replace(c.says["critical points"], low=c.experiment.share)
    shares, most = (
        by_seed(rows, share),
        by_seed(rows, partial(share, kinds=(*critical, "unfinished"))),
    )
    found = c.evidence.compared(says, shares, f"share of the ends >= {c.experiment.share:g}")
    left = c.variant.rows(c.tables["gradients"], c.experiment.portrait_hidden)
    left = left.merge(rows[["seed", "start"]], on=["seed", "start"])
    detail = f"downhill: {listed_kinds(rows['kind'])}; nearest point without gradient: "
    detail += f"{listed_kinds(rows['nearest_kind'])}; the stop rule leaves a gradient of "
    detail += (
        f"{left['gradient'].median():.2g} in the median, {left['gradient_ratio'].median():.2g} of "
        "the first"
    )
    detail += (
        f"; least and largest share: {min(shares.values()):.3g}, {max(shares.values()):.3g}; with "
        "unfinished "
    )
    detail += f"searches as critical: {min(most.values()):.3g}, {max(most.values()):.3g}"
    yield (
        replace(c.variant, polished=False).mark,
        replace(found, detail=f"{found.detail}; {detail}"),
    )


def _over_draws(experiment: WsBound, tables: Tables, says: Mapping[str, Statement]) -> Made:
    """The statements of Fig. 7 with further draws of the data in the place of the fitted protocol's
    few data sets.
    """
    if "draws" not in tables:
        return
    for (stage, size), rows in tables["draws"].groupby(["stage", "test_samples"], sort=True):
        first = stage == "stopped" and size == min(experiment.dataset.test)
        name = "fitted" if first else f"fitted draws {stage} {size} test samples"
        gain, spread = rows["f1_low"] - rows["f1_high"], rows["spread_high"] - rows["spread_low"]
        unit = f"mean F1 on {size} test samples, low less high"
        draws = len(rows) // rows["seed"].nunique()
        better, vary = says["low bound generalises better"], says["sharp points vary more"]
        yield name, over_draws(better, gain.tolist(), unit, per_seed=draws)
        unit = f"std of F1 on {size} test samples, high less low"
        yield name, over_draws(vary, spread.tolist(), unit, per_seed=draws)


def _norms(c: Case) -> Made:
    yield c.mark, c.evidence.tested(c.says["V norm"], "V_norm_sq and bound", sign=1)
    yield c.mark, c.evidence.unrelated(c.says["W norm"], "W_norm_sq and bound")
    yield (
        c.mark,
        c.evidence.tested(
            c.says["hidden Gram norm"], "lower edge of bound over RtR_norm_sq", sign=1
        ),
    )


def _widths(c: Case) -> Made:
    wide, narrow = c.experiment.compared_hidden, c.experiment.portrait_hidden
    if wide in set(c.points["hidden"]):
        test = f"bound, N={wide} - N={narrow}"
        yield c.mark, c.evidence.tested(c.says["width matters"], test, sign=0)
        yield c.mark, c.evidence.tested(c.says["width sharpens"], test, sign=1)


def _paths(c: Case) -> Made:
    paths = c.variant.rows(c.tables["trajectories"]) if "trajectories" in c.tables else None
    if paths is None or paths.empty:
        return

    def over_start(rows: pd.DataFrame) -> pd.Series:
        """The bound along the way over that at the start."""
        bound = rows.sort_values("step")["lambda_sup"]
        return bound / bound.iloc[0]

    yield (
        c.mark,
        c.evidence.compared(c.says["bound follows eigenvalue"], by_seed(paths, _following)),
    )
    for name, point in (
        ("bound rises on the way to the sharpest point", "sharpest_1"),
        ("bound does not rise on the way to the flattest point", "flattest_1"),
    ):
        own = chosen(paths, point=point)
        ends = by_seed(own, lambda rows: float(over_start(rows).iloc[-1]))
        tops = by_seed(own, lambda rows: float(over_start(rows).max()))
        if point == "sharpest_1":
            why = (
                "the path is the one of some 330 with the largest bound at its end; bound at the "
                "end over the start "
            )
            yield (
                c.mark,
                judge.constructed(c.says[name], why + ", ".join(f"{v:.3g}" for v in ends.values())),
            )
        else:  # the paper says that the loss falls without a rise of the bound: no step may rise
            yield c.mark, c.evidence.compared(c.says[name], tops)
            yield f"{c.mark} at the end", c.evidence.compared(c.says[name], ends)


def _following(rows: pd.DataFrame) -> float:
    """Median over the paths of the correlation of log λ_sup and log λ₁ along a path."""
    kept = rows[(rows["lambda_sup"] > 0) & (rows["lambda_max"] > 0)]
    found = [
        float(np.corrcoef(np.log(part["lambda_sup"]), np.log(part["lambda_max"]))[0, 1])
        for _, part in kept.groupby("point")
        if len(part) > 2
    ]
    return float(pd.Series(found, dtype=float).median())


def _counts(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """The published counts are rows of the scorecard; no learning rate is printed, and one was
    fitted to them.
    """
    if "search" not in tables:
        return
    rows = tables["search"]
    fitted = chosen(rows, protocol="fitted", activation=PAPER_ACTIVATION)
    if fitted.empty:
        return
    means = fitted.groupby("hidden")[["converged", "unique"]].mean()
    listed = "; ".join(
        f"N = {n}: {r['converged']:.0f} converge, {r['unique']:.0f} unique"
        for n, r in means.iterrows()
    )
    detail = (
        f"fitted, mean over data sets: {listed}; no learning rate is printed and this protocol's "
        "was chosen by "
    )
    yield judge.claim(
        says["published counts"],
        "not comparable",
        detail=detail + "these counts: see the scorecard",
    )


def _views(c: Case) -> Made:
    """Figs. 3 and 4: the two sharpest points of a data set against its two flattest."""
    for name, table, size in (
        ("sharply peaked", "landscapes", largest_rise),
        ("distorted boundaries", "boundaries", boundary_length),
    ):
        rows = c.variant.rows(c.tables[table]) if table in c.tables else None
        if rows is not None and len(rows):
            yield (
                c.mark,
                c.evidence.compared(
                    c.says[name], by_seed(rows, partial(_sharp_over_flat, size=size))
                ),
            )


def _sharp_over_flat(rows: pd.DataFrame, size: Callable[[pd.DataFrame, str], float]) -> float:
    """Mean size over the sharpest points, over that of the flattest; NaN where one side has
    none."""
    means = []
    for side in ("sharpest", "flattest"):
        found = [
            size(rows, column)
            for column in rows
            if column.startswith(side) and rows[column].notna().all()
        ]
        means.append(sum(found) / len(found) if found else math.nan)
    return means[0] / means[1] if means[1] > 0 else math.nan


def largest_rise(rows: pd.DataFrame, column: str) -> float:
    """L(θ* + α u_d) − L(θ*) at the ends of the lines, the largest over directions and sides."""
    reach, middle = rows["alpha"].abs().max(), rows["alpha"].abs().min()
    ends = rows.loc[rows["alpha"].abs() == reach, column].max()
    return float(ends - rows.loc[rows["alpha"].abs() == middle, column].mean())


def boundary_length(rows: pd.DataFrame, column: str) -> float:
    """Euclidean length of the decision boundary in the stored square, in units of the input."""
    import torch

    grid = rows.pivot(index="x2", columns="x1", values=column)
    step = float(grid.columns[1] - grid.columns[0])
    return step * float(contour_length(torch.from_numpy(grid.to_numpy(float, copy=True))))


def _form(c: Case) -> Made:
    """After Proposition 1 and in Section VI: how the bound hangs on the degeneracy and on the
    traces.
    """
    yield (
        c.mark,
        c.evidence.compared(
            c.says["tighter the more degenerate"], by_seed(c.narrow, _looseness_and_rank)
        ),
    )
    yield c.mark, _trace(c)
    why = (
        "at a given trace the bound is μ + √(D − 1) σ with σ² = tr H²/D − μ²: it rises with tr H² "
        "wherever σ > 0"
    )
    yield c.mark, judge.constructed(c.says["squared trace raises the bound"], why)
    why = (
        "Chebyshev's inequality alone bounds the largest of D values by μ + √D σ, and √(D − 1) < √D"
    )
    yield c.mark, judge.constructed(c.says["tighter than Chebyshev's"], why)


def _looseness_and_rank(rows: pd.DataFrame) -> float:
    """Spearman's ρ of λ₁²/tr H², 1 for a Hessian of rank one, and λ_sup/λ₁."""
    degenerate = rows["lambda_max"] ** 2 / rows["trace_of_square"]
    return float(degenerate.corr(rows["lambda_sup"] / rows["lambda_max"], method="spearman"))


def _trace(c: Case) -> Claim:
    """tr H raises μ and lowers σ whatever the network; which of the two wins at the points, at a
    given tr H².
    """
    d = _parameters(c.narrow)
    mean = c.narrow["trace"] / d
    slope = 1 - (d - 1) ** 0.5 * mean / (c.narrow["trace_of_square"] / d - mean**2) ** 0.5
    why = (
        "it raises μ and lowers σ; together, at a given tr H², a larger trace lowers the bound at "
    )
    return judge.constructed(
        c.says["trace acts both ways"], f"{why}{int((slope < 0).sum())} of {len(slope)} points"
    )


def _parameters(rows: pd.DataFrame) -> float:
    """D, from λ_sup + λ_inf = 2 tr H/D."""
    return float(round((2 * rows["trace"] / (rows["lambda_sup"] + rows["lambda_inf"])).median()))


_OF_STOPPED = (_sharpness, _generalisation, _norms, _widths, _paths, _views, _form)
_OF_POLISHED = (_critical, _sharpness, _generalisation, _widths)
"""Makers of claims, in the order of the rows."""
