"""Batches of examples: how many each has, how they are cut into pieces, and what part of the mean each piece is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.tracing.batches import arguments_of, count_examples, example_dim, path_name
from runner.curvature.graph.tree import tree_flatten, tree_flatten_with_path, tree_leaves, tree_unflatten

Batch = tuple[Any, Any]
Place = tuple[int, int]
"""(batch, piece of it)."""


@dataclass(frozen=True)
class Rows:
    """Where the tensors of a batch keep their examples: dimension `batch_dim` or the first one, one entry each; of a
    target also several consecutive ones (all tokens of an example, as (B * S,)). shared: names of inputs that belong to
    no example."""

    batch_dim: int = 0
    shared: tuple[str, ...] = ()

    def count(self, batch: Batch) -> int:
        """Examples of a batch: entries of the first tensor of its input that belongs to examples, else of its target.

        Raises MeasurementError when there is no tensor.
        """
        given = arguments_of(batch[0])
        if any(isinstance(t, Tensor) and t.is_nested for t in tree_leaves((given, batch[1]))):
            raise MeasurementError("the data have a nested tensor, which has no rows to cut: give a padded one")
        if any(isinstance(t, Tensor) and t.dim() for t in tree_leaves(given)):
            return count_examples(given, self.batch_dim, self.shared)
        return count_examples(((batch[1],), {}), self.batch_dim)

    def ambiguous(self, batch: Batch) -> list[str]:
        """Names of square inputs after the first that could be a mask for all examples, or a row for each."""
        count = self.count(batch)
        found = tree_flatten_with_path(arguments_of(batch[0]))[0]
        tensors = [(path_name(path), t) for path, t in found if isinstance(t, Tensor)]
        return [n for n, t in tensors[1:] if tuple(t.shape) == (count, count) and n not in self.shared]

    def cut(self, batch: Batch, size: int | None) -> list[Batch]:
        """The batch in pieces of `size` examples, in order. What has no row for each example is in every piece.

        Raises MeasurementError for a target that has none.
        """
        count = self.count(batch)
        if size is None or size >= count:
            return [batch]
        given, target = batch
        if not any(example_dim(t, count, self.batch_dim, True) for t in tree_leaves(target)):
            shapes = [tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__ for t in tree_leaves(target)]
            raise MeasurementError(
                f"a batch of {count} examples has the target {shapes}, without a row (or several) for each: it cannot "
                "be split to fit memory_budget. Say batch_dim=..., or raise memory_budget"
            )
        parts = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        return [(self._input(given, part, count), self._target(target, part, count)) for part in parts]

    def spread(self, batch: Batch, size: int) -> Batch:
        """`size` examples from the first to the last, evenly spread over the batch."""
        count = self.count(batch)
        index = torch.linspace(0, count - 1, size).round().long()
        return self._input(batch[0], index, count), self._target(batch[1], index, count)

    def _input(self, given: Any, part: slice | Tensor, count: int) -> Any:
        args, kwargs = arguments_of(given)
        found, spec = tree_flatten_with_path((args, kwargs))
        leaves = [
            leaf if path_name(path) in self.shared else self._rows(leaf, part, count, False) for path, leaf in found
        ]
        return tree_unflatten(leaves, spec)

    def _target(self, target: Any, part: slice | Tensor, count: int) -> Any:
        leaves, spec = tree_flatten(target)
        return tree_unflatten([self._rows(leaf, part, count, True) for leaf in leaves], spec)

    def _rows(self, leaf: Any, part: slice | Tensor, count: int, several: bool) -> Any:
        place = example_dim(leaf, count, self.batch_dim, several)
        if place is None:
            return leaf
        dim, rows = place
        if isinstance(part, Tensor):
            return leaf.unflatten(dim, (count, rows)).index_select(dim, part.to(leaf.device)).flatten(dim, dim + 1)
        return leaf.narrow(dim, part.start * rows, (part.stop - part.start) * rows)


class Batches:
    """The data of an operator: a list, or a loader that gives the same batches whenever it is read.

    chunk: examples of the largest piece, None for whole batches. Raises MeasurementError for data without examples.
    """

    def __init__(self, data: Iterable[Batch], rows: Rows, budget: int) -> None:
        self.rows = rows
        whole: Any = [data] if _one_batch(data) else data
        self.data: Iterable[Batch] = whole if isinstance(whole, Sequence) else kept(whole, budget)
        self.counts = [rows.count(batch) for batch in self.data]
        if not self.counts or min(self.counts) == 0:
            raise MeasurementError("the data are empty: expected at least one batch with at least one example")
        self.examples = sum(self.counts)
        self.chunk: int | None = None

    def __len__(self) -> int:
        """Number of pieces."""
        size = self.chunk
        return sum(1 if size is None else -(-count // size) for count in self.counts)

    def pieces(self) -> Iterator[tuple[Place, Batch, float]]:
        """((batch, piece), input and target, share of all examples)."""
        for i, batch in enumerate(self.data):
            yield from self.pieces_of(i, batch)

    def pieces_of(self, i: int, batch: Batch) -> Iterator[tuple[Place, Batch, float]]:
        """The pieces of batch i."""
        for j, piece in enumerate(self.rows.cut(batch, self.chunk)):
            count = self.counts[i] if self.chunk is None else min(self.chunk, self.counts[i] - j * self.chunk)
            yield (i, j), piece, count / self.examples

    def batch(self, i: int) -> Batch:
        """Batch i."""
        if isinstance(self.data, Sequence):
            return self.data[i]
        return next(itertools.islice(iter(self.data), i, None))


def _one_batch(data: Any) -> bool:
    """Whether the data are one (input, target), not a pair of batches."""
    return isinstance(data, tuple) and len(data) == 2 and not isinstance(data[1], tuple | list)


def kept(data: Iterable[Batch], budget: int) -> Iterable[Batch]:
    """The batches as a list where they fit the budget, which reads a loader once; else the loader itself."""
    found, used = [], 0
    for batch in data:
        found.append((batch[0], batch[1]))
        used += sum(t.numel() * t.element_size() for t in tree_leaves(batch) if isinstance(t, Tensor))
        if used > budget:
            if iter(data) is data:
                raise MeasurementError(
                    "data can be read only once and is too large to keep: give a list or a DataLoader"
                )
            return data
    return found
