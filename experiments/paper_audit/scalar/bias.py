"""Scalar-spectrum paper, Section 3 and Appendix D (network with bias): what was checked, and the verdicts.

Shorthands: r² = (mean xδ)² + (mean δ)², s = ‖v‖² + ‖w‖².
"""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.paper_audit.checks import Entry, Outcome, needs, relative_error
from experiments.paper_audit.scalar.cases import (
    Bias,
    Linear,
    ascending,
    autodiff_gradient,
    autodiff_hessian,
    bias_cases,
    bias_network,
    compare,
    linear_cases,
    multi_input_network,
    plain_bias_cases,
    theorem6_cases,
    worst,
)
from experiments.paper_audit.tensors import gauss, real, seeded, unit

LAMBDA = 0.613


def dots(c: Bias) -> dict[str, Tensor]:
    """Inner products by name: ww, vv, bb, wv, wb, vb."""
    pairs = {
        "ww": (c.w, c.w),
        "vv": (c.v, c.v),
        "bb": (c.b, c.b),
        "wv": (c.w, c.v),
        "wb": (c.w, c.b),
        "vb": (c.v, c.b),
    }
    return {name: torch.dot(*pair) for name, pair in pairs.items()}


def gradient(c: Bias) -> Tensor:
    """Eqs. (66)–(68) averaged: (w, v, b)."""
    return torch.cat([c.dx * c.v + c.d0 * c.b, c.dx * c.w, c.d0 * c.w])


def sample_hessian(c: Bias) -> Tensor:
    """Eqs. (69)–(73), averaged over the samples one by one."""
    total = torch.zeros(3 * c.m, 3 * c.m, dtype=torch.float64)
    eye = unit(c.m)
    for x, delta in zip(c.x, c.residual, strict=True):
        hidden, ww = c.v * x + c.b, torch.outer(c.w, c.w)
        wv, wb = (
            delta * x * eye + x * torch.outer(hidden, c.w),
            delta * eye + torch.outer(hidden, c.w),
        )
        rows = [
            torch.cat([torch.outer(hidden, hidden), wv, wb], dim=1),
            torch.cat([wv.T, x**2 * ww, x * ww], dim=1),
            torch.cat([wb.T, x * ww, ww], dim=1),
        ]
        total += torch.cat(rows)
    return total / len(c.x)


def block_hessian(c: Bias) -> Tensor:
    """Eqs. (74)–(79), for mean x = 0."""
    eye, a, ww = unit(c.m), (c.x**2).mean(), torch.outer(c.w, c.w)
    wv = c.dx * eye + a * torch.outer(c.v, c.w)
    wb = c.d0 * eye + torch.outer(c.b, c.w)
    rows = [
        torch.cat([a * torch.outer(c.v, c.v) + torch.outer(c.b, c.b), wv, wb], dim=1),
        torch.cat([wv.T, a * ww, torch.zeros_like(ww)], dim=1),
        torch.cat([wb.T, torch.zeros_like(ww), ww], dim=1),
    ]
    return torch.cat(rows)


def columns(c: Bias) -> Tensor:
    """U of Eq. (82), (3m, 2)."""
    zero = torch.zeros_like(c.w)
    return torch.stack([torch.cat([c.v, c.w, zero]), torch.cat([c.b, zero, c.w])], dim=1)


def kernel(c: Bias) -> Tensor:
    """The 3×3 matrix of Eq. (81)."""
    zero = torch.zeros_like(c.dx)
    rows = [
        [-LAMBDA + zero, c.dx, c.d0],
        [c.dx, -LAMBDA + zero, zero],
        [c.d0, zero, -LAMBDA + zero],
    ]
    return torch.stack([torch.stack(row) for row in rows])


def low_rank(c: Bias) -> Tensor:
    """Eq. (81) and (82): H − λI."""
    u = columns(c)
    return u @ u.T + torch.kron(kernel(c), unit(c.m))


def shifted(c: Bias) -> Tensor:
    return c.hessian - LAMBDA * unit(3 * c.m)


def eq83(c: Bias) -> Tensor:
    x, y, low = c.dx, c.d0, real(LAMBDA)
    rows = [
        [low**2, low * x, low * y],
        [low * x, low**2 - y**2, x * y],
        [low * y, x * y, low**2 - x**2],
    ]
    return -torch.stack([torch.stack(row) for row in rows]) / (low * (low**2 - c.r2))


def eq84(c: Bias) -> Tensor:
    x, y, low = c.dx, c.d0, LAMBDA
    first = torch.cat(
        [
            low**2 * c.v + low * x * c.w,
            low * x * c.v + (low**2 - y**2) * c.w,
            low * y * c.v + x * y * c.w,
        ]
    )
    second = torch.cat(
        [
            low**2 * c.b + low * y * c.w,
            low * x * c.b + x * y * c.w,
            low * y * c.b + (low**2 - x**2) * c.w,
        ]
    )
    return -torch.stack([first, second], dim=1) / (low * (low**2 - c.r2))


def solved_columns(c: Bias) -> Tensor:
    """A⁻¹ U, numerically."""
    return torch.kron(torch.linalg.inv(kernel(c)).contiguous(), unit(c.m)) @ columns(c)


def form(c: Bias) -> Tensor:
    """B of Eq. (85) at LAMBDA."""
    d = dots(c)
    low, x, y = LAMBDA, c.dx, c.d0
    corner = d["vb"] * low**2 + (y * d["wv"] + x * d["wb"]) * low + x * y * d["ww"]
    first = (d["vv"] + d["ww"]) * low**2 + 2 * x * d["wv"] * low - y**2 * d["ww"]
    second = (d["bb"] + d["ww"]) * low**2 + 2 * y * d["wb"] * low - x**2 * d["ww"]
    return torch.stack([torch.stack([first, corner]), torch.stack([corner, second])])


def eq85(c: Bias) -> Tensor:
    return -form(c) / (LAMBDA * (LAMBDA**2 - c.r2))


def sextic_value(c: Bias) -> Tensor:
    """|B − λ(λ² − r²) I| after Eq. (85)."""
    return torch.linalg.det(form(c) - LAMBDA * (LAMBDA**2 - c.r2) * unit(2))


def dense_sextic_value(c: Bias) -> Tensor:
    """|H − λI| / [−λ(λ² − r²)... ]: what the polynomial of degree 6 has to be at LAMBDA, from the automatic Hessian."""
    bulk = -LAMBDA * (LAMBDA**2 - c.r2)  # |K − λI| of the 3×3 kernel
    return torch.linalg.det(shifted(c)) / bulk ** (c.m - 2)


def dense_sextic(c: Bias) -> Tensor:
    """Its 7 coefficients, from the eigenvalues of the automatic Hessian: the bulk 0, ±r (m−2 times each) taken out."""
    values = c.eigenvalues.clone()
    r = torch.sqrt(c.r2)
    for target in (torch.zeros_like(r), r, -r):
        for _ in range(c.m - 2):
            nearest = int(torch.argmin((values - target).abs()))
            values = torch.cat([values[:nearest], values[nearest + 1 :]])
    coefficients = torch.ones(1, dtype=torch.float64)
    for value in values:
        padded = torch.nn.functional.pad(coefficients, (0, 1))
        coefficients = padded - value * torch.nn.functional.pad(coefficients, (1, 0))
    return coefficients


def norm_slip(c: Bias, corrected: bool) -> Tensor:
    """(‖v‖² + ‖w‖²)(‖b‖ + ‖w‖²) as printed, or with ‖b‖²."""
    d = dots(c)
    return (d["vv"] + d["ww"]) * ((d["bb"] if corrected else d["bb"].sqrt()) + d["ww"])


def eq86_96(c: Bias, squared: bool, inside: bool) -> Tensor:
    """Coefficients of the expansion (86)–(96); squared: ‖b‖² in (89); inside: minus signs in (94), (95)."""
    d = dots(c)
    x, y, r2, ww = c.dx, c.d0, c.r2, d["ww"]
    cross = x * d["wv"] + y * d["wb"]
    mixed = y * d["wv"] + x * d["wb"]
    sign = -1.0 if inside else 1.0
    size = d["vv"] + d["bb"]
    l5 = -(size + 2 * ww)
    l4 = -2 * r2 - 2 * cross + norm_slip(c, squared) - d["vb"] ** 2
    l3 = r2 * (size + 3 * ww) + 2 * y * d["wb"] * (d["vv"] + ww) + 2 * x * d["wv"] * (d["bb"] + ww)
    l3 = l3 + sign * 2 * d["vb"] * mixed
    l2 = r2**2 + 2 * r2 * cross + 4 * x * y * d["wv"] * d["wb"]
    l2 = (
        l2
        - (d["vv"] + ww) * ww * x**2
        - (d["bb"] + ww) * ww * y**2
        - mixed**2
        + sign * 2 * d["vb"] * x * y * ww
    )
    l1 = (
        -(r2**2) * ww
        - 2 * x**3 * d["wv"] * ww
        - 2 * y**3 * d["wb"] * ww
        + sign * 2 * mixed * x * y * ww
    )
    l0 = x**2 * y**2 * ww**2 - x**2 * y**2 * ww**2
    return torch.stack([torch.ones_like(l5), l5, l4, l3, l2, l1, l0])


def collected(c: Bias, corrected: bool) -> Tensor:
    """The display after (96); its signs are right, ‖b‖ is not."""
    coefficients = eq86_96(c, True, True)
    coefficients[2] = coefficients[2] - norm_slip(c, True) + norm_slip(c, corrected)
    return coefficients


def simplified(c: Bias, corrected: bool) -> Tensor:
    """The display for mean xy = mean y = 0, its λ left in: 1, .., −3 r⁴ ‖w‖², 0."""
    d = dots(c)
    x, y, r2, ww = c.dx, c.d0, c.r2, d["ww"]
    l5 = -(d["vv"] + d["bb"] + 2 * ww)
    l4 = -4 * r2 + norm_slip(c, corrected) - d["vb"] ** 2
    l3 = (
        r2 * (d["vv"] + d["bb"] + 3 * ww)
        + 2 * y**2 * (d["vv"] + ww)
        + 2 * x**2 * (d["bb"] + ww)
        - 4 * d["vb"] * x * y
    )
    l2 = (
        3 * r2**2
        - (d["vv"] + ww) * ww * x**2
        - (d["bb"] + ww) * ww * y**2
        - 2 * d["vb"] * x * y * ww
    )
    l1 = -3 * r2**2 * ww
    return torch.stack([torch.ones_like(l5), l5, l4, l3, l2, l1, torch.zeros_like(l5)])


def factored(c: Bias) -> Tensor:
    """λ (λ² + Aλ + B)(λ³ + Cλ² + Dλ + E) with Eqs. (97)–(101)."""
    d = dots(c)
    a, b, cc, dd, e = -c.s, -3 * c.r2, -c.s, -c.r2, c.r2 * d["ww"]
    one, zero = torch.ones_like(a), torch.zeros_like(a)
    return torch.stack(
        [one, a + cc, b + a * cc + dd, e + a * dd + b * cc, a * e + b * dd, b * e, zero]
    )


def pair(c: Bias) -> Tensor:
    """Eq. (5) = (102)."""
    gap = torch.sqrt(c.s**2 + 12 * c.r2)
    return torch.stack([c.s + gap, c.s - gap]) / 2


def means_of_squares(c: Bias) -> Tensor:
    """Eq. (5) with the overlines of our text: mean of (δx)² plus mean of δ²."""
    gap = torch.sqrt(c.s**2 + 12 * ((c.residual * c.x) ** 2 + c.residual**2).mean())
    return torch.stack([c.s + gap, c.s - gap]) / 2


def depressed(c: Bias, long: bool) -> tuple[Tensor, Tensor]:
    """p of Eq. (104), q of Eq. (105) where `long`, else of (106)."""
    d = dots(c)
    p = -c.r2 - c.s**2 / 3
    if long:
        return p, (-2 * c.s**3 - 9 * c.s * c.r2 + 27 * c.r2 * d["ww"]) / 27
    return p, -2 / 27 * c.s**3 - d["vv"] * c.r2 / 3 + 2 / 3 * d["ww"] * c.r2


def triple(c: Bias) -> Tensor:
    """Eq. (107) + s/3."""
    p, q = depressed(c, False)
    angle = torch.arccos(1.5 * q / p * torch.sqrt(-3 / p)) / 3
    k = torch.arange(3, dtype=torch.float64)
    return c.s / 3 + 2 * torch.sqrt(-p / 3) * torch.cos(angle - 2 * torch.pi * k / 3)


def theorem6(c: Bias) -> Tensor:
    """The whole spectrum with the multiplicities m−2, m−2 and m−1 that the theorem leaves out."""
    r = torch.sqrt(c.r2)
    zeros = torch.zeros(c.m - 1, dtype=torch.float64)
    return ascending(pair(c), triple(c), r.expand(c.m - 2), -r.expand(c.m - 2), zeros)


def distance_to_spectrum(c: Bias, values: Tensor) -> float:
    """Largest distance of the given values to the nearest eigenvalue, relative to the largest |eigenvalue|."""
    gaps = (values[:, None] - c.eigenvalues[None, :]).abs().min(dim=1).values
    return float(gaps.max() / c.eigenvalues.abs().max())


def bound_violation(c: Bias) -> float:
    """How far the triple leaves s/3 ± t', relative to t'."""
    reach = 2 / 3 * torch.sqrt(c.s**2 + 3 * c.r2)
    return float(((triple(c) - c.s / 3).abs() - reach).max() / reach)


def centre_error(c: Bias) -> float:
    """Pair centred at tr H / 4, triple at tr H / 6."""
    total = c.hessian.trace()
    pair_gap, triple_gap = pair(c).mean() - total / 4, triple(c).mean() - total / 6
    return max(abs(float(pair_gap / total)), abs(float(triple_gap / total)))


def many_inputs_error(d: int, seed: int = 0) -> float:
    """Conjecture for d inputs: a pair centred at tr H/(2d), triples at tr H/(3d).

    Columns of A orthogonal and of one norm, whitened inputs, targets uncorrelated with them. Theorem 6's pair and
    triple with r² = Σ⟨w, a_k⟩², the triple d−1 times, must be in the spectrum of the automatic Hessian, with ±r
    (m−d times each) and 0 ((d−1)(m−1) times).
    """
    m, n = d + 3, 3 * d + 4
    generator = seeded(100 * seed + d)
    a = 1.7 * torch.linalg.qr(gauss(generator, m, d)).Q
    w = gauss(generator, m)
    inputs = torch.linalg.qr(gauss(generator, n, d)).Q * n**0.5
    y = gauss(generator, n)
    y = y - inputs @ (inputs.T @ y) / n
    found = torch.linalg.eigvalsh(autodiff_hessian(multi_input_network, [w, *a.T], inputs, y))
    stand_in = Bias(
        w, a[:, 0], a[:, 0], inputs[:, 0], y
    )  # only ‖v‖, ‖w‖ and r² enter the pair and the triple
    r2 = ((a.T @ w) ** 2).sum()
    expected = _with_r2(stand_in, r2, m, d)
    total = found.sum()
    centred = abs(float(stand_in.s / 2 - total / (2 * d))) / float(total)
    return max(relative_error(expected, found), centred)


def _with_r2(c: Bias, r2: Tensor, m: int, d: int) -> Tensor:
    ww = torch.dot(c.w, c.w)
    one = torch.ones_like(r2)
    companion = torch.zeros(3, 3, dtype=torch.float64)
    companion[0] = torch.stack([c.s, r2, -r2 * ww])
    companion[1, 0] = companion[2, 1] = one
    triple_values = torch.linalg.eigvals(companion).real
    gap, r = torch.sqrt(c.s**2 + 12 * r2), torch.sqrt(r2)
    zeros = torch.zeros((d - 1) * (m - 1), dtype=torch.float64)
    return ascending(
        torch.stack([c.s + gap, c.s - gap]) / 2,
        triple_values.repeat(d - 1),
        r.expand(m - d),
        -r.expand(m - d),
        zeros,
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
        gaps = (
            ((torch.stack([s + gap, s - gap]) / 2)[:, None] - p.eigenvalues[None, :])
            .abs()
            .min(dim=1)
            .values
        )
        return float(gaps.max() / p.eigenvalues.abs().max())

    return worst(linear_cases(), error)


def generalises() -> Outcome:
    """The pair of Eq. 5 where w ⟂ b, against Eq. 6 and against the spectrum; without w ⟂ b they differ."""
    errors = []
    for c in theorem6_cases():
        if c.m < 3:
            continue
        basis = torch.linalg.qr(torch.stack([c.v, c.w], 1)).Q
        b = c.b - basis @ (basis.T @ c.b)
        case = Bias(c.w, c.v, b * c.v.norm() / b.norm(), c.x, c.y)
        errors.append(relative_error(pair(case), pair_without_bias(case)))
        errors.append(distance_to_spectrum(case, pair(case)))
    return Outcome(max(errors), None, len(errors))


def pair_without_bias(c: Bias) -> Tensor:
    """Eq. (6), with mean xδ of the network without bias."""
    r2 = (torch.dot(c.w, c.v) * (c.x**2).mean() - (c.x * c.y).mean()) ** 2
    gap = torch.sqrt(c.s**2 + 12 * r2)
    return torch.stack([c.s + gap, c.s - gap]) / 2


def conjecture() -> Outcome:
    errors = [many_inputs_error(d, seed) for d in (1, 2, 3, 4, 6) for seed in (0, 1)]
    return Outcome(max(errors), None, len(errors))


CHECKS: dict[str, Entry] = {
    "scalar.eq66_68": lambda: compare(
        bias_cases(False, False),
        lambda c: autodiff_gradient(bias_network, [c.w, c.v, c.b], c.x, c.y),
        gradient,
    ),
    "scalar.eq69_73": lambda: compare(
        bias_cases(False, False), lambda c: c.hessian, sample_hessian
    ),
    "scalar.eq74_79": lambda: compare(bias_cases(True, False), lambda c: c.hessian, block_hessian),
    "scalar.eq80_82": lambda: compare(bias_cases(), shifted, low_rank),
    "scalar.eq83": lambda: compare(bias_cases(), lambda c: torch.linalg.inv(kernel(c)), eq83),
    "scalar.eq84": lambda: compare(bias_cases(), solved_columns, eq84),
    "scalar.eq85": lambda: compare(bias_cases(), lambda c: columns(c).T @ solved_columns(c), eq85),
    "scalar.sextic": lambda: compare(bias_cases(), dense_sextic_value, sextic_value),
    "scalar.eq86_96": lambda: compare(
        bias_cases(),
        dense_sextic,
        lambda c: eq86_96(c, False, True),
        lambda c: eq86_96(c, True, True),
    ),
    "scalar.eq93_95": lambda: compare(
        bias_cases(),
        dense_sextic,
        lambda c: eq86_96(c, True, False),
        lambda c: eq86_96(c, True, True),
    ),
    "scalar.sextic_collected": lambda: compare(
        bias_cases(), dense_sextic, lambda c: collected(c, False), lambda c: collected(c, True)
    ),
    "scalar.sextic_simplified": lambda: compare(
        plain_bias_cases(),
        dense_sextic,
        lambda c: simplified(c, False),
        lambda c: simplified(c, True),
    ),
    "scalar.eq97_101": lambda: compare(theorem6_cases(), dense_sextic, factored),
    "scalar.thm6_pair": lambda: worst(theorem6_cases(), lambda c: distance_to_spectrum(c, pair(c))),
    "scalar.eq6": without_bias,
    "scalar.eq104_106": lambda: compare(
        theorem6_cases(),
        lambda c: torch.stack(depressed(c, True)),
        lambda c: torch.stack(depressed(c, False)),
    ),
    "scalar.thm6_triple": lambda: worst(
        theorem6_cases(), lambda c: distance_to_spectrum(c, triple(c))
    ),
    "scalar.thm6": needs(
        lambda: compare(theorem6_cases(), lambda c: c.eigenvalues, theorem6),
        ("⟨v,b⟩ = 0", lambda: worst(oblique_cases(), lambda c: distance_to_spectrum(c, pair(c)))),
        (
            "mean y = mean xy = 0",
            lambda: worst(correlated_cases(), lambda c: distance_to_spectrum(c, pair(c))),
        ),
        ("‖v‖ = ‖b‖", lambda: worst(unequal_cases(), lambda c: distance_to_spectrum(c, pair(c)))),
    ),
    "scalar.thm6_overlines": lambda: worst(
        theorem6_cases(),
        lambda c: distance_to_spectrum(c, means_of_squares(c)),
        lambda c: distance_to_spectrum(c, pair(c)),
    ),
    "scalar.generalises": needs(
        generalises,
        (
            "w ⟂ b",
            lambda: worst(
                theorem6_cases(), lambda c: relative_error(pair(c), pair_without_bias(c))
            ),
        ),
    ),
    "scalar.triple_bounds": lambda: worst(theorem6_cases(), bound_violation),
    "scalar.t_prime": lambda: compare(
        theorem6_cases(),
        lambda c: (2 * (-depressed(c, False)[0] / 3).sqrt()).expand(2),
        lambda c: torch.stack(
            [2 * (c.r2 / 3 + c.s**2 / 9).sqrt(), 2 / 3 * (c.s**2 + 3 * c.r2).sqrt()]
        ),
    ),
    "scalar.centres": lambda: worst(theorem6_cases(), centre_error),
    "scalar.conjecture": conjecture,
}
