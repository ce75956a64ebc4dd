"""HSR paper, Sections III to V: traces, bounds and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad, jacrev

from experiments.paper_audit import three_layer_pairs as t
from experiments.paper_audit.checks import Check, Checks, matches
from experiments.paper_audit.hsr.derivatives import eq75, eq81, eq87, eq88, eq91, eq93, outer
from experiments.paper_audit.tensors import total, zeros
from experiments.paper_audit.three_layer import (
    Instance,
    equality as agrees,
    instances,
    loss,
    opposed_gelu,
)
from experiments.paper_audit.three_layer_pairs import Pair, pairs
from experiments.paper_audit.three_layer_search import inequality, omega_range
from experiments.paper_audit.three_layer_terms import (
    bend,
    delta,
    hidden_norm,
    norm,
    s1,
    slope,
    squares,
)

CHECKS = Checks()
Size = tuple[int, int, int]
TWO_SAMPLES = ((2, 3, 2),)
SMALL = ((1, 1, 1), *TWO_SAMPLES)
Part = Callable[[Instance], slice]
Scalar = Callable[[Tensor], Tensor]
"""Of a Hessian."""


def moments(hessian: Tensor) -> tuple[Tensor, Tensor, int]:
    """(μ, σ, D) from the eigenvalues themselves, their population mean and standard deviation."""
    eigenvalues = torch.linalg.eigvalsh(hessian)
    return eigenvalues.mean(), eigenvalues.std(correction=0), len(eigenvalues)


def gradient_of(instance: Instance, scalar: Scalar) -> Tensor:
    """d scalar(H(θ)) / dθ by autodiff of the autodiff Hessian."""

    def function(theta: Tensor) -> Tensor:
        return scalar(jacrev(grad(loss))(theta, instance.x, instance.q, instance.name))

    return grad(function)(instance.theta)


def squared(hessian: Tensor) -> Tensor:
    """tr H²."""
    return (hessian @ hessian).trace()


def cases(sizes: tuple[Size, ...] = SMALL) -> list[Instance]:
    """Random instances of every activation, and GELU where f' changes sign between the samples."""
    return [*instances(sizes=sizes), opposed_gelu()]


def upper_violation(instance: Instance) -> float:
    """Violation of Eq. 1, relative to the largest eigenvalue in modulus."""
    eigenvalues = torch.linalg.eigvalsh(instance.hessian)
    mean, std, dimension = moments(instance.hessian)
    excess = eigenvalues[-1] - mean - math.sqrt(dimension - 1) * std
    return float(excess / eigenvalues.abs().max())


def lower_violation(instance: Instance) -> float:
    """Violation of Eq. 61, likewise."""
    eigenvalues = torch.linalg.eigvalsh(instance.hessian)
    mean, std, dimension = moments(instance.hessian)
    excess = (mean - math.sqrt(dimension - 1) * std) - eigenvalues[0]
    return float(excess / eigenvalues.abs().max())


CHECKS["hsr.eq1"] = inequality(upper_violation)
CHECKS["hsr.eq61"] = inequality(lower_violation)
CHECKS["hsr.omega"] = omega_range


def moments_from_traces(instance: Instance) -> Tensor:
    """(μ, σ²) of Eq. 2."""
    hessian = instance.hessian
    mean = hessian.trace() / len(hessian)
    variance = squared(hessian) / len(hessian) - mean**2
    return torch.stack([mean, variance])


def dense_moments(instance: Instance) -> Tensor:
    mean, std, _ = moments(instance.hessian)
    return torch.stack([mean, std**2])


trace_of_sample = s1 * hidden_norm + norm * (s1 * squares(slope) + delta * bend)


def trace(instance: Instance) -> Tensor:
    """Eq. 3."""
    return total(trace_of_sample(i) for i in instance.samples)


def square(instance: Instance) -> Tensor:
    """Eqs. 4–16."""
    found = zeros(())
    for i, j in pairs(instance.samples):
        kernel = t.inputs(i, j)
        by_phi = kernel**2 * t.phi(i, j)
        found = found + by_phi + 2 * kernel * t.psi(i, j)
        by_omega = t.hidden(i, j) ** 2 * t.omega(i, j)
        found = found + by_omega
    return found


CHECKS["hsr.eq2"] = agrees(moments_from_traces, dense_moments, SMALL)
CHECKS["hsr.eq3"] = agrees(trace, lambda c: c.hessian.trace(), SMALL)
CHECKS["hsr.eq4"] = agrees(square, lambda c: squared(c.hessian), SMALL)


def gradients_of_moments(instance: Instance) -> tuple[Tensor, Tensor]:
    """∇μ and ∇σ by autodiff of the traces of H and H²."""
    hessian = instance.hessian
    count = len(instance.theta)
    mean = hessian.trace() / count
    variance = squared(hessian) / count - mean**2
    std = variance.sqrt()
    by_mean = gradient_of(instance, torch.trace) / count
    by_square = gradient_of(instance, squared) / (2 * std * count)
    return by_mean, by_square - mean / std * by_mean


def bound(hessian: Tensor) -> Tensor:
    """λ_sup from the eigenvalues."""
    mean, std, dimension = moments(hessian)
    return mean + math.sqrt(dimension - 1) * std


def theorem_one(instance: Instance) -> Tensor:
    """Eqs. 17–19 with the traces' gradients from autodiff."""
    mean, std, dimension = moments(instance.hessian)
    by_mean = gradient_of(instance, torch.trace) / dimension
    by_square = gradient_of(instance, squared) / (2 * std * dimension)
    by_std = by_square - mean / std * by_mean
    return -by_mean - math.sqrt(dimension - 1) * by_std


CHECKS["hsr.theorem1"] = agrees(theorem_one, lambda c: -gradient_of(c, bound), TWO_SAMPLES)


trace_by_w = norm * (eq75 + eq81) + eq87
"""W^I + W^II + W^III (Eqs. 21–23), (N,)."""
trace_by_v = norm * (eq88 + eq91) + eq93
"""V^I + V^II + V^III (Eqs. 25–27), (N+1,)."""


square_by_w = t.w_phi + t.w_psi + t.w_omega
"""The sum in Theorem 4 without 2 h(x_i)."""
square_by_v = t.v_phi + t.v_psi + t.v_omega
"""The sum in Theorem 5 without 2."""


def theorem_two(instance: Instance) -> Tensor:
    return total(outer(i.hx, trace_by_w(i)) for i in instance.samples)


def theorem_three(instance: Instance) -> Tensor:
    return total(trace_by_v(i) for i in instance.samples)


def theorem_four(instance: Instance) -> Tensor:
    return 2 * total(outer(i.hx, square_by_w(i, j)) for i, j in pairs(instance.samples))


def theorem_five(instance: Instance) -> Tensor:
    return 2 * total(square_by_v(i, j) for i, j in pairs(instance.samples))


CHECKS["hsr.theorem2"] = matches(cases, lambda c: gradient_of(c, torch.trace)[c.w], theorem_two)
CHECKS["hsr.theorem3"] = matches(cases, lambda c: gradient_of(c, torch.trace)[c.v], theorem_three)
CHECKS["hsr.theorem4"] = matches(cases, lambda c: gradient_of(c, squared)[c.w], theorem_four)
CHECKS["hsr.theorem5"] = matches(cases, lambda c: gradient_of(c, squared)[c.v], theorem_five)


def jacobian_of_sum(instance: Instance, quantity: Pair) -> Tensor:
    """d Σ_ij quantity_ij / dθ by autodiff."""
    indices = range(len(instance.x))
    return total(instance.jacobian(quantity, i, j) for i in indices for j in indices)


def summed(part: Part, quantity: Pair, printed: Pair) -> Check:
    """Σ_ij printed_ij + printed_ji against a part of autodiff of Σ_ij quantity_ij."""

    def found(instance: Instance) -> Tensor:
        return total(printed(i, j) + printed(j, i) for i, j in pairs(instance.samples))

    def expected(instance: Instance) -> Tensor:
        return jacobian_of_sum(instance, quantity)[part(instance)]

    return matches(lambda: cases(TWO_SAMPLES), expected, found)


def sum_by_w(quantity: Pair, printed: Pair) -> Check:
    """Σ_ij h(x_i) ⊗ printed_ij + h(x_j) ⊗ printed_ji against autodiff of Σ_ij quantity_ij."""
    return summed(lambda c: c.w, quantity, lambda i, j: outer(i.hx, printed(i, j)))


def sum_by_v(quantity: Pair, printed: Pair) -> Check:
    """Σ_ij printed_ij + printed_ji against autodiff of Σ_ij quantity_ij."""
    return summed(lambda c: c.v, quantity, printed)


weighted_phi = t.inputs**2 * t.phi
weighted_psi = 2 * t.inputs * t.psi
weighted_omega = t.hidden**2 * t.omega
CHECKS["hsr.eq109"] = sum_by_w(weighted_phi, t.w_phi)
CHECKS["hsr.eq124"] = sum_by_w(weighted_psi, t.w_psi)
CHECKS["hsr.eq129"] = sum_by_w(weighted_omega, t.w_omega)
CHECKS["hsr.eq135"] = sum_by_v(weighted_phi, t.v_phi)
CHECKS["hsr.eq140"] = sum_by_v(weighted_psi, t.v_psi)
CHECKS["hsr.eq141"] = sum_by_v(weighted_omega, t.v_omega)
