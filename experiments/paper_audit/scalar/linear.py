"""Scalar-spectrum paper, Section 1 and Appendices A and C.1 (linear network): what was checked, and the verdicts.

Shorthands: d = mean xδ, σ² = mean x², yx = mean xy, λ1 >= λ2 the outliers.
"""

from __future__ import annotations

import torch

from experiments.paper_audit.formula import Entry
from experiments.paper_audit.scalar import linear_terms as terms
from experiments.paper_audit.scalar import oracle
from experiments.paper_audit.scalar.cases import compare, covariance_cases, linear_cases, worst

CHECKS: dict[str, Entry] = {
    "scalar.thm1": lambda: compare(linear_cases(), lambda c: c.eigenvalues, terms.spectrum),
    "scalar.eq2": lambda: compare(
        linear_cases(),
        lambda c: torch.cat([terms.dense_outliers(c), c.hessian.trace()[None]]),
        terms.eq2,
    ),
    "scalar.centre": lambda: compare(linear_cases(), lambda c: c.hessian.trace(), lambda c: terms.outliers(c).sum()),
    "scalar.product_form": lambda: compare(
        linear_cases(),
        lambda c: -terms.product_of_outliers(c),
        lambda c: c.d**2 + 2 * c.a * c.d * c.wv,
    ),
    "scalar.product": lambda: compare(
        linear_cases(),
        lambda c: -terms.product_of_outliers(c),
        lambda c: (c.wv * c.a - c.yx) * (3 * c.wv * c.a - c.yx),
    ),
    "scalar.product_sign": lambda: worst(
        terms.sections(-1.5) + terms.sections(1.5),
        lambda c: terms.product_sign_error(c, False),
        lambda c: terms.product_sign_error(c, True),
    ),
    "scalar.phases": lambda: worst(
        terms.sections(-1.5) + terms.sections(1.5),
        lambda c: terms.phase_violation(c, terms.printed_phase(c)),
        lambda c: terms.phase_violation(c, terms.right_phase(c)),
    ),
    "scalar.solution": lambda: worst(linear_cases(), terms.rank_one_error),
    "scalar.sharpness": lambda: compare(linear_cases(), terms.dense_outliers, terms.sharpness_form),
    "scalar.thm2": lambda: worst(linear_cases(), terms.outlier_vectors_error),
    "scalar.thm2_degenerate": lambda: worst(
        terms.degenerate_cases(),
        terms.outlier_vectors_error,
        terms.repaired_vector_error,
    ),
    "scalar.thm2_gradient": lambda: worst(terms.several(), terms.gradient_form_error),
    "scalar.thm2_normalised": lambda: worst(terms.several(), terms.length_error, terms.outlier_angle),
    "scalar.thm2_orthogonal": lambda: worst(terms.several(), terms.outlier_angle),
    "scalar.thm3": lambda: worst(
        covariance_cases(-1) + covariance_cases(1),
        lambda c: terms.bulk_error(c, False),
        lambda c: terms.bulk_error(c, True),
    ),
    "scalar.eq7_8": lambda: compare(
        linear_cases(),
        lambda c: oracle.autodiff_gradient(oracle.linear_network, [c.v, c.w], c.x, c.y),
        lambda c: torch.cat([c.d * c.w, c.d * c.v]),
    ),
    "scalar.eq9": lambda: compare(
        linear_cases(), lambda c: c.hessian[c.m :, c.m :], lambda c: c.a * torch.outer(c.v, c.v)
    ),
    "scalar.eq10": lambda: compare(
        linear_cases(), lambda c: c.hessian[: c.m, : c.m], lambda c: c.a * torch.outer(c.w, c.w)
    ),
    "scalar.eq11": lambda: compare(
        linear_cases(),
        lambda c: c.hessian[c.m :, : c.m],
        lambda c: c.d * terms.identity(c) + c.a * torch.outer(c.v, c.w),
    ),
    "scalar.eq12": lambda: compare(linear_cases(), lambda c: c.hessian, terms.printed_matrix, terms.right_matrix),
    "scalar.eq13": lambda: compare(
        linear_cases(),
        lambda c: terms.determinant(c.hessian),
        lambda c: terms.determinant(terms.printed_matrix(c)),
        lambda c: terms.determinant(terms.right_matrix(c)),
    ),
    "scalar.eq14": lambda: compare(linear_cases(), terms.schur_of_hessian, terms.printed_schur, terms.right_schur),
    "scalar.eq15": lambda: compare(
        linear_cases(),
        terms.shifted_inverse,
        terms.woodbury,
    ),
    "scalar.eq16": lambda: compare(linear_cases(), terms.schur_of_hessian, terms.eq16, terms.right_schur),
    "scalar.eq17_19": lambda: compare(linear_cases(), terms.schur_of_hessian, terms.eq17_19),
    "scalar.eq20_25": lambda: compare(linear_cases(), terms.schur_of_hessian, terms.eq24_25),
    "scalar.eq26": lambda: compare(
        linear_cases(), lambda c: terms.LAMBDA * (terms.LAMBDA - c.a * c.vv) * terms.schur_of_hessian(c), terms.eq26
    ),
    "scalar.eq27": lambda: compare(linear_cases(), terms.eq26, terms.eq27),
    "scalar.eq28": lambda: compare(
        linear_cases(),
        lambda c: torch.linalg.det(terms.eq27(c)),
        terms.eq28,
        lambda c: (-1.0) ** (c.m - 1) * terms.eq28(c),
    ),
    "scalar.eq30": lambda: compare(
        linear_cases(), terms.cubic, lambda c: terms.eq30(c, False), lambda c: terms.eq30(c, True)
    ),
    "scalar.eq31": lambda: compare(linear_cases(), terms.cubic, terms.eq31),
    "scalar.eq32": lambda: compare(linear_cases(), terms.cubic, terms.eq32),
    "scalar.eq34": lambda: worst(linear_cases(), lambda c: float((c.d.abs() - torch.sqrt(2 * c.loss * c.a)) / c.a)),
    "scalar.lambda_min_bound": lambda: worst(linear_cases(), terms.bound_violation),
    "scalar.lambda_min": lambda: compare(
        terms.several(), lambda c: c.eigenvalues[0], lambda c: -c.d, lambda c: -c.d.abs()
    ),
    "scalar.eq45": lambda: compare(linear_cases(), lambda c: c.hessian, terms.right_matrix),
    "scalar.eq47_52": lambda: worst(linear_cases(), terms.eigen_system_error),
    "scalar.eq53_57": lambda: worst(terms.several(), terms.eq53_57_error),
    "scalar.eq58_63": lambda: worst(terms.several(), terms.bulk_constraint_error),
}
