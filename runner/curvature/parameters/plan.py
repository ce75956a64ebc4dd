"""How many examples go through a product at once, and whether graphs are kept, from what fewer examples take.

The peak of a product is a convex function of its number of examples (the largest of several sums of parameters'
gradients, which do not depend on it, and activations, which grow with it): a line through two sizes falls short beyond
them. Sizes are therefore measured in steps of STEP as far as the room allows, and an example is never taken for less
than what it adds to the graph.
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
FAR = 3
"""Memory of a process over that of its tensors while they are watched: records lie between freed blocks."""
UNSEEN = 2.5
"""Memory of a process over that of its tensors: convolutions keep copies of their own, and freed blocks between others
are not given back (measured for products of a convnet: 1.6 to 3.3 in twenty processes, 2.4 in the middle)."""
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
    """Bytes of a product by its number of examples. measure(piece) gives the course of a product with that piece.

    least: bytes that an example takes at least. room: bytes that measuring may take, but for FEW + 1 examples.
    """

    def __init__(
        self, pieces: Callable[[int], Batch], measure: Callable[[Batch], Course], widest: int, room: float = math.inf
    ) -> None:
        self._pieces, self._measure, self.widest, self.least = pieces, measure, widest, 0.0
        self._found: dict[int, Course] = {}
        self._add(min(FEW, widest))
        fitting = FEW * room / max(1, self._found[min(FEW, widest)].peak)
        self._add(min(max(FEW + 1, int(min(STEP * FEW, fitting))), widest))

    def _add(self, size: int) -> None:
        if size not in self._found:
            self._found[size] = self._measure(self._pieces(size))

    def _line(self, kept: bool) -> tuple[float, float]:
        """(fixed, each) through the two largest sizes; in proportion where there is only one."""
        *before, (size, last) = sorted(self._found.items())
        if not before:
            return 0.0, last[kept] / size
        each = max(0.0, (last[kept] - before[-1][1][kept]) / (size - before[-1][0]))
        return max(0.0, last[kept] - each * size), each if kept else max(each, self.least)

    def kept(self, examples: int, pieces: int = 1) -> float:
        """What stays between two products of `examples` examples in so many pieces."""
        fixed, each = self._line(True)
        return fixed * pieces + each * examples

    def peak(self, examples: int) -> float:
        """Of a product of so many examples."""
        fixed, each = self._line(False)
        return fixed + each * examples

    def explore(self, examples: int, room: float) -> None:
        """Measures larger sizes up to `examples` while the next one is far from filling the room."""
        while (size := STEP * max(self._found)) < examples and FAR * self.peak(size) <= room:
            self._add(size)

    def most(self, room: float) -> int:
        """Examples whose product takes at most `room`, at least one, at most the widest batch."""
        fixed, each = self._line(False)
        if each == 0:
            return self.widest if fixed <= room else 1
        return max(1, min(self.widest, math.floor((room - fixed) / each)))


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


def plan(needs: Callable[[bool, float], Need], counts: Sequence[int], vectors: int, budget: int) -> Plan:
    """The plan for batches of `counts` examples; needs(keep, room) measures products with and without a kept graph."""
    widest, examples = max(counts), sum(counts)
    room = (budget - vectors) / UNSEEN
    need = needs(True, room)
    size = widest if need.kept(examples) <= room else 0
    if size:
        need.explore(size, room)
    while size >= 1:
        pieces = sum(-(-count // size) for count in counts)
        total = need.kept(examples, pieces) + need.peak(size) - need.kept(size)
        if total <= room:
            return Plan(None if size == widest else size, True, int(UNSEEN * total) + vectors)
        size //= 2
    least, need = need.kept(2) - need.kept(1), needs(False, room)
    need.least = least
    need.explore(widest, room)
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
