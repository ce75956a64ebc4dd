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
    rows = c.variant.rows(c.tables[table], every_rate=True)
    for name in INEQUALITIES:
        own = rows[(rows["inequality"] == name) & (rows["points"] > 0)]
        points = int(own["points"].sum())
        holding = int(own["holding"].sum())
        threshold = "slack >= 0 up to rounding"
        if not points or (own["slack_min"] == INFINITE).all():
            why = "no point to test"
            if points:
                why = "the bound is infinite for this activation"
            yield judge.claim(c.says[name], "not run", detail=why, threshold=threshold)
            continue
        detail = (
            f"{c.variant.group}: holds at {holding} of {points} points; slack (bound - value) / "
            "bound at least "
            f"{own['slack_min'].min():.3g}, typically {own['slack_median'].median():.3g}"
        )
        if name == "Theorem 4":
            detail += f"; {_constants(c.variant.activation)}"
        if name == "Prop. 8, right":
            total = int(rows.loc[rows["inequality"] == "Prop. 8, left", "points"].sum())
            detail += (
                f"; only {points} of {total} points where the search stops are positive "
                "semi-definite"
            )
        slack = float(own["slack_min"].min())
        if name in OF_ANY_MATRIX and holding == points:
            yield judge.constructed(c.says[name], f"true of every such matrix; {detail}", slack)
        else:
            yield judge.claim(
                c.says[name], decide(holding == points), slack, detail, threshold=threshold
            )


def _constants(activation: str) -> str:
    """The constants that Theorem 4 was tested with."""
    from runner.curvature.closed_form.three_layer.model import get_activation

    known = get_activation(activation)
    text = f"with ζ₁ = sup f'² = {known.sup_slope**2:.6g} and ζ₂ = sup |f''| = {known.sup_bend:.6g}"
    if activation == "gelu":
        return f"{text}; the printed ζ₁ = 1.272 is below the true constant"
    return text


def _equality(c: Case) -> Claim:
    rows = c.variant.rows(c.tables["equality"], every_rate=True)
    statement = c.says["Prop. 1"]
    gap = (rows["lambda_sup"] / rows["lambda_max"] - 1).abs()
    given = rows["condition"] == 1
    others = rows["condition"] == 0
    attained = rows.loc[others & (gap <= statement.high), "case"].unique()
    strict = rows.loc[others & (gap > statement.high), "case"].unique()
    detail = f"{int(given.sum())} constructed spectra and networks of rank one"
    if len(strict):
        detail += f"; not attained by: {', '.join(strict)}"
    if len(attained):
        detail += f"; sufficient but not necessary, also attained by: {', '.join(attained)}"
    return judge.exact(statement, {"": float(gap[given].max())}, detail)


def _limits(c: Case) -> Iterator[Claim]:
    rows = c.variant.rows(c.tables["limits"], every_rate=True)
    for path, name in (
        ("scaled", "Theorem 7"),
        ("cancelling", "Theorem 7 without a condition on the weights"),
    ):
        own = chosen(rows, path=path)
        ends = []
        for _, part in own.groupby([k for k in ("hidden", "rate", "seed") if k in own], sort=True):
            ordered = part.sort_values("error_max", ascending=False)
            if ordered["error_max"].iloc[-1] < VANISHED * min(1.0, ordered["error_max"].iloc[0]):
                ends.append(float(ordered["lambda_sup"].iloc[-1] / ordered["lambda_sup"].max()))
        yield judge.exact(c.says[name], {"": max(ends, default=math.nan)}, f"{len(ends)} paths")


def _closed_forms(c: Case) -> Iterator[Claim]:
    points = c.points
    relative = (points["hessian_error"] / points["trace_of_square"] ** 0.5).dropna()
    detail = (
        f"{len(relative)} points; mean ||ΔH|| {points['hessian_error'].mean():.3g}, the error of "
        "the differences"
    )
    largest = math.nan
    if len(relative):
        largest = float(relative.max())
    yield judge.exact(c.says["Hessian agrees with differences"], {"": largest}, detail)
    if "traces" not in c.tables:
        return
    both = c.variant.rows(c.tables["traces"]).merge(points, on=KEYS)
    if both.empty:
        return
    worst = max(
        float((both[f"{name}_numerical"] / both[name] - 1).abs().max())
        for name in ("trace", "trace_of_square")
    )
    yield judge.exact(c.says["traces agree"], {"": worst}, f"{len(both)} points")
