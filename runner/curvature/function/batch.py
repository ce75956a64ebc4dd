"""One batch: what the module and the loss get, and how it is cut along its examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from runner.curvature.basics.errors import MeasurementError
from runner.curvature.basics.trees import (
    copy_of_object,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

IGNORED = -100
"""The label that torch's losses leave out."""


class Batch(NamedTuple):
    """What the module gets, and what the loss gets next to its output."""

    input: Any
    target: Any


Rule = Callable[[Batch], float]
"""What a batch, or a part of one, weighs."""


def arguments_of(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) of a batch's input: a tensor, a tuple of positional arguments, a dict of
    keyword arguments, or (tuple, dict) for both."""
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, tuple | list):
        if len(given) == 2 and isinstance(given[0], tuple | list) and isinstance(given[1], Mapping):
            return tuple(given[0]), dict(given[1])
        return tuple(given), {}
    return (given,), {}


def fresh(tree: Any) -> Any:
    """A copy that a call may change: the caller's own stays as it is."""

    def copied(t: Any) -> Any:
        if isinstance(t, Tensor):
            return t.detach().clone().requires_grad_(t.requires_grad)
        return copy_of_object(t)

    return tree_map(copied, tree)


def as_batch(given: Any, alone: bool) -> Batch:
    """One batch. alone: the module returns its loss, and all is its input, except a target None."""
    if isinstance(given, Batch):
        return given
    if alone and not (_is_pair(given) and given[1] is None):
        return Batch(given, None)
    if not _is_pair(given):
        kind = type(given).__name__
        if isinstance(given, tuple | list):
            kind = f"a {kind} of {len(given)}"
        raise MeasurementError(f"expected a batch (input, target), found {kind}{use_of(given)}")
    return Batch(given[0], given[1])


def use_of(given: Any) -> str:
    """What to do with a dict that is given for a batch."""
    if not isinstance(given, Mapping):
        return ""
    return (
        ": give (batch, target) where a dict is the input alone, or loss=None, output='loss' where "
        "the module returns its loss"
    )


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2


def first_tensor(tree: Any) -> Tensor | None:
    """The first tensor with a dimension."""
    return next((t for t in tree_leaves(tree) if isinstance(t, Tensor) and t.dim()), None)


class Layout(NamedTuple):
    """How a batch is cut: its number of examples, for each leaf (dimension, rows of each example)
    or None, and which of the ways of `layouts` this is."""

    examples: int
    places: tuple[tuple[int, int] | None, ...]
    kind: int = 0

    @property
    def along_input(self) -> bool:
        """Whether the examples were counted in the input."""
        return self.kind < len(WAYS)

    def cut(self, batch: Batch, start: int, stop: int) -> Batch:
        """Examples start to stop."""
        return self._mapped(
            batch, lambda t, dim, rows: t.narrow(dim, rows * start, rows * (stop - start))
        )

    def _mapped(self, batch: Batch, part: Callable[[Tensor, int, int], Tensor]) -> Batch:
        """part(leaf, dimension, rows of each example) of the leaves that are cut."""
        leaves, spec = tree_flatten((batch.input, batch.target), _is_list)
        for i, place in enumerate(self.places):
            if place is None:
                continue
            leaf = leaves[i]
            if isinstance(leaf, list):
                leaves[i] = [leaf[k] for k in part(torch.arange(len(leaf)), *place).tolist()]
            else:
                leaves[i] = part(leaf, *place)
        return Batch(*tree_unflatten(leaves, spec))

    def doubled(self, batch: Batch) -> tuple[Batch, Layout]:
        """All examples twice."""
        return self.repeated(batch, 2), self._replace(examples=2 * self.examples)

    def repeated(self, batch: Batch, copies: int) -> Batch:
        """All examples, one copy of the batch after the other."""
        return self._mapped(batch, lambda t, dim, rows: torch.cat([t] * copies, dim))

    def joined(self, one: Batch, other: Batch) -> Batch | None:
        """The examples of two batches that are cut alike; None where their shapes, or what belongs
        to no example, differ."""
        leaves, spec = tree_flatten((one.input, one.target), _is_list)
        others, other_spec = tree_flatten((other.input, other.target), _is_list)
        if spec != other_spec:
            return None
        for i, (place, a, b) in enumerate(zip(self.places, leaves, others, strict=True)):
            try:
                if place is None:
                    same = torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)
                    if not same:
                        return None
                else:
                    leaves[i] = a + b if isinstance(a, list) else torch.cat([a, b], place[0])
            except (RuntimeError, TypeError, ValueError):  # of torch, or of an object of the user's
                return None
        return Batch(*tree_unflatten(leaves, spec))

    def rolled(self, batch: Batch) -> Batch:
        """The last example first."""
        return self._mapped(batch, lambda t, dim, rows: t.roll(rows, dim))

    def pieces(self, batch: Batch, size: int) -> Iterator[Batch]:
        """Pieces of at most `size` examples."""
        for start in range(0, self.examples, size):
            yield self.cut(batch, start, min(start + size, self.examples))

    def mixed(self, batch: Batch, size: int) -> Iterator[tuple[Batch, Layout]]:
        """Pieces of at most `size` examples from all over the batch, the same at every call: their
        order may tell what they are."""
        order = torch.randperm(self.examples, generator=torch.Generator().manual_seed(0))
        for chosen in order.tensor_split(-(-self.examples // size)):
            yield self.chosen(batch, chosen)

    def spread(self, batch: Batch, size: int) -> tuple[Batch, Layout]:
        """At most `size` examples at even distances."""
        size = min(size, self.examples)
        return self.chosen(batch, (2 * torch.arange(size) + 1) * self.examples // (2 * size))

    def chosen(self, batch: Batch, which: Tensor) -> tuple[Batch, Layout]:
        """The examples at these places."""

        def part(t: Tensor, dim: int, rows: int) -> Tensor:
            examples = t.unflatten(dim, (self.examples, rows))
            return examples.index_select(dim, which.to(t.device)).flatten(dim, dim + 1)

        return self._mapped(batch, part), self._replace(examples=len(which))


def layouts(batch: Batch, batch_dim: int = 0, kind: int | None = None) -> Iterator[Layout]:
    """Ways to cut a batch, the likeliest first, or the one of a kind: examples lie along
    `batch_dim` of the first tensor of the input, or there are as many as the target has rows."""
    counts: list[tuple[int, tuple[int, ...]]] = []
    first = first_tensor(batch.input)
    target = first_tensor(batch.target)
    if first is not None and first.dim() > batch_dim:
        count = first.shape[batch_dim]
        if isinstance(count, int):  # else that of a nested tensor, which differs from row to row
            counts.append((count, (batch_dim, 0)))
    if target is not None:
        counts.append((target.shape[0], (0, 1)))
    leaves, _ = tree_flatten((batch.input, batch.target), _is_list)
    inputs = len(tree_flatten(batch.input, _is_list)[0])
    tried: set[tuple[Any, ...]] = set()
    ways = [(*count, left_out) for count in counts for left_out in WAYS]
    for number, (count, dims, left_out) in enumerate(ways):
        places = []
        for i, leaf in enumerate(leaves):
            whole = i < inputs and leaf is not first and left_out(leaf, count)
            places.append(None if whole else _place(leaf, count, dims, i >= inputs))
        fits = kind in (None, number) and count > 0 and any(places[:inputs])
        if fits and (count, *places) not in tried:
            tried.add((count, *places))
            yield Layout(count, tuple(places), number)


def _nothing(leaf: Any, count: int) -> bool:
    """Inputs that belong to no example: none."""
    return False


def _masks(leaf: Any, count: int) -> bool:
    """Masks (B, B), one for all examples."""
    return isinstance(leaf, Tensor) and leaf.shape == (count, count)


def _others(leaf: Any, count: int) -> bool:
    """All but the first, such as a table in which the first is looked up."""
    return True


WAYS = (_nothing, _masks, _others)


def _place(leaf: Any, count: int, dims: Sequence[int], is_target: bool) -> tuple[int, int] | None:
    if not isinstance(leaf, Tensor | list):
        return None
    shape = leaf.shape if isinstance(leaf, Tensor) else (len(leaf),)
    for dim in dims:
        if len(shape) > dim and shape[dim] == count:
            return dim, 1
    if is_target and shape and shape[0] % count == 0:
        return 0, shape[0] // count
    return None


def _is_list(value: Any) -> bool:
    """A list of numbers or texts, such as lengths, may have one for each example."""
    plain = bool | int | float | str
    return isinstance(value, list) and bool(value) and all(isinstance(v, plain) for v in value)


def count_examples(batch: Batch, batch_dim: int = 0) -> int:
    """Rows of the first tensor of the input, else of the target; 1 where there is none."""
    for tree in (batch.input, batch.target):
        first = first_tensor(tree)
        if first is not None and first.dim() > batch_dim:
            return first.shape[batch_dim]
    return 1


def count_labels(batch: Batch) -> int:
    """Labels that are not ignored, or real numbers, of the first tensor of the target or of an
    input called "labels"; 0 without one."""
    labels = first_tensor(batch.target)
    if batch.target is None and isinstance(batch.input, Mapping):
        labels = batch.input.get("labels")
    if not isinstance(labels, Tensor):
        return 0
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        return labels.numel()
    return int((labels != IGNORED).sum())


def count_shifted(batch: Batch) -> int:
    """As `count_labels`, without the first of each row, which the losses of causal language models
    leave out."""
    labels = batch.target
    if batch.target is None and isinstance(batch.input, Mapping):
        labels = batch.input.get("labels")
    if not isinstance(labels, Tensor) or labels.dim() < 2:
        return 0
    return count_labels(Batch(None, labels[:, 1:]))


def size_in_bytes(tree: Any) -> int:
    """Of the tensors of a tree."""
    return sum(t.numel() * t.element_size() for t in tree_leaves(tree) if isinstance(t, Tensor))
