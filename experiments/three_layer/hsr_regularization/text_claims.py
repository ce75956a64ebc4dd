"""Figs. 10 and 11, what Section VI-B and the abstract say of the spectrum and of the parts of the
bound, and the statements decided by draws.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from experiments.three_layer.hsr_regularization.analysis import Case, ratio_of_medians
from experiments.three_layer.hsr_regularization.settings import NAMES
from experiments.three_layer.study import Made, Study, over_draws
from runner.contract import Claim
from runner.stats import judge
from runner.stats.judge import by_seed
from runner.stats.tables import chosen

DESCENT = "every method descends on the loss, at least in the second half of its steps"
ONE_OUTLIER = "few eigenvalues differ from zero here, so that λ₁ is most of their sum and spread"
PAPERS = ("gd", "trace", "asam", "hsr")
"""The methods of the paper: A-SAM at the wide radius is ours."""


def views(c: Case) -> Made:
    """Figs. 10 and 11."""
    yield from _dynamics(c)
    sharp = c.rows("profiles", kind="sharp group", at="stopped")
    for asam in c.methods("asam"):
        mark = c.mark(asam)
        among = sharp[sharp["method"].isin(("gd", "trace", asam, "hsr"))]
        yield mark, c.compared("HSR consistently flat", among, _steepest_of_hsr)
        for variant, quantile in ((mark, "q50"), (f"{mark} 90 % quantile", "q90")):
            methods = ("trace", asam, "hsr")
            steepest = partial(_steepest_of_all, methods=methods, column=quantile)
            yield variant, c.compared("methods flatter along u₁", sharp, steepest)


def _dynamics(c: Case) -> Made:
    """Fig. 10: loss and λ₁ through the descents."""
    flat = c.rows("dynamics", group="flat")
    for quantity, name in (("loss", "loss"), ("lambda_max", "λ₁")):
        rows = chosen(flat, quantity=quantity)
        rows = rows[rows["method"].isin(PAPERS)]
        limit = c.experiment.eigenvalue_margin
        made = c.compared(f"dynamics from flat seeds, {name}", rows, _largest_ratio, high=limit)
        listed = []
        for method in PAPERS[1:]:
            both = rows[rows["method"].isin(("gd", method))]
            ratios = by_seed(both, _largest_ratio).values()
            if ratios:
                listed.append(f"{NAMES[method]} {max(ratios):.3g}")
        alone = f"of one method and plain descent at most {', '.join(listed)}"
        yield c.mark(), replace(made, detail=f"{alone}; {made.detail}")
    every = c.rows("dynamics", group="sharp", quantity="loss")
    every = every[every["method"].isin(PAPERS)]
    falls = judge.median(by_seed(every, _slowest_fall))
    yield c.mark(), judge.constructed(c.statement("loss falls from sharp seeds"), DESCENT, falls)


def _largest_ratio(rows: pd.DataFrame) -> float:
    table = rows.pivot_table(index="step", columns="method", values="q50")
    return float((table.max(axis=1) / table.min(axis=1)).max())


def _slowest_fall(rows: pd.DataFrame) -> float:
    """Last over first median loss, the largest over the methods."""
    wide = rows.pivot_table(index="step", columns="method", values="q50").sort_index()
    return float((wide.iloc[-1] / wide.iloc[0]).max())


def _ends(rows: pd.DataFrame, column: str = "q90") -> pd.Series[float]:
    """method -> a quantile of the loss over the starts at the higher end of the line."""
    return rows[rows["offset"].abs() == rows["offset"].abs().max()].groupby("method")[column].max()


def _steepest_of_all(rows: pd.DataFrame, methods: tuple[str, ...], column: str) -> float:
    ends = _ends(rows, column)
    if {"gd", *methods} <= set(ends.index):
        return float(ends[list(methods)].max() / ends["gd"])
    return math.nan


def _steepest_of_hsr(rows: pd.DataFrame) -> float:
    ends = _ends(rows)
    if "hsr" in ends and len(ends) > 1:
        return float(ends["hsr"] / ends.drop("hsr").min())
    return math.nan


def spectra(c: Case) -> Made:
    """The range of the eigenvalues under HSR, and how λ₁, mean and standard deviation hang
    together.
    """
    ends = c.rows("endpoints")
    sharp = chosen(ends, group="sharp")
    sharp = sharp.assign(width=sharp["lambda_max"] - sharp["lambda_min"])
    narrowed = partial(ratio_of_medians, name="width", a="hsr", b="gd")
    yield c.mark(), c.compared("spectrum narrower", sharp, narrowed)
    tie = judge.median(by_seed(ends, _weaker_tie))
    together = c.statement("λ₁, mean and std go together")
    yield c.mark(), judge.constructed(together, ONE_OUTLIER, tie)


def parts(c: Case) -> Made:
    """Why HSR is better than the trace: with tr H² alone it has to be, and without it not."""
    name = "tr H² makes HSR better than the trace"
    test = "lambda_max, {} - trace, sharp seeds"
    alone = c.tested(name, test.format("square"), sign=-1)
    without = c.evidence.unharmed(c.statement(name), test.format("mean"))
    yield c.mark(), judge.together({"tr H² alone": alone, "without tr H²": without})
    yield f"{c.mark()} with σ alone", c.tested(name, test.format("spread"), sign=-1)


def _weaker_tie(rows: pd.DataFrame) -> float:
    return min(
        float(rows["lambda_max"].corr(rows[name], method="spearman")) for name in ("mean", "std")
    )


def claims_over_draws(analysis: Study) -> list[tuple[str, Claim]]:
    """(variant, claim) of Fig. 14, one value a draw of the data; A-SAM at the wide radius is a
    variant.
    """
    experiment: Any = analysis.experiment
    table = analysis.tables["draws"]
    margin = experiment.f1_margin

    def gains(a: str, b: str, group: str) -> list[float]:
        return [float(v) for v in chosen(table, a=a, b=b, group=group)["f1"]]

    def larger(name: str, a: str, b: str) -> Claim:
        unit = f"mean macro F1 of {NAMES[a]} less that of {NAMES[b]}, sharp seeds"
        values = gains(a, b, "sharp")
        of_seed = len(values) // table["seed"].nunique() or 1
        return over_draws(analysis.says[name], values, unit, per_seed=of_seed)

    def limited(name: str, method: str, group: str, high: float = math.inf) -> Claim:
        within = replace(analysis.says[name], low=-margin, high=high, chosen=True)
        return judge.bound(within, gains("hsr", method, group), over="draws of the data")

    of_variants = []
    for method in ("trace", "asam", "asam_wide", "hsr"):
        plain = method.removesuffix("_wide")
        mark = "fitted"
        if method != plain:
            mark = "fitted draws with wide radius"
        raises = f"{NAMES[plain]} raises F1"
        made = [larger(f"{raises} from sharp seeds", method, "gd")]
        if method != "trace":
            made.append(larger(f"{raises} more than trace regularisation", method, "trace"))
        if plain == "asam":
            made.append(limited("HSR comparable to A-SAM on F1", method, "sharp", margin))
            made.append(limited("HSR not worse than A-SAM on F1", method, "sharp"))
        of_variants += [(mark, claim) for claim in made]
    of_variants.append(("fitted", limited("HSR does no harm to F1 from flat seeds", "gd", "flat")))
    return of_variants
