"""Theorems 4 and 5 of the HSR paper: the gradient of tr H² as a double sum over samples, O(I² (8 N + M)).

The sum over j is a row of products with the samples; `block` says how many rows i are taken at a time. One row is the
paper's double sum as it stands, with vectors in the place of the inner loop; all rows at once is its matrix form, with
I × I matrices in memory, in place where possible. tr H² falls out of the same products. The printed root Φ_11^{1/2} is
taken with its sign, Ṽ F'(y_j) F'(y_i) Ṽᵀ; for GELU the sum can be negative.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from runner.curvature.closed_form import three_layer as tl
from runner.curvature.closed_form.three_layer.model import forward
from runner.curvature.spectra.bounds import spectrum_moments


def value_and_gradient(
    theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid", block: int | None = None
) -> tuple[Tensor, Tensor]:
    """(tr H², ∇ tr H²) for one theta (D,): the double sums over i and j done as (I, I) @ (I, N) products.

    block: how many rows of the I × I matrices at a time, None for all of them.
    """
    state = forward(theta, x, q, activation, 3)
    f, f1, f2, f3 = (part.T.contiguous() for part in state.hidden)
    v, a, inputs = state.weights[:, 0], state.slope.T.contiguous(), state.inputs.T.contiguous()
    s, delta, s2 = state.variance[:, None], state.error[:, None], state.third[:, None]
    bend, tilt = delta * f2 * v, delta * f1
    units = f.shape[1]
    by_kernel2, by_kernel = torch.cat([bend, s * a * a], 1), torch.cat([tilt, s * a * f], 1)
    with_scale, with_hidden = torch.cat([s * a, s], 1), torch.cat([s * f, s], 1)

    value = theta.new_zeros(())
    by_y, by_z, by_v = [], [], []
    for start in range(0, len(f), block or len(f)):
        rows = slice(start, start + (block or len(f)))
        kernel, slopes, hidden = inputs[rows] @ inputs.T, a[rows] @ a.T, 1 + f[rows] @ f.T
        kernel2, crossed = kernel.square(), kernel * slopes
        bent, squared = (kernel2 @ by_kernel2).split(units, 1)
        tilted, mixed = (kernel @ by_kernel).split(units, 1)
        inner = hidden @ with_hidden[:, :units]
        by_crossed = crossed @ with_hidden[:, :units]
        phi_1 = crossed.square() @ s
        sharp = kernel2.mul_(slopes) @ with_scale[:, :units]
        psi_1 = crossed.mul_(hidden) @ s
        weighted = kernel.mul_(hidden) @ with_scale[:, :units]
        omega = hidden.square_() @ s

        f_i, f1_i, f2_i, f3_i, a_i = f[rows], f1[rows], f2[rows], f3[rows], a[rows]
        s_i, d_i, s2_i, b_i = s[rows], delta[rows], s2[rows], f2[rows] * v
        phi = s2_i * (phi_1 + (a_i * a_i * bent).sum(1, True)) + s_i * (b_i * (squared + bent)).sum(1, True)
        psi = s2_i * (psi_1 + (f_i * a_i * tilted).sum(1, True)) + s_i * (f1_i * (mixed + tilted)).sum(1, True)
        z = phi + 2 * psi + s2_i * omega
        y = 2 * s_i * (b_i * sharp + f1_i * b_i * v * bent) + d_i * f3_i * v * (squared + bent)
        y += 2 * s_i * (f1_i * by_crossed + b_i * weighted + (f1_i * f1_i + f2_i * f_i) * v * tilted)
        y += 2 * (d_i * f2_i * (mixed + tilted) + s_i * f1_i * inner)
        by_y.append(y + z * a_i)
        by_z.append(z)
        by_v.append(
            z * f_i + 2 * s_i * f1_i * (sharp + weighted + f_i * tilted) + (3 * s_i * f1_i * a_i + d_i * f2_i) * bent
        )
        value = value + (s_i * (phi_1 + 2 * psi_1 + omega)).sum() + ((2 * s_i * a_i * a_i + d_i * b_i) * bent).sum()
        value = value + 2 * ((2 * s_i * a_i * f_i + d_i * f1_i) * tilted).sum()
    y, z, v_part = torch.cat(by_y), torch.cat(by_z), torch.cat(by_v)
    return value, 2 * torch.cat([(inputs.T @ y).flatten(), z.sum()[None], v_part.sum(0)])


def trace_of_square_gradient(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """∇ tr H² (HSR, Theorems 4, 5)."""
    return value_and_gradient(theta, x, q, activation)[1]


def upper_bound_gradient(
    theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid", block: int | None = None
) -> Tensor:
    """∇λ_sup for one theta (D,) by HSR, Eqs. 17–19."""
    dimension = len(theta)
    square, by_square = value_and_gradient(theta, x, q, activation, block)
    mean, std = spectrum_moments(dimension, tl.trace(theta, x, q, activation), square)
    by_mean = tl.mean_gradient(theta, x, q, activation)
    return by_mean + math.sqrt(dimension - 1) * (by_square / (2 * std * dimension) - mean / std * by_mean)
