"""Whether the function of an operator is what it was: its loss near the weights, compared at each estimator's call."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from runner.curvature.function.function import Function, Point
from runner.curvature.function.identities import displaced
from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.reachable import weighted_sum
from runner.curvature.operators.data import Data

CHANGED = (
    "the loss has changed since this operator was built ({:.6g}, now {:.6g} near the weights): weights, data, modes, "
    "or numbers that it reads; build a new one"
)


class Changes:
    """loss: the mean loss at the displaced point when the operator was built; None: nothing is compared."""

    def __init__(
        self, function: Function, data: Data, losses: list[float], shares: Mapping[str, Tensor]
    ) -> None:
        self.function, self.data = function, data
        tensors = [*function.module.parameters(), *function.module.buffers()]
        self.watched = [t for t in tensors if not t.is_inference()]
        self.marks = self._marks()
        self.spread = shares
        """What this process holds of parameters that FSDP2 spreads: the function is of copies of the whole ones."""
        self.sums = self._sums()
        self.eps = max(torch.finfo(t.dtype).eps for t in function.variables.values.values())
        self.loss: float | None = None
        if losses:
            self.loss = _mean(losses, [share for _, share in data.weighed()])

    def _marks(self) -> list[int]:
        """What tells cheaply that weights may have changed: how often each tensor was written to."""
        return [t._version for t in self.watched]

    def _sums(self) -> list[float]:
        return [float(weighted_sum(t.detach())) for t in self.spread.values()]

    def refuse(self, always: bool = True) -> None:
        """Raises ValueError where the loss is another one. always=False: only where a tensor was written to."""
        if self._sums() != self.sums:
            raise MeasurementError("the parameters have changed since this operator was built")
        if self.loss is None or not (always or self._marks() != self.marks):
            return
        point = Point(displaced(self.function, self.function.variables.values))
        losses, shares = [], []
        for batch, share in self.data.weighed():
            losses.append(float(self.function.value(point, batch)))
            shares.append(share)
        now = _mean(losses, shares)
        if not abs(now - self.loss) <= 64 * self.eps * abs(self.loss):
            raise MeasurementError(CHANGED.format(self.loss, now))
        self.marks = self._marks()


def _mean(losses: list[float], shares: list[float]) -> float:
    return math.fsum(loss * share for loss, share in zip(losses, shares, strict=True) if share > 0)
