"""Scalar-spectrum paper, Appendix A (linear network): gradient, Hessian and its characteristic
polynomial.

Shorthands as in `terms`. Identities in λ are compared at λ = LAMBDA, which is no eigenvalue.
"""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.paper_audit.checks import Checks, matches
from experiments.paper_audit.formulas import Formula, lifted, outer
from experiments.paper_audit.scalar.cases import linear_cases
from experiments.paper_audit.scalar.linear import trace
from experiments.paper_audit.scalar.networks import Linear
from experiments.paper_audit.scalar.terms import (
    a,
    block_matrix,
    cat,
    d,
    dense_gradient,
    dense_hessian,
    det,
    identity,
    inverse,
    m,
    v,
    vv,
    w,
    wv,
    ww,
)
from experiments.paper_audit.tensors import unit

CHECKS = Checks()
LAMBDA = 0.731

upper_left = a * outer(w, w)
lower_right = a * outer(v, v)
corner = a * outer(v, w) + d * identity
gradient = cat([d * w, d * v])
CHECKS["scalar.eq7_8"] = matches(linear_cases, dense_gradient, gradient)
CHECKS["scalar.eq9"] = matches(linear_cases, lambda c: c.hessian[c.m :, c.m :], lower_right)
CHECKS["scalar.eq10"] = matches(linear_cases, lambda c: c.hessian[: c.m, : c.m], upper_left)
CHECKS["scalar.eq11"] = matches(linear_cases, lambda c: c.hessian[c.m :, : c.m], corner)

printed_matrix = block_matrix([upper_left, corner], [corner, lower_right])
"""Eq. (12) as printed: a v wᵀ + d I in both corners."""
right_matrix = block_matrix([upper_left, corner.T], [corner, lower_right])
"""Eq. (45): a w vᵀ + d I above the diagonal."""
CHECKS["scalar.eq12"] = matches(linear_cases, dense_hessian, printed_matrix, right_matrix)
CHECKS["scalar.eq45"] = matches(linear_cases, dense_hessian, right_matrix)


@lifted
def determinant(matrix: Tensor) -> Tensor:
    return torch.linalg.det(matrix - LAMBDA * unit(len(matrix)))


CHECKS["scalar.eq13"] = matches(
    linear_cases,
    determinant(dense_hessian),
    determinant(printed_matrix),
    determinant(right_matrix),
)


@Formula
def schur_of_hessian(c: Linear) -> Tensor:
    """Schur complement of the lower right block in the automatic H − λI."""
    shifted = c.hessian - LAMBDA * unit(2 * c.m)
    above, below = shifted.split(c.m)
    left, right = above.split(c.m, 1)
    below_left, below_right = below.split(c.m, 1)
    return left - right @ torch.linalg.solve(below_right, below_left)


def schur(left: Formula, middle: Formula, right: Formula) -> Formula:
    """A − λ − left (D − λ)⁻¹ right."""
    return upper_left - LAMBDA * identity - left @ middle @ right


shifted_inverse = inverse(lower_right - LAMBDA * identity)
"""(σ² v vᵀ − λI)⁻¹, numerically."""
right_schur = schur(corner.T, shifted_inverse, corner)
printed_schur = schur(corner, shifted_inverse, corner)
CHECKS["scalar.eq14"] = matches(linear_cases, schur_of_hessian, printed_schur, right_schur)

woodbury_factor = a / (LAMBDA * (LAMBDA - vv * a))
woodbury = -identity / LAMBDA - woodbury_factor * outer(v, v)
"""Eq. (15)."""
CHECKS["scalar.eq15"] = matches(linear_cases, shifted_inverse, woodbury)

eq16 = schur(upper_left + d * identity, woodbury, lower_right + d * identity)
CHECKS["scalar.eq16"] = matches(linear_cases, schur_of_hessian, eq16, right_schur)

mixed = outer(w, v) + outer(v, w)
big = LAMBDA * (LAMBDA - a * vv)
of_ww = a + a**2 * vv / LAMBDA + a**3 * vv**2 / big
of_mixed = a * d / LAMBDA + a**2 * d * vv / big
of_vv = a * d**2 / big
of_identity = d**2 / LAMBDA - LAMBDA
outer_products = of_ww * outer(w, w) + of_mixed * mixed + of_vv * outer(v, v)
eq17_19 = outer_products + of_identity * identity
CHECKS["scalar.eq17_19"] = matches(linear_cases, schur_of_hessian, eq17_19)

squares = LAMBDA * outer(w, w) + d * mixed + d**2 / LAMBDA * outer(v, v)
eq24_25 = a / (LAMBDA - a * vv) * squares - (LAMBDA - d**2 / LAMBDA) * identity
"""With the coefficients of Eqs. (21) and (23)."""
CHECKS["scalar.eq20_25"] = matches(linear_cases, schur_of_hessian, eq24_25)

nu = (LAMBDA**2 - d**2) * (LAMBDA - a * vv)
scaled_schur = big * schur_of_hessian
scaled_squares = LAMBDA**2 * outer(w, w) + d**2 * outer(v, v)
eq26 = a * (scaled_squares + d * LAMBDA * mixed) - nu * identity
z = LAMBDA * w + d * v
eq27 = a * outer(z, z) - nu * identity
CHECKS["scalar.eq26"] = matches(linear_cases, scaled_schur, eq26)
CHECKS["scalar.eq27"] = matches(linear_cases, eq26, eq27)

cubic = a * (z @ z) - nu
"""a |z|² − ν, the function whose zeros Eqs. (30)–(32) look for."""
eq28 = nu ** (m - 1) * cubic
CHECKS["scalar.eq28"] = matches(linear_cases, det(eq27), eq28, (-1.0) ** (m - 1) * eq28)

square = LAMBDA**2 * ww + d**2 * vv + 2 * d * LAMBDA * wv
head_of_eq30 = a * square - LAMBDA**3 - a * d**2 * vv
"""The terms of Eq. (30) that are printed right."""
eq30 = head_of_eq30 + (d**2 * vv + d**2)
right_eq30 = head_of_eq30 + (a * vv * LAMBDA**2 + LAMBDA * d**2)
eq31 = -(LAMBDA**3) + trace * LAMBDA**2 + LAMBDA * (d**2 + 2 * a * d * wv)
eq32 = -LAMBDA * (LAMBDA**2 - trace * LAMBDA - (d**2 + 2 * a * d * wv))
CHECKS["scalar.eq30"] = matches(linear_cases, cubic, eq30, right_eq30)
CHECKS["scalar.eq31"] = matches(linear_cases, cubic, eq31)
CHECKS["scalar.eq32"] = matches(linear_cases, cubic, eq32)
