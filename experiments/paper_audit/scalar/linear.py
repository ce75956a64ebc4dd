"""Scalar-spectrum paper, Section 1 and Appendices A and C.1 (linear network): what was checked, and the verdicts.

Shorthands: d = mean xδ, σ² = mean x², yx = mean xy, λ1 >= λ2 the outliers.
"""

from __future__ import annotations

import torch

from experiments.paper_audit.formula import Formula
from experiments.paper_audit.scalar import linear_terms as terms
from experiments.paper_audit.scalar import oracle
from experiments.paper_audit.scalar.cases import compare, covariance_cases, linear_cases, worst

FORMULAS: tuple[Formula, ...] = (
    Formula(
        "scalar.thm1",
        "Theorem 1, Eqs. 1, 29, 33",
        "spectrum of the linear net: ±d, m−1 times each, and two outliers",
        lambda: compare(linear_cases(), lambda c: c.eigenvalues, terms.spectrum),
    ),
    Formula(
        "scalar.eq2",
        "Eq. 2",
        "outliers = tr/2 ± √(tr²/4 − λ1 λ2), tr H = σ²(‖w‖² + ‖v‖²)",
        lambda: compare(
            linear_cases(),
            lambda c: torch.cat([terms.dense_outliers(c), c.hessian.trace()[None]]),
            terms.eq2,
        ),
    ),
    Formula(
        "scalar.centre",
        "Section 3",
        "for one input the pair is centred at tr H / 2",
        lambda: compare(linear_cases(), lambda c: c.hessian.trace(), lambda c: terms.outliers(c).sum()),
    ),
    Formula(
        "scalar.product_form",
        "Section 1; after Eq. 33",
        "−λ1 λ2 = d² + 2σ² d ⟨w,v⟩ = d (d + 2σ² ⟨w,v⟩)",
        lambda: compare(
            linear_cases(),
            lambda c: -terms.product_of_outliers(c),
            lambda c: c.d**2 + 2 * c.a * c.d * c.wv,
        ),
    ),
    Formula(
        "scalar.product",
        "Section 1",
        "−λ1 λ2 = (⟨w,v⟩σ² − yx)(3⟨w,v⟩σ² − yx)",
        lambda: compare(
            linear_cases(),
            lambda c: -terms.product_of_outliers(c),
            lambda c: (c.wv * c.a - c.yx) * (3 * c.wv * c.a - c.yx),
        ),
    ),
    Formula(
        "scalar.product_sign",
        "Section 1",
        "−λ1 λ2 < 0 exactly for θ*/3 <= ⟨w,v⟩ <= θ*",
        lambda: worst(
            terms.sections(-1.5) + terms.sections(1.5),
            lambda c: terms.product_sign_error(c, False),
            lambda c: terms.product_sign_error(c, True),
        ),
        "holds after correction",
        "scalar.phases",
        "needs θ* > 0; for θ* < 0 the interval is [θ*, θ*/3]. In general 1/3 <= ⟨w,v⟩/θ* <= 1",
    ),
    Formula(
        "scalar.phases",
        "Section 1",
        "early (⟨w,v⟩ <= θ*/3) and divergent (>= θ*): λ1 >= tr H, λ2 <= 0; late: the reverse",
        lambda: worst(
            terms.sections(-1.5) + terms.sections(1.5),
            lambda c: terms.phase_violation(c, terms.printed_phase(c)),
            lambda c: terms.phase_violation(c, terms.right_phase(c)),
        ),
        "holds after correction",
        "scalar.phases",
        "needs θ* > 0; in general early ⟨w,v⟩/θ* <= 1/3, late up to 1, divergent beyond 1",
    ),
    Formula(
        "scalar.solution",
        "Section 1",
        "at zero residual the Hessian has rank one with eigenvalue tr H",
        lambda: worst(linear_cases(), terms.rank_one_error),
    ),
    Formula(
        "scalar.scaling",
        "Section 1",
        "the eigenvalues scale in proportion to σ²",
        lambda: compare(
            linear_cases(),
            lambda c: 9 * c.eigenvalues,
            lambda c: terms.scaled(c, 3.0, False),
            lambda c: terms.scaled(c, 3.0, True),
        ),
        "holds after correction",
        "scalar.scaling",
        "the targets must be scaled with the inputs: mean xy, and so mean xδ, scales like xy, not like x²",
    ),
    Formula(
        "scalar.sharpness",
        "Section 1, interpretation",
        "λ1,2 by norm discrepancy, collinearity, and target",
        lambda: compare(linear_cases(), terms.dense_outliers, terms.sharpness_form),
    ),
    Formula(
        "scalar.thm2",
        "Theorem 2, Eq. 3",
        "outlier eigenvectors λ(w, v) + d(v, w), general position",
        lambda: worst(linear_cases(), terms.outlier_vectors_error),
    ),
    Formula(
        "scalar.thm2_degenerate",
        "Theorem 2, Eq. 3",
        "the same for w = −v or zero residual (w = v is excluded in Appendix C.1)",
        lambda: worst(
            terms.degenerate_cases(),
            terms.outlier_vectors_error,
            terms.repaired_vector_error,
        ),
        "holds after correction",
        "scalar.thm2",
        "needs w ≠ −v and d ≠ 0, too: for w = −v (λ = d) and d = 0 (λ = 0) it gives the zero vector",
    ),
    Formula(
        "scalar.thm2_gradient",
        "after Theorem 2",
        "z = (λ/d) ∇ℓ + d θ",
        lambda: worst(terms.several(), terms.gradient_form_error),
    ),
    Formula(
        "scalar.thm2_orthogonal",
        "after Theorem 2",
        "the two outlier eigenvectors are orthogonal",
        lambda: worst(terms.several(), terms.outlier_angle),
    ),
    Formula(
        "scalar.thm3",
        "Theorem 3",
        "bulk eigenvectors (ẑ, sgn(λ) ẑ), ẑ ⟂ w + sgn(λ) v",
        lambda: worst(
            covariance_cases(-1) + covariance_cases(1),
            lambda c: terms.bulk_error(c, False),
            lambda c: terms.bulk_error(c, True),
        ),
        "holds after correction",
        "scalar.thm3",
        "right for d > 0 only; the sign is that of λ·d, as cases (a) and (b) of Appendix C.1 say",
    ),
    Formula(
        "scalar.eq7_8",
        "Eqs. 7, 8",
        "∇_w ℓ = d v, ∇_v ℓ = d w",
        lambda: compare(
            linear_cases(),
            lambda c: oracle.autodiff_gradient(oracle.linear_network, [c.v, c.w], c.x, c.y),
            lambda c: torch.cat([c.d * c.w, c.d * c.v]),
        ),
    ),
    Formula(
        "scalar.eq9",
        "Eq. 9",
        "∇²_ww ℓ = σ² v vᵀ",
        lambda: compare(linear_cases(), lambda c: c.hessian[c.m :, c.m :], lambda c: c.a * torch.outer(c.v, c.v)),
    ),
    Formula(
        "scalar.eq10",
        "Eq. 10",
        "∇²_vv ℓ = σ² w wᵀ",
        lambda: compare(linear_cases(), lambda c: c.hessian[: c.m, : c.m], lambda c: c.a * torch.outer(c.w, c.w)),
    ),
    Formula(
        "scalar.eq11",
        "Eq. 11",
        "∇²_wv ℓ = d I + σ² v wᵀ (row w, column v)",
        lambda: compare(
            linear_cases(),
            lambda c: c.hessian[c.m :, : c.m],
            lambda c: c.d * terms.identity(c) + c.a * torch.outer(c.v, c.w),
        ),
    ),
    Formula(
        "scalar.eq12",
        "Eq. 12",
        "H = [[σ² w wᵀ, σ² v wᵀ + d I], [σ² v wᵀ + d I, σ² v vᵀ]]",
        lambda: compare(linear_cases(), lambda c: c.hessian, terms.printed_matrix, terms.right_matrix),
        "holds after correction",
        "scalar.eq12",
        "upper right block is σ² w vᵀ + d I, as in Eq. 45",
    ),
    Formula(
        "scalar.eq13",
        "Eq. 13",
        "|H − λI| from the matrix of Eq. 12",
        lambda: compare(
            linear_cases(),
            lambda c: terms.determinant(c.hessian),
            lambda c: terms.determinant(terms.printed_matrix(c)),
            lambda c: terms.determinant(terms.right_matrix(c)),
        ),
        "holds after correction",
        "scalar.eq12",
        "inherits Eq. 12's upper right block: σ² w vᵀ + d I",
    ),
    Formula(
        "scalar.eq14",
        "Eq. 14",
        "Schur complement A − (σ² v wᵀ + d I)(D − λ)⁻¹(σ² v wᵀ + d I) of H − λI",
        lambda: compare(linear_cases(), terms.schur_of_hessian, terms.printed_schur, terms.right_schur),
        "holds after correction",
        "scalar.eq12",
        "left factor is σ² w vᵀ + d I",
    ),
    Formula(
        "scalar.eq15",
        "Eq. 15",
        "(σ² v vᵀ − λI)⁻¹ = −I/λ − σ²/(λ(λ − ‖v‖²σ²)) v vᵀ",
        lambda: compare(
            linear_cases(),
            terms.shifted_inverse,
            terms.woodbury,
        ),
    ),
    Formula(
        "scalar.eq16",
        "Eq. 16",
        "σ² w wᵀ − λ + (σ² w wᵀ + d)(I/λ + …)(σ² v vᵀ + d) is the Schur complement",
        lambda: compare(linear_cases(), terms.schur_of_hessian, terms.eq16, terms.right_schur),
        "holds after correction",
        "scalar.eq16",
        "the outer factors are σ² w vᵀ + d I and σ² v wᵀ + d I",
    ),
    Formula(
        "scalar.eq17_19",
        "Eqs. 17–19",
        "the expanded Schur complement",
        lambda: compare(linear_cases(), terms.schur_of_hessian, terms.eq17_19),
    ),
    Formula(
        "scalar.eq20_25",
        "Eqs. 20–25",
        "its coefficients collected",
        lambda: compare(linear_cases(), terms.schur_of_hessian, terms.eq24_25),
    ),
    Formula(
        "scalar.eq26",
        "Eq. 26",
        "the same times λ(λ − σ²‖v‖²)",
        lambda: compare(
            linear_cases(), lambda c: terms.LAMBDA * (terms.LAMBDA - c.a * c.vv) * terms.schur_of_hessian(c), terms.eq26
        ),
    ),
    Formula(
        "scalar.eq27",
        "Eq. 27",
        "equals σ² z zᵀ − ν I with z = λw + d v, ν = (λ² − d²)(λ − σ²‖v‖²)",
        lambda: compare(linear_cases(), terms.eq26, terms.eq27),
    ),
    Formula(
        "scalar.eq28",
        "Eq. 28",
        "|σ² z zᵀ − νI| = ν^(m−1)(σ²‖z‖² − ν)",
        lambda: compare(
            linear_cases(),
            lambda c: torch.linalg.det(terms.eq27(c)),
            terms.eq28,
            lambda c: (-1.0) ** (c.m - 1) * terms.eq28(c),
        ),
        "holds after correction",
        "scalar.eq28",
        "factor (−1)^(m−1) left out; the roots are the same",
    ),
    Formula(
        "scalar.eq30",
        "Eq. 30",
        "σ²‖z‖² − ν written out",
        lambda: compare(linear_cases(), terms.cubic, lambda c: terms.eq30(c, False), lambda c: terms.eq30(c, True)),
        "holds after correction",
        "scalar.eq30",
        "fifth and sixth term are σ²‖v‖²λ² and d²λ, as Eq. 31 needs",
    ),
    Formula(
        "scalar.eq31",
        "Eq. 31",
        "the same collected by powers of λ",
        lambda: compare(linear_cases(), terms.cubic, terms.eq31),
    ),
    Formula(
        "scalar.eq32",
        "Eq. 32",
        "the same with λ factored out",
        lambda: compare(linear_cases(), terms.cubic, terms.eq32),
    ),
    Formula(
        "scalar.eq34",
        "Eq. 34",
        "d <= √(2ℓ) σ",
        lambda: worst(linear_cases(), lambda c: float((c.d.abs() - torch.sqrt(2 * c.loss * c.a)) / c.a)),
    ),
    Formula(
        "scalar.lambda_min_bound",
        "after Eq. 34",
        "λ_min >= −√(2ℓ) σ",
        lambda: worst(linear_cases(), terms.bound_violation),
    ),
    Formula(
        "scalar.lambda_min",
        "after Eq. 34",
        "λ_min = −d",
        lambda: compare(terms.several(), lambda c: c.eigenvalues[0], lambda c: -c.d, lambda c: -c.d.abs()),
        "holds after correction",
        "scalar.lambda_min",
        "λ_min = −|d| (m >= 2); for d < 0 the printed value is a positive eigenvalue of the bulk",
    ),
    Formula(
        "scalar.eq45",
        "Eqs. 45, 46",
        "H in block form",
        lambda: compare(linear_cases(), lambda c: c.hessian, terms.right_matrix),
    ),
    Formula(
        "scalar.eq47_52",
        "Eqs. 47–52",
        "the eigenvector equations by halves",
        lambda: worst(linear_cases(), terms.eigen_system_error),
    ),
    Formula(
        "scalar.eq53_57",
        "Eqs. 53–57",
        "outlier eigenvectors from d z2 − λ z1 = α w, d z1 − λ z2 = α v",
        lambda: worst(terms.several(), terms.eq53_57_error),
    ),
    Formula(
        "scalar.eq58_63",
        "Eqs. 58–63",
        "bulk: z2 = ±z1 with z1 ⟂ w ± v for λ = ±d; (a) ⟂ (b) ⟂ outliers",
        lambda: worst(terms.several(), terms.bulk_constraint_error),
    ),
)
