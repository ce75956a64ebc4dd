"""The paper's statements as claims: those about data, decided data set by data set, then the exact
ones.

One row for each statement. The fitted protocol with the paper's activation decides, except on
critical points; the printed stop rule, whose learning rate the paper does not give, and further
activations are variants. A statement that one stop rule confirms and the other refutes is not
comparable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pandas as pd

from experiments.three_layer.study import (
    CRITICAL,
    Made,
    Reading,
    Study,
    column,
    decided_by_draws,
    listed_kinds,
    over_draws,
    share_of_kinds,
)
from experiments.three_layer.ws_bound.analysis import (
    PAPER_ACTIVATION,
    Case,
    cases,
    of_penalty,
    penalty_weights,
    polished_cases,
    scanned_cases,
    split_low_high,
    where_led,
)
from experiments.three_layer.ws_bound.exact_claims import exact_claims, inequalities
from experiments.three_layer.ws_bound.portrait_claims import paths, views
from runner.contract import Claim
from runner.stats import judge
from runner.stats.claims import finding_of
from runner.stats.judge import by_seed
from runner.stats.tables import chosen

NO_RELATION = "ws.fig10, class B"
"""Root cause, in the errata, of the sentence on the norm of W in Fig. 10."""


def claims(analysis: Study) -> Iterator[Claim]:
    """One claim per statement, with what became of it under every variant."""
    of_variants: list[tuple[str, Claim]] = []
    exact = []
    every = [*cases(analysis), *polished_cases(analysis)]
    for case in every:
        if not case.narrow.empty:
            for make in _OF_POLISHED if case.polished else _OF_STOPPED:
                of_variants += make(case)
        made = inequalities(case, "theorems_polished") if case.polished else exact_claims(case)
        exact += [(case.mark, claim) for claim in made]
    for case in every:
        if case.mark == "fitted":
            of_variants.append((case.mark, _penalty(case)))
    for case in scanned_cases(analysis):
        of_variants += [*_norms(case), *_widths(case)]
    drawn = list(_over_draws(analysis))
    printed = next((c for c in every if c.mark == "printed"), None)
    of_variants = decided_by_draws(of_variants, drawn)
    critical = [(mark, claim) for mark, claim in of_variants if claim.name == "critical points"]
    as_printed = {row.name: row for row in judge.gathered(critical, main="printed")}
    for row in judge.gathered(of_variants, main="fitted"):
        decided = as_printed.get(row.name, of_the_fit_alone(row, printed))
        if row.name == "W norm":
            decided = judge.minor_error(decided, NO_RELATION)
        yield decided
    yield from _counts(analysis)
    yield from judge.gathered(exact)


def of_the_fit_alone(claim: Claim, printed: Case | None) -> Claim:
    """A statement that one stop rule confirms and the other refutes is not comparable: a fit is no
    evidence.

    The printed rule counts only at a rate that gives points like the paper's: Fig. 9 shows how
    large their traces are.
    """
    other = claim.variants.get("printed", claim.verdict)
    if printed is None or {claim.verdict, other} != {"confirmed", "refuted"}:
        return claim
    if not printed.reaches_fig9:
        trace, square = printed.largest_traces
        why = (
            f"the printed stop rule at a rate of {printed.rate:g} does not count: its largest "
            f"traces of H and H² are {trace:.3g} and {square:.3g}, and the axes of Fig. 9 reach "
            f"{printed.experiment.trace_axis:g} and {printed.experiment.square_axis:g}"
        )
        return replace(claim, detail=f"{claim.detail}; {why}")
    why = (
        f"{claim.verdict} under the calibrated stop rule, {other} under the printed one; the "
        "paper prints no rate"
    )
    return replace(
        claim, verdict="not comparable", detail=f"{claim.detail}; {why}", seeds_needed=math.nan
    )


def _sharpness(c: Case) -> Made:
    ratio = c.narrow["lambda_sup"] / c.narrow["lambda_max"]
    points = c.narrow.assign(ratio=ratio)
    median = column("ratio", "median")
    yield c.mark, c.compared("tightness", points, median, high=c.experiment.tight)
    skew = column("lambda_sup", "skew")
    yield c.mark, c.compared("right skew", points, skew)


def _generalisation(c: Case) -> Made:
    """Fig. 7, on each test set; the paper's size first."""
    sizes = sorted(c.experiment.dataset.test)
    for k, size in enumerate(sizes):
        mark = f"{c.mark}, {size} test samples" if k else c.mark
        test = f"F1 on {size}, low - high"
        yield mark, c.tested("low bound generalises better", test, sign=1)
        about = {"score": f"f1_test{size}", "low_share": c.experiment.low_share}
        spread = partial(_spread, **about)
        yield mark, c.compared("sharp points vary more", c.narrow, spread)
        yield mark, _lower_median(c, partial(_gain, **about))


def _spread(rows: pd.DataFrame, score: str, low_share: float) -> float:
    """Standard deviation of a score of the points with a high bound over that of the others."""
    low, high = split_low_high(rows, low_share)
    below = float(low[score].std())
    if below > 0:
        return float(high[score].std()) / below
    return math.nan


def _gain(rows: pd.DataFrame, score: str, low_share: float) -> float:
    """Median score of the points with a low bound less that of the others."""
    low, high = split_low_high(rows, low_share)
    return float(low[score].median() - high[score].median())


def _lower_median(c: Case, gain: Reading) -> Claim:
    """Decided by the data sets in which the medians differ: a tie says nothing for either."""
    statement = c.statement("lower median score")
    gains = by_seed(c.narrow, gain)
    findings = {
        seed: finding_of(value, statement) if value else "inconclusive"
        for seed, value in gains.items()
    }
    listed = ", ".join(f"{value:.3g}" for value in gains.values())
    return c.evidence.claim(statement, findings, gains, statement.threshold, f"values {listed}")


def _critical(c: Case) -> Made:
    """Whether the ends are critical points: what polishing makes of them, downhill or to the
    nearest one.

    The printed stop ratio decides; degenerate points count, since their gradient is zero too.
    """
    least = c.experiment.share
    narrow = c.experiment.portrait_hidden
    rows = where_led(c.rows("polished", narrow))
    threshold = f"share of the ends >= {least:g}"
    made = c.compared("critical points", rows, share_of_kinds, threshold, low=least)
    searched = rows[["seed", "start"]]
    left = c.rows("gradients", narrow).merge(searched, on=["seed", "start"])
    shares = by_seed(rows, share_of_kinds).values()
    with_unfinished = partial(share_of_kinds, kinds=(*CRITICAL, "unfinished"))
    most = by_seed(rows, with_unfinished).values()
    detail = (
        f"{made.detail}; downhill: {listed_kinds(rows['kind'])}; nearest point without gradient: "
        f"{listed_kinds(rows['nearest_kind'])}; the stop rule leaves a gradient of "
        f"{left['gradient'].median():.2g} in the median, {left['gradient_ratio'].median():.2g} of "
        f"the first; least and largest share: {min(shares):.3g}, {max(shares):.3g}; with "
        f"unfinished searches as critical: {min(most):.3g}, {max(most):.3g}"
    )
    of_stopped = replace(c, polished=False)
    yield of_stopped.mark, replace(made, detail=detail)


def _over_draws(analysis: Study) -> Made:
    """The statements of Fig. 7 with further draws of the data in the place of the fitted protocol's
    few data sets.
    """
    if "draws" not in analysis.tables:
        return
    sizes = analysis.experiment.dataset.test
    table = analysis.tables["draws"]
    by_stage = table.groupby(["stage", "test_samples"], sort=True)
    for (stage, size), rows in by_stage:
        name = f"fitted draws {stage} {size} test samples"
        if stage == "stopped" and size == min(sizes):
            name = "fitted"
        of_seed = len(rows) // rows["seed"].nunique()
        for statement, values, unit in (
            (
                "low bound generalises better",
                rows["f1_low"] - rows["f1_high"],
                f"mean F1 on {size} test samples, low less high",
            ),
            (
                "sharp points vary more",
                rows["spread_high"] - rows["spread_low"],
                f"std of F1 on {size} test samples, high less low",
            ),
        ):
            says = analysis.says[statement]
            claim = over_draws(says, values.tolist(), unit, per_seed=of_seed)
            yield name, claim


def _norms(c: Case) -> Made:
    of_outputs = c.tested("V norm", "V_norm_sq and bound", sign=1)
    yield c.mark, of_outputs
    of_inputs = c.evidence.unrelated(c.statement("W norm"), "W_norm_sq and bound")
    yield c.mark, of_inputs


def _penalty(c: Case) -> Claim:
    """Section VI: neither the weight of the penalty nor the points of which the sentence speaks are
    printed, so that what holds for some and not for others is not comparable."""
    name = "suppressing V"
    claims = {}
    for weight in penalty_weights(c.tables):
        claims[f"all points, weight {weight:g}"] = c.tested(name, of_penalty(weight), sign=-1)
        sharp = partial(_sharpest, weight=weight, level=c.experiment.low_share)
        table = c.tables["penalised"]
        claims[f"sharp points, weight {weight:g}"] = c.compared(
            name, table, sharp, high=1.0, strict=True
        )
    if not claims:
        return judge.claim(c.statement(name), "not run", detail="no penalty is stored")
    made = judge.together(claims)
    if not {"confirmed", "refuted"} <= set(made.variants.values()):
        return made
    listed = ", ".join(f"{part} {verdict}" for part, verdict in made.variants.items())
    why = f"the paper prints neither weight nor of which points it speaks: {listed}"
    return replace(
        made, verdict="not comparable", detail=f"{why}; {made.detail}", seeds_needed=math.nan
    )


def _sharpest(rows: pd.DataFrame, weight: float, level: float) -> float:
    """A high quantile of the bound with a penalty over that without; NaN where one is missing."""
    bounds = rows.groupby("penalty")["lambda_sup"].quantile(level)
    return float(bounds.get(weight, math.nan) / bounds.get(0.0, math.nan))


def _gram(c: Case) -> Made:
    of_gram = c.tested("hidden Gram norm", "lower edge of bound over RtR_norm_sq", sign=1)
    yield c.mark, of_gram


def _widths(c: Case) -> Made:
    wide = c.experiment.compared_hidden
    narrow = c.experiment.portrait_hidden
    if wide in set(c.points["hidden"]):
        test = f"bound, N={wide} - N={narrow}"
        differs = c.tested("width matters", test, sign=0)
        yield c.mark, differs
        sharpens = c.tested("width sharpens", test, sign=1)
        yield c.mark, sharpens


def _counts(analysis: Study) -> Iterator[Claim]:
    """The published counts are rows of the scorecard; no learning rate is printed, and one was
    fitted to them.
    """
    nothing = pd.DataFrame()
    search = analysis.tables.get("search", nothing)
    fitted = chosen(search, protocol="fitted", activation=PAPER_ACTIVATION)
    if fitted.empty:
        return
    listed = []
    by_width = fitted.groupby("hidden")[["converged", "unique"]]
    for width, row in by_width.mean().iterrows():
        listed.append(f"N = {width}: {row['converged']:.0f} converge, {row['unique']:.0f} unique")
    detail = (
        f"fitted, mean over data sets: {'; '.join(listed)}; no learning rate is printed and this "
        "protocol's was chosen by these counts: see the scorecard"
    )
    statement = analysis.says["published counts"]
    yield judge.claim(statement, "not comparable", detail=detail)


def _form(c: Case) -> Made:
    """After Proposition 1 and in Section VI: how the bound hangs on the degeneracy and on the
    traces.
    """
    looseness = c.compared("tighter the more degenerate", c.narrow, _looseness_and_rank)
    yield c.mark, looseness
    yield c.mark, _trace(c)
    for name, why in OF_THE_FORM.items():
        statement = c.statement(name)
        yield c.mark, judge.constructed(statement, why)


OF_THE_FORM = {
    "squared trace raises the bound": (
        "at a given trace the bound is μ + √(D − 1) σ with σ² = tr H²/D − μ²: it rises with tr H² "
        "wherever σ > 0"
    ),
    "tighter than Chebyshev's": (
        "Chebyshev's inequality alone bounds the largest of D values by μ + √D σ, and √(D − 1) < √D"
    ),
}
"""Statements that the formula of the bound makes true, and why."""


def _looseness_and_rank(rows: pd.DataFrame) -> float:
    """Spearman's ρ of λ₁²/tr H², 1 for a Hessian of rank one, and λ_sup/λ₁."""
    degenerate = rows["lambda_max"] ** 2 / rows["trace_of_square"]
    ratio = rows["lambda_sup"] / rows["lambda_max"]
    return float(degenerate.corr(ratio, method="spearman"))


def _trace(c: Case) -> Claim:
    """tr H raises μ and lowers σ whatever the network; which of the two wins at the points, at a
    given tr H².
    """
    d = _parameters(c.narrow)
    mean = c.narrow["trace"] / d
    mean_square = c.narrow["trace_of_square"] / d
    std = (mean_square - mean**2) ** 0.5
    slope = 1 - (d - 1) ** 0.5 * mean / std
    lowers = int((slope < 0).sum())
    why = (
        "it raises μ and lowers σ; together, at a given tr H², a larger trace lowers the bound at "
        f"{lowers} of {len(slope)} points"
    )
    return judge.constructed(c.statement("trace acts both ways"), why)


def _parameters(rows: pd.DataFrame) -> float:
    """D, from λ_sup + λ_inf = 2 tr H/D."""
    sums = rows["lambda_sup"] + rows["lambda_inf"]
    return float(round((2 * rows["trace"] / sums).median()))


_OF_STOPPED = (_sharpness, _generalisation, _norms, _gram, _widths, paths, views, _form)
_OF_POLISHED = (_critical, _sharpness, _generalisation, _widths)
"""Makers of claims, in the order of the rows."""
