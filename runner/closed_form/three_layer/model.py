"""The three-layer network of the WS-bound paper: parameters, forward pass, loss and gradient.

y = W h(x), r = f(y), z = V h(r), p = s(z), with h(·) prepending a 1, W = [b, W̃] of shape (N, M+1)
and V = [c, Ṽ] of shape (1, N+1) (WS bound, Eqs. 1, 2). theta stacks the columns of W, then V (Eq.
3), D = M N + 2 N + 1. Leading dimensions of theta are a batch; x has shape (I, M) and q shape (I,)
for all of it.

`closed_form`: the closed forms keep several arrays of I D numbers per theta. In one piece, 3,000
networks with N = 10 on 50 samples would need half a gigabyte; in chunks of a megabyte per array
they stay near the cache, at the same speed.

The five activation functions come with their first three derivatives (Appendix A): the closed forms
need the value and derivatives together, and every derivative is cheap once the function that needs
an exponential is known.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import torch
from torch import Tensor


@dataclass(frozen=True)
class Activation:
    """An activation f and the constants that the trace bounds need.

    name: key in `ACTIVATIONS`.
    ladder: y -> f, f', f'', f''', each of the shape of y and computed when it is asked for.
    sup_abs: sup |f|, infinite for an unbounded activation (Theorem 3, Prop. 7).
    sup_slope: sup |f'|; its square is the constant zeta_1 of Theorem 4.
    sup_bend: sup |f''|, the constant zeta_2 of Theorem 4.
    """

    name: str
    ladder: Callable[[Tensor], Iterator[Tensor]]
    sup_abs: float
    sup_slope: float
    sup_bend: float

    def derivatives(self, y: Tensor, order: int) -> tuple[Tensor, ...]:
        """(f(y), f'(y), ..., f^(order)(y)), each of the shape of y; 0 <= order <= 3."""
        return tuple(islice(self.ladder(y), order + 1))

    def __call__(self, y: Tensor) -> Tensor:
        """f(y), elementwise."""
        return next(self.ladder(y))


def _linear(y: Tensor) -> Iterator[Tensor]:
    zero = torch.zeros_like(y)
    yield from (y, torch.ones_like(y), zero, zero)


def _logistic_ladder(s: Tensor) -> Iterator[Tensor]:
    """The logistic function, given its value s, and its derivatives."""
    yield s
    slope = torch.addcmul(s, s, s, value=-1)
    yield slope
    yield torch.addcmul(slope, s, slope, value=-2)
    yield torch.addcmul(slope, slope, slope, value=-6)


def _sigmoid(y: Tensor) -> Iterator[Tensor]:
    return _logistic_ladder(torch.sigmoid(y))


def _tanh(y: Tensor) -> Iterator[Tensor]:
    t = torch.tanh(y)
    yield t
    slope = (1 - t) * (1 + t)
    yield slope
    yield -2 * t * slope
    yield (4 - 6 * slope) * slope


def _softplus(y: Tensor) -> Iterator[Tensor]:
    yield torch.logaddexp(y, torch.zeros_like(y))
    yield from _logistic_ladder(torch.sigmoid(y))


def _gelu(y: Tensor) -> Iterator[Tensor]:
    """y G(y) with the Gaussian distribution function G (erf form, not its tanh approximation)."""
    cumulative = torch.special.ndtr(y)
    yield y * cumulative
    density = torch.exp(-0.5 * y * y) / math.sqrt(2 * math.pi)
    yield cumulative + y * density
    yield (2 - y * y) * density
    yield y * (y * y - 4) * density


def _gelu_sup_slope() -> float:
    """max f' = G(sqrt 2) + sqrt 2 g(sqrt 2) = 1.12890... (the paper's Eq. 49 prints 1.128...)."""
    cumulative = 0.5 * math.erfc(-1.0)
    return cumulative + math.exp(-1.0) / math.sqrt(math.pi)


ACTIVATIONS: dict[str, Activation] = {
    activation.name: activation
    for activation in (
        Activation("linear", _linear, math.inf, 1.0, 0.0),
        Activation("sigmoid", _sigmoid, 1.0, 0.25, math.sqrt(3) / 18),
        Activation("tanh", _tanh, 1.0, 1.0, 4 * math.sqrt(3) / 9),
        Activation("softplus", _softplus, math.inf, 1.0, 0.25),
        Activation("gelu", _gelu, math.inf, _gelu_sup_slope(), math.sqrt(2 / math.pi)),
    )
}


def get_activation(name: str) -> Activation:
    """The activation called `name`; ValueError with the known ones and the nearest otherwise."""
    try:
        return ACTIVATIONS[name]
    except (KeyError, TypeError):
        near = difflib.get_close_matches(str(name), ACTIVATIONS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"expected an activation out of {', '.join(ACTIVATIONS)}, found {name!r}{hint}"
        ) from None


class Parameters(NamedTuple):
    """Views of theta: W = [b, W̃] of shape (..., N, M+1) and V = [c, Ṽ] of shape (..., N+1)."""

    W: Tensor
    V: Tensor


class Forward(NamedTuple):
    """Everything the closed forms read, evaluated once.

    I samples, innermost: every loop over them is contiguous.

    inputs: h(x), (M+1, I). weights: Ṽ as a column, (..., N, 1). hidden: (f(y), f'(y), ...), each
    (..., N, I). error: delta = p − q, (..., I). variance: s'(z) = p (1 − p), (..., I). third:
    s''(z) = p (1 − p) (1 − 2p), (..., I). slope: dz/dy = f'(y) ∘ Ṽ, (..., N, I).
    """

    inputs: Tensor
    weights: Tensor
    hidden: tuple[Tensor, ...]
    error: Tensor
    variance: Tensor
    third: Tensor
    slope: Tensor

    @property
    def dimension(self) -> int:
        """D."""
        return (len(self.inputs) + 1) * self.slope.shape[-2] + 1


def parameter_count(input_width: int, hidden_width: int) -> int:
    """D = M N + 2 N + 1 (WS bound, Eq. 3)."""
    return input_width * hidden_width + 2 * hidden_width + 1


def hidden_width(dimension: int, input_width: int) -> int:
    """N of a theta of length D = M N + 2 N + 1; ValueError when no whole N >= 1 fits."""
    units, rest = divmod(dimension - 1, input_width + 2)
    if rest or units < 1:
        raise ValueError(
            f"expected theta to have D = M N + 2 N + 1 = {input_width + 2} N + 1 entries "
            f"for M = {input_width} inputs and a whole N >= 1, found D = {dimension}; "
            "check the width of x or the length of theta"
        )
    return units


def split(theta: Tensor, input_width: int) -> Parameters:
    """W (..., N, M+1) and V (..., N+1) of theta (..., D); ||·||_F² of either is `.square().sum`.

    Column 0 of W is the bias b, entry 0 of V the bias c. Raises ValueError for an impossible D.
    """
    units = hidden_width(theta.shape[-1], input_width)
    count = units * (input_width + 1)
    columns = theta[..., :count].unflatten(-1, (input_width + 1, units))
    return Parameters(columns.mT, theta[..., count:])


def join(W: Tensor, V: Tensor) -> Tensor:
    """theta (..., D) from W (..., N, M+1) and V (..., N+1); inverse of `split`."""
    if W.ndim < 2 or V.shape[-1] != W.shape[-2] + 1:
        raise ValueError(
            f"expected W of shape (..., N, M+1) and V of shape (..., N+1), found {tuple(W.shape)} "
            f"and {tuple(V.shape)}; put the bias first in both"
        )
    return torch.cat([W.mT.flatten(-2), V], dim=-1)


def check_data(theta: Tensor, x: Tensor, q: Tensor | None = None) -> None:
    """ValueError unless theta is (..., D), x (I, M), q (I,) in [0, 1], of one floating dtype."""
    if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] < 1:
        raise ValueError(
            f"expected x of shape (I, M) with I, M >= 1, found {tuple(x.shape)}; "
            "reshape the samples"
        )
    if q is not None and q.shape != x.shape[:1]:
        raise ValueError(
            f"expected q of shape ({x.shape[0]},), one label per row of x, found {tuple(q.shape)}; "
            "pass the labels as a vector"
        )
    if theta.ndim < 1:
        raise ValueError(
            "expected theta of shape (..., D), found a scalar; pass the parameters as a vector"
        )
    for name, tensor in (("x", x), ("q", q)):
        if tensor is not None and (tensor.dtype != theta.dtype or not theta.is_floating_point()):
            raise ValueError(
                f"expected theta, x and q of one floating dtype, found theta {theta.dtype} and "
                f"{name} {tensor.dtype}; convert with .to(torch.float64)"
            )
    if q is not None and bool(((q < 0) | (q > 1)).any()):
        raise ValueError(
            "expected labels q between 0 and 1 (probabilities of class 1), found "
            f"{float(q.min()):g} to {float(q.max()):g}; map labels -1, 1 to 0, 1"
        )
    hidden_width(theta.shape[-1], x.shape[1])


def with_bias(rows: Tensor) -> Tensor:
    """h(·) of every column: (..., M, I) with a row of ones in front, (..., M+1, I)."""
    return torch.cat([torch.ones_like(rows[..., :1, :]), rows], dim=-2)


def _logit(
    theta: Tensor, x: Tensor, activation: str, order: int
) -> tuple[Tensor, Tensor, tuple[Tensor, ...], Tensor]:
    """(h(x), V, (f(y), ..., f^(order)(y)), z)."""
    W, V = split(theta, x.shape[1])
    inputs = with_bias(x.t())
    hidden = get_activation(activation).derivatives(W @ inputs, order)
    z = (V[..., None, 1:] @ hidden[0]).squeeze(-2) + V[..., :1]
    return inputs, V, hidden, z


def forward(theta: Tensor, x: Tensor, q: Tensor, activation: str, order: int) -> Forward:
    """Evaluate the network with derivatives of f up to `order` >= 1; errors as `check_data`.

    delta is computed as (1 − q) s(z) − q s(−z): p − q would lose all digits where the fit is nearly
    perfect, which is the limit of Theorem 7.
    """
    check_data(theta, x, q)
    inputs, V, hidden, z = _logit(theta, x, activation, order)
    p = torch.sigmoid(z)
    miss = torch.sigmoid(-z)
    variance = p * miss
    weights = V[..., 1:, None]
    error = (1 - q) * p - q * miss
    return Forward(
        inputs=inputs,
        weights=weights,
        hidden=hidden,
        error=error,
        variance=variance,
        third=variance * (miss - p),
        slope=hidden[1] * weights,
    )


CHUNK_WORDS = 1 << 17

R = TypeVar("R", Tensor, tuple[Tensor, Tensor])


class ClosedForm(Protocol[R]):
    """f(theta, x, q, activation) over all leading dimensions of theta.

    of(state): the same of an evaluated network.
    """

    of: Callable[[Forward], R]

    def __call__(self, theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> R: ...


def closed_form(order: int) -> Callable[[Callable[[Forward], R]], ClosedForm[R]]:
    """Makes a closed form of a function of the evaluated network.

    order: the derivatives of f that it reads. theta is taken in chunks, for I D words of
    temporaries per theta.
    """

    def decorate(function: Callable[[Forward], R]) -> ClosedForm[R]:
        @wraps(function)
        def chunked(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Any:
            lead = theta.shape[:-1]
            words = CHUNK_WORDS
            if theta.ndim and x.ndim:
                words = x.shape[0] * theta.shape[-1]
            size = max(1, CHUNK_WORDS // max(1, words))
            if lead.numel() <= size:
                return function(forward(theta, x, q, activation, order))
            parts = theta.reshape(-1, theta.shape[-1]).split(size)
            values = [function(forward(part, x, q, activation, order)) for part in parts]
            if isinstance(values[0], tuple):
                columns = zip(*values, strict=True)
                return tuple(torch.cat(column).unflatten(0, lead) for column in columns)
            return torch.cat(values).unflatten(0, lead)

        chunked.of = function  # type: ignore[attr-defined]
        chunked.__signature__ = inspect.signature(chunked, follow_wrapped=False)  # type: ignore[attr-defined]
        return cast(ClosedForm[R], chunked)

    return decorate


def predict(theta: Tensor, x: Tensor, activation: str = "sigmoid") -> Tensor:
    """p(theta; x), the probability of class 1, (..., I) (WS bound, Eq. 2). Class 1 is p > 0.5."""
    check_data(theta, x)
    return torch.sigmoid(_logit(theta, x, activation, 0)[3])


def hidden_representation(theta: Tensor, x: Tensor, activation: str = "sigmoid") -> Tensor:
    """Rᵀ = [r_1 ... r_I]ᵀ, (..., I, N): row i is the hidden layer on sample i."""
    check_data(theta, x)
    return _logit(theta, x, activation, 0)[2][0].mT


def loss(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """L = Σ_i −q_i log p_i − (1 − q_i) log(1 − p_i), (...,): a sum (WS bound, Eqs. 4, 5)."""
    check_data(theta, x, q)
    z = _logit(theta, x, activation, 0)[3]
    zero = torch.zeros_like(z)
    # Both terms written as log(1 + e^±z) keep a nearly perfect fit's loss from rounding to zero.
    losses = q * torch.logaddexp(-z, zero) + (1 - q) * torch.logaddexp(z, zero)
    return losses.sum(-1)


def gradient(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Tensor:
    """∂L/∂theta = Σ_i delta_i [h(x_i) ⊗ F'(y_i) Ṽᵀ ; h(r_i)], (..., D) (WS bound, Prop. 2)."""
    state = forward(theta, x, q, activation, 1)
    weighted = state.error[..., None, :]
    rows = (weighted * state.slope) @ state.inputs.t()
    output = (state.hidden[0] * weighted).sum(-1)
    bias = state.error.sum(-1, keepdim=True)
    return torch.cat([rows.mT.flatten(-2), bias, output], dim=-1)
