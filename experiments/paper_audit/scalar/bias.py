"""Scalar-spectrum paper, Appendix D (network with bias): gradient, Hessian and the polynomial of
degree six.

Shorthands: r² = (mean xδ)² + (mean δ)², s = ‖v‖² + ‖w‖². Identities in λ are compared at λ =
LAMBDA.
"""

from __future__ import annotations

import torch
from torch import Tensor, outer

from experiments.paper_audit.checks import Checks
from experiments.paper_audit.scalar.cases import (
    bias_cases,
    dense_hessian,
    matches,
    plain_bias_cases,
)
from experiments.paper_audit.scalar.networks import Bias, autodiff_gradient, bias_network
from experiments.paper_audit.tensors import block_matrix, matrix, ones, real, unit, zeros

CHECKS = Checks()
LAMBDA = 0.613


def raw_cases() -> tuple[Bias, ...]:
    """Inputs as they come."""
    return bias_cases(centred=False, unit=False)


def centred_cases() -> tuple[Bias, ...]:
    """mean x = 0."""
    return bias_cases(centred=True, unit=False)


def dense_gradient(c: Bias) -> Tensor:
    return autodiff_gradient(bias_network, [c.w, c.v, c.b], c.x, c.y)


def gradient(c: Bias) -> Tensor:
    """Eqs. (66)–(68) averaged: (w, v, b)."""
    by_w = c.dx * c.v + c.d0 * c.b
    return torch.cat([by_w, c.dx * c.w, c.d0 * c.w])


CHECKS["scalar.eq66_68"] = matches(raw_cases, dense_gradient, gradient)


def sample_hessian(c: Bias) -> Tensor:
    """Eqs. (69)–(73), averaged over the samples one by one."""
    total = zeros(3 * c.m, 3 * c.m)
    eye = unit(c.m)
    ww = outer(c.w, c.w)
    for x, delta in zip(c.x, c.residual, strict=True):
        hidden = c.v * x + c.b
        wv = delta * x * eye + x * outer(hidden, c.w)
        wb = delta * eye + outer(hidden, c.w)
        first = [outer(hidden, hidden), wv, wb]
        total += block_matrix(first, [wv.T, x**2 * ww, x * ww], [wb.T, x * ww, ww])
    return total / len(c.x)


CHECKS["scalar.eq69_73"] = matches(raw_cases, dense_hessian, sample_hessian)


def block_hessian(c: Bias) -> Tensor:
    """Eqs. (74)–(79), for mean x = 0."""
    a = (c.x**2).mean()
    eye = unit(c.m)
    ww = outer(c.w, c.w)
    wv = c.dx * eye + a * outer(c.v, c.w)
    wb = c.d0 * eye + outer(c.b, c.w)
    first = [a * outer(c.v, c.v) + outer(c.b, c.b), wv, wb]
    zero = torch.zeros_like(ww)
    return block_matrix(first, [wv.T, a * ww, zero], [wb.T, zero, ww])


CHECKS["scalar.eq74_79"] = matches(centred_cases, dense_hessian, block_hessian)


def columns(c: Bias) -> Tensor:
    """U of Eq. (82), (3m, 2)."""
    zero = torch.zeros_like(c.w)
    first = torch.cat([c.v, c.w, zero])
    second = torch.cat([c.b, zero, c.w])
    return torch.stack([first, second], dim=1)


def kernel(c: Bias) -> Tensor:
    """The 3×3 matrix of Eq. (81)."""
    zero = torch.zeros_like(c.dx)
    low = -LAMBDA + zero
    return matrix([low, c.dx, c.d0], [c.dx, low, zero], [c.d0, zero, low])


def low_rank(c: Bias) -> Tensor:
    """Eq. (81) and (82): H − λI."""
    u = columns(c)
    return u @ u.T + torch.kron(kernel(c), unit(c.m))


def shifted(c: Bias) -> Tensor:
    return c.hessian - LAMBDA * unit(3 * c.m)


CHECKS["scalar.eq80_82"] = matches(bias_cases, shifted, low_rank)


def eq83(c: Bias) -> Tensor:
    """Inverse of the 3×3 matrix."""
    x, y, low = c.dx, c.d0, real(LAMBDA)
    first = [low**2, low * x, low * y]
    second = [low * x, low**2 - y**2, x * y]
    third = [low * y, x * y, low**2 - x**2]
    return -matrix(first, second, third) / (low * (low**2 - c.r2))


def inverse_kernel(c: Bias) -> Tensor:
    return torch.linalg.inv(kernel(c))


CHECKS["scalar.eq83"] = matches(bias_cases, inverse_kernel, eq83)


def eq84(c: Bias) -> Tensor:
    """A⁻¹ U."""
    x, y, low = c.dx, c.d0, LAMBDA
    first = [
        low**2 * c.v + low * x * c.w,
        low * x * c.v + (low**2 - y**2) * c.w,
        low * y * c.v + x * y * c.w,
    ]
    second = [
        low**2 * c.b + low * y * c.w,
        low * x * c.b + x * y * c.w,
        low * y * c.b + (low**2 - x**2) * c.w,
    ]
    both = torch.stack([torch.cat(first), torch.cat(second)], dim=1)
    return -both / (low * (low**2 - c.r2))


def solved_columns(c: Bias) -> Tensor:
    """A⁻¹ U, numerically."""
    return torch.kron(inverse_kernel(c).contiguous(), unit(c.m)) @ columns(c)


CHECKS["scalar.eq84"] = matches(bias_cases, solved_columns, eq84)


def form(c: Bias) -> Tensor:
    """B of Eq. (85) at LAMBDA."""
    low, x, y = LAMBDA, c.dx, c.d0
    corner = c.vb * low**2 + (y * c.wv + x * c.wb) * low + x * y * c.ww
    first = (c.vv + c.ww) * low**2 + 2 * x * c.wv * low - y**2 * c.ww
    second = (c.bb + c.ww) * low**2 + 2 * y * c.wb * low - x**2 * c.ww
    return matrix([first, corner], [corner, second])


def eq85(c: Bias) -> Tensor:
    return -form(c) / (LAMBDA * (LAMBDA**2 - c.r2))


def solved_form(c: Bias) -> Tensor:
    """Uᵀ A⁻¹ U, numerically."""
    return columns(c).T @ solved_columns(c)


CHECKS["scalar.eq85"] = matches(bias_cases, solved_form, eq85)


def sextic_value(c: Bias) -> Tensor:
    """|B − λ(λ² − r²) I| after Eq. (85)."""
    return torch.linalg.det(form(c) - LAMBDA * (LAMBDA**2 - c.r2) * unit(2))


def dense_sextic_value(c: Bias) -> Tensor:
    """|H − λI| / |K − λI|^(m−2), K the 3×3 kernel: what the polynomial of degree 6 has to be at
    LAMBDA."""
    bulk = -LAMBDA * (LAMBDA**2 - c.r2)
    return torch.linalg.det(shifted(c)) / bulk ** (c.m - 2)


CHECKS["scalar.sextic"] = matches(bias_cases, dense_sextic_value, sextic_value)


def dense_sextic(c: Bias) -> Tensor:
    """Its 7 coefficients, from the eigenvalues of the automatic Hessian: the bulk 0, ±r (m−2 times
    each) taken out."""
    values = c.eigenvalues.clone()
    r = torch.sqrt(c.r2)
    for target in (torch.zeros_like(r), r, -r):
        for _ in range(c.m - 2):
            nearest = int(torch.argmin((values - target).abs()))
            values = torch.cat([values[:nearest], values[nearest + 1 :]])
    coefficients = ones(1)
    for value in values:
        raised = torch.nn.functional.pad(coefficients, (0, 1))
        coefficients = raised - value * torch.nn.functional.pad(coefficients, (1, 0))
    return coefficients


def norm_slip(c: Bias, corrected: bool) -> Tensor:
    """(‖v‖² + ‖w‖²)(‖b‖ + ‖w‖²) as printed, or with ‖b‖²."""
    b = c.bb if corrected else c.bb.sqrt()
    return (c.vv + c.ww) * (b + c.ww)


def eq86_96(c: Bias, squared: bool, inside: bool) -> Tensor:
    """Coefficients of the expansion (86)–(96); squared: ‖b‖² in (89); inside: minus signs in (94),
    (95)."""
    x, y, r2, ww = c.dx, c.d0, c.r2, c.ww
    cross = x * c.wv + y * c.wb
    mixed = y * c.wv + x * c.wb
    sign = -1.0 if inside else 1.0
    l5 = -(c.vv + c.bb + 2 * ww)
    l4 = -2 * r2 - 2 * cross + norm_slip(c, squared) - c.vb**2
    l3 = r2 * (c.vv + c.bb + 3 * ww) + 2 * y * c.wb * (c.vv + ww) + 2 * x * c.wv * (c.bb + ww)
    l3 = l3 + sign * 2 * c.vb * mixed
    l2 = r2**2 + 2 * r2 * cross + 4 * x * y * c.wv * c.wb
    l2 = l2 - (c.vv + ww) * ww * x**2 - (c.bb + ww) * ww * y**2
    l2 = l2 - mixed**2 + sign * 2 * c.vb * x * y * ww
    l1 = -(r2**2) * ww - 2 * x**3 * c.wv * ww - 2 * y**3 * c.wb * ww
    l1 = l1 + sign * 2 * mixed * x * y * ww
    l0 = x**2 * y**2 * ww**2 - x**2 * y**2 * ww**2
    return torch.stack([torch.ones_like(l5), l5, l4, l3, l2, l1, l0])


def right_sextic(c: Bias) -> Tensor:
    return eq86_96(c, True, True)


CHECKS["scalar.eq86_96"] = matches(
    bias_cases, dense_sextic, lambda c: eq86_96(c, False, True), right_sextic
)
CHECKS["scalar.eq93_95"] = matches(
    bias_cases, dense_sextic, lambda c: eq86_96(c, True, False), right_sextic
)


def collected(c: Bias, corrected: bool) -> Tensor:
    """The display after (96); its signs are right, ‖b‖ is not."""
    coefficients = right_sextic(c)
    coefficients[2] = coefficients[2] - norm_slip(c, True) + norm_slip(c, corrected)
    return coefficients


CHECKS["scalar.sextic_collected"] = matches(
    bias_cases, dense_sextic, lambda c: collected(c, False), lambda c: collected(c, True)
)


def simplified(c: Bias, corrected: bool) -> Tensor:
    """The display for mean xy = mean y = 0, its λ left in: 1, .., −3 r⁴ ‖w‖², 0."""
    x, y, r2, ww = c.dx, c.d0, c.r2, c.ww
    l5 = -(c.vv + c.bb + 2 * ww)
    l4 = -4 * r2 + norm_slip(c, corrected) - c.vb**2
    l3 = r2 * (c.vv + c.bb + 3 * ww) + 2 * y**2 * (c.vv + ww) + 2 * x**2 * (c.bb + ww)
    l3 = l3 - 4 * c.vb * x * y
    l2 = 3 * r2**2 - (c.vv + ww) * ww * x**2 - (c.bb + ww) * ww * y**2
    l2 = l2 - 2 * c.vb * x * y * ww
    l1 = -3 * r2**2 * ww
    return torch.stack([torch.ones_like(l5), l5, l4, l3, l2, l1, torch.zeros_like(l5)])


CHECKS["scalar.sextic_simplified"] = matches(
    plain_bias_cases, dense_sextic, lambda c: simplified(c, False), lambda c: simplified(c, True)
)
