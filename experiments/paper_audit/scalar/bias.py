"""Scalar-spectrum paper, Appendix D (network with bias): gradient, Hessian and the polynomial of
degree six.

Shorthands as in `terms`. Identities in λ are compared at λ = LAMBDA.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from experiments.paper_audit import tensors
from experiments.paper_audit.checks import Checks, matches
from experiments.paper_audit.formulas import Formula, lifted, outer
from experiments.paper_audit.scalar.cases import bias_cases, plain_bias_cases
from experiments.paper_audit.scalar.networks import Bias
from experiments.paper_audit.scalar.terms import (
    b,
    bb,
    block_matrix,
    cat,
    d0,
    dense_gradient,
    dense_hessian,
    det,
    dx,
    identity,
    inverse,
    m,
    matrix,
    one,
    r2,
    sqrt,
    stack,
    v,
    vb,
    vv,
    w,
    wb,
    wv,
    ww,
)

CHECKS = Checks()
LAMBDA = 0.613


def raw_cases() -> tuple[Bias, ...]:
    """Inputs as they come."""
    return bias_cases(centred=False, unit=False)


def centred_cases() -> tuple[Bias, ...]:
    """mean x = 0."""
    return bias_cases(centred=True, unit=False)


gradient = cat([dx * v + d0 * b, dx * w, d0 * w])
"""Eqs. (66)–(68) averaged: (w, v, b)."""
CHECKS["scalar.eq66_68"] = matches(raw_cases, dense_gradient, gradient)


def sample_hessian(c: Bias) -> Tensor:
    """Eqs. (69)–(73), averaged over the samples one by one."""
    total = tensors.zeros(3 * c.m, 3 * c.m)
    eye = tensors.unit(c.m)
    ww = torch.outer(c.w, c.w)
    samples = zip(c.x, c.residual, strict=True)
    for x, delta in samples:
        hidden = c.v * x + c.b
        hidden_w = torch.outer(hidden, c.w)
        wv = delta * x * eye + x * hidden_w
        wb = delta * eye + hidden_w
        vb = x * ww
        of_hidden = torch.outer(hidden, hidden)
        first = [of_hidden, wv, wb]
        second = [wv.T, x**2 * ww, vb]
        third = [wb.T, vb, ww]
        total += tensors.block_matrix(first, second, third)
    return total / len(c.x)


CHECKS["scalar.eq69_73"] = matches(raw_cases, dense_hessian, sample_hessian)

mean_square = Formula(lambda c: (c.x**2).mean())
block_wv = dx * identity + mean_square * outer(v, w)
block_wb = d0 * identity + outer(b, w)
block_ww = mean_square * outer(v, v) + outer(b, b)
block_bb = outer(w, w)
empty = 0 * identity
block_hessian = block_matrix(
    [block_ww, block_wv, block_wb],
    [block_wv.T, mean_square * block_bb, empty],
    [block_wb.T, empty, block_bb],
)
"""Eqs. (74)–(79), for mean x = 0."""
CHECKS["scalar.eq74_79"] = matches(centred_cases, dense_hessian, block_hessian)

columns = stack([cat([v, w, 0 * w]), cat([b, 0 * w, w])], dim=1)
"""U of Eq. (82), (3m, 2)."""
low = LAMBDA * one
zero = 0 * one
kernel = matrix([-low, dx, d0], [dx, -low, zero], [d0, zero, -low])
"""The 3×3 matrix of Eq. (81)."""
kron = lifted(tensors.kron)
low_rank = columns @ columns.T + kron(kernel, identity)
"""Eq. (81) and (82): H − λI."""
shifted = Formula(lambda c: c.hessian - LAMBDA * tensors.unit(3 * c.m))
CHECKS["scalar.eq80_82"] = matches(bias_cases, shifted, low_rank)

eq83_first = [low**2, low * dx, low * d0]
eq83_second = [low * dx, low**2 - d0**2, dx * d0]
eq83_third = [low * d0, dx * d0, low**2 - dx**2]
kernel_factor = low * (low**2 - r2)
"""λ (λ² − r²)."""
eq83 = -matrix(eq83_first, eq83_second, eq83_third) / kernel_factor
"""Inverse of the 3×3 matrix."""
CHECKS["scalar.eq83"] = matches(bias_cases, inverse(kernel), eq83)

eq84_first = [
    low**2 * v + low * dx * w,
    low * dx * v + (low**2 - d0**2) * w,
    low * d0 * v + dx * d0 * w,
]
eq84_second = [
    low**2 * b + low * d0 * w,
    low * dx * b + dx * d0 * w,
    low * d0 * b + (low**2 - dx**2) * w,
]
eq84 = -stack([cat(eq84_first), cat(eq84_second)], dim=1) / kernel_factor
"""A⁻¹ U."""
solved_columns = kron(inverse(kernel), identity) @ columns
"""A⁻¹ U, numerically."""
CHECKS["scalar.eq84"] = matches(bias_cases, solved_columns, eq84)

form_corner = vb * low**2 + (d0 * wv + dx * wb) * low + dx * d0 * ww
form_first = (vv + ww) * low**2 + 2 * dx * wv * low - d0**2 * ww
form_second = (bb + ww) * low**2 + 2 * d0 * wb * low - dx**2 * ww
form = matrix([form_first, form_corner], [form_corner, form_second])
"""B of Eq. (85) at LAMBDA."""
eq85 = -form / kernel_factor
CHECKS["scalar.eq85"] = matches(bias_cases, columns.T @ solved_columns, eq85)

sextic_value = det(form - kernel_factor * tensors.unit(2))
"""|B − λ(λ² − r²) I| after Eq. (85)."""
dense_sextic_value = det(shifted) / (-low * (low**2 - r2)) ** (m - 2)
"""|H − λI| / |K − λI|^(m−2), K the 3×3 kernel: what the polynomial of degree 6 has to be at
LAMBDA."""
CHECKS["scalar.sextic"] = matches(bias_cases, dense_sextic_value, sextic_value)


def dense_sextic(c: Bias) -> Tensor:
    """Its 7 coefficients, from the eigenvalues of the automatic Hessian: the bulk 0, ±r (m−2 times
    each) taken out."""
    values = c.eigenvalues.clone()
    r = torch.sqrt(c.r2)
    targets = (torch.zeros_like(r), r, -r)
    for target in targets:
        for _ in range(c.m - 2):
            nearest = int(torch.argmin((values - target).abs()))
            values = torch.cat([values[:nearest], values[nearest + 1 :]])
    coefficients = tensors.ones(1)
    for value in values:
        times_variable = pad(coefficients, (0, 1))
        times_constant = pad(coefficients, (1, 0))
        coefficients = times_variable - value * times_constant
    return coefficients


printed_norms = (vv + ww) * (sqrt(bb) + ww)
"""(‖v‖² + ‖w‖²)(‖b‖ + ‖w‖²) as printed."""
right_norms = (vv + ww) * (bb + ww)
"""The same with ‖b‖²."""


def eq86_96(norms: Formula, sign: float) -> list[Formula]:
    """Coefficients of the expansion (86)–(96); norms: in (89); sign: of (94), (95)."""
    cross = dx * wv + d0 * wb
    mixed = d0 * wv + dx * wb
    l5 = -(vv + bb + 2 * ww)
    l4 = -2 * r2 - 2 * cross + norms - vb**2
    l3 = r2 * (vv + bb + 3 * ww) + 2 * d0 * wb * (vv + ww) + 2 * dx * wv * (bb + ww)
    l3 = l3 + sign * 2 * vb * mixed
    l2 = r2**2 + 2 * r2 * cross + 4 * dx * d0 * wv * wb
    l2 = l2 - (vv + ww) * ww * dx**2 - (bb + ww) * ww * d0**2
    l2 = l2 - mixed**2 + sign * 2 * vb * dx * d0 * ww
    l1 = -(r2**2) * ww - 2 * dx**3 * wv * ww - 2 * d0**3 * wb * ww
    l1 = l1 + sign * 2 * mixed * dx * d0 * ww
    l0 = dx**2 * d0**2 * ww**2 - dx**2 * d0**2 * ww**2
    return [one, l5, l4, l3, l2, l1, l0]


right_coefficients = eq86_96(right_norms, -1.0)
right_sextic = stack(right_coefficients)
printed_sextic = stack(eq86_96(printed_norms, -1.0))
printed_signs = stack(eq86_96(right_norms, 1.0))
CHECKS["scalar.eq86_96"] = matches(bias_cases, dense_sextic, printed_sextic, right_sextic)
CHECKS["scalar.eq93_95"] = matches(bias_cases, dense_sextic, printed_signs, right_sextic)


def collected(norms: Formula) -> Formula:
    """The display after (96); its signs are right, ‖b‖ is not."""
    l6, l5, l4, *others = right_coefficients
    return stack([l6, l5, l4 - right_norms + norms, *others])


CHECKS["scalar.sextic_collected"] = matches(
    bias_cases, dense_sextic, collected(printed_norms), collected(right_norms)
)


def simplified(norms: Formula) -> Formula:
    """The display for mean xy = mean y = 0, its λ left in: 1, .., −3 r⁴ ‖w‖², 0."""
    l5 = -(vv + bb + 2 * ww)
    l4 = -4 * r2 + norms - vb**2
    l3 = r2 * (vv + bb + 3 * ww) + 2 * d0**2 * (vv + ww) + 2 * dx**2 * (bb + ww)
    l3 = l3 - 4 * vb * dx * d0
    l2 = 3 * r2**2 - (vv + ww) * ww * dx**2 - (bb + ww) * ww * d0**2
    l2 = l2 - 2 * vb * dx * d0 * ww
    return stack([one, l5, l4, l3, l2, -3 * r2**2 * ww, zero])


CHECKS["scalar.sextic_simplified"] = matches(
    plain_bias_cases, dense_sextic, simplified(printed_norms), simplified(right_norms)
)
