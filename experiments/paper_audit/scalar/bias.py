"""Scalar-spectrum paper, Section 3 and Appendix D (network with bias): what was checked, and the verdicts.

Shorthands: r² = (mean xδ)² + (mean δ)², s = ‖v‖² + ‖w‖².
"""

from __future__ import annotations

import torch

from experiments.paper_audit.checks import relative_error
from experiments.paper_audit.formula import Entry, Outcome, Witness, needs
from experiments.paper_audit.scalar import bias_terms as terms
from experiments.paper_audit.scalar import oracle
from experiments.paper_audit.scalar.cases import (
    Bias,
    Linear,
    bias_cases,
    compare,
    linear_cases,
    plain_bias_cases,
    theorem6_cases,
    worst,
)


def oblique_cases() -> list[Bias]:
    """‖v‖ = ‖b‖ without ⟨v, b⟩ = 0."""
    return [Bias(c.w, c.v, c.b / c.b.norm() * c.v.norm(), c.x, c.y) for c in plain_bias_cases()]


def unequal_cases() -> list[Bias]:
    """⟨v, b⟩ = 0 without ‖v‖ = ‖b‖."""
    return [Bias(c.w, c.v, 1.7 * c.b, c.x, c.y) for c in theorem6_cases()]


def correlated_cases() -> list[Bias]:
    """⟨v, b⟩ = 0 and ‖v‖ = ‖b‖ with targets as they come."""
    return [Bias(c.w, c.v, c.b, c.x, c.y + 1 + c.x) for c in theorem6_cases()]


def without_bias() -> Outcome:
    """Eq. (6) = (103): the outliers of Theorem 1 for σ² = 1 and mean xy = 0."""

    def prepared(c: Linear) -> Linear:
        x = c.x / (c.x**2).mean().sqrt()
        return Linear(c.w, c.v, x, c.y - (x * c.y).mean() * x)

    def error(c: Linear) -> float:
        p = prepared(c)
        s = p.vv + p.ww
        gap = torch.sqrt(s**2 + 12 * p.d**2)
        gaps = ((torch.stack([s + gap, s - gap]) / 2)[:, None] - p.eigenvalues[None, :]).abs().min(dim=1).values
        return float(gaps.max() / p.eigenvalues.abs().max())

    return worst(linear_cases(), error)


def generalises() -> Outcome:
    """b = 0 against ‖v‖ = ‖b‖; corrected: with w ⟂ b, ⟨v, b⟩ = 0 the pair is that of the network without bias."""
    errors = []
    for c in theorem6_cases():
        if c.m < 3:
            continue
        basis = torch.linalg.qr(torch.stack([c.v, c.w], 1)).Q
        b = c.b - basis @ (basis.T @ c.b)
        case = Bias(c.w, c.v, b * c.v.norm() / b.norm(), c.x, c.y)
        r2 = (torch.dot(c.w, c.v) * (c.x**2).mean() - (c.x * c.y).mean()) ** 2
        gap = torch.sqrt(case.s**2 + 12 * r2)
        errors.append(relative_error(terms.pair(case), torch.stack([case.s + gap, case.s - gap]) / 2))
        errors.append(terms.distance_to_spectrum(case, terms.pair(case)))
    witness = Witness("b = 0, any v ≠ 0: ‖v‖ = ‖b‖", "holds", "w ⟂ b instead of b = 0", "‖b‖ = 0 ≠ ‖v‖")
    return Outcome(1.0, max(errors), len(errors), witness)


def conjecture() -> Outcome:
    errors = [terms.many_inputs_error(d, seed) for d in (1, 2, 3, 4, 6) for seed in (0, 1)]
    return Outcome(max(errors), None, len(errors))


CHECKS: dict[str, Entry] = {
    "scalar.eq66_68": lambda: compare(
        bias_cases(False, False),
        lambda c: oracle.autodiff_gradient(oracle.bias_network, [c.w, c.v, c.b], c.x, c.y),
        terms.gradient,
    ),
    "scalar.eq69_73": lambda: compare(bias_cases(False, False), lambda c: c.hessian, terms.sample_hessian),
    "scalar.eq74_79": lambda: compare(bias_cases(True, False), lambda c: c.hessian, terms.block_hessian),
    "scalar.eq80_82": lambda: compare(bias_cases(), terms.shifted, terms.low_rank),
    "scalar.eq83": lambda: compare(bias_cases(), lambda c: torch.linalg.inv(terms.kernel(c)), terms.eq83),
    "scalar.eq84": lambda: compare(bias_cases(), terms.solved_columns, terms.eq84),
    "scalar.eq85": lambda: compare(bias_cases(), lambda c: terms.columns(c).T @ terms.solved_columns(c), terms.eq85),
    "scalar.sextic": lambda: compare(bias_cases(), terms.dense_sextic_value, terms.sextic_value),
    "scalar.eq86_96": lambda: compare(
        bias_cases(),
        terms.dense_sextic,
        lambda c: terms.eq86_96(c, False, True),
        lambda c: terms.eq86_96(c, True, True),
    ),
    "scalar.eq93_95": lambda: compare(
        bias_cases(),
        terms.dense_sextic,
        lambda c: terms.eq86_96(c, True, False),
        lambda c: terms.eq86_96(c, True, True),
    ),
    "scalar.sextic_collected": lambda: compare(
        bias_cases(), terms.dense_sextic, lambda c: terms.collected(c, False), lambda c: terms.collected(c, True)
    ),
    "scalar.sextic_simplified": lambda: compare(
        plain_bias_cases(),
        terms.dense_sextic,
        lambda c: terms.simplified(c, False),
        lambda c: terms.simplified(c, True),
    ),
    "scalar.eq97_101": lambda: compare(theorem6_cases(), terms.dense_sextic, terms.factored),
    "scalar.thm6_pair": lambda: worst(theorem6_cases(), lambda c: terms.distance_to_spectrum(c, terms.pair(c))),
    "scalar.eq6": without_bias,
    "scalar.eq104_106": lambda: compare(
        theorem6_cases(),
        lambda c: torch.stack(terms.depressed(c, True)),
        lambda c: torch.stack(terms.depressed(c, False)),
    ),
    "scalar.thm6_triple": lambda: worst(theorem6_cases(), lambda c: terms.distance_to_spectrum(c, terms.triple(c))),
    "scalar.thm6": needs(
        lambda: compare(theorem6_cases(), lambda c: c.eigenvalues, terms.theorem6),
        ("⟨v,b⟩ = 0", lambda: worst(oblique_cases(), lambda c: terms.distance_to_spectrum(c, terms.pair(c)))),
        (
            "mean y = mean xy = 0",
            lambda: worst(correlated_cases(), lambda c: terms.distance_to_spectrum(c, terms.pair(c))),
        ),
        ("‖v‖ = ‖b‖", lambda: worst(unequal_cases(), lambda c: terms.distance_to_spectrum(c, terms.pair(c)))),
    ),
    "scalar.thm6_overlines": lambda: worst(
        theorem6_cases(),
        lambda c: terms.distance_to_spectrum(c, terms.means_of_squares(c)),
        lambda c: terms.distance_to_spectrum(c, terms.pair(c)),
    ),
    "scalar.generalises": generalises,
    "scalar.triple_bounds": lambda: worst(theorem6_cases(), terms.bound_violation),
    "scalar.t_prime": lambda: compare(
        theorem6_cases(),
        lambda c: (2 * (-terms.depressed(c, False)[0] / 3).sqrt()).expand(2),
        lambda c: torch.stack([2 * (c.r2 / 3 + c.s**2 / 9).sqrt(), 2 / 3 * (c.s**2 + 3 * c.r2).sqrt()]),
    ),
    "scalar.centres": lambda: worst(theorem6_cases(), terms.centre_error),
    "scalar.conjecture": conjecture,
}
