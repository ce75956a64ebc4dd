"""The batches of an operator: read, cut along their examples, and weighed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from runner.curvature.basics.errors import MeasurementError, first_line
from runner.curvature.basics.interrupts import INTERRUPTS
from runner.curvature.basics.trees import tree_leaves
from runner.curvature.function.changes import CHANGED
from runner.curvature.function.context import random_states
from runner.curvature.function.data import (
    Batch,
    Layout,
    Rule,
    Weights,
    as_batch,
    as_batches,
    count_examples,
    layouts,
    size_in_bytes,
)
from runner.curvature.function.function import Function, NotScalar, Point

T = TypeVar("T")
CHECKED = 8
"""Examples of the first batch with which identities 0 and 1 are compared, at most."""
DRAWN = (
    "the loss of a pass over the data is another than that of the first ({:.6g}, now {:.6g}): a "
    "loader that draws (augmentation, shuffle with drop_last) gives another matrix at each pass; "
    "give a list of batches, list(loader)"
)
FITTED = 1e-2
"""A loss below which examples are fitted: its roundings are relative to this."""
LOOKED_AT = 8
"""Batches, and parts of each, that a loss may be infinite or undefined in before it is refused."""


class Settings(NamedTuple):
    """What the user asked for, besides module, loss and data."""

    weights: Weights
    memory_budget: int
    check: bool | str
    batch_dim: int


class Piece(NamedTuple):
    """A batch, or a part of one: its place, its data, and its weight in the mean."""

    place: tuple[int, int]
    batch: Batch
    weight: float


class Data:
    """What the user gave, one batch after the other at every reading.

    first: the first batch of the first reading. layout: how it is cut; None where the network takes
    no fewer examples. counts: examples of each batch. examples: their sum. shares: set by
    `weigh`.
    """

    def __init__(self, given: Any, function: Function, settings: Settings) -> None:
        self.function = function
        self.settings = settings
        self.alone = function.loss is None
        self.stream: Callable[[], None] = lambda: None
        self.given, self.first = self._read(given)
        self.listed = isinstance(self.given, list)
        self.counts: list[int] = []
        self.examples = 0
        self.total = 1.0
        self.totals: dict[str, float] = {}
        """What all data weigh, by each rule that agrees with the losses of parts."""
        self.rule: Rule | None = None
        self.numbers: list[float] = []
        """Weights of the batches, where they do not change from reading to reading."""
        self.why_uncut = ""
        self.kind: int | None = None
        self.layout: Layout | None = None
        self.tried = 1
        self.sampled: tuple[Batch, int] | None = self.first, 0
        self.searched = False
        """Whether examples with a finite loss were looked for."""
        self.evaluated: int | None = None
        """Examples of the largest piece whose loss is evaluated; None: whole batches."""
        self.passes: dict[str, float] = {}
        """The loss of the first pass, by what it was made for."""
        self.whole = False
        """Whether batches are not cut, since their loss is not a mean over their parts."""

    def _read(self, data: Any) -> tuple[Any, Batch]:
        """The batches, kept where they are small or a list, and the first."""
        found = as_batches(data, self.alone)
        used = 0
        batches = []
        for given in self._batches(found):
            batches.append(given)
            used += size_in_bytes(given)
            if used > self.settings.memory_budget // 4 and not isinstance(found, list):
                break
        else:
            found = batches
        if not batches:
            raise MeasurementError("the data have no batches")
        if found is not batches and iter(found) is found:
            raise MeasurementError(
                "data can be read only once and is too large to keep: give a list or a DataLoader"
            )
        return found, batches[0]

    def __iter__(self) -> Iterator[Batch]:
        if self.listed:
            return iter(self.given)
        return self._batches(self.given)

    def _batches(self, given: Iterable[Any]) -> Iterator[Batch]:
        """What is given, one after the other. A loader draws from a stream of its own, which begins
        as the program's and goes on from one reading to the next: that of the program stays."""
        if isinstance(given, list):  # nothing is drawn
            yield from (as_batch(one, self.alone) for one in given)
            return
        batches: Iterator[Any] | None = None
        while True:
            with INTERRUPTS:
                outside = random_states()
                try:
                    self.stream()
                    with INTERRUPTS.released():
                        if batches is None:
                            batches = iter(given)
                        one = next(batches)
                except StopIteration:
                    return
                finally:
                    self.stream = random_states()
                    outside()
            yield as_batch(one, self.alone)

    def tensors(self) -> list[Tensor | None]:
        """Of the batches, where they are kept."""
        leaves = tree_leaves(self.given) if self.listed else []
        return [leaf for leaf in leaves if type(leaf) is Tensor]

    # ------------------------------------------------------------------ cut along the examples

    def settle(self, run: Callable[[Batch], T]) -> tuple[Batch, T] | None:
        """Finds how batches are cut, by running some examples of the first, at least one fewer;
        these, and what they gave."""
        for layout in layouts(self.first, self.settings.batch_dim):
            self.tried = max(1, min(CHECKED, layout.examples - 1))
            given = None
            try:
                some = layout.cut(self.first, 0, self.tried)
                given = some, run(some)
            except NotScalar:
                pass
            except Exception as error:  # of the user's code
                self.why_uncut = first_line(error)
                if layout.examples > 1:
                    continue
            self.kind = layout.kind
            self.layout = layout
            return given
        return None

    def layout_of(self, batch: Batch) -> Layout | None:
        """How a batch is cut: as the first is."""
        if self.kind is None or batch is self.first:
            return self.layout
        return next(layouts(batch, self.settings.batch_dim, self.kind), None)

    def require_layout(self, batch: Batch) -> Layout:
        """The same, or ValueError."""
        layout = self.layout_of(batch)
        if layout is None:
            raise MeasurementError(f"the batch cannot be cut into its examples ({self.why_uncut})")
        return layout

    def count(self, batch: Batch) -> int:
        """The number of examples of a batch."""
        layout = self.layout_of(batch)
        if layout is None:
            return count_examples(batch, self.settings.batch_dim)
        return layout.examples

    def few(self, most: int) -> Batch:
        """The first examples of the first batch."""
        if self.layout is None or self.layout.examples <= most:
            return self.first
        return self.layout.cut(self.first, 0, most)

    def find_sample(self, few: int, required: bool) -> None:
        """Finds a few examples whose loss is finite (not all of ignored labels), and not zero where
        there are such. Raises ValueError where none is finite and they are required."""
        self.searched = True
        point = Point(self.function.variables.values)
        value = math.nan
        finite = None
        for batch in itertools.islice(self, LOOKED_AT):
            layout = self.layout_of(batch)
            examples = 1 if layout is None else layout.examples
            for start in range(0, examples, max(few, examples // LOOKED_AT)):
                self.sampled = batch, start
                value = float(self.function.value(point, self.sample(few)))
                if math.isfinite(value):
                    finite = finite or self.sampled
                    if value != 0:
                        return
        self.sampled = finite
        if required and finite is None:
            raise MeasurementError(
                f"the loss is not finite ({value}): look at the weights and the data"
            )

    def spread(self, few: int) -> Batch:
        """A few examples at even distances all over the data: of several batches where these are
        listed and alike. Those of `find_sample` where it was asked."""
        if self.layout is None or self.searched:
            return self.sample(few)
        if self.listed and len(self.given) > 1:
            count = len(self.given)
            some = min(few, count)
            places = [(2 * k + 1) * count // (2 * some) for k in range(some)]
            batches = [as_batch(self.given[i], self.alone) for i in places]
            if (found := self._joined(batches, few)) is not None:
                return found
        return self.layout.spread(self.first, few)[0]

    def _joined(self, batches: list[Batch], few: int) -> Batch | None:
        """Some examples of each as one batch, where they fit together."""
        found: Batch | None = None
        for batch in batches:
            layout = self.layout_of(batch)
            if layout is None:
                return None
            some, _ = layout.spread(batch, max(1, few // len(batches)))
            found = some if found is None else layout.joined(found, some)
            if found is None:
                return None
        return found

    def sample(self, most: int) -> Batch:
        """At most so many examples whose loss is finite."""
        assert self.sampled is not None
        batch, start = self.sampled
        layout = self.layout_of(batch)
        if layout is None or (start == 0 and most >= layout.examples):
            return batch
        return layout.cut(batch, start, min(start + most, layout.examples))

    # ------------------------------------------------------------------ with weights

    def weighed(self) -> Iterator[tuple[Batch, float]]:
        """Every batch with its share of the mean."""
        for i, batch in enumerate(self):
            if self.numbers:
                yield batch, self.numbers[i] / self.total
            else:
                assert self.rule is not None
                yield batch, self.rule(batch) / self.total

    def compare_pass(self, kind: str, losses: Iterable[float]) -> None:
        """Raises ValueError where the sum of the weighted losses of a pass over all data is not
        that of the first pass of its kind: a loader may draw at random."""
        now = math.fsum(losses)
        first = self.passes.setdefault(kind, now)
        if not self.settings.check or now == first:
            return
        eps = max(torch.finfo(t.dtype).eps for t in self.function.variables.values.values())
        if abs(now - first) > 64 * eps * max(abs(first), FITTED):
            text = CHANGED if self.listed else DRAWN
            raise MeasurementError(text.format(first, now))

    def loss(self, point: Point) -> float:
        """The mean loss at a point."""
        pieces = self.pieces(self.evaluated)
        return math.fsum(
            piece.weight * float(self.function.value(point, piece.batch)) for piece in pieces
        )

    def pieces(self, chunk: int | None) -> Iterator[Piece]:
        """All batches, in pieces of at most `chunk` examples, with their weights."""
        for i, (batch, share) in enumerate(self.weighed()):
            if share == 0:
                continue
            if chunk is None or chunk >= self.count(batch):
                yield Piece((i, 0), batch, share)
                continue
            assert self.rule is not None
            layout = self.require_layout(batch)
            parts = list(layout.pieces(batch, chunk))
            sizes = [self.rule(part) for part in parts]
            for k, (part, size) in enumerate(zip(parts, sizes, strict=True)):
                if size > 0:
                    yield Piece((i, k), part, share * size / sum(sizes))
