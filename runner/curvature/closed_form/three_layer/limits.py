"""Bounds of the traces of the three-layer Hessian in terms of norms and sizes (WS bound, Theorems 3, 4, 6; Props. 5–7).

Also the three-point numerical Hessian that the paper compares with.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from runner.curvature.closed_form.activations import get_activation
from runner.curvature.closed_form.three_layer.hessian import double_sum_terms
from runner.curvature.closed_form.three_layer.model import check_data, forward, gradient, loss, split


def trace_vv_bound(samples: int, hidden_width: int, activation: str = "sigmoid") -> float:
    """tr H_L(v, v) <= I (N sup f² + 1) / 4; infinite for unbounded f (WS bound, Theorem 3)."""
    _check_sizes(samples, hidden_width)
    return samples * (hidden_width * get_activation(activation).sup_abs ** 2 + 1) / 4


def trace_ww_bound(theta: Tensor, x: Tensor, activation: str = "sigmoid") -> Tensor:
    """tr H_L(w, w) <= (zeta_1 ||Ṽ||² / 4 + zeta_2 ||Ṽ||_1) Σ_i (1 + x_iᵀ x_i), (...,) (WS bound, Theorem 4).

    zeta_1 = sup f'², zeta_2 = sup |f''|, per activation. For GELU zeta_1 = 1.27443..., not the printed 1.272...,
    which is the square of a truncated 1.128 and therefore too small to be a bound.
    """
    check_data(theta, x)
    constants = get_activation(activation)
    weights = split(theta, x.shape[1]).V[..., 1:]
    scale = constants.sup_slope**2 / 4 * weights.square().sum(-1) + constants.sup_bend * weights.abs().sum(-1)
    return scale * (x.shape[0] + x.square().sum())


def trace_of_square_bound(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """tr H_L² <= ||Ψ||² + (1 + max φ) ||J + XᵀX||² + ||J + RᵀR||² / 16, (...,) (WS bound, Theorem 6)."""
    state = forward(theta, x, q, activation, 2)
    phi, psi, _ = double_sum_terms(state)
    r = state.hidden[0]
    kernel = (state.inputs.t() @ state.inputs).square().sum()
    hidden = (1 + r.transpose(-2, -1) @ r).square().sum((-2, -1))
    return psi.square().sum((-2, -1)) + (1 + phi.amax((-2, -1))) * kernel + hidden / 16


def normalized_input_trace(samples: int, input_width: int) -> int:
    """max Σ_i (1 + x_iᵀ x_i) over inputs in [0, 1]: I (1 + M) (WS bound, Prop. 5)."""
    _check_sizes(samples, input_width)
    return samples * (1 + input_width)


def normalized_input_gram(samples: int, input_width: int) -> int:
    """max ||J + XᵀX||_F² over inputs in [0, 1]: I² (1 + M)² (WS bound, Prop. 6)."""
    _check_sizes(samples, input_width)
    return samples**2 * (1 + input_width) ** 2


def hidden_gram_supremum(samples: int, hidden_width: int, activation: str = "sigmoid") -> float:
    """sup ||J + RᵀR||_F² = I² (1 + N)² for sigmoid and tanh, infinite for unbounded f (WS bound, Prop. 7)."""
    _check_sizes(samples, hidden_width)
    bound = get_activation(activation).sup_abs
    return math.inf if math.isinf(bound) else samples**2 * (1 + hidden_width * bound**2) ** 2


def _check_sizes(*sizes: int) -> None:
    if min(sizes) < 1:
        raise ValueError(f"expected sizes of at least 1, found {sizes}")


def numerical_hessian(
    theta: Tensor,
    x: Tensor,
    q: Tensor,
    activation: str = "sigmoid",
    step: float = 1e-4,
    of: Literal["loss", "gradient"] = "loss",
) -> Tensor:
    """H_L by three-point central differences, (..., D, D) (WS bound, Fig. 8).

    of="gradient": [g(theta + h e_d) − g(theta − h e_d)] / 2h, symmetrised, error O(h²) + O(eps/h).
    of="loss": the same formula applied twice, so that nothing of the closed forms enters; error O(h²) + O(eps/h²).
    """
    check_data(theta, x, q)
    if not step > 0:
        raise ValueError(f"expected a positive step, found {step}")
    if of not in ("loss", "gradient"):
        raise ValueError(f"expected of='loss' or of='gradient', found {of!r}")
    shifts = step * torch.eye(theta.shape[-1], dtype=theta.dtype, device=theta.device)
    base = theta[..., None, :]
    if of == "gradient":
        change = gradient(base + shifts, x, q, activation) - gradient(base - shifts, x, q, activation)
        return (change + change.transpose(-2, -1)) / (4 * step)
    rows = []
    for shift in shifts:
        ahead, behind = base + shift, base - shift
        values = [loss(point + sign * shifts, x, q, activation) for point in (ahead, behind) for sign in (1, -1)]
        rows.append((values[0] - values[1] - values[2] + values[3]) / (4 * step**2))
    return torch.stack(rows, dim=-2)
