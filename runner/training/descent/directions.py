"""Directions of descent: which way a batch of starts moves, and what its stop rule watches.

A direction is bound to the width of a batch once and then called every step, so that it can keep
its buffers. Plain descent of S starts on I samples with N hidden units costs per step: S I N + S I
exponentials, S I (2 N M + 4 N) multiply-adds and about eight passes over S I N numbers. With the
starts innermost every pass is a contiguous vector loop, the affine maps are matrix products with S
N columns, and nothing is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from runner.closed_form.three_layer.model import (
    check_data,
    get_activation,
    hidden_width,
    with_bias,
)

Step = Callable[[Tensor, int], tuple[Tensor, Tensor]]
RowFunction = Callable[[Tensor, int], Tensor | tuple[Tensor, Tensor]]


@runtime_checkable
class Direction(Protocol):
    """Which way to go. `bind(width)` prepares buffers for batches of that width and returns the
    step.

    The step takes (theta of shape (D, width), number of the step) and returns (direction, watched),
    both (D, width): theta moves by −rate · direction, and the stop rule looks at the norm of
    `watched`. Both may be buffers that the next call overwrites.
    """

    def bind(self, width: int) -> Step: ...


def _linear_(y: Tensor, slope: Tensor) -> None:
    slope.fill_(1)


def _sigmoid_(y: Tensor, slope: Tensor) -> None:
    y.sigmoid_()
    torch.addcmul(y, y, y, value=-1, out=slope)


def _tanh_(y: Tensor, slope: Tensor) -> None:
    # tanh y = 2 s(2y) - 1 to the last bit of 1, and the logistic function is three times cheaper.
    y.mul_(2).sigmoid_().mul_(2).sub_(1)
    torch.mul(y, y, out=slope).neg_().add_(1)


def _softplus_(y: Tensor, slope: Tensor) -> None:
    torch.sigmoid(y, out=slope)
    torch.logaddexp(y, y.new_zeros(()), out=y)


def _gelu_(y: Tensor, slope: Tensor) -> None:
    cumulative = torch.special.ndtr(y)
    torch.mul(y, y, out=slope).mul_(-0.5).exp_().mul_(y).mul_(1 / math.sqrt(2 * math.pi)).add_(
        cumulative
    )
    y.mul_(cumulative)


VALUE_AND_SLOPE: dict[str, Callable[[Tensor, Tensor], None]] = {
    "linear": _linear_,
    "sigmoid": _sigmoid_,
    "tanh": _tanh_,
    "softplus": _softplus_,
    "gelu": _gelu_,
}
"""Each overwrites y by f(y) and slope by f'(y): the activations of the closed forms without a
copy."""


@dataclass(frozen=True)
class LossGradient:
    """The gradient of the three-layer network's loss (WS bound, Prop. 2), without allocation.

    x: (I, M); q: (I,); activation: a name of `ACTIVATIONS`. The first step raises the closed forms'
    ValueErrors.
    """

    x: Tensor
    q: Tensor
    activation: str = "sigmoid"

    def bind(self, width: int) -> Step:
        samples = self.x.shape[0]
        columns = self.x.shape[1] + 1
        inputs_t = with_bias(self.x.t()).contiguous()
        target = self.q[:, None]
        inputs = inputs_t.t().contiguous()
        ones = torch.ones(1, samples, dtype=self.x.dtype)
        evaluate = VALUE_AND_SLOPE[get_activation(self.activation).name]
        buffers: list[Tensor] = []

        def step(theta: Tensor, number: int) -> tuple[Tensor, Tensor]:
            units = hidden_width(theta.shape[0], columns - 1)
            count = units * columns
            if not buffers:
                check_data(theta.t(), self.x, self.q)
                wide = (samples, units * width)
                shapes = (wide, wide, wide, (samples, width), tuple(theta.shape))
                buffers.extend(torch.empty(shape, dtype=theta.dtype) for shape in shapes)
            value, slope, scratch, error, gradient = buffers
            cube = (samples, units, width)
            weights = theta[count + 1 :]
            torch.mm(inputs, theta[:count].view(columns, units * width), out=value)
            evaluate(value, slope)
            torch.mul(value.view(cube), weights, out=scratch.view(cube))
            torch.sum(scratch.view(cube), 1, out=error)
            error.add_(theta[count]).sigmoid_().sub_(target)
            torch.mul(value.view(cube), error[:, None], out=scratch.view(cube))
            slope.view(cube).mul_(error[:, None])
            torch.mm(inputs_t, slope, out=gradient[:count].view(columns, units * width))
            gradient[:count].view(columns, units, width).mul_(weights)
            torch.mm(ones, error, out=gradient[count : count + 1])
            torch.mm(ones, scratch, out=gradient[count + 1 :].view(1, units * width))
            return gradient, gradient

        return step


@dataclass(frozen=True)
class RowDirection:
    """A plain function of theta as a `Direction`.

    function: (theta (S, D), step) -> direction (S, D), or (direction, watched), both (S, D).
    """

    function: RowFunction

    def bind(self, width: int) -> Step:
        def step(theta: Tensor, number: int) -> tuple[Tensor, Tensor]:
            found = self.function(theta.t().contiguous(), number)
            direction, watched = found if isinstance(found, tuple) else (found, found)
            return direction.t(), watched.t()

        return step


@dataclass(frozen=True)
class Switch:
    """`before` up to step number `at` (exclusive), `after` from then on: a flatness term that acts
    at first only."""

    before: Direction
    after: Direction
    at: int

    def bind(self, width: int) -> Step:
        early = self.before.bind(width)
        late = self.after.bind(width)
        return lambda theta, number: (early if number < self.at else late)(theta, number)
