"""Scalar-spectrum paper, Section 1 and Appendix C.1 (linear network): eigenvalues, eigenvectors and
phases.

Shorthands: d = mean xδ, a = σ² = mean x², yx = mean xy, λ1 >= λ2 the outliers.
"""

from __future__ import annotations

import torch
from torch import Tensor, dot
from torch.linalg import vector_norm

from experiments.paper_audit.checks import Checks, Outcome, relative_error, worked
from experiments.paper_audit.scalar.cases import (
    Linear,
    ascending,
    autodiff_gradient,
    covariance_cases,
    dense_eigenvalues,
    eigen_error,
    errors,
    linear_cases,
    linear_network,
    matches,
    random_instance,
    several,
)
from experiments.paper_audit.tensors import real, zeros
from experiments.scalar_spectrum.training import phase_of_slope, smallest_eigenvalue_bound
from runner.curvature.closed_form.scalar import linear_spectrum

CHECKS = Checks()


def trace(c: Linear) -> Tensor:
    return c.a * (c.ww + c.vv)


def dense_trace(c: Linear) -> Tensor:
    return c.hessian.trace()


def outliers(c: Linear) -> Tensor:
    """Eq. (1): (λ1, λ2)."""
    root = torch.sqrt((trace(c) ** 2 + 4 * (c.d**2 + 2 * c.a * c.d * c.wv)).clamp_min(0))
    return torch.stack([trace(c) + root, trace(c) - root]) / 2


def spectrum(c: Linear) -> Tensor:
    """Theorem 1: ±d, m−1 times each, and the outliers."""
    return ascending(c.d.expand(c.m - 1), -c.d.expand(c.m - 1), outliers(c))


CHECKS["scalar.thm1"] = matches(linear_cases, dense_eigenvalues, spectrum)
CHECKS["scalar.centre"] = matches(linear_cases, dense_trace, lambda c: outliers(c).sum())


def product_of_outliers(c: Linear) -> Tensor:
    """λ1 λ2 from the automatic Hessian: tr H and tr H² less the 2(m−1) bulk eigenvalues ±d."""
    squares = (c.hessian**2).sum() - 2 * (c.m - 1) * c.d**2
    return (c.hessian.trace() ** 2 - squares) / 2


def negative_product(c: Linear) -> Tensor:
    return -product_of_outliers(c)


CHECKS["scalar.product_form"] = matches(
    linear_cases, negative_product, lambda c: c.d**2 + 2 * c.a * c.d * c.wv
)
CHECKS["scalar.product"] = matches(
    linear_cases,
    negative_product,
    lambda c: (c.wv * c.a - c.yx) * (3 * c.wv * c.a - c.yx),
)


def dense_outliers(c: Linear) -> Tensor:
    """(λ1, λ2) from the automatic Hessian."""
    largest = c.eigenvalues[-1]
    return torch.stack([largest, product_of_outliers(c) / largest])


def outliers_and_trace(c: Linear) -> Tensor:
    return torch.cat([dense_outliers(c), dense_trace(c)[None]])


def eq2(c: Linear) -> Tensor:
    """(λ1, λ2, tr H) with tr H = σ²(‖w‖² + ‖v‖²)."""
    root = torch.sqrt((trace(c) ** 2 / 4 - product_of_outliers(c)).clamp_min(0))
    return torch.stack([trace(c) / 2 + root, trace(c) / 2 - root, trace(c)])


CHECKS["scalar.eq2"] = matches(linear_cases, outliers_and_trace, eq2)


def sharpness_form(c: Linear) -> Tensor:
    imbalance = (c.a * (c.ww - c.vv)) ** 2
    angle = 4 * c.a**2 * (c.ww * c.vv - c.wv**2)
    gap = imbalance + angle + 4 * (2 * c.wv * c.a - c.yx) ** 2
    return torch.stack([trace(c) + torch.sqrt(gap), trace(c) - torch.sqrt(gap)]) / 2


CHECKS["scalar.sharpness"] = matches(linear_cases, dense_outliers, sharpness_form)


def rank_one_error(c: Linear) -> float:
    """At the solution (y replaced by the network's own output): one eigenvalue tr H, the others
    zero."""
    solved = Linear(c.w, c.v, c.x, c.wv * c.x)
    predicted = torch.cat([zeros(2 * c.m - 1), trace(c)[None]])
    return relative_error(solved.eigenvalues, predicted)


CHECKS["scalar.solution"] = errors(linear_cases, rank_one_error)


def eq34_violation(c: Linear) -> float:
    return float((c.d.abs() - torch.sqrt(2 * c.loss * c.a)) / c.a)


def bound_violation(c: Linear) -> float:
    """How far λ_min lies below −√(2ℓ)σ, relative to the largest |eigenvalue|."""
    bound = smallest_eigenvalue_bound(c.loss, c.a)
    return float((bound - c.eigenvalues[0]) / c.eigenvalues.abs().max())


CHECKS["scalar.eq34"] = errors(linear_cases, eq34_violation)
CHECKS["scalar.lambda_min_bound"] = errors(linear_cases, bound_violation)
CHECKS["scalar.lambda_min"] = matches(
    several, lambda c: c.eigenvalues[0], lambda c: -c.d, lambda c: -c.d.abs()
)


def sections(target: float) -> list[Linear]:
    """Networks with slopes from before zero to beyond θ* = target, w scaled accordingly."""
    cases = []
    for seed, share in enumerate((0.4, -0.5, 0.1, 0.3, 0.9, 1.1, 2.0)):
        (w, v), x, _ = random_instance(seed, 1 + seed, 1 + seed)
        cases.append(Linear(w * share * target / dot(w, v), v, x, target * x))
    return cases


def slopes_of_both_signs() -> list[Linear]:
    return sections(-1.5) + sections(1.5)


def phase_violation(c: Linear, phase: str) -> float:
    """How far λ1 − tr H and λ2 are on the wrong side of zero for the phase, relative to tr H."""
    first, second = dense_outliers(c)
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


CHECKS["scalar.phases"] = errors(
    slopes_of_both_signs,
    lambda c: phase_violation(c, printed_phase(c)),
    lambda c: phase_violation(c, right_phase(c)),
)


def product_sign_error(c: Linear, by_share: bool) -> float:
    """Does −λ1 λ2 < 0 agree with θ*/3 <= ⟨w, v⟩ <= θ* (by share: with ⟨w, v⟩/θ* between 1/3 and
    1)?"""
    target = c.yx / c.a
    inside = bool(target / 3 <= c.wv <= target)
    if by_share:
        inside = bool(1 / 3 <= c.wv / target <= 1)
    return float(bool(product_of_outliers(c) > 0) != inside)


CHECKS["scalar.product_sign"] = errors(
    slopes_of_both_signs,
    lambda c: product_sign_error(c, False),
    lambda c: product_sign_error(c, True),
)


def outlier_vector(c: Linear, i: int) -> Tensor:
    """Eq. (3)."""
    value = outliers(c)[i]
    return torch.cat([value * c.w + c.d * c.v, c.d * c.w + value * c.v])


def outlier_vectors_error(c: Linear) -> float:
    """Both vectors of Eq. (3) as eigenvectors of the automatic Hessian."""
    values = outliers(c)
    return max(eigen_error(c.hessian, outlier_vector(c, i), values[i]) for i in (0, 1))


CHECKS["scalar.thm2"] = errors(linear_cases, outlier_vectors_error)


def degenerate_cases() -> list[Linear]:
    """w = −v with a residual; zero residual."""
    cases = []
    for m in (1, 2, 5):
        (w, _), x, y = random_instance(m, m, 6)
        cases += [Linear(w, -w, x, y), Linear(w, 2 * w, x, dot(w, 2 * w) * x)]
    return cases


def repaired_vector_error(c: Linear) -> float:
    """The outlier eigenvectors that `linear_spectrum` gives in every case."""
    chosen = linear_spectrum(c.w, c.v, c.x, c.y).select("outlier")
    pairs = zip(chosen.eigenvectors().T, chosen.eigenvalues, strict=True)
    return max(eigen_error(c.hessian, vector, value) for vector, value in pairs)


CHECKS["scalar.thm2_degenerate"] = errors(
    degenerate_cases, outlier_vectors_error, repaired_vector_error
)


def dense_gradient(c: Linear) -> Tensor:
    return autodiff_gradient(linear_network, [c.v, c.w], c.x, c.y)


def gradient_form_error(c: Linear) -> float:
    """z = (λ/d) ∇ℓ + d θ, θ = (v, w)."""
    gradient, theta = dense_gradient(c), torch.cat([c.v, c.w])
    found = []
    for value in outliers(c):
        vector = value / c.d * gradient + c.d * theta
        found.append(eigen_error(c.hessian, vector, value))
    return max(found)


def outlier_angle(c: Linear) -> float:
    first, second = outlier_vector(c, 0), outlier_vector(c, 1)
    return abs(float(dot(first, second) / (vector_norm(first) * vector_norm(second))))


CHECKS["scalar.thm2_gradient"] = errors(several, gradient_form_error)
CHECKS["scalar.thm2_orthogonal"] = errors(several, outlier_angle)


def projected_start(p: Tensor) -> Tensor:
    """A fixed vector less its component along p."""
    start = torch.linspace(-1, 1, len(p), dtype=torch.float64) + 0.3
    return start - p * dot(p, start) / dot(p, p)


def bulk_error(c: Linear, by_product: bool) -> float:
    """Theorem 3: (ẑ, s ẑ) with ẑ the projection of a fixed vector; s the sign of λ, or of λ·d where
    `by_product`."""
    if c.m == 1:
        return 0.0
    found = []
    for value in (c.d, -c.d):
        s = torch.sign(value * c.d) if by_product else torch.sign(value)
        z = projected_start(c.w + s * c.v)
        found.append(eigen_error(c.hessian, torch.cat([z, s * z]), value))
    return max(found)


def covariances_of_both_signs() -> tuple[Linear, ...]:
    return covariance_cases(-1) + covariance_cases(1)


CHECKS["scalar.thm3"] = errors(
    covariances_of_both_signs, lambda c: bulk_error(c, False), lambda c: bulk_error(c, True)
)


def eigen_system_error(c: Linear) -> float:
    """Eqs. (47), (48), (51), (52) on every eigenvector of the automatic Hessian."""
    found = [0.0]
    values, vectors = torch.linalg.eigh(c.hessian)
    scale = float(values.abs().max())
    size = float(torch.sqrt(c.ww + c.vv))
    for value, z in zip(values, vectors.T, strict=True):
        z1, z2 = z[: c.m], z[c.m :]
        shared = c.a * (dot(c.w, z1) + dot(c.v, z2))
        first, second = c.d * z2 - value * z1, c.d * z1 - value * z2
        top = (shared * c.w + first).abs().max()
        bottom = (shared * c.v + second).abs().max()
        cross = dot(first, c.v) - dot(second, c.w)
        found += [float(top) / scale, float(bottom) / scale, abs(float(cross)) / (scale * size)]
    return max(found)


CHECKS["scalar.eq47_52"] = errors(linear_cases, eigen_system_error)


def eq53_57_error(c: Linear) -> float:
    """z of Eq. (57) (α = 1) solves Eqs. (53)–(56) and is an eigenvector, for both outliers."""
    found = [0.0]
    scale = float(torch.sqrt(c.ww + c.vv))
    for value in outliers(c):
        factor = c.d**2 - value**2
        z1 = (value * c.w + c.d * c.v) / factor
        z2 = (c.d * c.w + value * c.v) / factor
        found.append(float((c.d * z2 - value * z1 - c.w).abs().max()) / scale)
        found.append(float((c.d * z1 - value * z2 - c.v).abs().max()) / scale)
        found.append(eigen_error(c.hessian, torch.cat([z1, z2]), value))
    return max(found)


CHECKS["scalar.eq53_57"] = errors(several, eq53_57_error)


def sine(left: Tensor, right: Tensor) -> float:
    """Of the angle between two vectors."""
    cosine = left @ right / (left.norm() * right.norm())
    return float((1 - cosine**2).clamp_min(0).sqrt())


@CHECKS.clause("scalar.eq52.cases")
def other_solutions() -> Outcome:
    """⟨a, b⟩ = ⟨c, d⟩ has the solutions 1 to 3 of Appendix C.1 only? a = (1, 1), b = (1, 0), c =
    (2, 1), d = (0, 1) is another: its distance from each case, a sine or the product; corrected:
    case 3 gives eigenvectors."""
    a, b, c, d = real([[1.0, 1.0], [1.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    product = float(a @ b)
    second, third = max(sine(a, c), sine(b, d)), max(sine(a, d), sine(b, c))
    distance = min(abs(product), second, third)
    right = CHECKS["scalar.eq53_57"]()
    witness = worked(
        "a = (1, 1), b = (1, 0), c = (2, 1), d = (0, 1)",
        "of case 1, 2 or 3",
        "of none",
        f"⟨a, b⟩ = ⟨c, d⟩ = {product:g}; a is parallel to neither c nor d",
    )
    printed = distance if float(c @ d) == product else 0.0
    return Outcome(printed, right.printed, 1 + right.instances, witness)


def bulk_constraint_error(c: Linear) -> float:
    """Eqs. (58)–(63): bulk eigenvectors of ±d are (z, ±z) with z ⟂ w ± v; (a) and (b) are
    orthogonal."""
    found = [0.0]
    for group in linear_spectrum(c.w, c.v, c.x, c.y).select("bulk").groups:
        sign = float(torch.sign(group.value * c.d))
        z = group.basis()
        top = z[: c.m]
        normal = c.w + sign * c.v
        residual = c.hessian @ z - group.value * z
        found.append(float((z[c.m :] - sign * top).abs().max()))
        found.append(float((normal @ top).abs().max() / vector_norm(normal)))
        found.append(float(residual.abs().max() / c.eigenvalues.abs().max()))
        for i in (0, 1):
            outlier = outlier_vector(c, i)
            found.append(float((outlier @ z).abs().max() / vector_norm(outlier)))
    return max(found)


CHECKS["scalar.eq58_63"] = errors(several, bulk_constraint_error)
