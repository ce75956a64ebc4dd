"""What goes through the network at once: predicted from products with few examples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

from runner.curvature.basics.peak import allocations

FEW = 2
MORE = 8
"""Examples of the products that are measured."""
UNSEEN = 2.5
"""Memory of a process over that of its tensors: convolutions keep copies of their own, and freed
blocks between others are not given back (measured for products of a convnet: 1.6 to 3.3 in twenty
processes, 2.4 in the middle)."""
VECTORS = 4
"""Vectors of all variables next to a product's own: the direction, its image, and two that
iterations hold."""


class Plan(NamedTuple):
    """chunk: examples of the largest piece (None: whole batches). keep: whether graphs stay for the
    next product. bytes: the expected peak. width: directions that fit the memory in one batched
    product. touched: bytes of the graph of a piece and of a vector. evaluated: examples of the
    largest piece whose loss alone is evaluated (None: whole batches)."""

    chunk: int | None
    keep: bool
    bytes: int
    width: int = 1
    touched: float = math.inf
    evaluated: int | None = None


class Need(NamedTuple):
    """Bytes of a product: between the making of its graph and the product, and at the peak."""

    kept: float
    peak: float


def measured(make: Callable[[], object], product: Callable[[object], object]) -> Need:
    """The bytes of one product, its graph made first."""
    held: list[object] = []
    made = allocations(lambda: held.append(make()))
    kept = made[-1] if made else 0
    after = allocations(lambda: product(held[0]))
    return Need(kept, max([*made, *(kept + live for live in after)], default=0))


def small(saved: float, counts: Sequence[int], vectors: int, budget: int) -> Plan | None:
    """The plan where the bytes that are saved of each example are so far below the budget that
    nothing needs to be measured."""
    kept = saved * sum(counts)
    most = saved * max(counts)
    total = int(UNSEEN * (kept + SAFE * most)) + vectors
    if SAFE * total > budget:
        return None
    return Plan(None, True, total, width(budget / (SAFE * UNSEEN), most), most + vectors / VECTORS)


FAST = 2 << 20
"""Bytes of a graph and its vector up to which several vectors go through it together on a CPU. Of
15 networks, sixteen vectors then took 0.2 to 1.1 of the time that they take one by one; above, 0.9
to 3.3 for half of the networks, by what leaves the cache."""
FAST_STEP = 16 << 10
"""Or for each step of the graph: of 11 larger networks below (LSTMs, GRUs, small transformers, 30
to 100 layers), eight vectors took 0.4 to 0.9 of the time and 32 took 0.4 to 1.0, since calls of
operations cost more than their numbers; above 24 KiB up to 1.5."""


def width(free: float, under_way: float) -> int:
    """Directions that go together: as many as are free for what each takes."""
    return max(1, min(64, int(free / max(1.0, under_way))))


SECOND = 4
"""Memory of the graphs of a product over that of a gradient's (seven networks: 2.2 to 4.0)."""
RAISED = 2
"""Memory that is used where one example takes more than the budget, over what it takes."""
SAFE = 4
"""How far the prediction of `small` must be below the budget, and a product's memory over its saved
tensors."""


class Line:
    """Bytes by the number of examples, through two sizes."""

    def __init__(self, sizes: Sequence[int], needs: Sequence[Need]) -> None:
        a = sizes[0]
        b = sizes[-1]
        rise = []
        fixed = []
        for x, y in zip(needs[0], needs[-1], strict=True):
            slope = y / b
            if b > a:
                slope = max(0.0, y - x) / (b - a)
            rise.append(slope)
            fixed.append(max(0.0, y - slope * b))
        self.each = Need(*rise)
        self.fixed = Need(*fixed)

    def kept(self, examples: float, pieces: int = 1) -> float:
        return self.fixed.kept * pieces + self.each.kept * examples

    def peak(self, examples: float) -> float:
        return self.fixed.peak + max(self.each) * examples

    def under_way(self, examples: float) -> float:
        """What a product takes besides its graph."""
        return max(0.0, self.peak(examples) - self.kept(examples))


def warn_of_free(needed: int, free: float) -> None:
    """Warns where a plan takes more than what is free. The plan stays: numbers follow from sizes
    and the budget alone."""
    if needed > free:
        warnings.warn(
            f"products take about {needed / 2**30:.3g} GiB, and {free / 2**30:.3g} GiB are free: "
            "give a smaller memory_budget, or fewer groups",
            RuntimeWarning,
            stacklevel=6,
        )


def plan(
    line: Line,
    counts: Sequence[int],
    vectors: int,
    budget: int,
    divisible: bool,
) -> Plan:
    """Whole batches with their graphs where they fit, else the largest pieces with graphs, else
    without. A budget that no cut would keep becomes RAISED times what the smallest piece takes: the
    parameters decide there, and pieces would cost time for little memory."""
    widest = max(counts)
    least = int(UNSEEN * line.peak(1 if divisible else widest)) + vectors
    if least > budget:
        warnings.warn(
            f"memory_budget is {budget / 2**20:.3g} MiB, and a product takes about "
            f"{least / 2**20:.3g} MiB however it is cut: it is exceeded, by up to "
            f"{RAISED * least / 2**20:.3g} MiB in all. Raise memory_budget, or use fewer groups",
            RuntimeWarning,
            stacklevel=6,
        )
        budget = RAISED * least
    room = (budget - vectors) / UNSEEN
    examples = sum(counts)
    size = widest
    while size >= 1:
        pieces = sum(-(-count // size) for count in counts)
        kept = line.kept(examples, pieces)
        total = kept + line.under_way(size)
        if total <= room:
            touched = line.kept(size) + vectors / VECTORS
            many = width(room - kept, line.under_way(size))
            piece = None if size == widest else size
            return Plan(piece, True, int(UNSEEN * total) + vectors, many, touched)
        if kept > room or not divisible:
            break
        size //= 2
    slope = max(line.each)
    size = widest if slope == 0 or not divisible else math.floor((room - line.fixed.peak) / slope)
    size = max(1, min(widest, size))
    total = line.peak(size)
    return Plan(None if size == widest else size, False, int(UNSEEN * total) + vectors)
