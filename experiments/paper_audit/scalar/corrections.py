"""Corrections of the errata of the scalar-spectrum paper on the family of simplest networks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from experiments.paper_audit.checks import relative_error
from experiments.paper_audit.corrections import Corrections
from experiments.paper_audit.family import linear, relu, with_bias
from experiments.paper_audit.scalar import bias, determinant
from experiments.paper_audit.scalar.linear import (
    phase_violation,
    product_sign_error,
    right_phase,
)
from experiments.paper_audit.scalar.linear_vectors import outlier_vectors_error, projected_start
from experiments.paper_audit.scalar.networks import Bias, Linear, Relu
from experiments.paper_audit.scalar.relu import (
    SIGNS,
    covariance,
    embedded,
    network,
    neurons_of,
    outlier_vector_error,
    right_definition,
)
from experiments.paper_audit.tensors import spectral_norm

CORRECTIONS = Corrections()
Errors = Iterator[float]


def perpendicular(p: Tensor) -> Tensor:
    """A fixed vector less its component along p; itself where p = 0."""
    return projected_start(p) if float(p.norm()) > 1e-12 else projected_start(1 + 0 * p) + 1


def misses(hessian: Tensor, z: Tensor, value: Tensor) -> float:
    """‖H z − λ z‖ / ‖z‖ over max(‖H‖₂, 1e-12)."""
    scale = max(float(spectral_norm(hessian)), 1e-12) * float(z.norm())
    return float((hessian @ z - value * z).norm()) / scale


@CORRECTIONS.on(linear, "scalar.thm3")
def bulk_vectors(c: Linear) -> Errors:
    """(ẑ, s ẑ), ẑ ⟂ w + s v, s = sgn(λ mean xδ), for m >= 2."""
    if c.m > 1:
        for value in (c.d, -c.d):
            s = torch.sign(value * c.d)
            z = perpendicular(c.w + s * c.v)
            yield misses(c.hessian, torch.cat([z, s * z]), value)


@CORRECTIONS.on(linear, "scalar.phases")
def phases(c: Linear) -> Errors:
    """Where there is a slope θ*: σ² > 0 and mean yx ≠ 0."""
    if float(c.a) > 0 and float(c.yx) != 0:
        yield phase_violation(c, right_phase(c))
        if abs(float(c.d)) > 1e-12:  # λ_2 = 0 on the border of two phases
            yield product_sign_error(c, True)


def degenerate(c: Linear) -> bool:
    """Is w = ±v, or mean xδ = 0?"""
    opposite = min(float((c.w - sign * c.v).norm()) for sign in (1.0, -1.0))
    return opposite < 1e-12 or abs(float(c.d)) < 1e-12


def populated(c: Relu, sign: int) -> bool:
    """Has the cell neurons and samples?"""
    samples = c.x > 0 if sign > 0 else c.x <= 0
    return bool(neurons_of(c, sign).any()) and bool(samples.any())


@CORRECTIONS.on(relu, "scalar.eq64")
def vectors_of_cells(c: Relu) -> Errors:
    """Cells with neurons and samples, w_± ≠ ±v_± and a residual, as for Theorem 2."""
    for sign in SIGNS:
        if populated(c, sign):
            cell, share = c.cell(sign)
            if not degenerate(cell):
                yield outlier_vector_error(c, sign, weighted=True)
            if cell.m > 1:
                for mirror in (1.0, -1.0):
                    z = perpendicular(cell.w + mirror * cell.v)
                    vector = embedded(c, sign, torch.cat([z, mirror * z]))
                    yield misses(c.hessian, vector, mirror * share * cell.d)


@CORRECTIONS.on(linear, "scalar.eq12")
def hessian(c: Linear) -> Errors:
    yield relative_error(determinant.right_matrix(c), c.hessian)


@CORRECTIONS.on(linear, "scalar.lambda_min")
def smallest_eigenvalue(c: Linear) -> Errors:
    """For m >= 2."""
    if c.m > 1:
        yield relative_error(-c.d.abs()[None], c.eigenvalues[:1])


@CORRECTIONS.on(with_bias, "scalar.norm_b", "scalar.eq93")
def sextic(c: Bias) -> Errors:
    if c.m > 1:
        yield relative_error(bias.right_sextic(c), bias.dense_sextic(c))


@CORRECTIONS.on(linear, "scalar.thm2")
def outlier_vectors(c: Linear) -> Errors:
    """Eq. 3 is an eigenvector unless w = ±v or mean xδ = 0; there one of the two is zero."""
    error = outlier_vectors_error(c)
    yield float(error != 1.0) if degenerate(c) else error


@CORRECTIONS.on(linear, "scalar.eq28")
def determinant_of_rank_one(c: Linear) -> Errors:
    exact = determinant.det(determinant.eq27)(c)
    found = ((-1.0) ** (determinant.m - 1) * determinant.eq28)(c)
    yield relative_error(torch.as_tensor(found), exact)


@CORRECTIONS.on(relu, "scalar.relu_definition")
def definition(c: Relu) -> Errors:
    yield relative_error(right_definition(c), network(c))


@CORRECTIONS.on(relu, "scalar.covariance")
def covariance_of_cells(c: Relu) -> Errors:
    if bool((c.x > 0).any()) and bool((c.x <= 0).any()):
        exact = torch.stack([c.cell(sign)[0].yx for sign in SIGNS])
        yield relative_error(covariance(c, True), exact)
