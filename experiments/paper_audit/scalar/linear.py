"""Scalar-spectrum paper, Section 1 (linear network): eigenvalues and phases.

Shorthands: d = mean xδ, a = σ² = mean x², yx = mean xy, λ1 >= λ2 the outliers.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, dot

from experiments.paper_audit.checks import Checks, matches, relative_error
from experiments.paper_audit.formulas import Formula
from experiments.paper_audit.scalar.cases import (
    ascending,
    errors,
    linear_cases,
    random_instance,
    several,
)
from experiments.paper_audit.scalar.networks import Linear
from experiments.paper_audit.scalar.terms import (
    a,
    d,
    dense_eigenvalues,
    root,
    sqrt,
    stack,
    vv,
    wv,
    ww,
    yx,
)
from experiments.paper_audit.tensors import zeros
from experiments.scalar_spectrum.training import phase_of_slope, smallest_eigenvalue_bound

CHECKS = Checks()


trace = a * (ww + vv)
dense_trace = Formula(lambda c: c.hessian.trace())
outlier_gap = root(trace**2 + 4 * (d**2 + 2 * a * d * wv))
outliers = stack([trace + outlier_gap, trace - outlier_gap]) / 2
"""Eq. (1): (λ1, λ2)."""


def spectrum(c: Linear) -> Tensor:
    """Theorem 1: ±d, m−1 times each, and the outliers."""
    bulk = c.d.expand(c.m - 1)
    return ascending(bulk, -bulk, outliers(c))


CHECKS["scalar.thm1"] = matches(linear_cases, dense_eigenvalues, spectrum)
CHECKS["scalar.centre"] = matches(linear_cases, dense_trace, outliers[0] + outliers[1])


@Formula
def product_of_outliers(c: Linear) -> Tensor:
    """λ1 λ2 from the automatic Hessian: tr H and tr H² less the 2(m−1) bulk eigenvalues ±d."""
    of_bulk = 2 * (c.m - 1) * c.d**2
    squares = (c.hessian**2).sum() - of_bulk
    return (c.hessian.trace() ** 2 - squares) / 2


product_form = d**2 + 2 * a * d * wv
CHECKS["scalar.product_form"] = matches(linear_cases, -product_of_outliers, product_form)
product = (wv * a - yx) * (3 * wv * a - yx)
CHECKS["scalar.product"] = matches(linear_cases, -product_of_outliers, product)

first_outlier = dense_eigenvalues[-1]
second_outlier = product_of_outliers / first_outlier
dense_outliers = stack([first_outlier, second_outlier])
"""(λ1, λ2) from the automatic Hessian."""

eq2_gap = root(trace**2 / 4 - product_of_outliers)
eq2 = stack([trace / 2 + eq2_gap, trace / 2 - eq2_gap, trace])
"""(λ1, λ2, tr H) with tr H = σ²(‖w‖² + ‖v‖²)."""
dense_eq2 = stack([first_outlier, second_outlier, dense_trace])
CHECKS["scalar.eq2"] = matches(linear_cases, dense_eq2, eq2)

imbalance = (a * (ww - vv)) ** 2
angle = 4 * a**2 * (ww * vv - wv**2)
sharpness_gap = sqrt(imbalance + angle + 4 * (2 * wv * a - yx) ** 2)
sharpness_form = stack([trace + sharpness_gap, trace - sharpness_gap]) / 2
CHECKS["scalar.sharpness"] = matches(linear_cases, dense_outliers, sharpness_form)


def rank_one_error(c: Linear) -> float:
    """At the solution (y replaced by the network's own output): one eigenvalue tr H, the others
    zero."""
    solved = replace(c, y=c.wv * c.x)
    predicted = torch.cat([zeros(2 * c.m - 1), trace(c)[None]])
    return relative_error(solved.eigenvalues, predicted)


CHECKS["scalar.solution"] = errors(linear_cases, rank_one_error)


def eq34_violation(c: Linear) -> float:
    limit = torch.sqrt(2 * c.loss * c.a)
    return float((c.d.abs() - limit) / c.a)


def bound_violation(c: Linear) -> float:
    """How far λ_min lies below −√(2ℓ)σ, relative to the largest |eigenvalue|."""
    bound = smallest_eigenvalue_bound(c.loss, c.a)
    return float((bound - c.eigenvalues[0]) / c.eigenvalues.abs().max())


CHECKS["scalar.eq34"] = errors(linear_cases, eq34_violation)
CHECKS["scalar.lambda_min_bound"] = errors(linear_cases, bound_violation)
CHECKS["scalar.lambda_min"] = matches(several, dense_eigenvalues[0], -d, -abs(d))


def sections(target: float) -> list[Linear]:
    """Networks with slopes from before zero to beyond θ* = target, w scaled accordingly."""
    cases = []
    shares = (0.4, -0.5, 0.1, 0.3, 0.9, 1.1, 2.0)
    for seed, share in enumerate(shares):
        (w, v), x, _ = random_instance(seed, 1 + seed, 1 + seed)
        scaled = w * share * target / dot(w, v)
        cases.append(Linear(scaled, v, x, target * x))
    return cases


def slopes_of_both_signs() -> list[Linear]:
    return sections(-1.5) + sections(1.5)


def phase_violation(c: Linear, phase: str) -> float:
    """How far λ1 − tr H and λ2 are on the wrong side of zero for the phase, relative to tr H."""
    first, second = dense_outliers(c)
    side = -1.0 if phase == "late" else 1.0
    sum_of_both = trace(c)
    violation = torch.maximum(side * (sum_of_both - first), side * second)
    return float(violation / sum_of_both)


def printed_phase(c: Linear) -> str:
    """The paper's ordering along the real line, wherever θ* lies."""
    target = c.yx / c.a
    if c.wv <= target / 3:
        return "early"
    return "late" if c.wv <= target else "divergent"


def right_phase(c: Linear) -> str:
    return phase_of_slope(float(c.wv), float(c.yx / c.a))


CHECKS["scalar.phases"] = errors(
    slopes_of_both_signs,
    lambda c: phase_violation(c, printed_phase(c)),
    lambda c: phase_violation(c, right_phase(c)),
)


def product_sign_error(c: Linear, by_share: bool) -> float:
    """Does −λ1 λ2 < 0 agree with θ*/3 <= ⟨w, v⟩ <= θ* (by share: with ⟨w, v⟩/θ* between 1/3 and
    1)?"""
    target = c.yx / c.a
    inside = bool(target / 3 <= c.wv <= target)
    if by_share:
        inside = bool(1 / 3 <= c.wv / target <= 1)
    return float(bool(product_of_outliers(c) > 0) != inside)


CHECKS["scalar.product_sign"] = errors(
    slopes_of_both_signs,
    lambda c: product_sign_error(c, False),
    lambda c: product_sign_error(c, True),
)
