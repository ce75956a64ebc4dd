"""Claims that do not rest on a draw of data: inequalities, the equality condition, the limit, and
the closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from experiments.three_layer.ws_bound.analysis import KEYS, Case
from runner.contract import Claim, decide
from runner.stats import judge
from runner.stats.tables import chosen

INEQUALITIES = (
    "Theorem 1",
    "lower bound",
    "Theorem 3",
    "Theorem 4",
    "Theorem 6",
    "Prop. 8, left",
    "Prop. 8, right",
)
OF_ANY_MATRIX = ("Theorem 1", "lower bound", "Prop. 8, left", "Prop. 8, right")
"""Inequalities that hold for every symmetric or positive semi-definite matrix, whatever network it
comes from.
"""
VANISHED = 1e-6
"""Share of their first value below which the errors of a path count as vanished."""
INFINITE = 1.0
"""Slack that `theorems` writes where a bound is infinite: there is nothing to test."""


def exact_claims(c: Case) -> Iterator[Claim]:
    """The exact claims of one variant, over all its widths, rates and data sets."""
    yield from inequalities(c, "theorems")
    yield _equality(c)
    yield from _limits(c)
    yield from _closed_forms(c)


def inequalities(c: Case, table: str) -> Iterator[Claim]:
    """The inequalities at the points of one variant, over its widths, rates and data sets; not run
    where the bound is infinite.
    """
    rows = c.rows(table, every_rate=True)
    threshold = "slack >= 0 up to rounding"
    for name in INEQUALITIES:
        statement = c.statement(name)
        named = rows["inequality"] == name
        tested = rows[named & (rows["points"] > 0)]
        points = int(tested["points"].sum())
        holding = int(tested["holding"].sum())
        vacuous = (tested["slack_min"] == INFINITE).all()
        if not points or vacuous:
            why = "no point to test"
            if points:
                why = "the bound is infinite for this activation"
            yield judge.claim(statement, "not run", detail=why, threshold=threshold)
            continue
        slack = float(tested["slack_min"].min())
        detail = (
            f"{c.group}: holds at {holding} of {points} points; slack (bound - value) / bound at "
            f"least {slack:.3g}, typically {tested['slack_median'].median():.3g}"
        )
        if name == "Theorem 4":
            detail += f"; {_constants(c.activation)}"
        if name == "Prop. 8, right":
            left = chosen(rows, inequality="Prop. 8, left")
            every = int(left["points"].sum())
            detail += (
                f"; only {points} of {every} points where the search stops are positive "
                "semi-definite"
            )
        if name in OF_ANY_MATRIX and holding == points:
            yield judge.constructed(statement, f"true of every such matrix; {detail}", slack)
        else:
            verdict = decide(holding == points)
            yield judge.claim(statement, verdict, slack, detail, threshold=threshold)


def _constants(activation: str) -> str:
    """The constants that Theorem 4 was tested with."""
    from runner.closed_form.three_layer.model import get_activation

    known = get_activation(activation)
    text = f"with ζ₁ = sup f'² = {known.sup_slope**2:.6g} and ζ₂ = sup |f''| = {known.sup_bend:.6g}"
    if activation == "gelu":
        return f"{text}; the printed ζ₁ = 1.272 is below the true constant"
    return text


def _equality(c: Case) -> Claim:
    rows = c.rows("equality", every_rate=True)
    statement = c.statement("Prop. 1")
    ratio = rows["lambda_sup"] / rows["lambda_max"]
    gap = (ratio - 1).abs()
    given = rows["condition"] == 1
    others = rows["condition"] == 0
    near = gap <= statement.high
    attained = rows.loc[others & near, "case"].unique()
    far = gap > statement.high
    strict = rows.loc[others & far, "case"].unique()
    detail = f"{int(given.sum())} constructed spectra and networks of rank one"
    if len(strict):
        detail += f"; not attained by: {', '.join(strict)}"
    if len(attained):
        detail += f"; sufficient but not necessary, also attained by: {', '.join(attained)}"
    largest = float(gap[given].max())
    return judge.exact(statement, {"": largest}, detail)


def _limits(c: Case) -> Iterator[Claim]:
    rows = c.rows("limits", every_rate=True)
    for path, name in (
        ("scaled", "Theorem 7"),
        ("cancelling", "Theorem 7 without a condition on the weights"),
    ):
        ends = []
        searches = chosen(rows, path=path).groupby(["hidden", "rate", "seed"], sort=True)
        for _, part in searches:
            ordered = part.sort_values("error_max", ascending=False)
            errors = ordered["error_max"]
            bounds = ordered["lambda_sup"]
            first = min(1.0, errors.iloc[0])
            if errors.iloc[-1] < VANISHED * first:
                share = bounds.iloc[-1] / bounds.max()
                ends.append(float(share))
        largest = max(ends, default=math.nan)
        statement = c.statement(name)
        yield judge.exact(statement, {"": largest}, f"{len(ends)} paths")


def _closed_forms(c: Case) -> Iterator[Claim]:
    points = c.points
    size = points["trace_of_square"] ** 0.5
    relative = (points["hessian_error"] / size).dropna()
    detail = (
        f"{len(relative)} points; mean ||ΔH|| {points['hessian_error'].mean():.3g}, the error of "
        "the differences"
    )
    largest = math.nan
    if len(relative):
        largest = float(relative.max())
    yield judge.exact(c.statement("Hessian agrees with differences"), {"": largest}, detail)
    if "traces" not in c.tables:
        return
    both = c.rows("traces").merge(points, on=KEYS)
    if both.empty:
        return
    worst = max(
        float((both[f"{name}_numerical"] / both[name] - 1).abs().max())
        for name in ("trace", "trace_of_square")
    )
    statement = c.statement("traces agree")
    yield judge.exact(statement, {"": worst}, f"{len(both)} points")
