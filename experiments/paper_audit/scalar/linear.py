"""Scalar-spectrum paper, Section 1 and Appendices A and C.1 (linear network): what was checked, and the verdicts.

Shorthands: d = mean xδ, σ² = mean x², yx = mean xy, λ1 >= λ2 the outliers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.paper_audit.checks import Entry, Outcome, Witness, relative_error
from experiments.paper_audit.scalar.cases import (
    Linear,
    ascending,
    autodiff_gradient,
    compare,
    covariance_cases,
    eigen_error,
    linear_cases,
    linear_network,
    random_instance,
    worst,
)
from experiments.paper_audit.tensors import real, unit
from experiments.scalar_spectrum.training import phase_of_slope, smallest_eigenvalue_bound
from runner.curvature.closed_form.scalar import linear_spectrum

LAMBDA = 0.731  # a value that is no eigenvalue, at which identities in λ are compared


def identity(c: Linear) -> Tensor:
    return unit(c.m)


def trace(c: Linear) -> Tensor:
    return c.a * (c.ww + c.vv)


def outliers(c: Linear) -> Tensor:
    """Eq. (1): (λ1, λ2)."""
    root = torch.sqrt((trace(c) ** 2 + 4 * (c.d**2 + 2 * c.a * c.d * c.wv)).clamp_min(0))
    return torch.stack([trace(c) + root, trace(c) - root]) / 2


def spectrum(c: Linear) -> Tensor:
    """Theorem 1: ±d, m−1 times each, and the outliers."""
    return ascending(c.d.expand(c.m - 1), -c.d.expand(c.m - 1), outliers(c))


def product_of_outliers(c: Linear) -> Tensor:
    """λ1 λ2 from the automatic Hessian: tr H and tr H² less the 2(m−1) bulk eigenvalues ±d."""
    squares = (c.hessian**2).sum() - 2 * (c.m - 1) * c.d**2
    return (c.hessian.trace() ** 2 - squares) / 2


def dense_outliers(c: Linear) -> Tensor:
    """(λ1, λ2) from the automatic Hessian."""
    return torch.stack([c.eigenvalues[-1], product_of_outliers(c) / c.eigenvalues[-1]])


def eq2(c: Linear) -> Tensor:
    """(λ1, λ2, tr H) with tr H = σ²(‖w‖² + ‖v‖²)."""
    root = torch.sqrt((trace(c) ** 2 / 4 - product_of_outliers(c)).clamp_min(0))
    return torch.stack([trace(c) / 2 + root, trace(c) / 2 - root, trace(c)])


def outlier_vector(c: Linear, i: int) -> Tensor:
    """Eq. (3)."""
    value = outliers(c)[i]
    return torch.cat([value * c.w + c.d * c.v, c.d * c.w + value * c.v])


def bulk_error(c: Linear, by_product: bool) -> float:
    """Theorem 3: (ẑ, s ẑ) with ẑ the projection of a fixed vector; s the sign of λ, or of λ·d where `by_product`."""
    if c.m == 1:
        return 0.0
    errors = []
    for value in (c.d, -c.d):
        s = torch.sign(value * c.d) if by_product else torch.sign(value)
        p = c.w + s * c.v
        start = torch.linspace(-1, 1, c.m, dtype=torch.float64) + 0.3
        z = start - p * torch.dot(p, start) / torch.dot(p, p)
        errors.append(eigen_error(c.hessian, torch.cat([z, s * z]), value))
    return max(errors)


def degenerate_cases() -> tuple[Linear, ...]:
    """w = −v with a residual; zero residual."""
    cases: list[Linear] = []
    for m in (1, 2, 5):
        (w, _), x, y = random_instance(m, m, 6)
        cases += [Linear(w, -w, x, y), Linear(w, 2 * w, x, torch.dot(w, 2 * w) * x)]
    return tuple(cases)


def repaired_vector_error(c: Linear) -> float:
    """The outlier eigenvectors that `linear_spectrum` gives in every case."""
    chosen = linear_spectrum(c.w, c.v, c.x, c.y).select("outlier")
    vectors = chosen.eigenvectors()
    return max(
        eigen_error(c.hessian, vectors[:, i], value) for i, value in enumerate(chosen.eigenvalues)
    )


def sections(target: float) -> tuple[Linear, ...]:
    """Networks with slopes from before zero to beyond θ* = target, w scaled accordingly."""
    cases = []
    for seed, share in enumerate((0.4, -0.5, 0.1, 0.3, 0.9, 1.1, 2.0)):
        (w, v), x, _ = random_instance(seed, 1 + seed, 1 + seed)
        y = target * x
        cases.append(Linear(w * share * target / torch.dot(w, v), v, x, y))
    return tuple(cases)


def phase_violation(c: Linear, phase: str) -> float:
    """How far λ1 − tr H and λ2 are on the wrong side of zero for the phase, relative to tr H."""
    first = c.eigenvalues[-1]
    second = product_of_outliers(c) / first
    side = -1.0 if phase == "late" else 1.0
    return float(torch.maximum(side * (trace(c) - first), side * second) / trace(c))


def printed_phase(c: Linear) -> str:
    """The paper's ordering along the real line, wherever θ* lies."""
    target = c.yx / c.a
    if c.wv <= target / 3:
        return "early"
    return "late" if c.wv <= target else "divergent"


def right_phase(c: Linear) -> str:
    return phase_of_slope(float(c.wv), float(c.yx / c.a))


def product_sign_error(c: Linear, by_share: bool) -> float:
    """Does −λ1 λ2 < 0 agree with θ*/3 <= ⟨w, v⟩ <= θ* (by share: with ⟨w, v⟩/θ* between 1/3 and 1)?"""
    target = c.yx / c.a
    share = c.wv / target
    inside = bool(1 / 3 <= share <= 1) if by_share else bool(target / 3 <= c.wv <= target)
    return 0.0 if bool(product_of_outliers(c) > 0) == inside else 1.0


def sharpness_form(c: Linear) -> Tensor:
    gap = (
        (c.a * (c.ww - c.vv)) ** 2
        + 4 * c.a**2 * (c.ww * c.vv - c.wv**2)
        + 4 * (2 * c.wv * c.a - c.yx) ** 2
    )
    return torch.stack([trace(c) + torch.sqrt(gap), trace(c) - torch.sqrt(gap)]) / 2


def blocks(c: Linear, upper: Tensor, lower: Tensor) -> Tensor:
    """[[a w wᵀ, upper], [lower, a v vᵀ]]."""
    top = torch.cat([c.a * torch.outer(c.w, c.w), upper], dim=1)
    return torch.cat([top, torch.cat([lower, c.a * torch.outer(c.v, c.v)], dim=1)])


def printed_matrix(c: Linear) -> Tensor:
    """Eq. (12) as printed: a v wᵀ + d I in both corners."""
    corner = c.a * torch.outer(c.v, c.w) + c.d * identity(c)
    return blocks(c, corner, corner)


def right_matrix(c: Linear) -> Tensor:
    """Eq. (45): a w vᵀ + d I above the diagonal."""
    corner = c.a * torch.outer(c.v, c.w) + c.d * identity(c)
    return blocks(c, corner.T, corner)


def determinant(matrix: Tensor) -> Tensor:
    return torch.linalg.det(matrix - LAMBDA * unit(len(matrix)))


def shifted_inverse(c: Linear) -> Tensor:
    """(σ² v vᵀ − λI)⁻¹, numerically."""
    return torch.linalg.inv(c.a * torch.outer(c.v, c.v) - LAMBDA * identity(c))


def schur(c: Linear, left: Tensor, right: Tensor, inverse: Tensor | None = None) -> Tensor:
    """A − λ − left (D − λ)⁻¹ right."""
    if inverse is None:
        inverse = shifted_inverse(c)
    return c.a * torch.outer(c.w, c.w) - LAMBDA * identity(c) - left @ inverse @ right


def right_schur(c: Linear) -> Tensor:
    corner = c.a * torch.outer(c.v, c.w) + c.d * identity(c)
    return schur(c, corner.T, corner)


def printed_schur(c: Linear) -> Tensor:
    corner = c.a * torch.outer(c.v, c.w) + c.d * identity(c)
    return schur(c, corner, corner)


def woodbury(c: Linear) -> Tensor:
    """Eq. (15)."""
    return -identity(c) / LAMBDA - c.a / (LAMBDA * (LAMBDA - c.vv * c.a)) * torch.outer(c.v, c.v)


def eq16(c: Linear) -> Tensor:
    left = c.a * torch.outer(c.w, c.w) + c.d * identity(c)
    return schur(c, left, c.a * torch.outer(c.v, c.v) + c.d * identity(c), woodbury(c))


def eq17_19(c: Linear) -> Tensor:
    big, low = LAMBDA * (LAMBDA - c.a * c.vv), LAMBDA
    ww = c.a + c.a**2 * c.vv / low + c.a**3 * c.vv**2 / big
    wv = c.a * c.d / low + c.a**2 * c.d * c.vv / big
    vv = c.a * c.d**2 / big
    mixed = torch.outer(c.w, c.v) + torch.outer(c.v, c.w)
    plain = (c.d**2 / low - LAMBDA) * identity(c)
    return ww * torch.outer(c.w, c.w) + wv * mixed + vv * torch.outer(c.v, c.v) + plain


def eq24_25(c: Linear) -> Tensor:
    """With the coefficients of Eqs. (21) and (23)."""
    part = c.a / (LAMBDA - c.a * c.vv)
    mixed = torch.outer(c.w, c.v) + torch.outer(c.v, c.w)
    matrix = part * (
        LAMBDA * torch.outer(c.w, c.w) + c.d * mixed + c.d**2 / LAMBDA * torch.outer(c.v, c.v)
    )
    return matrix - (LAMBDA - c.d**2 / LAMBDA) * identity(c)


def nu(c: Linear) -> Tensor:
    return (LAMBDA**2 - c.d**2) * (LAMBDA - c.a * c.vv)


def eq26(c: Linear) -> Tensor:
    mixed = torch.outer(c.w, c.v) + torch.outer(c.v, c.w)
    matrix = (
        LAMBDA**2 * torch.outer(c.w, c.w) + c.d * LAMBDA * mixed + c.d**2 * torch.outer(c.v, c.v)
    )
    return c.a * matrix - nu(c) * identity(c)


def eq27(c: Linear) -> Tensor:
    z = LAMBDA * c.w + c.d * c.v
    return c.a * torch.outer(z, z) - nu(c) * identity(c)


def eq28(c: Linear) -> Tensor:
    z = LAMBDA * c.w + c.d * c.v
    return nu(c) ** (c.m - 1) * (c.a * torch.dot(z, z) - nu(c))


def cubic(c: Linear) -> Tensor:
    """a |z|² − ν, the function whose zeros Eqs. (30)–(32) look for."""
    z = LAMBDA * c.w + c.d * c.v
    return c.a * torch.dot(z, z) - nu(c)


def eq30(c: Linear, corrected: bool) -> Tensor:
    head = (
        c.a * (LAMBDA**2 * c.ww + c.d**2 * c.vv + 2 * c.d * LAMBDA * c.wv)
        - LAMBDA**3
        - c.a * c.d**2 * c.vv
    )
    return head + (
        c.a * c.vv * LAMBDA**2 + LAMBDA * c.d**2 if corrected else c.d**2 * c.vv + c.d**2
    )


def eq31(c: Linear) -> Tensor:
    return -(LAMBDA**3) + trace(c) * LAMBDA**2 + LAMBDA * (c.d**2 + 2 * c.a * c.d * c.wv)


def eq32(c: Linear) -> Tensor:
    return -LAMBDA * (LAMBDA**2 - trace(c) * LAMBDA - (c.d**2 + 2 * c.a * c.d * c.wv))


def eigen_system_error(c: Linear) -> float:
    """Eqs. (47), (48), (51), (52) on every eigenvector of the automatic Hessian."""
    errors = [0.0]
    values, vectors = torch.linalg.eigh(c.hessian)
    scale = float(values.abs().max())
    for value, z in zip(values, vectors.T, strict=True):
        z1, z2 = z[: c.m], z[c.m :]
        shared = c.a * (torch.dot(c.w, z1) + torch.dot(c.v, z2))
        top, bottom = shared * c.w + c.d * z2 - value * z1, shared * c.v + c.d * z1 - value * z2
        cross = torch.dot(c.d * z2 - value * z1, c.v) - torch.dot(c.d * z1 - value * z2, c.w)
        size = float(torch.sqrt(c.ww + c.vv))
        errors += [float(top.abs().max()) / scale, float(bottom.abs().max()) / scale]
        errors.append(abs(float(cross)) / (scale * size))
    return max(errors)


def eq53_57_error(c: Linear) -> float:
    """z of Eq. (57) (α = 1) solves Eqs. (53)–(56) and is an eigenvector, for both outliers."""
    errors = [0.0]
    for value in outliers(c):
        factor = c.d**2 - value**2
        z1, z2 = (value * c.w + c.d * c.v) / factor, (c.d * c.w + value * c.v) / factor
        scale = float(torch.sqrt(c.ww + c.vv))
        errors.append(float((c.d * z2 - value * z1 - c.w).abs().max()) / scale)
        errors.append(float((c.d * z1 - value * z2 - c.v).abs().max()) / scale)
        errors.append(eigen_error(c.hessian, torch.cat([z1, z2]), value))
    return max(errors)


def other_solutions() -> Outcome:
    """⟨a, b⟩ = ⟨c, d⟩ has the solutions 1 to 3 of Appendix C.1 only? a = (1, 1), b = (1, 0), c = (2, 1), d = (0, 1) is
    another: its distance from each case, a sine or the product; corrected: case 3 gives eigenvectors."""
    vectors = real([[1.0, 1.0], [1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    a, b, c, d = vectors

    def apart(left: Tensor, right: Tensor) -> float:
        cosine = left @ right / (left.norm() * right.norm())
        return float((1 - cosine**2).clamp_min(0).sqrt())

    product = float(a @ b)
    cases = [abs(product), max(apart(a, c), apart(b, d)), max(apart(a, d), apart(b, c))]
    right = worst(several(), eq53_57_error)
    witness = Witness(
        "a = (1, 1), b = (1, 0), c = (2, 1), d = (0, 1)",
        "of case 1, 2 or 3",
        "of none",
        f"⟨a, b⟩ = ⟨c, d⟩ = {product:g}; a is parallel to neither c nor d",
    )
    return Outcome(
        min(cases) if float(c @ d) == product else 0.0, right.printed, 1 + right.instances, witness
    )


def bulk_constraint_error(c: Linear) -> float:
    """Eqs. (58)–(63): bulk eigenvectors of ±d are (z, ±z) with z ⟂ w ± v; (a) and (b) are orthogonal."""
    found = linear_spectrum(c.w, c.v, c.x, c.y).select("bulk")
    errors = [0.0]
    for group in found.groups:
        sign = float(torch.sign(group.value * c.d))
        z = group.basis()
        errors.append(float((z[c.m :] - sign * z[: c.m]).abs().max()))
        errors.append(
            float(
                ((c.w + sign * c.v) @ z[: c.m]).abs().max()
                / torch.linalg.vector_norm(c.w + sign * c.v)
            )
        )
        errors.append(
            float((c.hessian @ z - group.value * z).abs().max() / c.eigenvalues.abs().max())
        )
        for i in range(2):
            outlier = outlier_vector(c, i)
            errors.append(float((outlier @ z).abs().max() / torch.linalg.vector_norm(outlier)))
    return max(errors)


def rank_one_error(c: Linear) -> float:
    """At the solution (y replaced by the network's own output): one eigenvalue tr H, the others zero."""
    values = Linear(c.w, c.v, c.x, c.wv * c.x).eigenvalues
    zero = torch.zeros(2 * c.m - 1, dtype=torch.float64)
    return relative_error(values, torch.cat([zero, trace(c)[None]]))


def outlier_angle(c: Linear) -> float:
    first, second = outlier_vector(c, 0), outlier_vector(c, 1)
    return abs(
        float(
            torch.dot(first, second)
            / (torch.linalg.vector_norm(first) * torch.linalg.vector_norm(second))
        )
    )


def gradient_form_error(c: Linear) -> float:
    """z = (λ/d) ∇ℓ + d θ, θ = (v, w)."""
    gradient = autodiff_gradient(linear_network, [c.v, c.w], c.x, c.y)
    theta = torch.cat([c.v, c.w])
    return max(
        eigen_error(c.hessian, value / c.d * gradient + c.d * theta, value) for value in outliers(c)
    )


def several() -> tuple[Linear, ...]:
    """Random cases with m >= 2, where there is a bulk."""
    return tuple(c for c in linear_cases() if c.m > 1)


def bound_violation(c: Linear) -> float:
    """How far λ_min lies below −√(2ℓ)σ, relative to the largest |eigenvalue|."""
    return float(
        (smallest_eigenvalue_bound(c.loss, c.a) - c.eigenvalues[0]) / c.eigenvalues.abs().max()
    )


def outlier_vectors_error(c: Linear) -> float:
    """Both vectors of Eq. (3) as eigenvectors of the automatic Hessian."""
    return max(eigen_error(c.hessian, outlier_vector(c, i), outliers(c)[i]) for i in (0, 1))


def schur_of_hessian(c: Linear) -> Tensor:
    """Schur complement of the lower right block in the automatic H − λI."""
    shifted = c.hessian - LAMBDA * unit(2 * c.m)
    a, b = shifted[: c.m, : c.m], shifted[: c.m, c.m :]
    return a - b @ torch.linalg.solve(shifted[c.m :, c.m :], shifted[c.m :, : c.m])


CHECKS: dict[str, Entry] = {
    "scalar.thm1": lambda: compare(linear_cases(), lambda c: c.eigenvalues, spectrum),
    "scalar.eq2": lambda: compare(
        linear_cases(),
        lambda c: torch.cat([dense_outliers(c), c.hessian.trace()[None]]),
        eq2,
    ),
    "scalar.centre": lambda: compare(
        linear_cases(), lambda c: c.hessian.trace(), lambda c: outliers(c).sum()
    ),
    "scalar.product_form": lambda: compare(
        linear_cases(),
        lambda c: -product_of_outliers(c),
        lambda c: c.d**2 + 2 * c.a * c.d * c.wv,
    ),
    "scalar.product": lambda: compare(
        linear_cases(),
        lambda c: -product_of_outliers(c),
        lambda c: (c.wv * c.a - c.yx) * (3 * c.wv * c.a - c.yx),
    ),
    "scalar.product_sign": lambda: worst(
        sections(-1.5) + sections(1.5),
        lambda c: product_sign_error(c, False),
        lambda c: product_sign_error(c, True),
    ),
    "scalar.phases": lambda: worst(
        sections(-1.5) + sections(1.5),
        lambda c: phase_violation(c, printed_phase(c)),
        lambda c: phase_violation(c, right_phase(c)),
    ),
    "scalar.solution": lambda: worst(linear_cases(), rank_one_error),
    "scalar.sharpness": lambda: compare(linear_cases(), dense_outliers, sharpness_form),
    "scalar.thm2": lambda: worst(linear_cases(), outlier_vectors_error),
    "scalar.thm2_degenerate": lambda: worst(
        degenerate_cases(),
        outlier_vectors_error,
        repaired_vector_error,
    ),
    "scalar.thm2_gradient": lambda: worst(several(), gradient_form_error),
    "scalar.thm2_orthogonal": lambda: worst(several(), outlier_angle),
    "scalar.thm3": lambda: worst(
        covariance_cases(-1) + covariance_cases(1),
        lambda c: bulk_error(c, False),
        lambda c: bulk_error(c, True),
    ),
    "scalar.eq7_8": lambda: compare(
        linear_cases(),
        lambda c: autodiff_gradient(linear_network, [c.v, c.w], c.x, c.y),
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
        lambda c: c.d * identity(c) + c.a * torch.outer(c.v, c.w),
    ),
    "scalar.eq12": lambda: compare(
        linear_cases(), lambda c: c.hessian, printed_matrix, right_matrix
    ),
    "scalar.eq13": lambda: compare(
        linear_cases(),
        lambda c: determinant(c.hessian),
        lambda c: determinant(printed_matrix(c)),
        lambda c: determinant(right_matrix(c)),
    ),
    "scalar.eq14": lambda: compare(linear_cases(), schur_of_hessian, printed_schur, right_schur),
    "scalar.eq15": lambda: compare(
        linear_cases(),
        shifted_inverse,
        woodbury,
    ),
    "scalar.eq16": lambda: compare(linear_cases(), schur_of_hessian, eq16, right_schur),
    "scalar.eq17_19": lambda: compare(linear_cases(), schur_of_hessian, eq17_19),
    "scalar.eq20_25": lambda: compare(linear_cases(), schur_of_hessian, eq24_25),
    "scalar.eq26": lambda: compare(
        linear_cases(), lambda c: LAMBDA * (LAMBDA - c.a * c.vv) * schur_of_hessian(c), eq26
    ),
    "scalar.eq27": lambda: compare(linear_cases(), eq26, eq27),
    "scalar.eq28": lambda: compare(
        linear_cases(),
        lambda c: torch.linalg.det(eq27(c)),
        eq28,
        lambda c: (-1.0) ** (c.m - 1) * eq28(c),
    ),
    "scalar.eq30": lambda: compare(
        linear_cases(), cubic, lambda c: eq30(c, False), lambda c: eq30(c, True)
    ),
    "scalar.eq31": lambda: compare(linear_cases(), cubic, eq31),
    "scalar.eq32": lambda: compare(linear_cases(), cubic, eq32),
    "scalar.eq34": lambda: worst(
        linear_cases(), lambda c: float((c.d.abs() - torch.sqrt(2 * c.loss * c.a)) / c.a)
    ),
    "scalar.lambda_min_bound": lambda: worst(linear_cases(), bound_violation),
    "scalar.lambda_min": lambda: compare(
        several(), lambda c: c.eigenvalues[0], lambda c: -c.d, lambda c: -c.d.abs()
    ),
    "scalar.eq45": lambda: compare(linear_cases(), lambda c: c.hessian, right_matrix),
    "scalar.eq47_52": lambda: worst(linear_cases(), eigen_system_error),
    "scalar.eq52.cases": other_solutions,
    "scalar.eq53_57": lambda: worst(several(), eq53_57_error),
    "scalar.eq58_63": lambda: worst(several(), bulk_constraint_error),
}
