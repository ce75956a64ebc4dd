"""tr H² and its gradient as the paper's double sum, Theorems 4 and 5, and the gradient of the bound
from them.

The sum over j is a row of products with the samples; `block` says how many rows i are taken at a
time. One row is the paper's double sum as it stands, with vectors in the place of the inner loop;
all rows at once is its matrix form, with I × I matrices in memory, in place where possible. tr H²
falls out of the same products. The printed root Φ_11^{1/2} is taken with its sign, Ṽ F'(y_j)
F'(y_i) Ṽᵀ; for GELU the sum can be negative.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from runner.closed_form import three_layer as tl
from runner.closed_form.three_layer.model import forward
from runner.curvature.spectra.bounds import spectrum_moments


class Samples(NamedTuple):
    """Of each sample: f to f''' and a = f' v, each (I, N); s', delta and s'', each (I, 1); h(x),
    (I, M + 1).
    """

    f: Tensor
    f1: Tensor
    f2: Tensor
    f3: Tensor
    a: Tensor
    s: Tensor
    delta: Tensor
    s2: Tensor
    inputs: Tensor


class Sums(NamedTuple):
    """For some samples i, sums over all samples j: products of the kernels h(x_i)·h(x_j), a_i·a_j
    and 1 + f_i·f_j with what is known of j.
    """

    bent: Tensor
    squared: Tensor
    tilted: Tensor
    mixed: Tensor
    inner: Tensor
    by_crossed: Tensor
    sharp: Tensor
    weighted: Tensor
    phi: Tensor
    psi: Tensor
    omega: Tensor


def value_and_gradient(
    theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid", block: int | None = None
) -> tuple[Tensor, Tensor]:
    """(tr H², ∇ tr H²) for one theta (D,): the double sums over i and j done as (I, I) @ (I, N)
    products.

    block: how many rows of the I × I matrices at a time, None for all of them.
    """
    state = forward(theta, x, q, activation, 3)
    f, f1, f2, f3, a = (part.T.contiguous() for part in (*state.hidden, state.slope))
    s = state.variance[:, None]
    delta = state.error[:, None]
    s2 = state.third[:, None]
    samples = Samples(f, f1, f2, f3, a, s, delta, s2, state.inputs.T.contiguous())
    v = state.weights[:, 0]
    by_kernel2 = torch.cat([delta * f2 * v, s * a * a], 1)
    by_kernel = torch.cat([delta * f1, s * a * f], 1)
    value = theta.new_zeros(())
    gradients = []
    size = block or len(f)
    for start in range(0, len(f), size):
        rows = Samples(*(part[start : start + size] for part in samples))
        sums = _sums(rows, samples, by_kernel, by_kernel2)
        gradients.append(_gradients(rows, sums, v))
        for term in _values(rows, sums, v):
            value = value + term
    by_y, by_z, by_v = (torch.cat(column) for column in zip(*gradients, strict=True))
    by_w = samples.inputs.T @ by_y
    return value, 2 * torch.cat([by_w.flatten(), by_z.sum()[None], by_v.sum(0)])


def _sums(rows: Samples, samples: Samples, by_kernel: Tensor, by_kernel2: Tensor) -> Sums:
    """The matrices of pairs, in place where possible, and their products."""
    s = samples.s
    units = samples.f.shape[1]
    kernel = rows.inputs @ samples.inputs.T
    slopes = rows.a @ samples.a.T
    hidden = 1 + rows.f @ samples.f.T
    kernel2 = kernel.square()
    crossed = kernel * slopes
    bent, squared = (kernel2 @ by_kernel2).split(units, 1)
    tilted, mixed = (kernel @ by_kernel).split(units, 1)
    inner = hidden @ (s * samples.f)
    by_crossed = crossed @ (s * samples.f)
    phi = crossed.square() @ s
    sharp = kernel2.mul_(slopes) @ (s * samples.a)
    psi = crossed.mul_(hidden) @ s
    weighted = kernel.mul_(hidden) @ (s * samples.a)
    omega = hidden.square_() @ s
    return Sums(bent, squared, tilted, mixed, inner, by_crossed, sharp, weighted, phi, psi, omega)


def _gradients(rows: Samples, sums: Sums, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Half of ∇ tr H² by y (rows, N), z (rows, 1) and v (rows, N)."""
    f, f1, f2, f3, a, s, delta, s2, _ = rows
    bent, squared, tilted, mixed, inner, by_crossed, sharp, weighted, phi_1, psi_1, omega = sums
    b = f2 * v
    both = squared + bent
    turned = mixed + tilted
    phi_1_and_2 = phi_1 + (a * a * bent).sum(1, True)
    psi_1_and_2 = psi_1 + (f * a * tilted).sum(1, True)
    phi = s2 * phi_1_and_2 + s * (b * both).sum(1, True)
    psi = s2 * psi_1_and_2 + s * (f1 * turned).sum(1, True)
    by_z = phi + 2 * psi + s2 * omega
    by_y = 2 * s * (b * sharp + f1 * b * v * bent) + delta * f3 * v * both
    bends = (f1 * f1 + f2 * f) * v * tilted
    by_y += 2 * s * (f1 * by_crossed + b * weighted + bends)
    by_y += 2 * (delta * f2 * turned + s * f1 * inner)
    by_v = by_z * f + 2 * s * f1 * (sharp + weighted + f * tilted)
    by_v = by_v + (3 * s * f1 * a + delta * f2) * bent
    return by_y + by_z * a, by_z, by_v


def _values(rows: Samples, sums: Sums, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Three parts of tr H²."""
    s = rows.s
    crossing = s * (sums.phi + 2 * sums.psi + sums.omega)
    bent = (2 * s * rows.a * rows.a + rows.delta * (rows.f2 * v)) * sums.bent
    tilted = (2 * s * rows.a * rows.f + rows.delta * rows.f1) * sums.tilted
    return crossing.sum(), bent.sum(), 2 * tilted.sum()


def upper_bound_gradient(
    theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid", block: int | None = None
) -> Tensor:
    """∇λ_sup for one theta (D,) by HSR, Eqs. 17–19."""
    dimension = len(theta)
    square, by_square = value_and_gradient(theta, x, q, activation, block)
    mean, std = spectrum_moments(dimension, tl.trace(theta, x, q, activation), square)
    by_mean = tl.mean_gradient(theta, x, q, activation)
    by_std = by_square / (2 * std * dimension) - mean / std * by_mean
    return by_mean + math.sqrt(dimension - 1) * by_std
