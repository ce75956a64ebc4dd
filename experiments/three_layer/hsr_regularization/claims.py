"""The paper's statements as claims, one row each, decided data set by data set.

The fitted protocol with the stop rule judged from the first step decides. The second reading of the
stop rule, the end points continued downhill, and A-SAM at the wide radius are variants in
the row. The statements of Fig. 14 are decided by further draws of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pandas as pd

from experiments.three_layer.hsr_regularization.analysis import (
    POLISHED,
    WIDE,
    Case,
    cases,
    ratio_of_medians,
)
from experiments.three_layer.hsr_regularization.settings import NAMES
from experiments.three_layer.hsr_regularization.text_claims import (
    claims_over_draws,
    parts,
    spectra,
    views,
)
from experiments.three_layer.study import (
    Made,
    Study,
    column,
    decided_by_draws,
    listed_kinds,
    share_of_kinds,
)
from runner.contract import Claim, Statement
from runner.stats import judge
from runner.stats.tables import chosen

REGULARISED = ("trace", "asam", "hsr")
FEWEST_PAIRS = 8
"""Pairs with which a two-sided signed-rank test can reach p = 0.01: 2 / 2^8."""
OPERATOR = (
    "A-SAM's normalisation and η are not printed; the operator here is that of its authors, which "
    "at the printed radius does little"
)
ALL_METHODS = ("HSR consistently flat", "methods flatter along u₁")
"""Statements that compare every method, A-SAM too."""
FIT = "HSR suppresses overfitting"
"""A statement on F1, by training and test data."""
SEARCH = (
    "the differences are small and depend on the points that the search finds; its rate is not "
    "printed, and its stop ratio was chosen by the published counts"
)
SPECTRUM = (("lambda_max", "λ₁"), ("mean", "mean of the spectrum"), ("std", "std of the spectrum"))


def claims(analysis: Study) -> Iterator[Claim]:
    """One claim per statement, with what became of it under every variant."""
    of_variants: list[tuple[str, Claim]] = []
    for case in cases(analysis):
        if case.first:
            of_variants += [*_search(case), *views(case), *spectra(case)]
            of_variants += [*parts(case), *_overfitting(case)]
        for make in (_sharpness, _harm, _minimum, _generalisation, _all_ends, _saddles):
            of_variants += make(case)
    if "draws" in analysis.tables:
        of_variants = decided_by_draws(of_variants, claims_over_draws(analysis))
    yield from _counts(analysis)
    for claim in judge.gathered(of_variants, main="fitted"):
        yield open_protocol(claim)


def open_protocol(claim: Claim) -> Claim:
    """A statement that depends on what the paper does not print is not comparable, for and against.

    A-SAM: its operator and η are not printed, and at the printed radius our A-SAM does little: easy
    to be better than, hard to hold the paper's praise of it. Flat seeds and F1: the differences are
    as small as those between searches, and the search is calibrated.
    """
    if claim.verdict not in ("confirmed", "refuted", "inconclusive"):
        return claim
    why = ""
    if "flat seeds" in claim.statement or "F1" in claim.name or claim.name == FIT:
        why = SEARCH
    elif "A-SAM" in claim.name or claim.name in ALL_METHODS:
        why = OPERATOR
    if not why:
        return claim
    detail = f"{claim.detail}; {why}, under which it is {claim.verdict}"
    return replace(claim, verdict="not comparable", detail=detail, seeds_needed=math.nan)


def _counts(analysis: Study) -> Iterator[Claim]:
    """The published counts, and what the search gives as it is printed."""
    if "search" in analysis.tables:
        means = analysis.tables["search"][["starts", "converged", "unique", "sharp"]].mean()
        text = (
            f"fitted, mean over data sets: {means['converged']:.0f} of {means['starts']:.0f} "
            f"starts converge, {means['unique']:.0f} unique, {means['sharp']:.0f} sharp; no "
            "learning rate of the search is printed; the protocol was chosen by these counts: see "
            "the scorecard"
        )
        statement = analysis.says["published counts"]
        yield judge.claim(statement, "not comparable", float(means["unique"]), text)
    if "scan" in analysis.tables:
        yield _as_printed(analysis.tables["scan"], analysis.says["search as printed"])


def _as_printed(scan: pd.DataFrame, statement: Statement) -> Claim:
    """What the printed stop rule leaves to compare: search at any rate, training at the printed
    one.
    """
    lines = []
    most = 0.0
    for rate, rows in chosen(scan, group="sharp").groupby("search_rate", sort=True):
        means = rows[["starts", "converged", "unique", "chosen"]].mean()
        methods = rows[rows["method"] != "gd"]
        pairs = methods.groupby("method")["pairs"].mean()
        most = max(most, float(pairs.max()))
        lines.append(
            f"γ = {rate:g}: {means['converged']:.0f} of {means['starts']:.0f} starts converge, "
            f"{means['unique']:.0f} unique; of {means['chosen']:.0f} sharp ones both plain "
            "descent and a method meet the stop rule again at the printed γ₁ from "
            f"{pairs.min():.1f} to {pairs.max():.1f}"
        )
    listed = "; ".join(lines)
    needs = f"The paper's test needs {FEWEST_PAIRS} pairs to reach its level"
    return judge.claim(
        statement, "not comparable", most, f"{listed}; means over data sets. {needs}"
    )


def _search(c: Case) -> Made:
    """Fig. 9, at the points where the search stops and where they lead."""
    points = c.rows("critical_points")
    led = points[points["led_kind"] != "unfinished"]
    for mark, rows, prefix in ((c.mark(), points, ""), (f"{c.mark()} {POLISHED}", led, "led_")):
        bound = rows[f"{prefix}lambda_sup"]
        table = rows.assign(bound=bound, ratio=bound / rows[f"{prefix}lambda_max"])
        median = column("ratio", "median")
        yield mark, c.compared("tightness", table, median, high=c.experiment.tight)
        yield mark, c.compared("right skew", table, column("bound", "skew"))
    yield c.mark(), _critical(c, points)


def _critical(c: Case, points: pd.DataFrame) -> Claim:
    """Whether the ends are critical points: those of the search and of the methods."""
    near = c.rows("nearest")
    least = c.experiment.share
    threshold = f"share of the methods' ends >= {least:g}"
    made = c.compared("critical points", near, share_of_kinds, threshold, low=least)
    gradient = points["gradient"].median()
    ratio = points["gradient_ratio"].median()
    ends = len(near[["seed", "method", "start"]].drop_duplicates())
    detail = (
        f"{made.detail}; ends of the methods, downhill: {listed_kinds(near['kind'])}; nearest "
        f"point without gradient: {listed_kinds(near['nearest_kind'])}; points of the search, "
        f"downhill: {listed_kinds(points['led_kind'])}; gradient left at the points of the search "
        f"{gradient:.2g} in the median, {ratio:.2g} of the first; {ends} ends; the stop ratio of "
        "this search is ours, five times the printed one: ws_bound judges the printed ratio"
    )
    return replace(made, verdict="not comparable", detail=detail)


def _sharpness(c: Case) -> Made:
    """Fig. 12 A-C, from sharp seeds."""
    for quantity, name in SPECTRUM:
        for method in REGULARISED:
            lowers = f"{NAMES[method]} lowers {name} from sharp seeds"
            yield from c.tested_of(method, lowers, f"{quantity}, {{}} - gd, sharp seeds", -1)
        for method in ("hsr", "asam"):
            beats = f"{NAMES[method]} beats trace regularisation on {name}"
            yield from c.tested_of(method, beats, f"{quantity}, {{}} - trace, sharp seeds", -1)
    factor = c.experiment.eigenvalue_margin
    ends = c.rows("endpoints", group="sharp")
    wider = partial(ratio_of_medians, name="lambda_max", a=WIDE["asam"], b="asam")
    yield c.mark(), c.compared("larger radius of A-SAM", ends, wider, low=1 / factor)
    margin = math.log(factor)
    test = "log_lambda_max, hsr - {}, sharp seeds"
    alike = "HSR comparable to A-SAM on λ₁"
    yield from c.within_of("asam", alike, test, low=-margin, high=margin)
    yield from c.within_of("asam", "HSR not worse than A-SAM on λ₁", test, high=margin)


def _harm(c: Case) -> Made:
    """Fig. 12 A, from flat seeds."""
    margin = math.log(c.experiment.eigenvalue_margin)
    for method in REGULARISED:
        name = f"{NAMES[method]} does no harm to λ₁ from flat seeds"
        yield from c.within_of(method, name, "log_lambda_max, {} - gd, flat seeds", high=margin)


def _minimum(c: Case) -> Made:
    """Fig. 12 D."""
    ends = c.rows("endpoints")
    ends = ends.assign(share=ends["lambda_min"].abs() / ends["lambda_max"])
    near = c.compared("smallest eigenvalue close to 0", ends, column("share", "median"))
    yield c.mark(), near
    for group in ("sharp", "flat"):
        statement = c.statement(f"HSR does not push λ_D down, {group} seeds")
        yield c.mark(), c.evidence.unharmed(statement, f"lambda_min, hsr - gd, {group} seeds")
    flat = chosen(ends, group="flat")
    skew = column("lambda_min", "skew")
    for asam in c.methods("asam"):
        ends = chosen(flat, method=asam)
        yield c.mark(asam), c.compared("A-SAM: λ_D left-skewed", ends, skew)
    smaller = "λ_D smaller under A-SAM than under HSR"
    yield from c.tested_of("asam", smaller, "lambda_min, hsr - {}, flat seeds", 1)


def _saddles(c: Case) -> Made:
    """Fig. 13: how far the loss falls on both sides along u_D, with the slope that the stop rule
    leaves taken out; or, where the slope is gone, whether the point without gradient nearest to an
    end is a saddle.
    """
    if c.reading == POLISHED:
        stopped = replace(c, reading=c.experiment.reading[0]).rows("endpoints")
        keys = ["seed", "method", "start"]
        flat = c.rows("nearest", group="flat").merge(stopped[[*keys, "lambda_min"]], on=keys)
        flat["saddle"] = (flat["nearest_kind"] == "saddle").astype(float)
        limit = 0.5
        unit = "1 where the nearest point without gradient is a saddle"
    else:
        flat = c.rows("endpoints", group="flat")
        # over what λ₁ gives at the same distance, ½ λ₁ t²: −λ_D/λ₁ to leading order
        rise = 0.5 * flat["lambda_max"] * c.experiment.line_half_range**2
        flat = flat.assign(saddle=flat["saddle_depth"] / rise)
        limit = c.experiment.saddle_ratio
        unit = ""
    flat = flat.assign(is_saddle=flat["saddle"] >= limit)
    for asam in c.methods("asam"):
        more = partial(_more_saddles, method=asam)
        yield c.mark(asam), c.compared("A-SAM ends at more saddles than HSR", flat, more)
        ends = chosen(flat, method=asam)
        name = "saddle at the whisker of A-SAM"
        yield c.mark(asam), c.compared(name, ends, _at_the_tip, unit, low=limit)
    ends = chosen(flat, method="hsr")
    name = "no saddle at the whisker of HSR"
    yield c.mark(), c.compared(name, ends, _at_the_tip, unit, high=limit, strict=True)


def _more_saddles(rows: pd.DataFrame, method: str) -> float:
    """Share of the ends of a method that are saddles less that of HSR."""
    share = rows.groupby("method")["is_saddle"].mean()
    return float(share.get(method, math.nan) - share.get("hsr", math.nan))


def whisker_tip(values: pd.Series) -> float:
    """Smallest value within 1.5 interquartile ranges of the lower quartile."""
    low = values.quantile(0.25)
    high = values.quantile(0.75)
    return float(values[values >= low - 1.5 * (high - low)].min())


def _at_the_tip(rows: pd.DataFrame) -> float:
    tip = chosen(rows, lambda_min=whisker_tip(rows["lambda_min"]))
    if len(tip):
        return float(tip["saddle"].iloc[0])
    return math.nan


def _generalisation(c: Case) -> Made:
    """Figs. 14 and 15."""
    margin = c.experiment.f1_margin
    for method in REGULARISED:
        raises = f"{NAMES[method]} raises F1 from sharp seeds"
        yield from c.tested_of(method, raises, "f1, {} - gd, sharp seeds", 1)
    for method in ("hsr", "asam"):
        more = f"{NAMES[method]} raises F1 more than trace regularisation"
        yield from c.tested_of(method, more, "f1, {} - trace, sharp seeds", 1)
    test = "f1, hsr - {}, sharp seeds"
    alike = "HSR comparable to A-SAM on F1"
    yield from c.within_of("asam", alike, test, low=-margin, high=margin)
    yield from c.within_of("asam", "HSR not worse than A-SAM on F1", test, low=-margin)
    harmless = "HSR does no harm to F1 from flat seeds"
    yield c.mark(), c.within(harmless, "f1, hsr - gd, flat seeds", low=-margin)
    shorter = "HSR simplifies decision boundaries"
    yield c.mark(), c.tested(shorter, "boundary_length, hsr - gd, sharp seeds", sign=-1)


def _overfitting(c: Case) -> Made:
    """Fig. 15, by F1 as in Fig. 14, and by the mean loss."""
    test = "{}, hsr - gd, sharp seeds"
    yield c.mark(), c.tested(FIT, test.format("overfit_f1"), sign=-1)
    yield f"{c.mark()} by the mean loss", c.tested(FIT, test.format("overfit_loss"), sign=-1)


def _all_ends(c: Case) -> Made:
    """Whether dropping the starts that reach no critical point makes the conclusion on λ₁."""
    ends = c.rows("endpoints", group="sharp")
    shown = ends.groupby("method")["lambda_max"].median()
    listed = [f"{NAMES[str(m)]} {value:.3g}" for m, value in shown.items() if str(m) in NAMES]
    made = c.compared(
        "conclusions with all ends", ends, _in_order, "1 where the order holds", low=0.5
    )
    detail = f"{made.detail}; medians over all data sets: {', '.join(listed)}"
    yield c.mark(), replace(made, detail=detail)


def _in_order(rows: pd.DataFrame) -> float:
    """1 where λ₁ is smallest under HSR and largest under plain descent; NaN where one is
    missing."""
    medians = rows.groupby("method")["lambda_max"].median()
    if {"hsr", "trace", "gd"} <= set(medians.dropna().index):
        return float(medians["hsr"] < medians["trace"] < medians["gd"])
    return math.nan
