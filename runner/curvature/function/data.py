"""The data of an operator: batches as users give them, read one after the other, cut along their
examples, and weighed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from runner.curvature.basics.errors import MeasurementError, first_line
from runner.curvature.basics.interrupts import INTERRUPTS
from runner.curvature.basics.trees import tree_leaves
from runner.curvature.function.batch import (
    Batch,
    Layout,
    Rule,
    as_batch,
    count_examples,
    layouts,
    size_in_bytes,
    use_of,
)
from runner.curvature.function.changes import CHANGED
from runner.curvature.function.context import random_states
from runner.curvature.function.function import NotScalar

T = TypeVar("T")
Weights = Callable[..., float] | Iterable[float] | None
"""What the user says of the weights of batches."""
CHECKED = 8
"""Examples of the first batch with which identities 0 and 1 are compared, at most."""
DRAWN = (
    "the loss of a pass over the data is another than that of the first ({:.6g}, now {:.6g}): a "
    "loader that draws (augmentation, shuffle with drop_last) gives another matrix at each pass; "
    "give a list of batches, list(loader)"
)
FITTED = 1e-2
"""A loss below which examples are fitted: its roundings are relative to this."""


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


def as_batches(data: Any, alone: bool) -> Iterable[Any]:
    """One batch (a tuple, or where the module returns its loss a dict), or an iterable of
    batches."""
    named = isinstance(data, Mapping)
    if isinstance(data, Tensor) or not isinstance(data, Iterable) or (named and not alone):
        hint = use_of(data)
        if isinstance(data, Tensor):
            hint = ": give input and target as one tuple, (x, y)"
        raise MeasurementError(
            "expected one batch (input, target), a list of batches or a loader, "
            f"found {type(data).__name__}{hint}"
        )
    single = isinstance(data, tuple) or named
    two_tensors = isinstance(data, list) and len(data) == 2 and isinstance(data[0], Tensor)
    if two_tensors and alone:
        raise MeasurementError(
            "with loss=None a list of two tensors is one batch or two: expected (x, y) for "
            "module(x, y), or [(x, None), (y, None)] for two batches"
        )
    return [data] if single or two_tensors else data


class Data:
    """What the user gave, one batch after the other at every reading.

    alone: whether the module returns its loss. first: the first batch of the first reading. layout:
    how it is cut; None where the network takes no fewer examples. counts: examples of each batch.
    rule, numbers, total: what a part of a batch weighs, what each batch weighs (empty where that
    may change from reading to reading), and all of them together; set by `Weigher`.
    """

    def __init__(self, given: Any, alone: bool, settings: Settings) -> None:
        self.settings = settings
        self.alone = alone
        self.stream: Callable[[], None] = lambda: None
        self.given, self.first = self._read(given)
        self.listed = isinstance(self.given, list)
        self.counts: list[int] = []
        self.rule: Rule | None = None
        self.numbers: list[float] = []
        self.total = 1.0
        self.totals: dict[str, float] = {}
        """What all data weigh, by each rule that agrees with the losses of parts."""
        self.layout: Layout | None = None
        self.why_uncut = ""
        self.tried = 1
        """Examples of the first call of the network."""
        self.whole = False
        """Whether batches are not cut, since their loss is not a mean over their parts."""
        self.evaluated: int | None = None
        """Examples of the largest piece whose loss is evaluated; None: whole batches."""
        self.passes: dict[str, float] = {}
        """The loss of the first pass, by what it was made for."""

    # ------------------------------------------------------------------ read

    def _read(self, data: Any) -> tuple[Any, Batch]:
        """The batches, kept where they are small or a list, and the first."""
        found = as_batches(data, self.alone)
        used = 0
        batches = []
        for batch in self._batches(found):
            batches.append(batch)
            used += size_in_bytes(batch)
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
        return iter(self.given) if self.listed else self._batches(self.given)

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

    def find_layout(self, run: Callable[[Batch], T]) -> tuple[Batch, T] | None:
        """Finds how batches are cut, by running some examples of the first, at least one fewer;
        these, and what they gave: None for a loss that is no scalar."""
        for layout in layouts(self.first, self.settings.batch_dim):
            self.tried = max(1, min(CHECKED, layout.examples - 1))
            given = None
            try:
                some = layout.cut(self.first, 0, self.tried)
                given = some, run(some)
            except NotScalar:
                pass
            except torch.OutOfMemoryError:
                raise
            except (MeasurementError, RuntimeError) as error:  # the network takes no such part
                self.why_uncut = first_line(error)
                if layout.examples > 1:
                    continue
            self.layout = layout
            return given
        return None

    def layout_of(self, batch: Batch) -> Layout | None:
        """How a batch is cut: as the first is."""
        if self.layout is None or batch is self.first:
            return self.layout
        return next(layouts(batch, self.settings.batch_dim, self.layout.kind), None)

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

    def some(self, batch: Batch, start: int, most: int) -> Batch:
        """At most so many examples of a batch from one on; all where it cannot be cut."""
        layout = self.layout_of(batch)
        if layout is None or (start == 0 and most >= layout.examples):
            return batch
        return layout.cut(batch, start, min(start + most, layout.examples))

    def few(self, most: int) -> Batch:
        """The first examples of the first batch."""
        return self.some(self.first, 0, most)

    def spread(self, few: int) -> Batch:
        """A few examples at even distances all over the data: of several batches where these are
        listed and alike."""
        if self.layout is None:
            return self.first
        if self.listed and len(self.given) > 1:
            count = len(self.given)
            some = min(few, count)
            places = [(2 * k + 1) * count // (2 * some) for k in range(some)]
            if (found := self._joined([self.given[i] for i in places], few)) is not None:
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

    # ------------------------------------------------------------------ with weights

    @property
    def examples(self) -> int:
        return sum(self.counts)

    def weighed(self) -> Iterator[tuple[Batch, float]]:
        """Every batch with its share of the mean."""
        for i, batch in enumerate(self):
            weight = self.numbers[i] if self.numbers else self._weight(batch)
            yield batch, weight / self.total

    def _weight(self, part: Batch) -> float:
        assert self.rule is not None
        return self.rule(part)

    def pieces(self, chunk: int | None) -> Iterator[Piece]:
        """All batches, in pieces of at most `chunk` examples, with their weights."""
        for i, (batch, share) in enumerate(self.weighed()):
            if share == 0:
                continue
            if chunk is None or chunk >= self.count(batch):
                yield Piece((i, 0), batch, share)
                continue
            parts = list(self.require_layout(batch).pieces(batch, chunk))
            sizes = [self._weight(part) for part in parts]
            for k, (part, size) in enumerate(zip(parts, sizes, strict=True)):
                if size > 0:
                    yield Piece((i, k), part, share * size / sum(sizes))

    def compare_pass(self, kind: str, losses: Iterable[float], eps: float) -> None:
        """Raises ValueError where the sum of the weighted losses of a pass over all data is not
        that of the first pass of its kind: a loader may draw at random. eps: the largest of the
        variables."""
        now = math.fsum(losses)
        first = self.passes.setdefault(kind, now)
        if self.settings.check and abs(now - first) > 64 * eps * max(abs(first), FITTED):
            text = CHANGED if self.listed else DRAWN
            raise MeasurementError(text.format(first, now))
