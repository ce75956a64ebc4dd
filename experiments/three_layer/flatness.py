"""Full-batch training toward flat minima of the three-layer network, all starts at once (HSR,
Section VI).

Four methods as directions of `descend`, whose rate is the weight γ₁ of the loss:

    gd     ∇L                                       plain gradient descent
    trace  ∇L + (γ₂/γ₁) ∇ tr H                      Hessian-trace regularisation
    hsr    ∇L + (γ₂/γ₁) ∇λ_sup                      HSR regularisation, λ_sup = μ + √(D−1) σ
    asam   ∇L(theta + ε), ε = ρ T² ∇L / ||T ∇L||    adaptive SAM

T is diagonal: |theta_k| + η for a weight and 1 for a bias, with η = 0.01, as in the implementation
of the authors of adaptive SAM. Where T ∇L = 0 there is no ε. The HSR paper prints the radius ρ =
0.1 alone.

What the stop rule watches is ∇L at theta for every method. The rule is that of the search ("as
before"), judged at every step; since the paper describes it together with the second half of the
steps, `stop_from` of `descend` can put it off until then.

Operations of one step, S starts, I samples, N hidden units, C = M + 1, starts innermost: hsr forms
Σ_i of products of derivatives of the logit, S I (N² C(C+1)/2 + N (N+1) C + (N+1)²) multiply-adds as
three matrix products with I as inner dimension, as many again to contract them with G, and about S
I (6 N² + 8 N) elementwise; trace S I (2 N C + 30 N).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from runner.curvature.closed_form.three_layer.model import (
    check_data,
    get_activation,
    hidden_width,
    with_bias,
)
from runner.training.descent.directions import Direction, LossGradient, Step, Switch

METHODS = ("gd", "trace", "asam", "hsr")
SAM_CONSTANT = 0.01  # η of adaptive SAM's normalisation operator


class _Data(NamedTuple):
    """inputs: h(x), (I, C). products: h_c h_d for c <= d, (I, P). doubled: the same with c < d
    counted twice.

    target: (I, 1). diagonal: which of the P products are squares.
    """

    inputs: Tensor
    products: Tensor
    doubled: Tensor
    target: Tensor
    diagonal: Tensor


def _data(x: Tensor, q: Tensor) -> _Data:
    inputs = with_bias(x.t()).t().contiguous()
    first, second = torch.triu_indices(inputs.shape[1], inputs.shape[1])
    products = inputs[:, first] * inputs[:, second]
    diagonal = first == second
    return _Data(
        inputs, products, torch.where(diagonal, products, 2 * products), q[:, None], diagonal
    )


class _State(NamedTuple):
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


def _state(theta: Tensor, data: _Data, activation: str) -> _State:
    columns = data.inputs.shape[1]
    width = theta.shape[1]
    units = hidden_width(theta.shape[0], columns - 1)
    count = units * columns
    weights = theta[count + 1 :]
    y = (data.inputs @ theta[:count].reshape(columns, units * width)).view(-1, units, width)
    value, slope1, slope2, slope3 = get_activation(activation).derivatives(y, 3)
    z = ((value * weights).sum(1) + theta[count])[:, None]
    p = torch.sigmoid(z)
    miss = torch.sigmoid(-z)
    target = data.target[..., None]
    variance = p * miss
    error = (
        1 - target
    ) * p - target * miss  # p - q, without losing digits where the fit is nearly perfect
    third = variance * (miss - p)
    return _State(value, slope1, slope2, slope3, slope1 * weights, error, variance, third, weights)


def _pull_back(data: _Data, by_logit: Tensor, by_y: Tensor, by_v: Tensor) -> Tensor:
    """(D, S) from the derivatives by z (I, 1, S), y and v (I, N, S) of every sample."""
    samples, units, width = by_y.shape
    columns = data.inputs.t() @ by_y.reshape(samples, units * width)
    return torch.cat([columns.view(-1, width), by_logit.sum(0), by_v.sum(0)])


def _loss_gradient(data: _Data, state: _State) -> Tensor:
    return _pull_back(data, state.error, state.error * state.slope, state.error * state.hidden)


class _Contraction(NamedTuple):
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


def _contraction_gradient(data: _Data, state: _State, found: _Contraction) -> Tensor:
    """∇⟨G, H(theta)⟩, (D, S), by the chain rule through y, v and z."""
    quadratic, through_slope, through_hidden, kappa, tau = found
    curved = (state.weights * state.slope2 * kappa).add_(state.slope1 * tau, alpha=2)
    by_logit = state.third * quadratic + state.variance * curved.sum(1, keepdim=True)
    slope_part = 2 * state.variance * through_slope
    bend_part = state.error * kappa
    by_y = (slope_part * state.slope2).addcmul_(bend_part, state.slope3).mul_(state.weights)
    by_y.addcmul_(state.variance * through_hidden, state.slope1, value=2)
    by_y.addcmul_(state.error * tau, state.slope2, value=2).addcmul_(by_logit, state.slope)
    by_v = (
        (slope_part * state.slope1)
        .addcmul_(bend_part, state.slope2)
        .addcmul_(by_logit, state.hidden)
    )
    return _pull_back(data, by_logit, by_y, by_v)


def _trace_contraction(data: _Data, state: _State) -> _Contraction:
    """G = 1."""
    norms = data.inputs.square().sum(1)[:, None, None]
    quadratic = (
        norms * state.slope.square().sum(1, keepdim=True)
        + 1
        + state.hidden.square().sum(1, keepdim=True)
    )
    return _Contraction(
        quadratic, norms * state.slope, state.hidden, norms, torch.zeros_like(norms)
    )


class _Blocks(NamedTuple):
    """A symmetric D × D matrix: ww (P, N, N, S) by the products of inputs, wv (C, N, N+1, S), vv
    (N+1, N+1, S).

    ww is symmetric in the two inputs as well as in the two units, so only inputs c <= d are held.
    """

    ww: Tensor
    wv: Tensor
    vv: Tensor


def _hessian(data: _Data, state: _State) -> _Blocks:
    """H. Products of derivatives of each sample first, then one matrix product over the samples."""
    samples, units, width = state.slope.shape
    weighted = state.variance * state.slope
    read = state.variance * state.hidden
    ww = weighted[:, :, None] * state.slope[:, None]
    ww.diagonal(dim1=1, dim2=2).add_((state.error * state.weights * state.slope2).transpose(1, 2))
    wv = weighted.new_empty(samples, units, units + 1, width)
    wv[:, :, 0] = weighted
    torch.mul(weighted[:, :, None], state.hidden[:, None], out=wv[:, :, 1:])
    wv[:, :, 1:].diagonal(dim1=1, dim2=2).add_((state.error * state.slope1).transpose(1, 2))
    vv = weighted.new_empty(units + 1, units + 1, width)
    vv[0, 0] = state.variance.sum((0, 1))
    vv[0, 1:] = vv[1:, 0] = read.sum(0)
    vv[1:, 1:] = (read[:, :, None] * state.hidden[:, None]).sum(0)
    return _Blocks(
        (data.products.t() @ ww.view(samples, -1)).view(-1, units, units, width),
        (data.inputs.t() @ wv.view(samples, -1)).view(-1, units, units + 1, width),
        vv,
    )


def _bound_matrix(data: _Data, blocks: _Blocks, dimension: int) -> _Blocks:
    """G = 1/D + √((D−1)/D) E with E = (H − μ 1)/||H − μ 1||_F, overwriting H; E = 0 where the norm
    is 0.

    Divided by its largest entry before it is squared, since the squares of a nearly flat Hessian
    underflow.
    """
    diagonals = [
        blocks.ww[data.diagonal].diagonal(dim1=1, dim2=2).transpose(1, 2),
        blocks.vv.diagonal(dim1=0, dim2=1).t(),
    ]
    mean = (diagonals[0].sum((0, 1)) + diagonals[1].sum(0)) / dimension
    _shift(data, blocks, -mean)
    scale = torch.stack([part.abs().flatten(0, -2).amax(0) for part in blocks]).amax(0)
    for part in blocks:
        part.div_(scale + (scale == 0))
    counted = torch.where(data.diagonal, 1.0, 2.0).to(mean.dtype)[:, None, None, None]
    ww = (counted * blocks.ww.square()).sum((0, 1, 2))
    wv = 2 * blocks.wv.square().sum((0, 1, 2))
    norm = (ww + wv + blocks.vv.square().sum((0, 1))).sqrt()
    factor = math.sqrt((dimension - 1) / dimension) / (norm + (norm == 0))
    for part in blocks:
        part.mul_(factor)
    _shift(data, blocks, torch.full_like(mean, 1 / dimension))
    return blocks


def _shift(data: _Data, blocks: _Blocks, value: Tensor) -> None:
    """Add value (S,) to the diagonal."""
    for index in data.diagonal.nonzero()[:, 0].tolist():
        blocks.ww[index].diagonal(dim1=0, dim2=1).add_(value[:, None])
    blocks.vv.diagonal(dim1=0, dim2=1).add_(value[:, None])


def _bound_contraction(data: _Data, state: _State) -> _Contraction:
    samples, units, width = state.slope.shape
    matrix = _bound_matrix(data, _hessian(data, state), units * data.inputs.shape[1] + units + 1)
    ww = (data.doubled @ matrix.ww.view(-1, units * units * width)).view(
        samples, units, units, width
    )
    wv = (data.inputs @ matrix.wv.view(-1, units * (units + 1) * width)).view(
        samples, units, units + 1, width
    )
    through_slope = wv[:, :, 0].clone()
    through_read = matrix.vv[:, 0].expand(samples, -1, -1).clone()
    for unit in range(units):
        slope = state.slope[:, unit : unit + 1]
        hidden = state.hidden[:, unit : unit + 1]
        through_slope.addcmul_(ww[:, :, unit], slope).addcmul_(wv[:, :, unit + 1], hidden)
        through_read.addcmul_(wv[:, unit], slope).addcmul_(matrix.vv[:, unit + 1], hidden)
    through_hidden = through_read[:, 1:]
    quadratic = (
        (through_slope * state.slope)
        .addcmul_(through_hidden, state.hidden)
        .sum(1)
        .add_(through_read[:, 0])
    )
    return _Contraction(
        quadratic[:, None],
        through_slope,
        through_hidden,
        ww.diagonal(dim1=1, dim2=2).transpose(1, 2),
        wv[:, :, 1:].diagonal(dim1=1, dim2=2).transpose(1, 2),
    )


@dataclass(frozen=True)
class Regularised:
    """loss_weight · ∇L + strength · ∇penalty, watched: ∇L.

    penalty: "trace" for tr H, "bound" for λ_sup. strength: γ₂/γ₁ where the rate of `descend` is γ₁;
    for training on the penalty alone (γ₁ = 0), loss_weight = 0, strength = 1 and rate = γ₂. Where σ
    = 0 the gradient of λ_sup is that of μ (see `three_layer_gradient`). Raises ValueError for an
    unknown penalty; the first step raises the closed forms' ValueErrors.
    """

    x: Tensor
    q: Tensor
    penalty: str
    activation: str = "sigmoid"
    strength: float = 1.0
    loss_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.penalty not in ("trace", "bound"):
            raise ValueError(f"expected the penalty trace or bound, found {self.penalty!r}")

    def bind(self, width: int) -> Step:
        data = _data(self.x, self.q)
        contract = _trace_contraction if self.penalty == "trace" else _bound_contraction
        checked = False

        def step(theta: Tensor, number: int) -> tuple[Tensor, Tensor]:
            nonlocal checked
            if not checked:
                check_data(theta.t(), self.x, self.q)
                checked = True
            state = _state(theta, data, self.activation)
            loss = _loss_gradient(data, state)
            penalty = _contraction_gradient(data, state, contract(data, state))
            return penalty.mul_(self.strength).add_(loss, alpha=self.loss_weight), loss

        return step


@dataclass(frozen=True)
class AdaptiveSam:
    """∇L at theta + ρ T² ∇L / ||T ∇L|| (adaptive SAM; T as in the module's text), watched:

    ∇L at theta.

    radius: ρ >= 0. Raises ValueError where it is negative.
    """

    x: Tensor
    q: Tensor
    activation: str = "sigmoid"
    radius: float = 0.1

    def __post_init__(self) -> None:
        if self.radius < 0:
            raise ValueError(f"expected a radius >= 0, found {self.radius}")

    def bind(self, width: int) -> Step:
        loss = LossGradient(self.x, self.q, self.activation)
        here = loss.bind(width)
        there = loss.bind(width)  # two sets of buffers

        def step(theta: Tensor, number: int) -> tuple[Tensor, Tensor]:
            gradient = here(theta, number)[0]
            scale = theta.abs().add_(SAM_CONSTANT)
            units = hidden_width(theta.shape[0], self.x.shape[1])
            scale[:units] = 1  # b, the first column of W
            scale[units * (self.x.shape[1] + 1)] = 1  # c
            scaled = scale * gradient
            norm = torch.linalg.vector_norm(scaled, dim=0)
            moved = torch.addcmul(theta, scale * scaled, self.radius / (norm + (norm == 0)))
            return there(moved, number)[0], gradient

        return step


def training_direction(
    method: str,
    x: Tensor,
    q: Tensor,
    activation: str = "sigmoid",
    *,
    strength: float = 1.0,
    radius: float = 0.1,
    until: int | None = None,
) -> Direction:
    """The direction of one of `METHODS`, turning to plain ∇L at step `until` (HSR, Section VI-B;
    None: never).

    strength: γ₂/γ₁ of trace and hsr. radius: ρ of asam. Raises ValueError for an unknown method.
    """
    plain = LossGradient(x, q, activation)
    if method not in METHODS:
        raise ValueError(f"expected a method out of {', '.join(METHODS)}, found {method!r}")
    if method == "gd":
        return plain
    early: Direction
    if method == "asam":
        early = AdaptiveSam(x, q, activation, radius)
    else:
        early = Regularised(x, q, "trace" if method == "trace" else "bound", activation, strength)
    if until is None:
        return early
    return Switch(early, plain, until)
