"""Claims that do not rest on a draw of data: inequalities, the equality condition, the limit, and the closed forms."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from experiments.ws_bound.analysis import Tables, Variant, unique_points
from runner.contract.experiment import Claim, decide

if TYPE_CHECKING:
    from experiments.ws_bound import WsBound

STATEMENTS = {
    "Theorem 1": ("largest eigenvalue <= bound", "Theorem 1"),
    "lower bound": ("smallest eigenvalue >= lower bound", "HSR, Eq. 61"),
    "Theorem 3": ("tr H(v, v) <= I (N + 1) / 4", "Theorem 3"),
    "Theorem 4": ("tr H(w, w) <= (ζ₁ ||Ṽ||² / 4 + ζ₂ ||Ṽ||₁) Σ (1 + xᵀx)", "Theorem 4"),
    "Theorem 6": ("tr H² <= ||Ψ||² + (1 + max φ) ||J + XᵀX||² + ||J + RᵀR||² / 16", "Theorem 6"),
    "Prop. 8, left": ("(tr H)² / D <= tr H²", "Prop. 8"),
    "Prop. 8, right": ("tr H² <= (tr H)² where H is positive semi-definite", "Prop. 8"),
}
EQUAL = 1e-10
"""Relative distance at which the bound counts as attained."""
AGREES = 1e-3
"""Relative error of the three-point differences below which the two Hessians count as consistent."""
VANISHED = 1e-6  # of the first value: the errors of a path have vanished
FOLLOWED = 1e-3  # of the first value: the bound went with them; it is of order max|δ| ||Ṽ||², and ||Ṽ|| grows
"""λ_sup below this share of its first value on the path counts as tending to zero."""


def exact_claims(experiment: WsBound, tables: Tables, variant: Variant) -> Iterator[Claim]:
    """The exact claims of one variant, over all its widths, rates and data sets."""
    yield from _inequalities(tables, variant)
    yield from _equality(tables, variant)
    yield from _limits(tables, variant)
    yield from _closed_forms(tables, variant)


def _inequalities(tables: Tables, variant: Variant) -> Iterator[Claim]:
    rows = variant.rows(tables["theorems"], every_rate=True)
    for name, (statement, where) in STATEMENTS.items():
        own = rows[(rows["inequality"] == name) & (rows["points"] > 0)]
        points, holding = int(own["points"].sum()), int(own["holding"].sum())
        detail = f"holds at {holding} of {points} points"
        if points:
            detail += f"; slack (bound - value) / bound at least {own['slack_min'].min():.3g}, typically "
            detail += f"{own['slack_median'].median():.3g}"
        if name == "Prop. 8, right":
            total = int(rows.loc[rows["inequality"] == "Prop. 8, left", "points"].sum())
            detail += f"; {points} of {total} critical points are positive semi-definite"
        yield Claim(
            name,
            f"{statement} at every critical point",
            where,
            decide(holding == points if points else None),
            float(own["slack_min"].min()) if points else math.nan,
            "slack >= 0 up to rounding",
            detail,
            variant.group,
        )


def _equality(tables: Tables, variant: Variant) -> Iterator[Claim]:
    rows = variant.rows(tables["equality"], every_rate=True)
    gap = (rows["lambda_sup"] / rows["lambda_max"] - 1).abs()
    given, others = rows["condition"] == 1, rows["condition"] == 0
    attained = rows.loc[others & (gap < EQUAL), "case"].unique()
    strict = rows.loc[others & (gap >= EQUAL), "case"].unique()
    detail = f"{int(given.sum())} constructed spectra and networks of rank one"
    if len(strict):
        detail += f"; not attained by: {', '.join(strict)}"
    if len(attained):
        detail += f"; sufficient but not necessary, also attained by: {', '.join(attained)}"
    yield Claim(
        "Prop. 1",
        "the bound equals the largest eigenvalue when all others are zero",
        "Prop. 1",
        decide(bool((gap[given] < EQUAL).all()) if given.any() else None),
        float(gap[given].max()),
        f"relative difference < {EQUAL:g}",
        detail,
        variant.group,
    )


def _limits(tables: Tables, variant: Variant) -> Iterator[Claim]:
    rows = variant.rows(tables["limits"], every_rate=True)
    for path, name, statement, note in (
        (
            "scaled",
            "Theorem 7",
            "the bound tends to zero as the errors do, along growing V",
            "V scaled up, labels set to the network's decisions",
        ),
        (
            "cancelling",
            "Theorem 7 without a condition on the weights",
            "the bound tends to zero whenever the errors do",
            "two equal hidden units with weights ±1/√max|δ|: the errors vanish, the bound does not; "
            "max|δ| ||Ṽ||² -> 0 has to be assumed",
        ),
    ):
        own = rows[rows["path"] == path]
        ends = []
        for _, part in own.groupby([*(c for c in ("hidden", "rate", "seed") if c in own)], sort=True):
            ordered = part.sort_values("error_max", ascending=False)
            if ordered["error_max"].iloc[-1] < VANISHED * min(1.0, ordered["error_max"].iloc[0]):
                ends.append(float(ordered["lambda_sup"].iloc[-1] / ordered["lambda_sup"].iloc[0]))
        holds = all(v < FOLLOWED for v in ends) if ends else None
        detail = f"{len(ends)} paths; {note}"
        yield Claim(
            name,
            statement,
            "Theorem 7",
            decide(holds),
            max(ends, default=math.nan),
            f"bound < {FOLLOWED:g} of its first value where the errors are < {VANISHED:g} of theirs",
            detail,
            variant.group,
        )


def _closed_forms(tables: Tables, variant: Variant) -> Iterator[Claim]:
    points = unique_points(tables, variant)
    relative = (points["hessian_error"] / points["trace_of_square"] ** 0.5).dropna()
    yield Claim(
        "Hessian agrees with differences",
        "analytic and numerical Hessian are consistent",
        "Fig. 8, Section V-B",
        decide(bool((relative < AGREES).all()) if len(relative) else None),
        float(relative.max()),
        f"||ΔH|| / ||H|| < {AGREES:g}",
        f"{len(relative)} points; mean ||ΔH|| {points['hessian_error'].mean():.3g}, the error of the differences",
        variant.group,
    )
    if "traces" not in tables:
        return
    keys = ["protocol", "activation", "hidden", "rate", "seed", "start"]
    both = variant.rows(tables["traces"]).merge(points, on=keys)
    if both.empty:
        return
    worst = max(
        float((both[f"{name}_numerical"] / both[name] - 1).abs().max()) for name in ("trace", "trace_of_square")
    )
    yield Claim(
        "traces agree",
        "analytic traces of H and H² equal those of the numerical Hessian",
        "Fig. 9",
        decide(worst < AGREES),
        worst,
        f"largest relative difference < {AGREES:g}",
        f"{len(both)} points",
        variant.group,
    )
