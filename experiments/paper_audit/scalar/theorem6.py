"""Scalar-spectrum paper, Section 3 and Appendix D: Theorem 6 (network with bias), and its
generalisations."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, dot

from experiments.paper_audit.checks import (
    Checks,
    Errors,
    Outcome,
    matches,
    outcome_of,
    relative_error,
)
from experiments.paper_audit.formulas import Formula, lifted
from experiments.paper_audit.scalar.bias import dense_sextic
from experiments.paper_audit.scalar.cases import (
    ascending,
    distance_to_spectrum,
    errors,
    linear_cases,
    plain_bias_cases,
    theorem6_cases,
)
from experiments.paper_audit.scalar.networks import (
    Bias,
    Linear,
    autodiff_hessian,
    multi_input_network,
)
from experiments.paper_audit.scalar.terms import dense_eigenvalues, one, r2, s, sqrt, stack, vv, ww
from experiments.paper_audit.tensors import gauss, seeded, zeros

CHECKS = Checks()


eq97 = -s
eq98 = -3 * r2
eq99 = -s
eq100 = -r2
eq101 = r2 * ww
"""A, B, C, D, E."""
l4 = eq98 + eq97 * eq99 + eq100
l3 = eq101 + eq97 * eq100 + eq98 * eq99
l2 = eq97 * eq101 + eq98 * eq100
factored = stack([one, eq97 + eq99, l4, l3, l2, eq98 * eq101, 0 * one])
"""λ (λ² + Aλ + B)(λ³ + Cλ² + Dλ + E) with Eqs. (97)–(101)."""
CHECKS["scalar.eq97_101"] = matches(theorem6_cases, dense_sextic, factored)


def two_roots(s: Tensor, r2: Tensor) -> Tensor:
    """(s ± √(s² + 12 r²)) / 2."""
    gap = torch.sqrt(s**2 + 12 * r2)
    roots = torch.stack([s + gap, s - gap])
    return roots / 2


pair = lifted(two_roots)(s, r2)
"""Eq. (5) = (102)."""


def pair_error(c: Bias) -> float:
    return distance_to_spectrum(c, pair(c))


mean_squares = Formula(lambda c: ((c.residual * c.x) ** 2 + c.residual**2).mean())
means_of_squares = lifted(two_roots)(s, mean_squares)
"""Eq. (5) with the overlines of our text: mean of (δx)² plus mean of δ²."""
CHECKS["scalar.thm6_pair"] = errors(theorem6_cases, pair_error)
CHECKS["scalar.thm6_overlines"] = errors(
    theorem6_cases, lambda c: distance_to_spectrum(c, means_of_squares(c)), pair_error
)


eq104 = -r2 - s**2 / 3
"""p."""
eq105 = (-2 * s**3 - 9 * s * r2 + 27 * r2 * ww) / 27
eq106 = -2 / 27 * s**3 - vv * r2 / 3 + 2 / 3 * ww * r2
"""q."""
CHECKS["scalar.eq104_106"] = matches(theorem6_cases, stack([eq104, eq105]), stack([eq104, eq106]))


cosine = 1.5 * eq106 / eq104 * sqrt(-3 / eq104)
angle = lifted(torch.arccos)(cosine) / 3
turns = 2 * torch.pi * torch.arange(3, dtype=torch.float64) / 3
amplitude = 2 * sqrt(-eq104 / 3)
"""2 √(−p/3) of Eq. (107), for each of the two printed forms of t'."""
triple = s / 3 + amplitude * lifted(torch.cos)(angle - turns)
"""Eq. (107) + s/3."""
CHECKS["scalar.thm6_triple"] = errors(theorem6_cases, lambda c: distance_to_spectrum(c, triple(c)))


def theorem6(c: Bias) -> Tensor:
    """The whole spectrum with the multiplicities m−2, m−2 and m−1 that the theorem leaves out."""
    r = torch.sqrt(c.r2).expand(c.m - 2)
    return ascending(pair(c), triple(c), r, -r, zeros(c.m - 1))


def oblique_cases() -> list[Bias]:
    """‖v‖ = ‖b‖ without ⟨v, b⟩ = 0."""
    cases = []
    for c in plain_bias_cases():
        b = c.b / c.b.norm() * c.v.norm()
        cases.append(replace(c, b=b))
    return cases


def unequal_cases() -> list[Bias]:
    """⟨v, b⟩ = 0 without ‖v‖ = ‖b‖."""
    return [replace(c, b=1.7 * c.b) for c in theorem6_cases()]


def correlated_cases() -> list[Bias]:
    """⟨v, b⟩ = 0 and ‖v‖ = ‖b‖ with targets as they come."""
    return [replace(c, y=c.y + 1 + c.x) for c in theorem6_cases()]


CHECKS["scalar.thm6"] = matches(theorem6_cases, dense_eigenvalues, theorem6)
CHECKS.without["scalar.thm6", "⟨v,b⟩ = 0"] = errors(oblique_cases, pair_error)
CHECKS.without["scalar.thm6", "mean y = mean xy = 0"] = errors(correlated_cases, pair_error)
CHECKS.without["scalar.thm6", "‖v‖ = ‖b‖"] = errors(unequal_cases, pair_error)


def bound_violation(c: Bias) -> float:
    """How far the triple leaves s/3 ± t', relative to t'."""
    reach = 2 / 3 * torch.sqrt(c.s**2 + 3 * c.r2)
    distances = (triple(c) - c.s / 3).abs()
    return float((distances - reach).max() / reach)


CHECKS["scalar.triple_bounds"] = errors(theorem6_cases, bound_violation)


t_prime = stack([2 * sqrt(r2 / 3 + s**2 / 9), 2 / 3 * sqrt(s**2 + 3 * r2)])
"""The two printed forms of t'."""
CHECKS["scalar.t_prime"] = matches(theorem6_cases, stack([amplitude, amplitude]), t_prime)


def centre_error(c: Bias) -> float:
    """Pair centred at tr H / 4, triple at tr H / 6."""
    trace = c.hessian.trace()
    of_pair = pair(c).mean() - trace / 4
    of_triple = triple(c).mean() - trace / 6
    error_of_pair = abs(float(of_pair / trace))
    error_of_triple = abs(float(of_triple / trace))
    return max(error_of_pair, error_of_triple)


CHECKS["scalar.centres"] = errors(theorem6_cases, centre_error)


def whitened_cases() -> list[Linear]:
    """Linear networks without bias, with σ² = 1 and mean xy = 0."""
    cases = []
    for c in linear_cases():
        x = c.x / (c.x**2).mean().sqrt()
        slope = (x * c.y).mean()
        y = c.y - slope * x
        cases.append(replace(c, x=x, y=y))
    return cases


def without_bias_error(c: Linear) -> float:
    """Eq. (6) = (103): the outliers of Theorem 1 for σ² = 1 and mean xy = 0."""
    return distance_to_spectrum(c, two_roots(c.vv + c.ww, c.d**2))


CHECKS["scalar.eq6"] = errors(whitened_cases, without_bias_error)


slope_without_bias = Formula(lambda c: c.wv * (c.x**2).mean() - (c.x * c.y).mean())
pair_without_bias = lifted(two_roots)(s, slope_without_bias**2)
"""Eq. (6), with mean xδ of the network without bias."""
CHECKS.without["scalar.generalises", "w ⟂ b"] = errors(
    theorem6_cases, lambda c: relative_error(pair(c), pair_without_bias(c))
)


@CHECKS.clause("scalar.generalises")
def generalises() -> Errors:
    """The pair of Eq. 5 where w ⟂ b, against Eq. 6 and against the spectrum; without w ⟂ b they
    differ."""
    for c in theorem6_cases():
        if c.m < 3:
            continue
        basis = torch.linalg.qr(torch.stack([c.v, c.w], 1)).Q
        b = c.b - basis @ (basis.T @ c.b)
        case = replace(c, b=b * c.v.norm() / b.norm())
        yield relative_error(pair(case), pair_without_bias(case))
        yield pair_error(case)


def many_inputs_error(d: int, seed: int = 0) -> float:
    """Conjecture for d inputs: a pair centred at tr H/(2d), triples at tr H/(3d).

    Columns of A orthogonal and of one norm, whitened inputs, targets uncorrelated with them.
    Theorem 6's pair and triple with r² = Σ⟨w, a_k⟩², the triple d−1 times, must be in the spectrum
    of the automatic Hessian, with ±r (m−d times each) and 0 ((d−1)(m−1) times).
    """
    m = d + 3
    n = 3 * d + 4
    generator = seeded(100 * seed + d)
    a = 1.7 * torch.linalg.qr(gauss(generator, m, d)).Q
    w = gauss(generator, m)
    inputs = torch.linalg.qr(gauss(generator, n, d)).Q * n**0.5
    y = gauss(generator, n)
    y = y - inputs @ (inputs.T @ y) / n
    values = torch.linalg.eigvalsh(autodiff_hessian(multi_input_network, [w, *a.T], inputs, y))
    v = a[:, 0]
    s = dot(v, v) + dot(w, w)
    r2 = ((a.T @ w) ** 2).sum()
    r = torch.sqrt(r2).expand(m - d)
    triples = _triple_by_companion(s, r2, dot(w, w)).repeat(d - 1)
    pairs = two_roots(s, r2)
    predicted = ascending(pairs, triples, r, -r, zeros((d - 1) * (m - 1)))
    trace = values.sum()
    off_centre = abs(float(s / 2 - trace / (2 * d))) / float(trace)
    return max(relative_error(predicted, values), off_centre)


def _triple_by_companion(s: Tensor, r2: Tensor, ww: Tensor) -> Tensor:
    """Roots of λ³ − s λ² − r² λ + r² ‖w‖²."""
    companion = zeros(3, 3)
    companion[0] = torch.stack([s, r2, -r2 * ww])
    companion[1, 0] = companion[2, 1] = 1.0
    return torch.linalg.eigvals(companion).real


@CHECKS.clause("scalar.conjecture")
def conjecture() -> Outcome:
    return outcome_of([many_inputs_error(d, seed) for d in (1, 2, 3, 4, 6) for seed in (0, 1)])
