"""Whether a function is what it was: its loss near a point, compared at each estimator's call."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from runner.curvature.basics.errors import MeasurementError

CHANGED = (
    "the loss has changed since this operator was built ({:.6g}, now {:.6g} near its point): "
    "weights, data (also of a loader that draws), modes, or numbers that it reads; build a new one"
)


VERSION = operator.attrgetter("_version")
TRAINING = operator.attrgetter("training")
VALUES = operator.methodcaller("values")


class Changes:
    """loss: evaluates it at a generic point nearby, where no term of it is zero. tensors: what it
    is made of. first: its value when the operator was built; None: nothing is compared. modules:
    whose modes, submodules and forward hooks count.

    writes: how often tensors were found written to. Graphs that were made before cannot be used
    again, even where the tensors are as they were."""

    writes = 0

    def __init__(
        self,
        loss: Callable[[], float],
        tensors: Callable[[], Iterable[Tensor | None]],
        first: float | None,
        eps: float,
        modules: Sequence[nn.Module] = (),
    ) -> None:
        self.loss = loss
        self.tensors = tensors
        self.eps = eps
        self.modules = modules
        self.parts = [m._modules for m in modules]
        self.hooks = [hooks for m in modules for hooks in (m._forward_hooks, m._forward_pre_hooks)]
        self.first = None
        if first is not None and math.isfinite(first):
            self.first = first
        self._mark()

    def _mark(self) -> None:
        """Keeps what tells cheaply that the function may have changed: which tensors it has, how
        often each was written to, and the modes and parts of its modules."""
        self.held = [*self.tensors()]
        self.places = [*map(id, self.held)]
        self.dense = [t for t in self.held if t is not None and t.layout is torch.strided]
        self.marked = [t for t in self.held if t is not None and not t.is_inference()]
        self.written = self._written()

    def _written(self) -> list[int]:
        modes = map(TRAINING, self.modules)
        parts = map(id, chain.from_iterable(map(VALUES, self.parts)))
        hooks = chain.from_iterable(self.hooks)  # their numbers, which are never used again
        places = map(Tensor.data_ptr, self.dense)
        return [*map(VERSION, self.marked), *places, *modes, *parts, *hooks]

    def _untouched(self) -> bool:
        return [*map(id, self.tensors())] == self.places and self._written() == self.written

    def refuse(self, always: bool = True) -> None:
        """Raises ValueError where the loss is another one. always=False: only where a tensor was
        written to."""
        if self.first is None or (not always and self._untouched()):
            return
        now = self.loss()
        if not abs(now - self.first) <= 64 * self.eps * abs(self.first):
            raise MeasurementError(CHANGED.format(self.first, now))
        self.writes += not self._untouched()
        self._mark()
