"""Scalar-spectrum paper, Appendix A (linear network): gradient, Hessian and its characteristic
polynomial.

Shorthands as in `linear`. Identities in λ are compared at λ = LAMBDA, which is no eigenvalue.
"""

from __future__ import annotations

import torch
from torch import Tensor, dot, outer

from experiments.paper_audit.checks import Checks
from experiments.paper_audit.scalar.cases import dense_hessian, linear_cases, matches
from experiments.paper_audit.scalar.linear import trace
from experiments.paper_audit.scalar.linear_vectors import dense_gradient
from experiments.paper_audit.scalar.networks import Linear
from experiments.paper_audit.tensors import block_matrix, unit

CHECKS = Checks()
LAMBDA = 0.731


def identity(c: Linear) -> Tensor:
    return unit(c.m)


def upper_left(c: Linear) -> Tensor:
    return c.a * outer(c.w, c.w)


def lower_right(c: Linear) -> Tensor:
    return c.a * outer(c.v, c.v)


def corner(c: Linear) -> Tensor:
    """a v wᵀ + d I."""
    return c.a * outer(c.v, c.w) + c.d * identity(c)


CHECKS["scalar.eq7_8"] = matches(
    linear_cases, dense_gradient, lambda c: torch.cat([c.d * c.w, c.d * c.v])
)
CHECKS["scalar.eq9"] = matches(linear_cases, lambda c: c.hessian[c.m :, c.m :], lower_right)
CHECKS["scalar.eq10"] = matches(linear_cases, lambda c: c.hessian[: c.m, : c.m], upper_left)
CHECKS["scalar.eq11"] = matches(
    linear_cases,
    lambda c: c.hessian[c.m :, : c.m],
    lambda c: c.d * identity(c) + c.a * outer(c.v, c.w),
)


def printed_matrix(c: Linear) -> Tensor:
    """Eq. (12) as printed: a v wᵀ + d I in both corners."""
    return block_matrix([upper_left(c), corner(c)], [corner(c), lower_right(c)])


def right_matrix(c: Linear) -> Tensor:
    """Eq. (45): a w vᵀ + d I above the diagonal."""
    return block_matrix([upper_left(c), corner(c).T], [corner(c), lower_right(c)])


CHECKS["scalar.eq12"] = matches(linear_cases, dense_hessian, printed_matrix, right_matrix)
CHECKS["scalar.eq45"] = matches(linear_cases, dense_hessian, right_matrix)


def determinant(matrix: Tensor) -> Tensor:
    return torch.linalg.det(matrix - LAMBDA * unit(len(matrix)))


CHECKS["scalar.eq13"] = matches(
    linear_cases,
    lambda c: determinant(c.hessian),
    lambda c: determinant(printed_matrix(c)),
    lambda c: determinant(right_matrix(c)),
)


def schur_of_hessian(c: Linear) -> Tensor:
    """Schur complement of the lower right block in the automatic H − λI."""
    shifted = c.hessian - LAMBDA * unit(2 * c.m)
    a, b = shifted[: c.m, : c.m], shifted[: c.m, c.m :]
    return a - b @ torch.linalg.solve(shifted[c.m :, c.m :], shifted[c.m :, : c.m])


def schur(c: Linear, left: Tensor, inverse: Tensor, right: Tensor) -> Tensor:
    """A − λ − left (D − λ)⁻¹ right."""
    return upper_left(c) - LAMBDA * identity(c) - left @ inverse @ right


def shifted_inverse(c: Linear) -> Tensor:
    """(σ² v vᵀ − λI)⁻¹, numerically."""
    return torch.linalg.inv(lower_right(c) - LAMBDA * identity(c))


def right_schur(c: Linear) -> Tensor:
    return schur(c, corner(c).T, shifted_inverse(c), corner(c))


def printed_schur(c: Linear) -> Tensor:
    return schur(c, corner(c), shifted_inverse(c), corner(c))


CHECKS["scalar.eq14"] = matches(linear_cases, schur_of_hessian, printed_schur, right_schur)


def woodbury(c: Linear) -> Tensor:
    """Eq. (15)."""
    factor = c.a / (LAMBDA * (LAMBDA - c.vv * c.a))
    return -identity(c) / LAMBDA - factor * outer(c.v, c.v)


CHECKS["scalar.eq15"] = matches(linear_cases, shifted_inverse, woodbury)


def eq16(c: Linear) -> Tensor:
    left = upper_left(c) + c.d * identity(c)
    right = lower_right(c) + c.d * identity(c)
    return schur(c, left, woodbury(c), right)


CHECKS["scalar.eq16"] = matches(linear_cases, schur_of_hessian, eq16, right_schur)


def mixed(c: Linear) -> Tensor:
    """w vᵀ + v wᵀ."""
    return outer(c.w, c.v) + outer(c.v, c.w)


def eq17_19(c: Linear) -> Tensor:
    big, low = LAMBDA * (LAMBDA - c.a * c.vv), LAMBDA
    ww = c.a + c.a**2 * c.vv / low + c.a**3 * c.vv**2 / big
    wv = c.a * c.d / low + c.a**2 * c.d * c.vv / big
    vv = c.a * c.d**2 / big
    plain = (c.d**2 / low - LAMBDA) * identity(c)
    return ww * outer(c.w, c.w) + wv * mixed(c) + vv * outer(c.v, c.v) + plain


def eq24_25(c: Linear) -> Tensor:
    """With the coefficients of Eqs. (21) and (23)."""
    factor = c.a / (LAMBDA - c.a * c.vv)
    squares = LAMBDA * outer(c.w, c.w) + c.d * mixed(c) + c.d**2 / LAMBDA * outer(c.v, c.v)
    return factor * squares - (LAMBDA - c.d**2 / LAMBDA) * identity(c)


CHECKS["scalar.eq17_19"] = matches(linear_cases, schur_of_hessian, eq17_19)
CHECKS["scalar.eq20_25"] = matches(linear_cases, schur_of_hessian, eq24_25)


def nu(c: Linear) -> Tensor:
    return (LAMBDA**2 - c.d**2) * (LAMBDA - c.a * c.vv)


def scaled_schur(c: Linear) -> Tensor:
    return LAMBDA * (LAMBDA - c.a * c.vv) * schur_of_hessian(c)


def eq26(c: Linear) -> Tensor:
    squares = LAMBDA**2 * outer(c.w, c.w) + c.d**2 * outer(c.v, c.v)
    return c.a * (squares + c.d * LAMBDA * mixed(c)) - nu(c) * identity(c)


def eq27(c: Linear) -> Tensor:
    z = LAMBDA * c.w + c.d * c.v
    return c.a * outer(z, z) - nu(c) * identity(c)


CHECKS["scalar.eq26"] = matches(linear_cases, scaled_schur, eq26)
CHECKS["scalar.eq27"] = matches(linear_cases, eq26, eq27)


def cubic(c: Linear) -> Tensor:
    """a |z|² − ν, the function whose zeros Eqs. (30)–(32) look for."""
    z = LAMBDA * c.w + c.d * c.v
    return c.a * dot(z, z) - nu(c)


def eq28(c: Linear) -> Tensor:
    return nu(c) ** (c.m - 1) * cubic(c)


CHECKS["scalar.eq28"] = matches(
    linear_cases,
    lambda c: torch.linalg.det(eq27(c)),
    eq28,
    lambda c: (-1.0) ** (c.m - 1) * eq28(c),
)


def head_of_eq30(c: Linear) -> Tensor:
    """The terms of Eq. (30) that are printed right."""
    square = LAMBDA**2 * c.ww + c.d**2 * c.vv + 2 * c.d * LAMBDA * c.wv
    return c.a * square - LAMBDA**3 - c.a * c.d**2 * c.vv


def eq30(c: Linear) -> Tensor:
    return head_of_eq30(c) + (c.d**2 * c.vv + c.d**2)


def right_eq30(c: Linear) -> Tensor:
    return head_of_eq30(c) + (c.a * c.vv * LAMBDA**2 + LAMBDA * c.d**2)


def eq31(c: Linear) -> Tensor:
    return -(LAMBDA**3) + trace(c) * LAMBDA**2 + LAMBDA * (c.d**2 + 2 * c.a * c.d * c.wv)


def eq32(c: Linear) -> Tensor:
    return -LAMBDA * (LAMBDA**2 - trace(c) * LAMBDA - (c.d**2 + 2 * c.a * c.d * c.wv))


CHECKS["scalar.eq30"] = matches(linear_cases, cubic, eq30, right_eq30)
CHECKS["scalar.eq31"] = matches(linear_cases, cubic, eq31)
CHECKS["scalar.eq32"] = matches(linear_cases, cubic, eq32)
