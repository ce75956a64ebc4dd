"""How a perturbation that all examples share is added to the output of a layer."""

from __future__ import annotations

import math
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

FITS = 1e-3
"""Difference from rows in another order, relative to the largest, that is rounding."""


class Perturbed(NamedTuple):
    """How e is added to one output: its shape there, the dimension of examples (None: e has the
    shape of the output), and where that holds several rows of each example, how many of its axes'
    steps lie outside of the examples: 1 of (examples, tokens), the tokens of (tokens, examples).
    0: one row of each. copies: of the batch that go through the network together, each with an e of
    its own along a first dimension; 0: the batch alone."""

    shape: tuple[int, ...]
    dim: int | None
    outer: int = 0
    copies: int = 0

    def added(self, e: Tensor, output: Tensor) -> Tensor | None:
        """The output with e added to every example; None where it does not fit."""
        if self.copies:
            return self._added_by_copy(e, output)
        spread = self.spread(e, output)
        return None if spread is None else output + spread.to(output.dtype)

    def _added_by_copy(self, e: Tensor, output: Tensor) -> Tensor | None:
        dim = self.dim
        if dim is None or torch._C._functorch.is_functorch_wrapped_tensor(output):
            return None
        of_one = self.shape[dim] if self.outer else 1
        rest = (*self.shape[:dim], *self.shape[dim + bool(self.outer) :])
        others = output.shape[:dim] + output.shape[dim + 1 :]
        if output.shape[dim] % (self.copies * of_one) or others != rest:
            return None
        examples = output.shape[dim] // (self.copies * of_one)
        if not self.outer:
            apart = output.unflatten(dim, (self.copies, examples))
            shift = e.movedim(0, dim).unsqueeze(dim + 1)
            return (apart + shift.to(output.dtype)).flatten(dim, dim + 1)
        inner = of_one // self.outer
        apart = output.unflatten(dim, (self.outer, self.copies, examples, inner))
        shift = e.unflatten(dim + 1, (self.outer, inner)).movedim(0, dim + 1).unsqueeze(dim + 2)
        return (apart + shift.to(output.dtype)).flatten(dim, dim + 3)

    def spread(self, e: Tensor, like: Tensor) -> Tensor | None:
        """e for every example of the output `like`; None where it does not fit."""
        if like.shape == self.shape:
            return e
        if self.dim is None or like.dim() <= self.dim:
            return None
        dim = self.dim
        rows = like.shape[dim]
        if not self.outer:
            fits = self.shape == (*like.shape[:dim], *like.shape[dim + 1 :])
            return e.unsqueeze(dim) if fits else None
        of_one = self.shape[dim]
        if rows % of_one or like.shape != (*self.shape[:dim], rows, *self.shape[dim + 1 :]):
            return None
        apart = e.unflatten(dim, (self.outer, 1, of_one // self.outer))
        sizes = [-1] * apart.dim()
        sizes[dim + 1] = rows // of_one
        return apart.expand(sizes).flatten(dim, dim + 2)

    def arranged(self, rows: Tensor, examples: int, rolled: Tensor) -> Perturbed:
        """With the place of the rows of an example, from outputs and slopes of the loss (..., 2),
        between -1 and 1, and those of the examples in another order, the last one first. Where no
        place fits, or several alike, e is added to every row."""
        dim = self.dim
        assert dim is not None
        of_one = self.shape[dim]
        comparable = rows.shape[dim] == of_one * examples and rows.shape == rolled.shape
        places = []
        for outer in (k for k in range(1, of_one + 1) if comparable and of_one % k == 0):
            apart = rows.unflatten(dim, (outer, examples, of_one // outer))
            expected = apart.roll(1, dim + 1).flatten(dim, dim + 2)
            misfits = (expected - rolled).abs().flatten(0, -2).amax(0).tolist()
            if misfits[0] <= FITS:
                places.append((*misfits, outer))
        rounding = torch.finfo(rows.dtype).eps
        for part in (0, 1):  # slopes where outputs do not tell: they know of dropout behind a layer
            places.sort(key=itemgetter(part))
            best, second = [*(place[part] for place in places), math.inf, math.inf][:2]
            if best <= FITS and second > 10 * max(best, rounding):
                return self._replace(outer=places[0][-1])
        return Perturbed((*self.shape[:dim], *self.shape[dim + 1 :]), dim)


def placed_by(
    shape: tuple[int, ...], fewer: tuple[int, ...], examples: int, count: int
) -> Perturbed | None:
    """The dimension of examples is the one that shrinks in a run with `count` examples; None where
    none does."""
    if len(fewer) != len(shape):
        return None
    shrunk = [d for d, (whole, less) in enumerate(zip(shape, fewer, strict=True)) if less != whole]
    if len(shrunk) != 1:
        return None
    dim = shrunk[0]
    rows, rest = divmod(shape[dim], examples)
    if (
        rest or rows == 1 or fewer[dim] != rows * count
    ):  # also a layer that sees some rows: e is added to every one
        return Perturbed((*shape[:dim], *shape[dim + 1 :]), dim)
    return Perturbed((*shape[:dim], rows, *shape[dim + 1 :]), dim, 1)
