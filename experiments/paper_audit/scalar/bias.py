"""Scalar-spectrum paper, Section 3 and Appendix D (network with bias): what was checked, and the verdicts.

Shorthands: r² = (mean xδ)² + (mean δ)², s = ‖v‖² + ‖w‖².
"""

from __future__ import annotations

import torch

from experiments.paper_audit.formula import Formula, Outcome
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


NORM_SLIP = "‖b‖ + ‖w‖² has to be ‖b‖² + ‖w‖²"


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


def conjecture() -> Outcome:
    errors = [terms.many_inputs_error(d, seed) for d in (1, 2, 3, 4, 6) for seed in (0, 1)]
    return Outcome(max(errors), None, len(errors))


FORMULAS: tuple[Formula, ...] = (
    Formula(
        "scalar.eq66_68",
        "Eqs. 66–68",
        "gradients of the network with bias",
        lambda: compare(
            bias_cases(False, False),
            lambda c: oracle.autodiff_gradient(oracle.bias_network, [c.w, c.v, c.b], c.x, c.y),
            terms.gradient,
        ),
    ),
    Formula(
        "scalar.eq69_73",
        "Eqs. 69–73",
        "Hessian blocks of one sample, averaged",
        lambda: compare(bias_cases(False, False), lambda c: c.hessian, terms.sample_hessian),
    ),
    Formula(
        "scalar.eq74_79",
        "Eqs. 74–79",
        "Hessian for mean x = 0",
        lambda: compare(bias_cases(True, False), lambda c: c.hessian, terms.block_hessian),
    ),
    Formula(
        "scalar.eq80_82",
        "Eqs. 80–82",
        "H − λI = U Uᵀ + K ⊗ I (σ² = 1, mean x = 0)",
        lambda: compare(bias_cases(), terms.shifted, terms.low_rank),
    ),
    Formula(
        "scalar.eq83",
        "Eq. 83",
        "inverse of the 3×3 factor of A",
        lambda: compare(bias_cases(), lambda c: torch.linalg.inv(terms.kernel(c)), terms.eq83),
    ),
    Formula("scalar.eq84", "Eq. 84", "A⁻¹ U", lambda: compare(bias_cases(), terms.solved_columns, terms.eq84)),
    Formula(
        "scalar.eq85",
        "Eq. 85",
        "Uᵀ A⁻¹ U = −B/(λ(λ² − r²))",
        lambda: compare(bias_cases(), lambda c: terms.columns(c).T @ terms.solved_columns(c), terms.eq85),
    ),
    Formula(
        "scalar.sextic",
        "after Eq. 85",
        "|H − λI| = [−λ(λ² − r²)]^(m−2) |B − λ(λ² − r²) I|",
        lambda: compare(bias_cases(), terms.dense_sextic_value, terms.sextic_value),
    ),
    Formula(
        "scalar.eq86_96",
        "Eqs. 86–96",
        "that determinant expanded (read with the terms of 94 and 95 inside the bracket of 93)",
        lambda: compare(
            bias_cases(),
            terms.dense_sextic,
            lambda c: terms.eq86_96(c, False, True),
            lambda c: terms.eq86_96(c, True, True),
        ),
        "holds after correction",
        "scalar.norm_b",
        NORM_SLIP + " in (89)",
    ),
    Formula(
        "scalar.eq93_95",
        "Eqs. 93–95",
        "the terms of (94) and (95) with plus signs, after the bracket of (93) (read with ‖b‖² in 89)",
        lambda: compare(
            bias_cases(),
            terms.dense_sextic,
            lambda c: terms.eq86_96(c, True, False),
            lambda c: terms.eq86_96(c, True, True),
        ),
        "holds after correction",
        "scalar.eq93",
        "they belong inside the bracket and take its minus sign",
    ),
    Formula(
        "scalar.sextic_collected",
        "after Eq. 96",
        "coefficients collected by degree",
        lambda: compare(
            bias_cases(), terms.dense_sextic, lambda c: terms.collected(c, False), lambda c: terms.collected(c, True)
        ),
        "holds after correction",
        "scalar.norm_b",
        NORM_SLIP,
    ),
    Formula(
        "scalar.sextic_simplified",
        "after Eq. 96",
        "the same for mean xy = mean y = 0",
        lambda: compare(
            plain_bias_cases(),
            terms.dense_sextic,
            lambda c: terms.simplified(c, False),
            lambda c: terms.simplified(c, True),
        ),
        "holds after correction",
        "scalar.norm_b",
        NORM_SLIP,
    ),
    Formula(
        "scalar.eq97_101",
        "Eqs. 97–101",
        "factors (λ² + Aλ + B)(λ³ + Cλ² + Dλ + E) for ⟨v,b⟩ = 0, ‖v‖ = ‖b‖",
        lambda: compare(theorem6_cases(), terms.dense_sextic, terms.factored),
    ),
    Formula(
        "scalar.thm6_pair",
        "Theorem 6, Eqs. 5, 102",
        "outlier pair ½s ± ½√(s² + 12 r²)",
        lambda: worst(theorem6_cases(), lambda c: terms.distance_to_spectrum(c, terms.pair(c))),
    ),
    Formula("scalar.eq6", "Eqs. 6, 103", "the pair without bias, ½s ± ½√(s² + 12 (mean xδ)²)", without_bias),
    Formula(
        "scalar.eq104_106",
        "Eqs. 104–106",
        "p and q of the depressed cubic; (105) = (106)",
        lambda: compare(
            theorem6_cases(),
            lambda c: torch.stack(terms.depressed(c, True)),
            lambda c: torch.stack(terms.depressed(c, False)),
        ),
    ),
    Formula(
        "scalar.thm6_triple",
        "Theorem 6, Eq. 107",
        "triple s/3 + 2√(−p/3) cos(φ − 2πk/3)",
        lambda: worst(theorem6_cases(), lambda c: terms.distance_to_spectrum(c, terms.triple(c))),
    ),
    Formula(
        "scalar.thm6",
        "Theorem 6",
        "whole spectrum: pair, triple, bulk ±r, zeros; multiplicities (not stated there) m−2, m−2, m−1",
        lambda: compare(theorem6_cases(), lambda c: c.eigenvalues, terms.theorem6),
        dropped=(
            ("⟨v,b⟩ = 0", lambda: worst(oblique_cases(), lambda c: terms.distance_to_spectrum(c, terms.pair(c)))),
            (
                "mean y = mean xy = 0",
                lambda: worst(correlated_cases(), lambda c: terms.distance_to_spectrum(c, terms.pair(c))),
            ),
            ("‖v‖ = ‖b‖", lambda: worst(unequal_cases(), lambda c: terms.distance_to_spectrum(c, terms.pair(c)))),
        ),
    ),
    Formula(
        "scalar.triple_bounds",
        "after Theorem 6",
        "triple within s/3 ± ⅔√(s² + 3 r²)",
        lambda: worst(theorem6_cases(), terms.bound_violation),
    ),
    Formula(
        "scalar.t_prime",
        "after Theorem 6; after Eq. 107",
        "t' = 2√(−p/3) = 2√(r²/3 + s²/9) = ⅔√(s² + 3 r²)",
        lambda: compare(
            theorem6_cases(),
            lambda c: (2 * (-terms.depressed(c, False)[0] / 3).sqrt()).expand(2),
            lambda c: torch.stack([2 * (c.r2 / 3 + c.s**2 / 9).sqrt(), 2 / 3 * (c.s**2 + 3 * c.r2).sqrt()]),
        ),
    ),
    Formula(
        "scalar.centres",
        "Section 3",
        "tr H = 2(‖v‖² + ‖w‖²), pair centred at tr H/4, triple at tr H/6",
        lambda: worst(theorem6_cases(), terms.centre_error),
    ),
    Formula(
        "scalar.conjecture",
        "Section 3, conjecture",
        "for d inputs: pair centred at tr H/(2d), triples at tr H/(3d), d−1 of them",
        conjecture,
    ),
)
