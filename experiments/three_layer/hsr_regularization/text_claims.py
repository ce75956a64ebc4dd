"""Figs. 10 and 11, what Section VI-B and the abstract say of the spectrum, and the statements
decided by draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pandas as pd

from experiments.three_layer.hsr_regularization.analysis import Case
from experiments.three_layer.hsr_regularization.settings import NAMES, HsrRegularization
from experiments.three_layer.study import Made, over_draws
from runner.contract import Claim, Statement
from runner.stats import judge
from runner.stats.judge import by_seed
from runner.stats.tables import chosen

DESCENT = "every method descends on the loss, at least in the second half of its steps"
ONE_OUTLIER = "few eigenvalues differ from zero here, so that λ₁ is most of their sum and spread"
PAPERS = ("gd", "trace", "asam", "hsr")
"""The methods of the paper: A-SAM at the wide radius is ours."""


def views(c: Case) -> Made:
    """Figs. 10 and 11."""
    flat = c.rows("dynamics", group="flat")
    for quantity, name in (("loss", "loss"), ("lambda_max", "λ₁")):
        says = replace(
            c.says[f"dynamics from flat seeds, {name}"], high=c.experiment.eigenvalue_margin
        )
        rows = flat[(flat["quantity"] == quantity) & flat["method"].isin(PAPERS)]
        found = c.evidence.compared(says, by_seed(rows, _largest_ratio))
        alone = {
            m: by_seed(rows[rows["method"].isin(("gd", m))], _largest_ratio) for m in PAPERS[1:]
        }
        listed = ", ".join(
            f"{NAMES[m]} {max(values.values()):.3g}" for m, values in alone.items() if values
        )
        yield (
            c.mark(),
            replace(
                found, detail=f"of one method and plain descent at most {listed}; {found.detail}"
            ),
        )
    every = c.rows("dynamics", group="sharp", quantity="loss")
    every = every[every["method"].isin(PAPERS)]
    falls = judge.median(by_seed(every, _slowest_fall))
    yield c.mark(), judge.constructed(c.says["loss falls from sharp seeds"], DESCENT, falls)
    sharp = c.rows("profiles", kind="sharp group", at="stopped")
    for asam in c.methods("asam"):
        among = sharp[sharp["method"].isin(("gd", "trace", asam, "hsr"))]
        yield (
            c.mark(asam),
            c.evidence.compared(c.says["HSR consistently flat"], by_seed(among, _steepest_of_hsr)),
        )
        for column, mark in (("q50", c.mark(asam)), ("q90", f"{c.mark(asam)} 90 % quantile")):
            steepest = by_seed(
                sharp, partial(_steepest_of_all, methods=("trace", asam, "hsr"), column=column)
            )
            yield mark, c.evidence.compared(c.says["methods flatter along u₁"], steepest)


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
    return (
        float(ends[list(methods)].max() / ends["gd"])
        if {"gd", *methods} <= set(ends.index)
        else math.nan
    )


def _steepest_of_hsr(rows: pd.DataFrame) -> float:
    ends = _ends(rows)
    return (
        float(ends["hsr"] / ends.drop("hsr").min()) if "hsr" in ends and len(ends) > 1 else math.nan
    )


def spectra(c: Case) -> Made:
    """The range of the eigenvalues under HSR, and how λ₁, mean and standard deviation hang
    together.
    """
    ends = c.rows("endpoints", status="ok")
    sharp = chosen(ends, group="sharp")
    yield c.mark(), c.evidence.compared(c.says["spectrum narrower"], by_seed(sharp, _narrowed))
    tie = judge.median(by_seed(ends, _weaker_tie))
    yield c.mark(), judge.constructed(c.says["λ₁, mean and std go together"], ONE_OUTLIER, tie)


def _narrowed(rows: pd.DataFrame) -> float:
    width = (rows["lambda_max"] - rows["lambda_min"]).groupby(rows["method"]).median()
    return float(width["hsr"] / width["gd"]) if {"hsr", "gd"} <= set(width.index) else math.nan


def _weaker_tie(rows: pd.DataFrame) -> float:
    return min(
        float(rows["lambda_max"].corr(rows[name], method="spearman")) for name in ("mean", "std")
    )


def claims_over_draws(
    experiment: HsrRegularization, table: pd.DataFrame, says: Mapping[str, Statement]
) -> list[tuple[str, Claim]]:
    """(variant, claim) of Fig. 14, one value a draw of the data; A-SAM at the wide radius is a
    variant.
    """
    margin, seeds = experiment.f1_margin, table["seed"].nunique()

    def gains(a: str, b: str, group: str) -> list[float]:
        rows = chosen(table, a=a, b=b, group=group)
        return [float(v) for v in rows["f1"]]

    def larger(name: str, a: str, b: str) -> Claim:
        unit = f"mean macro F1 of {NAMES[a]} less that of {NAMES[b]}, sharp seeds"
        values = gains(a, b, "sharp")
        return over_draws(says[name], values, unit, per_seed=len(values) // seeds or 1)

    def limited(name: str, a: str, b: str, group: str, high: float = float("inf")) -> Claim:
        within = replace(says[name], low=-margin, high=high)
        return judge.bound(within, gains(a, b, group), over="draws of the data")

    found = []
    for method in ("trace", "asam", "asam_wide", "hsr"):
        mark, plain = (
            ("fitted draws with wide radius", "asam")
            if method == "asam_wide"
            else ("fitted", method)
        )
        found.append((mark, larger(f"{NAMES[plain]} raises F1 from sharp seeds", method, "gd")))
        if method != "trace":
            found.append(
                (
                    mark,
                    larger(
                        f"{NAMES[plain]} raises F1 more than trace regularisation", method, "trace"
                    ),
                )
            )
        if plain == "asam":
            found.append(
                (mark, limited("HSR comparable to A-SAM on F1", "hsr", method, "sharp", margin))
            )
            found.append((mark, limited("HSR not worse than A-SAM on F1", "hsr", method, "sharp")))
    found.append(("fitted", limited("HSR does no harm to F1 from flat seeds", "hsr", "gd", "flat")))
    return found
