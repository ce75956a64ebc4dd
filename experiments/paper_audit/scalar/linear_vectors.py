"""Scalar-spectrum paper, Section 1 and Appendix C.1 (linear network): eigenvectors."""

from __future__ import annotations

import torch
from torch import Tensor, dot
from torch.linalg import vector_norm

from experiments.paper_audit.checks import Checks, Outcome, worked
from experiments.paper_audit.scalar.cases import (
    covariance_cases,
    eigen_error,
    errors,
    linear_cases,
    random_instance,
    several,
)
from experiments.paper_audit.scalar.linear import outliers
from experiments.paper_audit.scalar.networks import Linear
from experiments.paper_audit.tensors import grid, real
from runner.closed_form.scalar import linear_spectrum

CHECKS = Checks()


def outlier_vector(c: Linear, i: int) -> Tensor:
    """Eq. (3)."""
    value = outliers(c)[i]
    z_v = value * c.w + c.d * c.v
    z_w = c.d * c.w + value * c.v
    return torch.cat([z_v, z_w])


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
        v = 2 * w
        opposite = Linear(w, -w, x, y)
        solved = Linear(w, v, x, dot(w, v) * x)
        cases += [opposite, solved]
    return cases


def repaired_vector_error(c: Linear) -> float:
    """The outlier eigenvectors that `linear_spectrum` gives in every case."""
    chosen = linear_spectrum(c.w, c.v, c.x, c.y).select("outlier")
    vectors = chosen.eigenvectors().T
    pairs = zip(vectors, chosen.eigenvalues, strict=True)
    return max(eigen_error(c.hessian, vector, value) for vector, value in pairs)


CHECKS["scalar.thm2_degenerate"] = errors(
    degenerate_cases, outlier_vectors_error, repaired_vector_error
)


def gradient_form_error(c: Linear) -> float:
    """z = (λ/d) ∇ℓ + d θ, θ = (v, w)."""
    theta = torch.cat([c.v, c.w])
    found = []
    for value in outliers(c):
        vector = value / c.d * c.gradient + c.d * theta
        found.append(eigen_error(c.hessian, vector, value))
    return max(found)


def outlier_angle(c: Linear) -> float:
    first = outlier_vector(c, 0)
    second = outlier_vector(c, 1)
    scale = vector_norm(first) * vector_norm(second)
    return abs(float(dot(first, second) / scale))


CHECKS["scalar.thm2_gradient"] = errors(several, gradient_form_error)
CHECKS["scalar.thm2_orthogonal"] = errors(several, outlier_angle)


def projected_start(p: Tensor) -> Tensor:
    """A fixed vector less its component along p."""
    start = grid(-1, 1, len(p)) + 0.3
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
    pairs = zip(values, vectors.T, strict=True)
    for value, z in pairs:
        z1 = z[: c.m]
        z2 = z[c.m :]
        shared = c.a * (dot(c.w, z1) + dot(c.v, z2))
        first = c.d * z2 - value * z1
        second = c.d * z1 - value * z2
        top = (shared * c.w + first).abs().max()
        bottom = (shared * c.v + second).abs().max()
        cross = dot(first, c.v) - dot(second, c.w)
        found.append(float(top) / scale)
        found.append(float(bottom) / scale)
        found.append(abs(float(cross)) / (scale * size))
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
        first = c.d * z2 - value * z1 - c.w
        second = c.d * z1 - value * z2 - c.v
        found.append(float(first.abs().max()) / scale)
        found.append(float(second.abs().max()) / scale)
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
    second = max(sine(a, c), sine(b, d))
    third = max(sine(a, d), sine(b, c))
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
    bulk = linear_spectrum(c.w, c.v, c.x, c.y).select("bulk")
    for group in bulk.groups:
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
