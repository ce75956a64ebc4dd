"""How many examples go through a product at once, and whether graphs are kept, from what fewer examples take.

The peak of a product is a convex function of its number of examples (the largest of several sums of parameters'
gradients, which do not depend on it, and activations, which grow with it): a line through two sizes falls short beyond
them. Sizes are therefore measured in steps of STEP until the line is not followed further than that.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

from runner.curvature.matrix_free.peak import allocations
from runner.curvature.parameters.batches import Batch, Rows

FEW, STEP = 2, 4
"""Examples of the smallest product that is measured, and by how many times the next ones are larger."""
UNSEEN = 1.4
"""Memory of a process over that of its tensors: convolutions keep copies of their own, and freed blocks between others
are not given back (measured: up to 1.45)."""
VECTORS = 6
"""Vectors of all parameters beside a product's own: the direction, the sum over pieces, the result, and three that
checks and iterations hold."""


class Course(NamedTuple):
    """Bytes of a product: at its peak, and between the making of its graph and the product."""

    peak: int
    kept: int


def course(graph: Callable[[], object], product: Callable[[], object]) -> Course:
    """Of one product, its graph made first (`graph` gives what holds it)."""
    held: list[object] = []
    made = allocations(lambda: held.append(graph()))
    kept = made[-1] if made else 0
    return Course(max([*made, *(kept + live for live in allocations(product))], default=0), kept)


class Need:
    """Bytes of a product by its number of examples. measure(piece) gives the course of a product with that piece."""

    def __init__(self, pieces: Callable[[int], Batch], measure: Callable[[Batch], Course], widest: int) -> None:
        self._pieces, self._measure, self.widest = pieces, measure, widest
        self._found: dict[int, Course] = {}
        for size in (FEW, STEP * FEW):
            self._add(min(size, widest))

    def _add(self, size: int) -> None:
        if size not in self._found:
            self._found[size] = self._measure(self._pieces(size))

    def _line(self, kept: bool) -> tuple[float, float]:
        """(fixed, each) through the two largest sizes; in proportion where there is only one."""
        *before, (size, last) = sorted(self._found.items())
        if not before:
            return 0.0, last[kept] / size
        each = max(0.0, (last[kept] - before[-1][1][kept]) / (size - before[-1][0]))
        return max(0.0, last[kept] - each * size), each

    def kept(self, examples: int, pieces: int = 1) -> float:
        """What stays between two products of `examples` examples in so many pieces."""
        fixed, each = self._line(True)
        return fixed * pieces + each * examples

    def peak(self, examples: int) -> float:
        """Measures what is between, and follows the line for the last step."""
        while (following := max(self._found) * STEP) < examples:
            self._add(following)
        fixed, each = self._line(False)
        return max(fixed + each * examples, *(c.peak for size, c in self._found.items() if size <= examples), 0.0)

    def most(self, room: float) -> int:
        """Examples whose product takes at most `room`, at least one, at most the widest batch."""
        while True:
            fixed, each = self._line(False)
            target = self.widest if each == 0 else min(self.widest, math.floor((room - fixed) / each))
            largest = max(self._found)
            if target <= STEP * largest:
                break
            self._add(STEP * largest)
        while target > 1 and target in self._found and self._found[target].peak > room:
            target -= 1
        return max(1, target)


class Plan(NamedTuple):
    """chunk: examples of the largest piece (None: whole batches); keep: whether graphs are kept; bytes: the peak that
    is expected."""

    chunk: int | None
    keep: bool
    bytes: int


def few_examples(rows: Rows, batch: Batch, run: Callable[[Batch], object], size: int = FEW) -> Batch:
    """A piece of `size` examples if `run` takes it, else the whole batch."""
    if rows.count(batch) <= size:
        return batch
    try:
        piece = rows.cut(batch, size)[0]
        run(piece)
    except (ValueError, RuntimeError, IndexError, TypeError):
        return batch
    return piece


def plan(needs: Callable[[bool], Need], counts: Sequence[int], vectors: int, budget: int) -> Plan:
    """The plan for batches of `counts` examples; needs(keep) measures products with and without a kept graph."""
    widest, examples = max(counts), sum(counts)
    room = (budget - vectors) / UNSEEN
    need = needs(True)
    size = widest if need.kept(examples) <= room else 0
    while size >= 1:
        pieces = sum(-(-count // size) for count in counts)
        total = need.kept(examples, pieces) + need.peak(size) - need.kept(size)
        if total <= room:
            return Plan(None if size == widest else size, True, int(UNSEEN * total) + vectors)
        size //= 2
    need = needs(False)
    size = need.most(room)
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
