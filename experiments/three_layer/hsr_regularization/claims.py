"""The paper's statements as claims, one row each, decided data set by data set.

The fitted protocol with the stop rule judged from the first step decides. The second reading of the
stop rule, the points to which the ends lead when they are not stopped, and A-SAM at the wide radius
are variants in the row. The statements of Fig. 14 are decided by further draws of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import pandas as pd

from experiments.printed import statements
from experiments.three_layer.hsr_regularization.analysis import POLISHED, WIDE, Case, variants
from experiments.three_layer.hsr_regularization.settings import NAMES, HsrRegularization
from experiments.three_layer.hsr_regularization.text_claims import claims_over_draws, spectra, views
from experiments.three_layer.study import Made, Tests, decided_by_draws, listed_kinds
from runner.contract import Claim, Statement, Tables
from runner.stats import judge
from runner.stats.judge import by_seed
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
SEARCH = (
    "the differences are small and depend on the points that the search finds; its rate is not "
    "printed, and its stop ratio was chosen by the published counts"
)
OPEN = (("refuted", "confirmed"), ("refuted", "inconclusive"), ("inconclusive", "confirmed"))
"""Verdicts at the printed and at the wide radius that together say nothing of a statement on A-SAM.
"""
SPECTRUM = (("lambda_max", "λ₁"), ("mean", "mean of the spectrum"), ("std", "std of the spectrum"))


def claims(experiment: HsrRegularization, tables: Tables, tests: Tests) -> list[Claim]:
    """One claim per statement, with what became of it under every variant."""
    says = statements("hsr_regularization")
    found: list[tuple[str, Claim]] = []
    for variant in variants(experiment, tables):
        case = Case(experiment, variant, tables, tests, says)
        if variant.reading == experiment.reading[0]:
            found += [*_search(case), *views(case), *spectra(case)]
        for make in (_sharpness, _harm, _minimum, _generalisation, _all_ends, _saddles):
            found += make(case)
    if "draws" in tables:
        found = decided_by_draws(found, claims_over_draws(experiment, tables["draws"], says))
    rows = [open_protocol(claim) for claim in judge.gathered(found, main="fitted")]
    return [*_counts(tables, says), *rows]


def open_protocol(claim: Claim) -> Claim:
    """A statement that depends on what the paper does not print is not comparable, for and against.

    A-SAM: its operator and η are not printed, and at the printed radius our A-SAM does little: easy
    to be better than, hard to hold the paper's praise of it. Flat seeds and F1: the differences are
    as small as those between searches, and the search is calibrated.
    """
    if claim.verdict not in ("confirmed", "refuted", "inconclusive"):
        return claim
    why = ""
    if "flat seeds" in claim.statement or "F1" in claim.name:
        why = SEARCH
    elif "A-SAM" in claim.name or claim.name in ALL_METHODS:
        why = OPERATOR
    if not why:
        return claim
    detail = f"{claim.detail}; {why}, under which it is {claim.verdict}"
    return replace(claim, verdict="not comparable", detail=detail, seeds_needed=math.nan)


def _counts(tables: Tables, says: Mapping[str, Statement]) -> Iterator[Claim]:
    """The published counts, and what the search gives as it is printed."""
    open_rate = "no learning rate of the search is printed"
    if "search" in tables:
        means = tables["search"][["starts", "converged", "unique", "sharp"]].mean()
        text = (
            f"{means['converged']:.0f} of {means['starts']:.0f} starts converge, "
            f"{means['unique']:.0f} unique, "
        )
        text += (
            f"{means['sharp']:.0f} sharp; {open_rate}; the protocol was chosen by these counts: "
            "see the scorecard"
        )
        text = f"fitted, mean over data sets: {text}"
        yield judge.claim(says["published counts"], "not comparable", float(means["unique"]), text)
    if "scan" in tables:
        yield _as_printed(tables["scan"], says["search as printed"])


def _as_printed(scan: pd.DataFrame, statement: Statement) -> Claim:
    """What the printed stop rule leaves to compare: search at any rate, training at the printed
    one.
    """
    sharp = chosen(scan, group="sharp")
    lines, most = [], 0.0
    for rate, rows in sharp.groupby("search_rate", sort=True):
        found, methods = (
            rows[["starts", "converged", "unique"]].mean(),
            rows[rows["method"] != "gd"],
        )
        pairs = methods.groupby("method")["pairs"].mean()
        most = max(most, float(pairs.max()))
        lines.append(
            f"γ = {rate:g}: {found['converged']:.0f} of {found['starts']:.0f} starts converge, "
            f"{found['unique']:.0f} unique; of {rows['chosen'].mean():.0f} sharp ones both plain "
            "descent and a method meet the stop rule again at the printed γ₁ from "
            f"{pairs.min():.1f} to {pairs.max():.1f}"
        )
    detail = (
        "; ".join(lines)
        + f"; means over data sets. The paper's test needs {FEWEST_PAIRS} pairs to reach its level"
    )
    return judge.claim(statement, "not comparable", most, detail)


def _search(c: Case) -> Made:
    points = c.rows("critical_points")
    led = points[points["led_kind"] != "unfinished"]
    for mark, of, prefix in ((c.mark(), points, ""), (f"{c.mark()} {POLISHED}", led, "led_")):
        bound = of[f"{prefix}lambda_sup"]
        table = of.assign(bound=bound, ratio=bound / of[f"{prefix}lambda_max"])
        ratio = by_seed(table, lambda rows: float(rows["ratio"].median()))
        yield (
            mark,
            c.evidence.compared(replace(c.says["tightness"], high=c.experiment.tight), ratio),
        )
        skew = by_seed(table, lambda rows: float(rows["bound"].skew()))
        yield mark, c.evidence.compared(c.says["right skew"], skew)
    yield c.mark(), _critical(c, points)


CRITICAL = ("minimum", "saddle", "degenerate")
"""Kinds of points where the gradient is zero."""


def _critical(c: Case, points: pd.DataFrame) -> Claim:
    """Whether the ends are critical points: those of the search and of the methods."""
    near = c.rows("nearest")
    keys = ["seed", "method", "start"]
    share = by_seed(
        near, lambda r: float((r["kind"].isin(CRITICAL) | r["nearest_kind"].isin(CRITICAL)).mean())
    )
    says = replace(c.says["critical points"], low=c.experiment.share)
    found = c.evidence.compared(
        says, share, f"share of the methods' ends >= {c.experiment.share:g}"
    )
    listed = {
        "ends of the methods, downhill": near["kind"],
        "nearest point without gradient": near["nearest_kind"],
        "points of the search, downhill": points["led_kind"],
    }
    text = "; ".join(f"{name}: {listed_kinds(column)}" for name, column in listed.items())
    text += (
        f"; gradient left at the points of the search {points['gradient'].median():.2g} in the "
        "median, "
    )
    text += (
        f"{points['gradient_ratio'].median():.2g} of the first; "
        f"{len(near[keys].drop_duplicates())} ends"
    )
    text += (
        "; the stop ratio of this search is ours, five times the printed one: ws_bound judges the "
        "printed ratio"
    )
    return replace(found, verdict="not comparable", detail=f"{found.detail}; {text}")


def _sharpness(c: Case) -> Made:
    """Fig. 12 A-C, from sharp seeds."""
    for quantity, name in SPECTRUM:
        for method in REGULARISED:
            says = c.says[f"{NAMES[method]} lowers {name} from sharp seeds"]
            for own in c.methods(method):
                yield (
                    c.mark(own),
                    c.evidence.tested(says, f"{quantity}, {own} - gd, sharp seeds", sign=-1),
                )
        for method in ("hsr", "asam"):
            says = c.says[f"{NAMES[method]} beats trace regularisation on {name}"]
            for own in c.methods(method):
                yield (
                    c.mark(own),
                    c.evidence.tested(says, f"{quantity}, {own} - trace, sharp seeds", sign=-1),
                )
    ends = c.rows("endpoints", group="sharp", status="ok")
    wider = by_seed(ends, lambda rows: _median_ratio(rows, WIDE["asam"], "asam"))
    yield (
        c.mark(),
        c.evidence.compared(
            replace(c.says["larger radius of A-SAM"], low=1 / c.experiment.eigenvalue_margin), wider
        ),
    )
    margin = math.log(c.experiment.eigenvalue_margin)
    for own in c.methods("asam"):
        test = f"log_lambda_max, hsr - {own}, sharp seeds"
        alike = replace(c.says["HSR comparable to A-SAM on λ₁"], low=-margin, high=margin)
        yield c.mark(own), c.evidence.within(alike, test)
        yield (
            c.mark(own),
            c.evidence.within(replace(c.says["HSR not worse than A-SAM on λ₁"], high=margin), test),
        )


def _median_ratio(rows: pd.DataFrame, a: str, b: str) -> float:
    """Median λ₁ at the ends of method a over that of b; NaN where one of them has none."""
    medians = rows.groupby("method")["lambda_max"].median()
    return float(medians[a] / medians[b]) if {a, b} <= set(medians.index) else math.nan


def _harm(c: Case) -> Made:
    """Fig. 12 A, from flat seeds."""
    margin = math.log(c.experiment.eigenvalue_margin)
    for method in REGULARISED:
        says = replace(c.says[f"{NAMES[method]} does no harm to λ₁ from flat seeds"], high=margin)
        for own in c.methods(method):
            yield c.mark(own), c.evidence.within(says, f"log_lambda_max, {own} - gd, flat seeds")


def _minimum(c: Case) -> Made:
    """Fig. 12 D."""
    ends = c.rows("endpoints", status="ok")
    near = by_seed(
        ends, lambda rows: float((rows["lambda_min"].abs() / rows["lambda_max"]).median())
    )
    yield c.mark(), c.evidence.compared(c.says["smallest eigenvalue close to 0"], near)
    for group in ("sharp", "flat"):
        says = c.says[f"HSR does not push λ_D down, {group} seeds"]
        yield c.mark(), c.evidence.unharmed(says, f"lambda_min, hsr - gd, {group} seeds")
    flat = chosen(ends, group="flat")
    for own in c.methods("asam"):
        skew = by_seed(chosen(flat, method=own), lambda rows: float(rows["lambda_min"].skew()))
        yield c.mark(own), c.evidence.compared(c.says["A-SAM: λ_D left-skewed"], skew)
        says = c.says["λ_D smaller under A-SAM than under HSR"]
        yield c.mark(own), c.evidence.tested(says, f"lambda_min, hsr - {own}, flat seeds", sign=1)


def _saddles(c: Case) -> Made:
    """Fig. 13: how far the loss falls on both sides along u_D, with the slope that the stop rule
    leaves taken out; or, where the slope is gone, whether the point without gradient nearest to an
    end is a saddle.
    """
    if c.variant.reading == POLISHED:
        near = c.rows("nearest", group="flat")
        stopped = replace(c.variant, reading=c.experiment.reading[0]).rows(c.tables["endpoints"])
        keys, limit, unit = (
            ["seed", "method", "start"],
            0.5,
            "1 where the nearest point without gradient is a saddle",
        )
        flat = near.merge(stopped[[*keys, "lambda_min"]], on=keys)
        flat = flat.assign(saddle=(flat["nearest_kind"] == "saddle").astype(float))
    else:
        flat, limit, unit = (
            c.rows("endpoints", status="ok", group="flat"),
            c.experiment.saddle_ratio,
            "",
        )
        # over what λ₁ gives at the same distance, ½ λ₁ t²: −λ_D/λ₁ to leading order
        flat = flat.assign(
            saddle=flat["saddle_depth"]
            / (0.5 * flat["lambda_max"] * c.experiment.line_half_range**2)
        )

    def excess(own: str, rows: pd.DataFrame) -> float:
        share = (rows["saddle"] >= limit).groupby(rows["method"]).mean()
        return float(share.get(own, math.nan) - share.get("hsr", math.nan))

    for own in c.methods("asam"):
        more = by_seed(flat, partial(excess, own))
        yield c.mark(own), c.evidence.compared(c.says["A-SAM ends at more saddles than HSR"], more)
    for method, says in (
        ("asam", replace(c.says["saddle at the whisker of A-SAM"], low=limit)),
        ("hsr", replace(c.says["no saddle at the whisker of HSR"], high=limit, strict=True)),
    ):
        for own in c.methods(method):
            tips = by_seed(chosen(flat, method=own), _at_the_tip)
            yield c.mark(own), c.evidence.compared(says, tips, unit)


def whisker_tip(values: pd.Series) -> float:
    """Smallest value within 1.5 interquartile ranges of the lower quartile."""
    low, high = values.quantile(0.25), values.quantile(0.75)
    return float(values[values >= low - 1.5 * (high - low)].min())


def _at_the_tip(rows: pd.DataFrame) -> float:
    tip = chosen(rows, lambda_min=whisker_tip(rows["lambda_min"]))
    return float(tip["saddle"].iloc[0]) if len(tip) else math.nan


def _generalisation(c: Case) -> Made:
    """Figs. 14 and 15."""
    margin = c.experiment.f1_margin
    for method in REGULARISED:
        says = c.says[f"{NAMES[method]} raises F1 from sharp seeds"]
        for own in c.methods(method):
            yield c.mark(own), c.evidence.tested(says, f"f1, {own} - gd, sharp seeds", sign=1)
    for method in ("hsr", "asam"):
        says = c.says[f"{NAMES[method]} raises F1 more than trace regularisation"]
        for own in c.methods(method):
            yield c.mark(own), c.evidence.tested(says, f"f1, {own} - trace, sharp seeds", sign=1)
    for own in c.methods("asam"):
        test = f"f1, hsr - {own}, sharp seeds"
        alike = replace(c.says["HSR comparable to A-SAM on F1"], low=-margin, high=margin)
        yield c.mark(own), c.evidence.within(alike, test)
        yield (
            c.mark(own),
            c.evidence.within(replace(c.says["HSR not worse than A-SAM on F1"], low=-margin), test),
        )
    unharmed = replace(c.says["HSR does no harm to F1 from flat seeds"], low=-margin)
    yield c.mark(), c.evidence.within(unharmed, "f1, hsr - gd, flat seeds")
    shorter = c.says["HSR simplifies decision boundaries"]
    yield c.mark(), c.evidence.tested(shorter, "boundary_length, hsr - gd, sharp seeds", sign=-1)


def _all_ends(c: Case) -> Made:
    """Whether dropping the starts that reach no critical point makes the conclusion on λ₁."""
    ends = c.rows("endpoints", group="sharp")

    def ordered(rows: pd.DataFrame) -> float:
        medians = rows.groupby("method")["lambda_max"].median()
        known = {"hsr", "trace", "gd"} <= set(medians.dropna().index)
        return float(medians["hsr"] < medians["trace"] < medians["gd"]) if known else math.nan

    says = replace(c.says["conclusions with all ends"], low=0.5)
    shown = ends.groupby("method")["lambda_max"].median()
    listed = ", ".join(f"{NAMES[str(m)]} {v:.3g}" for m, v in shown.items() if str(m) in NAMES)
    found = c.evidence.compared(says, by_seed(ends, ordered), "1 where the order holds")
    yield c.mark(), replace(found, detail=f"{found.detail}; medians over all data sets: {listed}")
