"""Gradients of the Hessian trace and of the bound for full-batch training of the three-layer
network, all starts at once.

Operations of one step, S starts, I samples, N hidden units, C = M + 1, starts innermost: hsr forms
Σ_i of products of derivatives of the logit, S I (N² C(C+1)/2 + N (N+1) C + (N+1)²) multiply-adds as
three matrix products with I as inner dimension, as many again to contract them with G, and about S
I (6 N² + 8 N) elementwise; trace S I (2 N C + 30 N).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from runner.closed_form.three_layer.model import get_activation, hidden_width, with_bias


class Data(NamedTuple):
    """inputs: h(x), (I, C). products: h_c h_d for c <= d, (I, P). doubled: the same with c < d
    counted twice.

    target: (I, 1). diagonal: which of the P products are squares.
    """

    inputs: Tensor
    products: Tensor
    doubled: Tensor
    target: Tensor
    diagonal: Tensor


def data_of(x: Tensor, q: Tensor) -> Data:
    inputs = with_bias(x.t()).t().contiguous()
    columns = inputs.shape[1]
    first, second = torch.triu_indices(columns, columns)
    products = inputs[:, first] * inputs[:, second]
    diagonal = first == second
    doubled = torch.where(diagonal, products, 2 * products)
    return Data(inputs, products, doubled, q[:, None], diagonal)


class State(NamedTuple):
    """The network at theta (D, S): r, f', f'', f''' and dz/dy = f' v, each (I, N, S); delta, s',
    s'', each (I, 1, S); v (N, S).
    """

    hidden: Tensor
    slope1: Tensor
    slope2: Tensor
    slope3: Tensor
    slope: Tensor
    error: Tensor
    variance: Tensor
    third: Tensor
    weights: Tensor


def state_of(theta: Tensor, data: Data, activation: str) -> State:
    columns = data.inputs.shape[1]
    width = theta.shape[1]
    units = hidden_width(theta.shape[0], columns - 1)
    count = units * columns
    input_weights = theta[:count].reshape(columns, units * width)
    bias = theta[count]
    weights = theta[count + 1 :]
    y = (data.inputs @ input_weights).view(-1, units, width)
    value, slope1, slope2, slope3 = get_activation(activation).derivatives(y, 3)
    slope = slope1 * weights
    z = ((value * weights).sum(1) + bias)[:, None]
    p = torch.sigmoid(z)
    miss = torch.sigmoid(-z)
    target = data.target[..., None]
    # p - q, without losing digits where the fit is nearly perfect
    error = (1 - target) * p - target * miss
    variance = p * miss
    third = variance * (miss - p)
    return State(value, slope1, slope2, slope3, slope, error, variance, third, weights)


def _pull_back(data: Data, by_logit: Tensor, by_y: Tensor, by_v: Tensor) -> Tensor:
    """(D, S) from the derivatives by z (I, 1, S), y and v (I, N, S) of every sample."""
    samples, units, width = by_y.shape
    flat = by_y.reshape(samples, units * width)
    return torch.cat([(data.inputs.t() @ flat).view(-1, width), by_logit.sum(0), by_v.sum(0)])


def loss_gradient(data: Data, state: State) -> Tensor:
    by_y = state.error * state.slope
    by_v = state.error * state.hidden
    return _pull_back(data, state.error, by_y, by_v)


class Contraction(NamedTuple):
    """What ∇⟨G, H⟩ needs of a constant symmetric G, as in `three_layer_gradient`, starts innermost.

    quadratic: jᵀ G j, (I, 1, S). through_slope, through_hidden: half its derivatives by f' v and by
    r, (I, N, S). kappa: h(x)ᵀ G_ww(n) h(x). tau: h(x)ᵀ G_wv(n). Both (I, N, S), or of a shape that
    broadcasts to it.
    """

    quadratic: Tensor
    through_slope: Tensor
    through_hidden: Tensor
    kappa: Tensor
    tau: Tensor


def contraction_gradient(data: Data, state: State, contraction: Contraction) -> Tensor:
    """∇⟨G, H(theta)⟩, (D, S), by the chain rule through y, v and z."""
    quadratic, through_slope, through_hidden, kappa, tau = contraction
    curved = state.weights * state.slope2 * kappa
    curved.add_(state.slope1 * tau, alpha=2)
    by_curve = state.variance * curved.sum(1, keepdim=True)
    by_logit = state.third * quadratic + by_curve
    slope_part = 2 * state.variance * through_slope
    bend_part = state.error * kappa
    by_y = slope_part * state.slope2
    by_y.addcmul_(bend_part, state.slope3).mul_(state.weights)
    by_y.addcmul_(state.variance * through_hidden, state.slope1, value=2)
    by_y.addcmul_(state.error * tau, state.slope2, value=2)
    by_y.addcmul_(by_logit, state.slope)
    by_v = slope_part * state.slope1
    by_v.addcmul_(bend_part, state.slope2)
    by_v.addcmul_(by_logit, state.hidden)
    return _pull_back(data, by_logit, by_y, by_v)


def trace_contraction(data: Data, state: State) -> Contraction:
    """G = 1."""
    norms = data.inputs.square().sum(1)[:, None, None]
    slope_squares = state.slope.square().sum(1, keepdim=True)
    hidden_squares = state.hidden.square().sum(1, keepdim=True)
    quadratic = norms * slope_squares + 1 + hidden_squares
    tau = torch.zeros_like(norms)
    through_slope = norms * state.slope
    return Contraction(quadratic, through_slope, state.hidden, norms, tau)


class Blocks(NamedTuple):
    """A symmetric D × D matrix: ww (P, N, N, S) by the products of inputs, wv (C, N, N+1, S), vv
    (N+1, N+1, S).

    ww is symmetric in the two inputs as well as in the two units, so only inputs c <= d are held.
    """

    ww: Tensor
    wv: Tensor
    vv: Tensor


def _hessian(data: Data, state: State) -> Blocks:
    """H. Products of derivatives of each sample first, then one matrix product over the samples."""
    samples, units, width = state.slope.shape
    weighted = state.variance * state.slope
    read = state.variance * state.hidden
    ww = weighted[:, :, None] * state.slope[:, None]
    bend = state.error * state.weights * state.slope2
    ww.diagonal(dim1=1, dim2=2).add_(bend.transpose(1, 2))
    wv = weighted.new_empty(samples, units, units + 1, width)
    wv[:, :, 0] = weighted
    torch.mul(weighted[:, :, None], state.hidden[:, None], out=wv[:, :, 1:])
    tilt = state.error * state.slope1
    wv[:, :, 1:].diagonal(dim1=1, dim2=2).add_(tilt.transpose(1, 2))
    vv = weighted.new_empty(units + 1, units + 1, width)
    vv[0, 0] = state.variance.sum((0, 1))
    vv[0, 1:] = vv[1:, 0] = read.sum(0)
    vv[1:, 1:] = (read[:, :, None] * state.hidden[:, None]).sum(0)
    ww = data.products.t() @ ww.view(samples, -1)
    wv = data.inputs.t() @ wv.view(samples, -1)
    return Blocks(ww.view(-1, units, units, width), wv.view(-1, units, units + 1, width), vv)


def _centred(data: Data, blocks: Blocks, dimension: int) -> None:
    """H − μ 1, overwriting H."""
    ww_diagonal = blocks.ww[data.diagonal].diagonal(dim1=1, dim2=2).transpose(1, 2)
    vv_diagonal = blocks.vv.diagonal(dim1=0, dim2=1).t()
    mean = (ww_diagonal.sum((0, 1)) + vv_diagonal.sum(0)) / dimension
    _shift(data, blocks, -mean)


def _normalised(data: Data, blocks: Blocks, dimension: int) -> None:
    """√((D−1)/D) E with E = B/||B||_F, overwriting the matrix B; E = 0 where the norm is 0.

    Divided by its largest entry before it is squared, since the squares of a nearly flat Hessian
    underflow.
    """
    scale = torch.stack([part.abs().flatten(0, -2).amax(0) for part in blocks]).amax(0)
    for part in blocks:
        part.div_(scale + (scale == 0))
    counted = torch.where(data.diagonal, 1.0, 2.0).to(scale.dtype)[:, None, None, None]
    ww = (counted * blocks.ww.square()).sum((0, 1, 2))
    wv = 2 * blocks.wv.square().sum((0, 1, 2))
    vv = blocks.vv.square().sum((0, 1))
    norm = (ww + wv + vv).sqrt()
    factor = math.sqrt((dimension - 1) / dimension) / (norm + (norm == 0))
    for part in blocks:
        part.mul_(factor)


def _shift(data: Data, blocks: Blocks, value: Tensor) -> None:
    """Add value (S,) to the diagonal."""
    for index in data.diagonal.nonzero()[:, 0].tolist():
        blocks.ww[index].diagonal(dim1=0, dim2=1).add_(value[:, None])
    blocks.vv.diagonal(dim1=0, dim2=1).add_(value[:, None])


def _dimension(data: Data, state: State) -> int:
    """D."""
    units = state.slope.shape[1]
    return units * data.inputs.shape[1] + units + 1


def mean_contraction(data: Data, state: State) -> Contraction:
    """G = 1/D: of μ."""
    dimension = _dimension(data, state)
    return Contraction(*(part / dimension for part in trace_contraction(data, state)))


def bound_contraction(data: Data, state: State) -> Contraction:
    """G = 1/D + √((D−1)/D) E with E = (H − μ 1)/||H − μ 1||_F: of λ_sup = μ + √(D−1) σ."""
    dimension = _dimension(data, state)
    blocks = _hessian(data, state)
    _centred(data, blocks, dimension)
    _normalised(data, blocks, dimension)
    _shift(data, blocks, torch.full_like(blocks.vv[0, 0], 1 / dimension))
    return _matrix_contraction(data, state, blocks)


def spread_contraction(data: Data, state: State) -> Contraction:
    """G = √((D−1)/D) E: of √(D−1) σ."""
    dimension = _dimension(data, state)
    blocks = _hessian(data, state)
    _centred(data, blocks, dimension)
    _normalised(data, blocks, dimension)
    return _matrix_contraction(data, state, blocks)


def square_contraction(data: Data, state: State) -> Contraction:
    """G = √((D−1)/D) H/||H||_F: of √((D−1)/D tr H²), the bound where tr H = 0."""
    blocks = _hessian(data, state)
    _normalised(data, blocks, _dimension(data, state))
    return _matrix_contraction(data, state, blocks)


def _matrix_contraction(data: Data, state: State, matrix: Blocks) -> Contraction:
    samples, units, width = state.slope.shape
    ww = data.doubled @ matrix.ww.flatten(1)
    ww = ww.view(samples, units, units, width)
    wv = data.inputs @ matrix.wv.flatten(1)
    wv = wv.view(samples, units, units + 1, width)
    through_slope = wv[:, :, 0].clone()
    through_read = matrix.vv[:, 0].expand(samples, -1, -1).clone()
    for unit in range(units):
        slope = state.slope[:, unit : unit + 1]
        hidden = state.hidden[:, unit : unit + 1]
        through_slope.addcmul_(ww[:, :, unit], slope).addcmul_(wv[:, :, unit + 1], hidden)
        through_read.addcmul_(wv[:, unit], slope).addcmul_(matrix.vv[:, unit + 1], hidden)
    through_hidden = through_read[:, 1:]
    products = through_slope * state.slope
    products.addcmul_(through_hidden, state.hidden)
    quadratic = products.sum(1).add_(through_read[:, 0])
    kappa = ww.diagonal(dim1=1, dim2=2).transpose(1, 2)
    tau = wv[:, :, 1:].diagonal(dim1=1, dim2=2).transpose(1, 2)
    return Contraction(quadratic[:, None], through_slope, through_hidden, kappa, tau)


CONTRACTIONS = {
    "trace": trace_contraction,
    "bound": bound_contraction,
    "mean": mean_contraction,
    "spread": spread_contraction,
    "square": square_contraction,
}
"""Name of a penalty -> G of its gradient."""
