"""Hessian, its trace and the trace of its square for the three-layer network, and the eigenvalue bounds they give.

Operation counts per theta (multiply-adds), I samples, D = M N + 2 N + 1:
    trace                        I (M + 6 N)
    Hessian, ||H||_F²            I D² for the Gauss–Newton part, I N (M+1)² for the rest
    double sum over examples     I² (M + 6 N) for the Gram matrices, about 20 I² elementwise
The double sum wins for wide networks on few samples, ||H||_F² wins otherwise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from runner.curvature.closed_form.chunks import in_chunks
from runner.curvature.closed_form.three_layer.model import Forward, forward, with_bias
from runner.curvature.spectra.bounds import SpectrumMoments, spectrum_moments

# An elementwise pass over the I × I matrices costs as much as this many multiply-adds of a matrix product; read off
# tests/bench/bench_three_layer.py, where both forms are timed over a grid of sizes.
_ELEMENTWISE_COST = 120


def logit_jacobian(state: Forward) -> Tensor:
    """Column i is j_i = ∂z_i/∂theta = [h(x_i) ⊗ F'(y_i) Ṽᵀ ; h(r_i)], (..., D, I)."""
    columns = (state.inputs[:, None] * state.slope[..., None, :, :]).flatten(-3, -2)
    return torch.cat([columns, with_bias(state.hidden[0])], dim=-2)


def assemble(state: Forward, jacobian: Tensor, products: Tensor) -> Tensor:
    """H = Σ_i s'(z_i) j_i j_iᵀ + Σ_i delta_i ∂²z_i/∂theta², (..., D, D); products: `input_products`."""
    hessian = (state.variance[..., None, :] * jacobian) @ jacobian.transpose(-2, -1)
    inputs, error = state.inputs, state.error[..., None, :]
    columns, units = inputs.shape[0], state.slope.shape[-2]
    ww, wv, vw = gate_blocks(hessian, columns, units)
    bend = products @ (error * state.weights * state.hidden[2]).transpose(-2, -1)
    ww.add_(bend.unflatten(-2, (columns, columns)))
    tilt = inputs @ (error * state.hidden[1]).transpose(-2, -1)
    wv.add_(tilt)
    vw.add_(tilt)
    return hessian


def gate_blocks(matrix: Tensor, columns: int, units: int) -> tuple[Tensor, Tensor, Tensor]:
    """Views of the entries of a (..., D, D) matrix where ∂²z/∂theta² can be non-zero, for M + 1 = columns, N = units.

    (w, w) of the same hidden unit, (..., M+1, M+1, N); (w, v) and (v, w) of the same hidden unit, (..., M+1, N).
    """
    count = columns * units
    ww = matrix[..., :count, :count].unflatten(-1, (columns, units)).unflatten(-3, (columns, units))
    wv = matrix[..., :count, count + 1 :].unflatten(-2, (columns, units))
    vw = matrix[..., count + 1 :, :count].unflatten(-1, (columns, units))
    return (
        ww.diagonal(dim1=-3, dim2=-1),
        wv.diagonal(dim1=-2, dim2=-1),
        vw.diagonal(dim1=-3, dim2=-1),
    )


def input_products(inputs: Tensor) -> Tensor:
    """Column i is h(x_i) ⊗ h(x_i), ((M+1)², I)."""
    return (inputs[:, None] * inputs[None]).flatten(0, 1)


def _hessian(state: Forward) -> Tensor:
    return assemble(state, logit_jacobian(state), input_products(state.inputs))


def _trace_parts(state: Forward) -> tuple[Tensor, Tensor]:
    input_norms = state.inputs.square().sum(0)
    bend = (state.hidden[2] * state.weights).sum(-2)
    ww = state.variance * state.slope.square().sum(-2) + state.error * bend
    vv = state.variance * (1 + state.hidden[0].square().sum(-2))
    return (ww * input_norms).sum(-1), vv.sum(-1)


def _gram(left: Tensor, right: Tensor) -> Tensor:
    return left.transpose(-2, -1) @ right


def double_sum_terms(state: Forward) -> tuple[Tensor, Tensor, Tensor]:
    """phi, psi and omega of WS bound, Eqs. 26–28, each (..., I, I).

    The bilinear forms o_iᵀ Φ_ij o_j are summed before the Gram products, so that each costs one product of matrices
    with N columns.
    """
    (r, slope1, slope2), a = state.hidden[:3], state.slope
    s, delta = state.variance[..., None, :], state.error[..., None, :]
    ss = s.transpose(-2, -1) * s
    bend = delta * slope2 * state.weights
    mixed = _gram(s * a.square(), bend)
    outer = 1 + _gram(r, r)
    aa = _gram(a, a)
    phi = ss * aa.square() + mixed + mixed.transpose(-2, -1) + _gram(bend, bend)
    tilt = delta * slope1
    cross = _gram(s * a * r, tilt)
    psi = ss * outer * aa + cross + cross.transpose(-2, -1) + _gram(tilt, tilt)
    return phi, psi, ss


def _double_sum(state: Forward) -> Tensor:
    phi, psi, omega = double_sum_terms(state)
    kernel = _gram(state.inputs, state.inputs)
    hidden = 1 + _gram(state.hidden[0], state.hidden[0])
    return (kernel.square() * phi + 2 * kernel * psi + hidden.square() * omega).sum((-2, -1))


def prefers_double_sum(samples: int, columns: int, units: int) -> bool:
    """Whether the double sum is the cheaper exact form of tr H² at these sizes (M + 1 = columns)."""
    dimension = (columns + 1) * units + 1
    return samples * (columns + 6 * units + _ELEMENTWISE_COST) < dimension * dimension


def _square(state: Forward) -> Tensor:
    columns, samples = state.inputs.shape
    if prefers_double_sum(samples, columns, state.slope.shape[-2]):
        return _double_sum(state)
    return _hessian(state).square().sum((-2, -1))


@in_chunks
def hessian(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """H_L(theta, theta), (..., D, D), symmetric (WS bound, Props. 3, 4)."""
    return _hessian(forward(theta, x, q, activation, 2))


@in_chunks
def trace_parts(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> tuple[Tensor, Tensor]:
    """(tr H_L(w, w), tr H_L(v, v)), each (...,) (WS bound, Eqs. 20, 21)."""
    return _trace_parts(forward(theta, x, q, activation, 2))


@in_chunks
def trace(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """tr H_L, (...,) (WS bound, Theorem 2)."""
    ww, vv = trace_parts(theta, x, q, activation)
    return ww + vv


@in_chunks
def trace_of_square(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """tr H_L², (...,), by the cheaper of the two exact forms below (WS bound, Theorem 5)."""
    return _square(forward(theta, x, q, activation, 2))


@in_chunks
def trace_of_square_double_sum(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """tr H_L² as the sum over pairs of examples, O(I² N) (WS bound, Eq. 25)."""
    return _double_sum(forward(theta, x, q, activation, 2))


@in_chunks
def trace_of_square_frobenius(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """tr H_L² as ||H_L||_F², O(I D²): H is symmetric, so both are the sum of its squared entries."""
    return hessian(theta, x, q, activation).square().sum((-2, -1))


@in_chunks
def traces(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> tuple[Tensor, Tensor]:
    """(tr H_L, tr H_L²), each (...,), from one forward pass."""
    state = forward(theta, x, q, activation, 2)
    ww, vv = _trace_parts(state)
    return ww + vv, _square(state)


def _moments(theta: Tensor, x: Tensor, q: Tensor, activation: str) -> SpectrumMoments:
    """Mean and standard deviation of the spectrum from tr H and tr H².

    The squares of a Hessian below 1e-154 (float64) underflow, and λ_sup would fall below λ_1; those above 1e154
    overflow. Where tr H² is near either end, the moments are those of H over its largest entry, times that entry.
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
    within = spectrum_moments(theta.shape[-1], *_traces_of(scaled))
    mean, std = (whole.masked_scatter(unsafe, scale * part) for whole, part in zip(moments, within, strict=True))
    return SpectrumMoments(mean, std)


def _traces_of(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """(tr A, tr A²) of symmetric A (..., D, D)."""
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1), matrix.square().sum((-2, -1))


@in_chunks
def mean_and_std(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the D eigenvalues of H_L, each (...,), at every scale (WS bound, Eqs. 8, 9)."""
    return _moments(theta, x, q, activation)


@in_chunks
def upper_bound(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """lambda_sup(theta) >= lambda_1, (...,), at every scale (WS bound, Theorem 1)."""
    mean, std = _moments(theta, x, q, activation)
    return mean + math.sqrt(theta.shape[-1] - 1) * std


@in_chunks
def lower_bound(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """lambda_inf(theta) <= lambda_D, (...,), at every scale (HSR, Eq. 61)."""
    mean, std = _moments(theta, x, q, activation)
    return mean - math.sqrt(theta.shape[-1] - 1) * std
