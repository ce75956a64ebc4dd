"""The paper's statements of Section V-A on the time of a gradient (Fig. 2) as claims."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pandas as pd

from experiments.three_layer.hsr_gradient.settings import SIZES
from experiments.three_layer.study import Case
from runner.contract import Claim
from runner.stats import judge
from runner.stats.tables import chosen

LINEAR = 1.0
QUADRATIC = 2.0
"""Exponents that the paper states."""
PAPER_FORM = "matrix"
"""The paper's double sum as matrices, where calls cost least; row by row and this project's form
are variants.
"""
FORMS = ("double sum", "matrix", "own")
NUMERICAL = "numerical"
"""Three-point differences, the curve "Num." of Fig. 2."""
SIZES_OPEN = "the paper does not print the sizes, and the answer depends on them"
EXTENDED = "the range of N was extended from 320 to 2,560 after the result up to 320 was known"
SIZE = ["varied", "samples", "dimension"]


def cost(c: Case) -> Iterator[Claim]:
    """Fig. 2, judged on the paper's algorithm; this project's form is a statement of its own."""
    timed = chosen(c.tables["cost"], status="ok")
    faster = {}
    for form in (PAPER_FORM, "own"):  # the differences are of the value in its matrix form
        gain = partial(_least_gain, form=form)
        faster[form] = c.compared("analytic faster", timed, gain)
    yield judge.together(faster, main=PAPER_FORM)
    for name, varied, stated in (
        ("analytic time linear in D", "dimension", LINEAR),
        ("analytic time quadratic in I", "samples", QUADRATIC),
    ):
        exponents = {form: _exponent(c, name, varied, stated, form) for form in FORMS}
        claim = judge.together(exponents, main=PAPER_FORM)
        local = _local_exponents(timed, varied, PAPER_FORM)
        yield _of_open_sizes(claim, f"{local}; {SIZES_OPEN}; {EXTENDED}")
    claim = _exponent(c, "numerical time linear in D", "dimension", LINEAR, NUMERICAL)
    local = _local_exponents(timed, "dimension", NUMERICAL)
    yield _of_open_sizes(claim, f"{local}; {SIZES_OPEN}")
    yield _exponent(c, "own form linear in I", "samples", LINEAR, "own")
    yield c.compared("row by row is never fastest", timed, _lead)


def _of_open_sizes(claim: Claim, why: str) -> Claim:
    """A statement on a time, which holds at some sizes only."""
    detail = f"{claim.detail}; {why}"
    return replace(claim, verdict="not comparable", detail=detail, seeds_needed=math.nan)


def _least_gain(rows: pd.DataFrame, form: str) -> float:
    """The smallest ratio of the time of the differences to that of a form."""
    seconds = rows.pivot_table(index=SIZE, columns="form", values="seconds")
    return float((seconds[NUMERICAL] / seconds[form]).min())


def seconds_by_form(timed: pd.DataFrame) -> pd.DataFrame:
    """Seconds of each analytic form, one row for each size."""
    seconds = timed.pivot_table(index=SIZE, columns="form", values="seconds")
    return seconds.drop(columns=NUMERICAL, errors="ignore")


def _lead(rows: pd.DataFrame) -> float:
    """The smallest ratio of the time of the loop over rows to that of the fastest other form."""
    seconds = seconds_by_form(rows)
    row_by_row = seconds.pop("double sum")
    return float((row_by_row / seconds.min(axis=1)).min())


def _local_exponents(timed: pd.DataFrame, varied: str, form: str) -> str:
    """Exponents of a form between the smallest and the largest sizes, of mean seconds."""
    rows = chosen(timed, varied=varied, form=form)
    means = rows.groupby(varied)["seconds"].mean()
    slopes = []
    for (size, time), (larger, longer) in pairwise(means.items()):
        slopes.append(f"{math.log(longer / time) / math.log(larger / size):.2g}")
    if not slopes:
        return "one size"
    sizes = f"{means.index[0]:g} to {means.index[-1]:g}"
    return f"between consecutive sizes from {sizes}: {', '.join(slopes)}"


def _exponent(c: Case, name: str, varied: str, stated: float, form: str) -> Claim:
    """The interval over data sets of an exponent against the stated one and its margin."""
    margin = c.experiment.exponent_margin
    fits = c.evidence.of_seeds(f"exponent in {SIZES[varied]}, {form}").values()
    statement = c.statement(name, low=stated - margin, high=stated + margin)
    made = judge.bound(statement, [fit.slope for fit in fits])
    octaves = c.experiment.octaves
    detail = f"{form}, exponent over the last {octaves} doublings; {made.detail}"
    return replace(made, detail=detail)
