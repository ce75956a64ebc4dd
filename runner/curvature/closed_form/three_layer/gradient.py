"""Gradients of tr H, tr H², the mean and standard deviation of the spectrum, and of the bounds, in closed form.

Each is ∇⟨G, H(theta)⟩ for a symmetric G that is held constant while differentiating:

    tr H                   G = 1
    tr H²                  G = 2 H
    mean μ                 G = 1/D
    std σ                  G = (H − μ 1) / (σ D)
    λ_sup = μ + √(D−1) σ   G = (1/D) 1 + √((D−1)/D) E,   E = (H − μ 1) / ||H − μ 1||_F

With j_i = ∂z_i/∂theta and ∂²z_i/∂theta² non-zero only between parameters of the same hidden unit,

    ⟨G, H⟩ = Σ_i s'(z_i) j_iᵀ G j_i + delta_i (Σ_n v_n f''(y_in) κ_in + 2 Σ_n f'(y_in) τ_in),

where κ_in = h(x_i)ᵀ G_ww(n) h(x_i) and τ_in = h(x_i)ᵀ G_wv(n). One product J G and one product with the (M+1)² × N
blocks of G give its gradient. Cost per theta: 2 I D² (H and J G) + 2 I N (M+1)² + O(I D): linear in the number I of
samples, where Theorems 4 and 5 of the HSR paper sum over pairs of samples.

σ is ||H − μ 1||_F / √D, a norm: it has no gradient where it vanishes (all eigenvalues equal, for instance H = 0). There
its term is left out, which is the subgradient of least norm: the gradient of σ is 0, that of λ_sup is that of μ.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from runner.curvature.closed_form.chunks import in_chunks
from runner.curvature.closed_form.three_layer.hessian import (
    assemble,
    gate_blocks,
    input_products,
    logit_jacobian,
)
from runner.curvature.closed_form.three_layer.model import Forward, forward


class _Contraction(NamedTuple):
    """What ∇⟨G, H⟩ needs of G, per sample: linear in G, so contractions can be added and scaled.

    quadratic: j_iᵀ G j_i, (..., I). through_slope: half its derivative by f'(y_in) v_n, (..., N, I). through_hidden:
    half its derivative by r_in, (..., N, I). kappa, tau: (..., N, I).
    """

    quadratic: Tensor
    through_slope: Tensor
    through_hidden: Tensor
    kappa: Tensor
    tau: Tensor


def _contract_identity(state: Forward) -> _Contraction:
    r, norms = state.hidden[0], state.inputs.square().sum(0)
    quadratic = norms * state.slope.square().sum(-2) + 1 + r.square().sum(-2)
    return _Contraction(quadratic, norms * state.slope, r, norms.expand_as(r), torch.zeros_like(r))


class _Parts(NamedTuple):
    """Forward pass, logit Jacobian and products of inputs: what both H and its contraction need."""

    state: Forward
    jacobian: Tensor
    products: Tensor

    @property
    def hessian(self) -> Tensor:
        return assemble(*self)


def _parts(theta: Tensor, x: Tensor, q: Tensor, activation: str) -> _Parts:
    state = forward(theta, x, q, activation, 3)
    return _Parts(state, logit_jacobian(state), input_products(state.inputs))


def _contract(parts: _Parts, matrix: Tensor) -> _Contraction:
    state, jacobian, products = parts
    inputs, r = state.inputs, state.hidden[0]
    columns, units = inputs.shape[0], r.shape[-2]
    count = columns * units
    product = matrix @ jacobian
    ww, wv, _ = gate_blocks(matrix, columns, units)
    through_slope = (product[..., :count, :].unflatten(-2, (columns, units)) * inputs[:, None]).sum(-3)
    through_hidden = product[..., count + 1 :, :]
    return _Contraction(
        quadratic=(through_slope * state.slope).sum(-2) + product[..., count, :] + (through_hidden * r).sum(-2),
        through_slope=through_slope,
        through_hidden=through_hidden,
        kappa=ww.flatten(-3, -2).transpose(-2, -1) @ products,
        tau=wv.transpose(-2, -1) @ inputs,
    )


def _gradient(state: Forward, contraction: _Contraction) -> Tensor:
    """∇⟨G, H(theta)⟩, (..., D), by the chain rule through y, v and z."""
    quadratic, through_slope, through_hidden, kappa, tau = contraction
    r, slope1, slope2, slope3 = state.hidden
    weights, s, delta = state.weights, state.variance[..., None, :], state.error[..., None, :]
    curvature = torch.addcmul(weights * slope2 * kappa, slope1, tau, value=2).sum(-2)
    # d delta/dz = s' and d s'/dz = s'': what z does to the value goes with dz/dtheta = j.
    by_logit = (state.third * quadratic + state.variance * curvature)[..., None, :]
    slope_part, bend_part = 2 * s * through_slope, delta * kappa
    by_y = weights * torch.addcmul(slope_part * slope2, bend_part, slope3)
    by_y = by_y + 2 * torch.addcmul(s * through_hidden * slope1, delta * tau, slope2)
    by_y = torch.addcmul(by_y, by_logit, state.slope)
    by_v = torch.addcmul(slope_part * slope1, bend_part, slope2)
    by_v = torch.addcmul(by_v, by_logit, r)
    columns = (state.inputs @ by_y.transpose(-2, -1)).flatten(-2)
    return torch.cat([columns, by_logit.sum(-1), by_v.sum(-1)], dim=-1)


def _unit_deviator(hessian: Tensor) -> Tensor:
    """E = (H − μ 1) / ||H − μ 1||_F, 0 where that norm is 0; overwrites H.

    Taken from the deviator itself, since tr H² / D − μ² cancels when σ is much smaller than μ, and divided by its
    largest entry first, since the squares of a nearly flat Hessian underflow.
    """
    diagonal = hessian.diagonal(dim1=-2, dim2=-1)
    diagonal.sub_(diagonal.mean(-1, keepdim=True))
    scale = hessian.abs().amax((-2, -1), keepdim=True)
    scaled = hessian / (scale + (scale == 0))
    norm = torch.linalg.matrix_norm(scaled, keepdim=True)
    return scaled / (norm + (norm == 0))


def contraction_gradient(theta: Tensor, x: Tensor, q: Tensor, matrix: Tensor, activation: str = "sigmoid") -> Tensor:
    """∇⟨G, H_L(theta)⟩ for a constant symmetric G of shape (..., D, D), (..., D). O(I D²) per theta.

    Raises ValueError when G is not a D × D matrix; it is taken to be symmetric.
    """
    parts = _parts(theta, x, q, activation)
    if matrix.shape[-2:] != (theta.shape[-1],) * 2:
        raise ValueError(f"expected G of shape (..., D, D) with D = {theta.shape[-1]}, found {tuple(matrix.shape)}")
    return _gradient(parts.state, _contract(parts, matrix))


@in_chunks
def trace_gradient(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """∇ tr H_L, (..., D), in O(I (M + N)) (HSR, Theorems 2, 3)."""
    state = forward(theta, x, q, activation, 3)
    return _gradient(state, _contract_identity(state))


@in_chunks
def trace_of_square_gradient(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """∇ tr H_L² = 2 ∇⟨H, H_L⟩ with the first H held constant, (..., D) (HSR, Theorems 4, 5)."""
    parts = _parts(theta, x, q, activation)
    return 2 * _gradient(parts.state, _contract(parts, parts.hessian))


@in_chunks
def mean_gradient(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """∇μ = ∇ tr H_L / D, (..., D) (HSR, Eq. 18)."""
    return trace_gradient(theta, x, q, activation) / theta.shape[-1]


@in_chunks
def std_gradient(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """∇σ, (..., D) (HSR, Eq. 19); 0 where σ = 0 (see the module's text)."""
    parts = _parts(theta, x, q, activation)
    return _gradient(parts.state, _contract(parts, _unit_deviator(parts.hessian))) / math.sqrt(theta.shape[-1])


@in_chunks
def upper_bound_gradient(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """∇λ_sup = ∇μ + √(D−1) ∇σ, (..., D) (HSR, Theorem 1); ∇μ where σ = 0 (see the module's text)."""
    return _bound_gradient(theta, x, q, activation, 1.0)


@in_chunks
def lower_bound_gradient(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """∇λ_inf = ∇μ − √(D−1) ∇σ, (..., D) (HSR, Eq. 61); ∇μ where σ = 0."""
    return _bound_gradient(theta, x, q, activation, -1.0)


def _bound_gradient(theta: Tensor, x: Tensor, q: Tensor, activation: str, sign: float) -> Tensor:
    parts, dimension = _parts(theta, x, q, activation), theta.shape[-1]
    matrix = sign * math.sqrt((dimension - 1) / dimension) * _unit_deviator(parts.hessian)
    matrix.diagonal(dim1=-2, dim2=-1).add_(1 / dimension)
    return _gradient(parts.state, _contract(parts, matrix))
