"""How many examples go through a product at once, and whether graphs are kept, from what few examples take.

The bytes alive after each operation of a product are fixed + each * examples, operation by operation (parameters'
gradients do not depend on the batch, activations grow with it). Two products with few examples therefore give the peak
of any number: the largest over the operations, each extrapolated by itself.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from runner.curvature.matrix_free.peak import PeakBytes
from runner.curvature.parameters.batches import Batch, Rows
from runner.curvature.parameters.products import Phase

FEW = 2
"""Examples of the smaller of the two products."""
UNSEEN = 1.4
"""Memory of a process over that of its tensors: convolutions keep copies of their own, and freed blocks between others
are not given back (measured: up to 1.45)."""
VECTORS = 6
"""Vectors of all parameters beside a product's own: the direction, the sum over pieces, the result, and three that
checks and iterations hold."""


class Course(NamedTuple):
    """Bytes alive after each operation of a product, and between the making of its graph and the product."""

    live: tuple[int, ...]
    kept: int


class _Recorded(PeakBytes):
    """Remembers `live` after every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.course: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self.course.append(self.live)
        return out


def course(phases: Sequence[Phase]) -> Course:
    """Of one product; the first phase makes what is kept between products. A phase with a factor stands for an
    operation on pairs (forward differentiation: values and tangents), which cannot be watched itself."""
    with _Recorded() as counted:
        held, kept = [], 0
        for k, (run, factor) in enumerate(phases):
            start, before = counted.live, len(counted.course)
            held.append(run())
            counted.course[before:] = [int(start + factor * (live - start)) for live in counted.course[before:]]
            kept = kept if k else counted.live
    del held
    return Course(tuple(counted.course), kept)


class Need:
    """Bytes of a product by its number of examples."""

    def __init__(self, found: Mapping[int, Course]) -> None:
        few, more = min(found), max(found)
        small, large = found[few], found[more]
        if few == more or len(small.live) != len(large.live):  # another way for another size: in proportion
            self.fixed, self.each = torch.zeros(1), torch.tensor([max(large.live, default=0) / more])
            self._kept = (0.0, large.kept / more)
            return
        one, two = (torch.tensor(c.live, dtype=torch.float64) for c in (small, large))
        self.each = ((two - one) / (more - few)).clamp_min(0)
        self.fixed = (one - few * self.each).clamp_min(0)
        slope = max(0.0, (large.kept - small.kept) / (more - few))
        self._kept = (max(0.0, small.kept - few * slope), slope)

    def peak(self, examples: int) -> float:
        return float((self.fixed + self.each * examples).max()) if len(self.each) else 0.0

    def kept(self, examples: int, pieces: int = 1) -> float:
        """What stays between two products of `examples` examples in so many pieces."""
        return self._kept[0] * pieces + self._kept[1] * examples

    def most(self, room: float) -> int:
        """Examples whose product takes at most `room`, at least one."""
        grows = self.each > 0
        fits = ((room - self.fixed) / self.each)[grows]
        return max(1, math.floor(float(fits.min()))) if len(fits) else 1 << 40


class Plan(NamedTuple):
    """chunk: examples of the largest piece (None: whole batches); keep: whether graphs are kept; bytes: the peak that
    is expected."""

    chunk: int | None
    keep: bool
    bytes: int


def few_examples(rows: Rows, batch: Batch, run: Callable[[Batch], object]) -> list[Batch]:
    """Pieces of FEW and 2 FEW examples that `run` takes, else the whole batch."""
    if rows.count(batch) <= 2 * FEW:
        return [batch]
    try:
        pieces = [rows.cut(batch, size)[0] for size in (FEW, 2 * FEW)]
        for piece in pieces:
            run(piece)
    except (ValueError, RuntimeError, IndexError, TypeError):
        return [batch]
    return pieces


def plan(needs: Callable[[bool], Need], counts: Sequence[int], vectors: int, budget: int) -> Plan:
    """The plan for batches of `counts` examples; needs(keep) measures products with and without a kept graph."""
    widest, examples = max(counts), sum(counts)
    room = (budget - vectors) / UNSEEN
    need = needs(True)
    size = widest
    while size >= 1:
        pieces = sum(-(-count // size) for count in counts)
        total = need.kept(examples, pieces) + need.peak(size) - need.kept(size)
        if total <= room:
            return Plan(None if size == widest else size, True, int(UNSEEN * total) + vectors)
        size //= 2
    need = needs(False)
    size = min(widest, need.most(room))
    total = need.peak(size)
    if total > room:
        warnings.warn(
            f"memory_budget is {budget / 2**20:.3g} MiB, and a product with one example at a time takes about "
            f"{(UNSEEN * total + vectors) / 2**20:.3g} MiB: it is exceeded. Raise memory_budget, or use fewer groups "
            "of a network with fewer parameters",
            RuntimeWarning,
            stacklevel=5,
        )
    return Plan(None if size == widest else size, False, int(UNSEEN * total) + vectors)
