"""Hessian of the three-layer network, its trace, that of its square, and eigenvalue bounds.

Operation counts per theta (multiply-adds), I samples, D = M N + 2 N + 1:
    trace                        I (M + 6 N)
    Hessian, ||H||_F²            I D² for the Gauss–Newton part, I N (M+1)² for the rest
    double sum over examples     I² (M + 6 N) for the Gram matrices, about 20 I² elementwise
The double sum wins for wide networks on few samples, ||H||_F² wins otherwise.

Also bounds of the traces in terms of norms and sizes (WS bound, Theorems 3, 4, 6; Props. 5–7), and
the three-point numerical Hessian that the paper compares with.

Gradients of tr H, tr H², the mean and standard deviation of the spectrum, and of the bounds. Each
is ∇⟨G, H(theta)⟩ for a symmetric G that is held constant while differentiating:

    tr H                   G = 1
    tr H²                  G = 2 H
    mean μ                 G = 1/D
    std σ                  G = (H − μ 1) / (σ D)
    λ_sup = μ + √(D−1) σ   G = (1/D) 1 + √((D−1)/D) E,   E = (H − μ 1) / ||H − μ 1||_F

With j_i = ∂z_i/∂theta and ∂²z_i/∂theta² non-zero only between parameters of the same hidden unit,

    ⟨G, H⟩ = Σ_i s'(z_i) j_iᵀ G j_i + delta_i (Σ_n v_n f''(y_in) κ_in + 2 Σ_n f'(y_in) τ_in),

where κ_in = h(x_i)ᵀ G_ww(n) h(x_i) and τ_in = h(x_i)ᵀ G_wv(n). One product J G and one product with
the (M+1)² × N blocks of G give its gradient. Cost per theta: 2 I D² (H and J G) + 2 I N (M+1)² +
O(I D): linear in the number I of samples, where Theorems 4 and 5 of the HSR paper sum over pairs of
samples.

σ is ||H − μ 1||_F / √D, a norm: it has no gradient where it vanishes (all eigenvalues equal, for
instance H = 0). There its term is left out, which is the subgradient of least norm: the gradient of
σ is 0, that of λ_sup is that of μ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from runner.closed_form.three_layer.model import (
    Forward,
    closed_form,
    forward,
    with_bias,
)
from runner.curvature.spectra.bounds import spectrum_moments

# An elementwise pass over the I × I matrices costs as much as this many multiply-adds of a matrix
# product; read off timings of both forms over a grid of sizes.
_ELEMENTWISE_COST = 120


def logit_jacobian(state: Forward) -> Tensor:
    """Column i is j_i = ∂z_i/∂theta = [h(x_i) ⊗ F'(y_i) Ṽᵀ ; h(r_i)], (..., D, I)."""
    products = state.inputs[:, None] * state.slope[..., None, :, :]
    return torch.cat([products.flatten(-3, -2), with_bias(state.hidden[0])], dim=-2)


def assemble(state: Forward, jacobian: Tensor, products: Tensor) -> Tensor:
    """H = Σ_i s'(z_i) j_i j_iᵀ + Σ_i delta_i ∂²z_i/∂theta², (..., D, D)."""
    hessian = (state.variance[..., None, :] * jacobian) @ jacobian.mT
    inputs = state.inputs
    error = state.error[..., None, :]
    columns = inputs.shape[0]
    units = state.slope.shape[-2]
    ww, wv, vw = gate_blocks(hessian, columns, units)
    bend = products @ (error * state.weights * state.hidden[2]).mT
    ww.add_(bend.unflatten(-2, (columns, columns)))
    tilt = inputs @ (error * state.hidden[1]).mT
    wv.add_(tilt)
    vw.add_(tilt)
    return hessian


def gate_blocks(matrix: Tensor, columns: int, units: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views of the entries of a (..., D, D) matrix where ∂²z/∂theta² can be non-zero.

    M + 1 = columns, N = units; (w, w) of the same hidden unit, (..., M+1, M+1, N); (w, v) and (v,
    w) of the same hidden unit, (..., M+1, N).
    """
    count = columns * units
    shape = (columns, units)
    ww = matrix[..., :count, :count].unflatten(-1, shape).unflatten(-3, shape)
    wv = matrix[..., :count, count + 1 :].unflatten(-2, shape)
    vw = matrix[..., count + 1 :, :count].unflatten(-1, shape)
    return (
        ww.diagonal(dim1=-3, dim2=-1),
        wv.diagonal(dim1=-2, dim2=-1),
        vw.diagonal(dim1=-3, dim2=-1),
    )


def input_products(inputs: Tensor) -> Tensor:
    """Column i is h(x_i) ⊗ h(x_i), ((M+1)², I)."""
    return (inputs[:, None] * inputs[None]).flatten(0, 1)


@closed_form(2)
def hessian(state: Forward) -> Tensor:
    """H_L(theta, theta), (..., D, D), symmetric (WS bound, Props. 3, 4)."""
    return assemble(state, logit_jacobian(state), input_products(state.inputs))


@closed_form(2)
def trace_parts(state: Forward) -> tuple[Tensor, Tensor]:
    """(tr H_L(w, w), tr H_L(v, v)), each (...,) (WS bound, Eqs. 20, 21)."""
    input_norms = state.inputs.square().sum(0)
    bend = (state.hidden[2] * state.weights).sum(-2)
    ww = state.variance * state.slope.square().sum(-2) + state.error * bend
    vv = state.variance * (1 + state.hidden[0].square().sum(-2))
    return (ww * input_norms).sum(-1), vv.sum(-1)


@closed_form(2)
def trace(state: Forward) -> Tensor:
    """tr H_L, (...,) (WS bound, Theorem 2)."""
    ww, vv = trace_parts.of(state)
    return ww + vv


def _gram(left: Tensor, right: Tensor) -> Tensor:
    return left.mT @ right


def double_sum_terms(state: Forward) -> tuple[Tensor, Tensor, Tensor]:
    """phi, psi and omega of WS bound, Eqs. 26–28, each (..., I, I).

    The bilinear forms o_iᵀ Φ_ij o_j are summed before the Gram products, so that each costs one
    product of matrices with N columns.
    """
    r, slope1, slope2 = state.hidden[:3]
    a = state.slope
    s = state.variance[..., None, :]
    delta = state.error[..., None, :]
    ss = s.mT * s
    bend = delta * slope2 * state.weights
    mixed = _gram(s * a.square(), bend)
    outer = 1 + _gram(r, r)
    aa = _gram(a, a)
    phi = ss * aa.square() + mixed + mixed.mT + _gram(bend, bend)
    tilt = delta * slope1
    cross = _gram(s * a * r, tilt)
    psi = ss * outer * aa + cross + cross.mT + _gram(tilt, tilt)
    return phi, psi, ss


@closed_form(2)
def trace_of_square_double_sum(state: Forward) -> Tensor:
    """tr H_L² as the sum over pairs of examples, O(I² N) (WS bound, Eq. 25)."""
    phi, psi, omega = double_sum_terms(state)
    kernel = _gram(state.inputs, state.inputs)
    hidden = 1 + _gram(state.hidden[0], state.hidden[0])
    terms = kernel.square() * phi + 2 * kernel * psi + hidden.square() * omega
    return terms.sum((-2, -1))


@closed_form(2)
def trace_of_square_frobenius(state: Forward) -> Tensor:
    """tr H_L² as ||H_L||_F², O(I D²): H is symmetric, so both are its squared entries summed."""
    return hessian.of(state).square().sum((-2, -1))


@closed_form(2)
def trace_of_square(state: Forward) -> Tensor:
    """tr H_L², (...,), by the cheaper of the two exact forms (WS bound, Theorem 5)."""
    columns, samples = state.inputs.shape
    units = state.slope.shape[-2]
    dimension = (columns + 1) * units + 1
    double_sum = samples * (columns + 6 * units + _ELEMENTWISE_COST) < dimension * dimension
    return (trace_of_square_double_sum if double_sum else trace_of_square_frobenius).of(state)


@closed_form(2)
def traces(state: Forward) -> tuple[Tensor, Tensor]:
    """(tr H_L, tr H_L²), each (...,), from one forward pass."""
    return trace.of(state), trace_of_square.of(state)


def mean_and_std(
    theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid"
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the D eigenvalues of H_L, (...,) (WS bound, Eqs. 8, 9).

    The squares of a Hessian below 1e-154 (float64) underflow, and λ_sup would fall below λ_1; those
    above 1e154 overflow. Where tr H² is near either end, the moments are those of H over its
    largest entry, times that entry.
    """
    trace, square = traces(theta, x, q, activation)
    moments = spectrum_moments(theta.shape[-1], trace, square)
    info = torch.finfo(theta.dtype)
    unsafe = (square < info.tiny / info.eps**2) | torch.isinf(square)
    if not bool(unsafe.any()):
        return moments
    full = hessian(theta[unsafe], x, q, activation)
    scale = full.abs().amax((-2, -1))
    scaled = full / torch.where(scale > 0, scale, 1.0)[..., None, None]
    diagonal = scaled.diagonal(dim1=-2, dim2=-1)
    within = spectrum_moments(theta.shape[-1], diagonal.sum(-1), scaled.square().sum((-2, -1)))
    mean, std = (
        whole.masked_scatter(unsafe, scale * part)
        for whole, part in zip(moments, within, strict=True)
    )
    return mean, std


def upper_bound(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """lambda_sup(theta) >= lambda_1, (...,), at every scale (WS bound, Theorem 1)."""
    mean, std = mean_and_std(theta, x, q, activation)
    return mean + math.sqrt(theta.shape[-1] - 1) * std


def lower_bound(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """lambda_inf(theta) <= lambda_D, (...,), at every scale (HSR, Eq. 61)."""
    mean, std = mean_and_std(theta, x, q, activation)
    return mean - math.sqrt(theta.shape[-1] - 1) * std


class _Contraction(NamedTuple):
    """What ∇⟨G, H⟩ needs of G, per sample: linear in G, so contractions can be added and scaled.

    quadratic: j_iᵀ G j_i, (..., I). through_slope: half its derivative by f'(y_in) v_n, (..., N,
    I). through_hidden: half its derivative by r_in, (..., N, I). kappa, tau: (..., N, I).
    """

    quadratic: Tensor
    through_slope: Tensor
    through_hidden: Tensor
    kappa: Tensor
    tau: Tensor


def _contract_identity(state: Forward) -> _Contraction:
    r = state.hidden[0]
    norms = state.inputs.square().sum(0)
    quadratic = norms * state.slope.square().sum(-2) + 1 + r.square().sum(-2)
    return _Contraction(quadratic, norms * state.slope, r, norms.expand_as(r), torch.zeros_like(r))


def _contract(state: Forward, jacobian: Tensor, products: Tensor, matrix: Tensor) -> _Contraction:
    inputs = state.inputs
    r = state.hidden[0]
    columns = inputs.shape[0]
    units = r.shape[-2]
    count = columns * units
    product = matrix @ jacobian
    ww, wv, _ = gate_blocks(matrix, columns, units)
    of_columns = product[..., :count, :].unflatten(-2, (columns, units))
    through_slope = (of_columns * inputs[:, None]).sum(-3)
    through_hidden = product[..., count + 1 :, :]
    quadratic = (through_slope * state.slope).sum(-2) + product[..., count, :]
    quadratic = quadratic + (through_hidden * r).sum(-2)
    kappa = ww.flatten(-3, -2).mT @ products
    return _Contraction(quadratic, through_slope, through_hidden, kappa, wv.mT @ inputs)


def _gradient(state: Forward, contraction: _Contraction) -> Tensor:
    """∇⟨G, H(theta)⟩, (..., D), by the chain rule through y, v and z."""
    quadratic, through_slope, through_hidden, kappa, tau = contraction
    r, slope1, slope2, slope3 = state.hidden
    weights = state.weights
    s = state.variance[..., None, :]
    delta = state.error[..., None, :]
    curvature = torch.addcmul(weights * slope2 * kappa, slope1, tau, value=2).sum(-2)
    # d delta/dz = s' and d s'/dz = s'': what z does to the value goes with dz/dtheta = j.
    by_logit = (state.third * quadratic + state.variance * curvature)[..., None, :]
    slope_part = 2 * s * through_slope
    bend_part = delta * kappa
    by_y = weights * torch.addcmul(slope_part * slope2, bend_part, slope3)
    by_y = by_y + 2 * torch.addcmul(s * through_hidden * slope1, delta * tau, slope2)
    by_y = torch.addcmul(by_y, by_logit, state.slope)
    by_v = torch.addcmul(slope_part * slope1, bend_part, slope2)
    by_v = torch.addcmul(by_v, by_logit, r)
    columns = (state.inputs @ by_y.mT).flatten(-2)
    return torch.cat([columns, by_logit.sum(-1), by_v.sum(-1)], dim=-1)


def _unit_deviator(hessian: Tensor) -> Tensor:
    """E = (H − μ 1) / ||H − μ 1||_F, 0 where that norm is 0; overwrites H.

    Taken from the deviator itself, since tr H² / D − μ² cancels when σ is much smaller than μ, and
    divided by its largest entry first, since the squares of a nearly flat Hessian underflow.
    """
    diagonal = hessian.diagonal(dim1=-2, dim2=-1)
    diagonal.sub_(diagonal.mean(-1, keepdim=True))
    scale = hessian.abs().amax((-2, -1), keepdim=True)
    scaled = hessian / (scale + (scale == 0))
    norm = torch.linalg.matrix_norm(scaled, keepdim=True)
    return scaled / (norm + (norm == 0))


def contraction_gradient(
    theta: Tensor, x: Tensor, q: Tensor, matrix: Tensor, activation: str = "sigmoid"
) -> Tensor:
    """∇⟨G, H_L(theta)⟩ for a constant symmetric G of shape (..., D, D), (..., D).

    O(I D²) per theta.
    """
    state = forward(theta, x, q, activation, 3)
    jacobian = logit_jacobian(state)
    return _gradient(state, _contract(state, jacobian, input_products(state.inputs), matrix))


def _gradient_along(state: Forward, constant: Callable[[Tensor], Tensor]) -> Tensor:
    """∇⟨G, H(theta)⟩ with G = constant(H), which may overwrite H."""
    jacobian = logit_jacobian(state)
    products = input_products(state.inputs)
    matrix = constant(assemble(state, jacobian, products))
    return _gradient(state, _contract(state, jacobian, products, matrix))


@closed_form(3)
def trace_gradient(state: Forward) -> Tensor:
    """∇ tr H_L, (..., D), in O(I (M + N)) (HSR, Theorems 2, 3)."""
    return _gradient(state, _contract_identity(state))


@closed_form(3)
def trace_of_square_gradient(state: Forward) -> Tensor:
    """∇ tr H_L² = 2 ∇⟨H, H_L⟩ with the first H held constant, (..., D) (HSR, Theorems 4, 5)."""
    return 2 * _gradient_along(state, lambda hessian: hessian)


@closed_form(3)
def mean_gradient(state: Forward) -> Tensor:
    """∇μ = ∇ tr H_L / D, (..., D) (HSR, Eq. 18)."""
    return trace_gradient.of(state) / state.dimension


@closed_form(3)
def std_gradient(state: Forward) -> Tensor:
    """∇σ, (..., D) (HSR, Eq. 19); 0 where σ = 0 (see the module's text)."""
    return _gradient_along(state, _unit_deviator) / math.sqrt(state.dimension)


@closed_form(3)
def upper_bound_gradient(state: Forward) -> Tensor:
    """∇λ_sup = ∇μ + √(D−1) ∇σ, (..., D) (HSR, Theorem 1); ∇μ where σ = 0 (see the module)."""
    return _gradient_along(state, _bound_direction)


def _bound_direction(hessian: Tensor) -> Tensor:
    """G of λ_sup; overwrites H."""
    dimension = hessian.shape[-1]
    matrix = math.sqrt((dimension - 1) / dimension) * _unit_deviator(hessian)
    matrix.diagonal(dim1=-2, dim2=-1).add_(1 / dimension)
    return matrix
