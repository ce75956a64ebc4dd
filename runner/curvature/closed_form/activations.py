"""The five activation functions of the WS-bound paper with their first three derivatives (Appendix A).

The closed forms need the value and derivatives together, and every derivative is cheap once the function that
needs an exponential is known; `Activation.derivatives` therefore returns all of them in one call.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Derivatives = tuple[Tensor, ...]


@dataclass(frozen=True)
class Activation:
    """An activation f and the constants that the trace bounds need.

    name: key in `ACTIVATIONS`.
    function: y, order -> (f, f', ..., f^(order)) elementwise, 0 <= order <= 3.
    value_and_slope_: y, slope -> None, overwrites y by f(y) and slope by f'(y): the same without a copy, for loops.
    sup_abs: sup |f|, infinite for an unbounded activation (Theorem 3, Prop. 7).
    sup_slope: sup |f'|; its square is the constant zeta_1 of Theorem 4.
    sup_bend: sup |f''|, the constant zeta_2 of Theorem 4.
    """

    name: str
    function: Callable[[Tensor, int], Derivatives]
    value_and_slope_: Callable[[Tensor, Tensor], None]
    sup_abs: float
    sup_slope: float
    sup_bend: float

    def derivatives(self, y: Tensor, order: int) -> Derivatives:
        """(f(y), f'(y), ..., f^(order)(y)), each of the shape of y; 0 <= order <= 3."""
        return self.function(y, order)

    def __call__(self, y: Tensor) -> Tensor:
        """f(y), elementwise."""
        return self.function(y, 0)[0]


def _linear(y: Tensor, order: int) -> Derivatives:
    zero = torch.zeros_like(y)
    return (y, torch.ones_like(y), zero, zero)[: order + 1]


def _linear_(y: Tensor, slope: Tensor) -> None:
    slope.fill_(1)


def _logistic_ladder(s: Tensor, order: int) -> Derivatives:
    """The logistic function, given its value s, and its derivatives up to `order`."""
    out = [s]
    if order >= 1:
        out.append(torch.addcmul(s, s, s, value=-1))
    if order >= 2:
        out.append(torch.addcmul(out[1], s, out[1], value=-2))
    if order >= 3:
        out.append(torch.addcmul(out[1], out[1], out[1], value=-6))
    return tuple(out)


def _sigmoid(y: Tensor, order: int) -> Derivatives:
    return _logistic_ladder(torch.sigmoid(y), order)


def _sigmoid_(y: Tensor, slope: Tensor) -> None:
    y.sigmoid_()
    torch.addcmul(y, y, y, value=-1, out=slope)


def _tanh(y: Tensor, order: int) -> Derivatives:
    t = torch.tanh(y)
    out = [t]
    if order >= 1:
        out.append((1 - t) * (1 + t))
    if order >= 2:
        out.append(-2 * t * out[1])
    if order >= 3:
        out.append((4 - 6 * out[1]) * out[1])
    return tuple(out)


def _tanh_(y: Tensor, slope: Tensor) -> None:
    # tanh y = 2 s(2y) - 1 to the last bit of 1, and the logistic function is three times cheaper.
    y.mul_(2).sigmoid_().mul_(2).sub_(1)
    torch.mul(y, y, out=slope).neg_().add_(1)


def _softplus(y: Tensor, order: int) -> Derivatives:
    value = torch.logaddexp(y, torch.zeros_like(y))
    return (value,) if order == 0 else (value, *_logistic_ladder(torch.sigmoid(y), order - 1))


def _softplus_(y: Tensor, slope: Tensor) -> None:
    torch.sigmoid(y, out=slope)
    torch.logaddexp(y, y.new_zeros(()), out=y)


def _gelu(y: Tensor, order: int) -> Derivatives:
    """y G(y) with the Gaussian distribution function G (the erf form, not its tanh approximation)."""
    cumulative = torch.special.ndtr(y)
    out = [y * cumulative]
    if order >= 1:
        density = torch.exp(-0.5 * y * y) / math.sqrt(2 * math.pi)
        out.append(cumulative + y * density)
    if order >= 2:
        out.append((2 - y * y) * density)
    if order >= 3:
        out.append(y * (y * y - 4) * density)
    return tuple(out)


def _gelu_(y: Tensor, slope: Tensor) -> None:
    cumulative = torch.special.ndtr(y)
    torch.mul(y, y, out=slope).mul_(-0.5).exp_().mul_(y).mul_(1 / math.sqrt(2 * math.pi)).add_(cumulative)
    y.mul_(cumulative)


def _gelu_sup_slope() -> float:
    """max f' = G(sqrt 2) + sqrt 2 g(sqrt 2) = 1.12890... (the paper's Eq. 49 prints 1.128...)."""
    cumulative = 0.5 * math.erfc(-1.0)
    return cumulative + math.exp(-1.0) / math.sqrt(math.pi)


ACTIVATIONS: dict[str, Activation] = {
    activation.name: activation
    for activation in (
        Activation("linear", _linear, _linear_, math.inf, 1.0, 0.0),
        Activation("sigmoid", _sigmoid, _sigmoid_, 1.0, 0.25, math.sqrt(3) / 18),
        Activation("tanh", _tanh, _tanh_, 1.0, 1.0, 4 * math.sqrt(3) / 9),
        Activation("softplus", _softplus, _softplus_, math.inf, 1.0, 0.25),
        Activation("gelu", _gelu, _gelu_, math.inf, _gelu_sup_slope(), math.sqrt(2 / math.pi)),
    )
}


def get_activation(name: str) -> Activation:
    """The activation called `name`; ValueError naming the known ones (and the nearest) otherwise."""
    try:
        return ACTIVATIONS[name]
    except (KeyError, TypeError):
        near = difflib.get_close_matches(str(name), ACTIVATIONS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"expected an activation out of {', '.join(ACTIVATIONS)}, found {name!r}{hint}") from None
