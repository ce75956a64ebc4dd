"""Scalar-spectrum paper: what its sentences and the steps between its equations state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from experiments.paper_audit.checks import Checks, Errors, matches, relative_error
from experiments.paper_audit.formulas import Formula
from experiments.paper_audit.radicals import general_quintic
from experiments.paper_audit.scalar.bias import LAMBDA, raw_cases
from experiments.paper_audit.scalar.cases import (
    bias_cases,
    eigen_error,
    errors,
    linear_cases,
    relu_cases,
    several,
    theorem6_cases,
)
from experiments.paper_audit.scalar.linear import outliers
from experiments.paper_audit.scalar.linear_vectors import outlier_vector
from experiments.paper_audit.scalar.networks import (
    Bias,
    Linear,
    Relu,
    autodiff_hessian,
    bias_network,
    multi_input_network,
)
from experiments.paper_audit.scalar.relu import order
from experiments.paper_audit.scalar.terms import a, stack, vv, wb, wv, ww, yx
from experiments.paper_audit.scalar.theorem6 import eq104, eq106
from experiments.paper_audit.tensors import gauss, kron, real, seeded, spectral_norm, unit

CHECKS = Checks()


def regression_slope(c: Linear) -> Tensor:
    """θ of the least squares y = θ x."""
    return torch.linalg.lstsq(c.x[:, None], c.y[:, None]).solution[0, 0]


CHECKS["scalar.regression"] = matches(linear_cases, regression_slope, yx / a)


def invertible_error(c: Linear) -> float:
    """Determinant of σ² v vᵀ − λ I at a λ that is no root, and at its roots, σ²‖v‖² and, for m > 1,
    0."""
    square = c.a * torch.outer(c.v, c.v)
    at_lambda = torch.linalg.det(square - LAMBDA * unit(c.m))
    printed = (-LAMBDA) ** (c.m - 1) * (c.a * c.vv - LAMBDA)
    at_root = torch.linalg.det(square - c.a * c.vv * unit(c.m)) / (c.a * c.vv) ** c.m
    at_zero = torch.linalg.det(square) / (c.a * c.vv) ** c.m if c.m > 1 else at_root
    return max(relative_error(at_lambda, printed), abs(float(at_root)), abs(float(at_zero)))


CHECKS["scalar.invertible"] = errors(linear_cases, invertible_error)


def eigenvalue_equation_error(c: Linear) -> float:
    """H z for z of Eq. 57 as the display after it has it, and the equation for λ."""
    found = []
    for k, value in enumerate(outliers(c)):
        factor = value * c.a * (c.ww + c.vv) + 2 * c.d * c.a * c.wv + c.d**2
        top = factor * c.w + value * c.d * c.v
        bottom = value * c.d * c.w + factor * c.v
        found.append(relative_error(c.hessian @ outlier_vector(c, k), torch.cat([top, bottom])))
        found.append(abs(float(factor - value**2)) / float(c.eigenvalues.abs().max()) ** 2)
    return max(found)


CHECKS["scalar.eigenvalue_equation"] = errors(several, eigenvalue_equation_error)


def projector_error(c: Linear) -> float:
    """Eigenvectors of I − u uᵀ/|u|², u = w ± v, of eigenvalues other than 0: m − 1, each a bulk
    eigenvector (z, ±z)."""
    found = []
    for sign in (1.0, -1.0):
        u = c.w + sign * c.v
        projector = unit(c.m) - torch.outer(u, u) / (u @ u)
        values, vectors = torch.linalg.eigh(projector)
        kept = vectors[:, values > 0.5]
        found.append(float(kept.shape[1] != c.m - 1))
        for z in kept.T:
            found.append(eigen_error(c.hessian, torch.cat([z, sign * z]), sign * c.d))
    return max(found)


CHECKS["scalar.projectors"] = errors(several, projector_error)


def direct_sum_error(c: Relu) -> float:
    """Column space of H: ranks of the cells add up; each eigenvector of H is zero on one cell."""
    places = order(c)
    hessian = c.hessian[places][:, places]
    positive = 2 * int((c.v > 0).sum())
    first = hessian[:positive, :positive]
    second = hessian[positive:, positive:]
    ranks = [int(torch.linalg.matrix_rank(matrix)) for matrix in (first, second, hessian)]
    _, vectors = torch.linalg.eigh(hessian)
    by_cell = torch.stack([vectors[:positive].norm(dim=0), vectors[positive:].norm(dim=0)])
    smaller = by_cell.min(dim=0).values
    return max(float(smaller.max()), abs(ranks[0] + ranks[1] - ranks[2]))


CHECKS["scalar.direct_sum"] = errors(relu_cases, direct_sum_error)


def two_inputs_error(c: Bias) -> float:
    """The network with bias as one with the inputs (x, 1): outputs and Hessian; footnote 3 for two
    other inputs."""
    inputs = torch.stack([c.x, torch.ones_like(c.x)], dim=1)
    outputs = bias_network(c.x, c.w, c.v, c.b)
    same = relative_error(multi_input_network(inputs, c.w, c.v, c.b), outputs)
    layers = [c.w, c.v, c.b]
    found = autodiff_hessian(multi_input_network, layers, inputs, c.y)
    second = gauss(seeded(c.m), len(c.x))
    others = torch.stack([c.x, second], dim=1)
    hessian = autodiff_hessian(multi_input_network, layers, others, c.y)
    corner = hessian[c.m : 2 * c.m, 2 * c.m :]
    printed = (c.x * second).mean() * torch.outer(c.w, c.w)
    return max(same, relative_error(found, c.hessian), relative_error(corner, printed))


CHECKS["scalar.two_inputs"] = errors(raw_cases, two_inputs_error)


residuals = Formula(lambda c: torch.stack([c.d, c.d0]))
means = Formula(lambda c: c.y.mean())
CHECKS["scalar.bias_covariances"] = matches(bias_cases, residuals, stack([wv - yx, wb - means]))
CHECKS["scalar.sum_of_columns"] = matches(theorem6_cases, Formula(lambda c: c.r2), wv**2 + wb**2)


CHECKS.clause("scalar.degree_five")(general_quintic)


@CHECKS.clause("scalar.expansion")
def expansion() -> Errors:
    """(λ² + Aλ + B)(λ³ + Cλ² + Dλ + E) as the quintic after it, at random λ."""
    generator = seeded(0)
    for A, B, C, D, E, x in gauss(generator, 20, 6):
        product = (x**2 + A * x + B) * (x**3 + C * x**2 + D * x + E)
        cubic = x**5 + (A + C) * x**4 + (B + A * C + D) * x**3
        rest = (E + A * D + B * C) * x**2 + (A * E + B * D) * x + B * E
        yield relative_error(cubic + rest, product)


cubic = LAMBDA**3 - (vv + ww) * LAMBDA**2 - (wv**2 + wb**2) * LAMBDA + (wv**2 + wb**2) * ww
shift = LAMBDA - (vv + ww) / 3
CHECKS["scalar.depressed"] = matches(theorem6_cases, cubic, shift**3 + eq104 * shift + eq106)


def along_descent(c: Linear, rate: float, steps: int) -> Iterator[Linear]:
    """The networks of a gradient descent (Eqs. 7, 8), the first one included."""
    for _ in range(steps + 1):
        yield c
        step = rate * c.d
        c = replace(c, v=c.v - step * c.w, w=c.w - step * c.v)


def eigenprojectors(c: Linear) -> Tensor:
    """Projectors on both outlier eigenvectors (Eq. 3) and on both halves of the bulk
    (Theorem 3)."""
    found = []
    for k in (0, 1):
        z = outlier_vector(c, k)
        found.append(torch.outer(z, z) / (z @ z))
    for sign in (1.0, -1.0):
        u = c.w + sign * c.v
        half = unit(c.m) - torch.outer(u, u) / (u @ u)
        mirrored = kron(real([[1.0, sign], [sign, 1.0]]), half)
        found.append(mirrored / 2)
    return torch.stack(found)


def largest_change(c: Linear, rate: float, steps: int) -> float:
    """The largest change of a projector from one step to the next."""
    projectors = [eigenprojectors(network) for network in along_descent(c, rate, steps)]
    changes = torch.stack(projectors).diff(dim=0)
    return float(changes.norm(dim=(-2, -1)).max())


@CHECKS.clause("scalar.smooth", tolerance=0.05)
def smooth_eigenvectors() -> Errors:
    """After Theorem 3: eigenvectors change smoothly over training. Change from step to step of a
    descent, halved with the step: their ratio less 1/2."""
    for c in several()[::3]:
        rate = 0.02 / float(spectral_norm(c.hessian))
        ratio = largest_change(c, rate / 2, 100) / largest_change(c, rate, 50)
        yield abs(ratio - 0.5)
