"""What products along one direction must be, by first derivatives alone: central differences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Rows = dict[str, Tensor]
"""Name of a node or group -> (pieces, d), the sum over pieces being the whole."""
Vectors = dict[str, Tensor]
"""Name -> (d,)."""

STEPS = (1e-5, 1e-6, 1e-7, 1e-8)
COARSE = (0.1, 0.03, 0.01, 0.003, 0.001)
"""Steps in float64, and those of a network that has no float64 copy."""


@dataclass(frozen=True)
class Difference:
    """Of a gradient g, at one step t.

    value: (g(t) - g(-t)) / 2t. turn: (g(t) - 2 g(0) + g(-t)) / t, by which the slopes ahead and
    behind differ: it falls with the step, except where a kink lies within. rounding: size of the
    roundings in value.
    """

    value: Rows
    turn: Rows
    rounding: float

    @classmethod
    def of(cls, gradient: Callable[[float], Rows], step: float, centre: float = 0.0) -> Difference:
        """Of the gradient at places along the direction."""
        ahead, here, behind = (gradient(centre + side * step) for side in (1, 0, -1))
        value = {}
        turn = {}
        largest = 0.0
        for v, middle in here.items():
            value[v] = (ahead[v] - behind[v]) / (2 * step)
            turn[v] = (ahead[v] - 2 * middle + behind[v]) / step
            largest = max(largest, float(middle.norm()) * torch.finfo(middle.dtype).eps)
        return cls(value, turn, largest / step)

    def mapped(self, linear: Callable[[Rows], Rows]) -> Difference:
        """A linear map of it. Its roundings are not known."""
        return Difference(linear(self.value), linear(self.turn), 0.0)

    def minus(self, other: Difference) -> Difference:
        """The difference of both."""
        value = {v: rows - other.value[v] for v, rows in self.value.items()}
        turn = {v: rows - other.turn[v] for v, rows in self.turn.items()}
        return Difference(value, turn, self.rounding + other.rounding)


class Differences(ABC):
    """Differences of a gradient along `direction`.

    noun, piece: what a name is, and what a row is of. double: whether they are in float64. cost:
    of one, in gradients.
    """

    noun = "node"
    piece = "example"
    double = True
    cost = 3.0
    direction: Vectors

    @property
    def steps(self) -> Sequence[float]:
        """The steps to try, one after the other."""
        return STEPS if self.double else COARSE

    @abstractmethod
    def at(self, step: float, centre: float = 0.0) -> Difference:
        """The difference around the point displaced by `centre` directions."""

    def allowance(self) -> float:
        """The relative error that the data allow, where it is larger than rounding."""
        return 0.0


def bent(gradient: Callable[[Tensor], Tensor], at: Tensor, tangent: Tensor, reach: float) -> Tensor:
    """The second derivative of each example's loss at its outputs (B, ...) times the tangent.

    reach: of the step, relative to the outputs.
    """
    size = tangent.flatten(1).norm(dim=1).clamp_min(torch.finfo(at.dtype).tiny)
    step = reach * (1 + at.flatten(1).norm(dim=1)) / size
    step = step.view(-1, *[1] * (at.dim() - 1))
    return (gradient(at + step * tangent) - gradient(at - step * tangent)) / (2 * step)
