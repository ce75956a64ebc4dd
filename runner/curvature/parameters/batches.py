"""Batches of examples: how many each has, how they are cut into pieces, and what part of the mean each piece is.

`first_look` and `check_loss` refuse what would make the numbers wrong: a loss that is no mean, random draws, and
parameters that the loss holds outside the module.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from runner.curvature.graph.errors import (
    MeasurementError,
    batch_failure,
    describe,
    explained,
    first_line,
)
from runner.curvature.graph.reachable import weighted_sum
from runner.curvature.graph.state import refuse_draws
from runner.curvature.graph.tensors import (
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_unflatten,
)
from runner.curvature.graph.tracing.batches import (
    arguments_of,
    count_examples,
    example_dim,
    path_name,
)
from runner.curvature.graph.tracing.criterion import refuse_broadcast
from runner.curvature.parameters.model import Model, Named

SUM = "the loss is a sum over the examples: use reduction='mean'"
SHARED = "; name inputs that belong to no example: shared=[...]"
Batch = tuple[Any, Any]
Place = tuple[int, int]
"""(batch, piece of it)."""


@dataclass(frozen=True)
class Rows:
    """Where the tensors of a batch keep their examples: dimension `batch_dim` or the first one, one entry each; of a
    target also several consecutive ones (all tokens of an example, as (B * S,)). shared: names of inputs that belong to
    no example. whole: why batches cannot be cut."""

    batch_dim: int = 0
    shared: tuple[str, ...] = ()
    whole: str = ""

    def count(self, batch: Batch) -> int:
        """Examples of a batch: entries of the first tensor of its input that belongs to examples, else of its target.

        Raises MeasurementError when there is no tensor.
        """
        given = arguments_of(batch[0])
        if any(isinstance(t, Tensor) and t.is_nested for t in tree_leaves((given, batch[1]))):
            raise MeasurementError(
                "the data have a nested tensor, which has no rows to cut: give a padded one"
            )
        if any(isinstance(t, Tensor) and t.dim() for t in tree_leaves(given)):
            return count_examples(given, self.batch_dim, self.shared)
        return count_examples(((batch[1],), {}), self.batch_dim)

    def ambiguous(self, batch: Batch) -> list[str]:
        """Names of square inputs after the first that could be a mask for all examples, or a row for each."""
        count = self.count(batch)
        return [n for n, t in self._named_inputs(batch)[1:] if tuple(t.shape) == (count, count)]

    def _named_inputs(self, batch: Batch) -> list[tuple[str, Tensor]]:
        found = (
            (path_name(path), t) for path, t in tree_flatten_with_path(arguments_of(batch[0]))[0]
        )
        return [
            (name, t)
            for name, t in found
            if isinstance(t, Tensor) and t.dim() and name not in self.shared
        ]

    def refuse_one_row(self, batch: Batch) -> None:
        """Raises MeasurementError where the first input has one row and the others have more, of one number."""
        inputs = self._named_inputs(batch)
        others = {len(t) for _, t in inputs[1:]}
        if (
            self.batch_dim == 0
            and inputs
            and len(inputs[0][1]) == 1
            and len(others) == 1
            and others != {1}
        ):
            name = inputs[0][0]
            raise MeasurementError(
                f"input {name!r} has one row, the others have {max(others)}: say shared=[{name!r}]"
            )

    def cut(self, batch: Batch, size: int | None) -> list[Batch]:
        """The batch in pieces of `size` examples, in order. What has no row for each example is in every piece.

        Raises MeasurementError for a target that has none.
        """
        count = self.count(batch)
        if size is None or size >= count:
            return [batch]
        self._refuse_parts()
        given, target = batch
        tensors = [t for t in tree_leaves(target) if isinstance(t, Tensor)]
        if tensors and not any(example_dim(t, count, self.batch_dim, True) for t in tensors):
            shapes = [
                tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__
                for t in tree_leaves(target)
            ]
            raise MeasurementError(
                f"a batch of {count} examples has the target {shapes}, without a row (or several) for each: it cannot "
                "be split to fit memory_budget. Say batch_dim=..., or raise memory_budget"
            )
        parts = [slice(start, min(start + size, count)) for start in range(0, count, size)]
        return [
            (self._input(given, part, count), self._target(target, part, count)) for part in parts
        ]

    def spread(self, batch: Batch, size: int) -> Batch:
        """`size` examples from the first to the last, evenly spread over the batch."""
        self._refuse_parts()
        count = self.count(batch)
        index = torch.linspace(0, count - 1, size, device="cpu").round().long()
        return self._input(batch[0], index, count), self._target(batch[1], index, count)

    def _refuse_parts(self) -> None:
        if self.whole:
            raise IndexError(self.whole)

    def joined(self, one: Batch, other: Batch) -> Batch:
        """Two batches as one."""
        self._refuse_parts()
        count = self.count(one)

        def both(a: Any, b: Any, several: bool) -> Any:
            place = example_dim(a, count, self.batch_dim, several)
            return a if place is None else torch.cat((a, b), place[0])

        (named, given), (others, _) = (
            tree_flatten_with_path(arguments_of(batch[0])) for batch in (one, other)
        )
        (leaves, target), (other_leaves, _) = (tree_flatten(batch[1]) for batch in (one, other))
        pairs = zip(named, others, strict=True)
        inputs = [
            a if path_name(path) in self.shared else both(a, b, False)
            for (path, a), (_, b) in pairs
        ]
        targets = [both(a, b, True) for a, b in zip(leaves, other_leaves, strict=True)]
        return tree_unflatten(inputs, given), tree_unflatten(targets, target)

    def _input(self, given: Any, part: slice | Tensor, count: int) -> Any:
        args, kwargs = arguments_of(given)
        found, spec = tree_flatten_with_path((args, kwargs))
        leaves = [
            leaf if path_name(path) in self.shared else self._rows(leaf, part, count, False)
            for path, leaf in found
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
            return (
                leaf.unflatten(dim, (count, rows))
                .index_select(dim, part.to(leaf.device))
                .flatten(dim, dim + 1)
            )
        return leaf.narrow(dim, part.start * rows, (part.stop - part.start) * rows)


class Share(NamedTuple):
    """The data of one process. labels: the sum of what the losses of pieces divide by, NaN where it is not known;
    uneven: whether that is other than the number of all labels."""

    examples: int
    batches: int
    labels: float = 0.0
    uneven: bool = False


def _pair(batch: Batch) -> Batch:
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        found = f"{len(batch)} entries" if isinstance(batch, tuple | list) else type(batch).__name__
        raise MeasurementError(
            f"expected batches (input, target), found {found}: give [(x, y)] or a DataLoader of pairs"
        )
    return batch


class Batches:
    """The data of an operator: a list, or a loader that gives the same batches whenever it is read.

    chunk: examples of the largest piece, None for whole batches. Raises MeasurementError for data without examples.
    """

    def __init__(self, data: Iterable[Batch], rows: Rows, budget: int) -> None:
        self.rows = rows
        # One (input, target), not a pair of batches.
        single = (
            isinstance(data, tuple) and len(data) == 2 and not isinstance(data[1], tuple | list)
        )
        if not isinstance(data, Iterable):
            raise MeasurementError(
                f"expected data as (x, y), [(x, y), ...] or a DataLoader, found {describe(data)}"
            )
        whole: Any = [data] if single else list(data) if isinstance(data, Sequence) else data
        self.data: Iterable[Batch] = whole if isinstance(whole, Sequence) else kept(whole, budget)
        seen = [(rows.count(batch), self._sum(batch)) for batch in map(_pair, self.data)]
        self.counts, self._sums = [count for count, _ in seen], [total for _, total in seen]
        if not self.counts or min(self.counts) == 0:
            raise MeasurementError(
                "the data are empty: expected at least one batch with at least one example"
            )
        self.own = Share(sum(self.counts), len(self.counts))
        self.chunk: int | None = None
        self.uneven: int | None = None  # the first batch of which labels are ignored or weighted
        self._labels: dict[Place, float] = {}
        held = tree_leaves(self.data) if isinstance(self.data, Sequence) else []
        self._tensors = [t for t in held if isinstance(t, Tensor) and not t.is_inference()]
        self._versions = self._marks()
        self.weigh([self.own])

    def count_labels(self, labels: Callable[[Batch], tuple[float, bool] | None]) -> None:
        """labels(piece): the number that the loss of a piece divides by (NaN: several), and whether it is not that of
        all labels; None: it does not tell. What fails here is told by the checks."""
        found, self.uneven = {}, None
        try:
            for place, piece, _ in self.pieces():
                told = labels(piece)
                found[place] = math.nan if told is None else told[0]
                if told is None:
                    break
                if told[1] and self.uneven is None:
                    self.uneven = place[0]
        except Exception:  # of the user's code
            found[-1, -1] = math.nan
        self._labels, self.own = (
            found,
            Share(*self.own[:2], math.fsum(found.values()), self.uneven is not None),
        )

    def weigh(self, everyone: Sequence[Share], rank: int = 0) -> None:
        """Takes shares of the data of all processes, of which these are those of `rank`: by examples, or by labels
        where some are ignored or have weights. before: batches of the processes before this one."""
        self.examples, total = (
            sum(s.examples for s in everyone),
            math.fsum(s.labels for s in everyone),
        )
        self.before = sum(s.batches for s in everyone[:rank])
        uneven = total > 0 and any(s.uneven for s in everyone)
        self.shares = (
            {place: count / total for place, count in self._labels.items()} if uneven else {}
        )

    def share(self, i: int) -> float:
        """What part of the mean batch i is."""
        return math.fsum(share for _, _, share in self.pieces_of(i, self.batch(i)))

    def __len__(self) -> int:
        """Number of pieces."""
        size = self.chunk
        return sum(1 if size is None else -(-count // size) for count in self.counts)

    def pieces(self) -> Iterator[tuple[Place, Batch, float]]:
        """((batch, piece), input and target, share of all examples)."""
        for i, batch in enumerate(self.data):
            yield from self.pieces_of(i, batch)

    def pieces_of(self, i: int, batch: Batch) -> Iterator[tuple[Place, Batch, float]]:
        """The pieces of batch i, which may have another size at every reading."""
        whole = self.rows.count(batch)
        for j, piece in enumerate(self.rows.cut(batch, self.chunk)):
            count = whole if self.chunk is None else min(self.chunk, whole - j * self.chunk)
            share = self.shares.get((i, j), count / self.examples)
            if share > 0:  # of labels that are all ignored, the loss is NaN
                yield (i, j), piece, share

    def _sum(self, batch: Batch) -> float:
        """The sum of all numbers of a batch, with weights that differ within an example and not between examples; 0
        where the data are a sequence, which is the same whenever it is read."""
        if isinstance(self.data, Sequence):
            return 0.0
        total = 0.0
        for t in tree_leaves((batch[0], batch[1])):
            if isinstance(t, Tensor) and t.dim() > self.rows.batch_dim and not t.is_nested:
                columns = t.movedim(self.rows.batch_dim, 0).double().sum(0).flatten()
                total += float(
                    columns
                    @ torch.linspace(1, 2, len(columns), dtype=torch.float64, device="cpu").to(
                        columns
                    )
                )
        return total

    def _marks(self) -> list[tuple[int, float]]:
        """Versions, and sums where the memory is that of an array of numpy, which has no version."""
        shared = [
            t.layout == torch.strided and not t.untyped_storage().resizable() for t in self._tensors
        ]
        sums = [
            float(weighted_sum(t).nan_to_num()) if s else 0.0
            for t, s in zip(self._tensors, shared, strict=True)
        ]
        return [(t._version, s) for t, s in zip(self._tensors, sums, strict=True)]

    def refuse_changes_in_place(self) -> None:
        """Raises MeasurementError where a tensor of the data is not what it was."""
        if self._marks() != self._versions:
            raise MeasurementError(
                "the data have changed since this operator was built: build a new one"
            )

    def refuse_changes(self) -> None:
        """Raises MeasurementError for a loader that gives other data when it is read again, in any order."""
        if isinstance(self.data, Sequence):
            return
        again = list(map(self._sum, self.data))
        if self.shares and any(
            abs(a - b) > 1e-9 * abs(b) for a, b in zip(again, self._sums, strict=False)
        ):
            raise MeasurementError(
                "the loader changes its order, and labels are ignored or weighted: set shuffle=False"
            )
        if abs(math.fsum(again) - math.fsum(self._sums)) > 1e-9 * math.fsum(map(abs, self._sums)):
            raise MeasurementError(
                "the data differ from one reading to the next: give a list of batches, or a DataLoader without "
                "augmentation"
            )

    def batch(self, i: int) -> Batch:
        """Batch i."""
        if isinstance(self.data, Sequence):
            return self.data[i]
        return next(itertools.islice(iter(self.data), i, None))


def kept(data: Iterable[Batch], budget: int) -> Iterable[Batch]:
    """The batches as a list where they fit the budget, which reads a loader once; else the loader itself."""
    found, used = [], 0
    for batch in data:
        found.append(tuple(_pair(batch)))
        used += sum(
            t.numel() * t.element_size() for t in tree_leaves(batch) if isinstance(t, Tensor)
        )
        if used > budget:
            if iter(data) is data:
                raise MeasurementError(
                    "data can be read only once and is too large to keep: give a list or a DataLoader"
                )
            return data
    return found


def first_look(model: Model, parameters: Named, batch: Batch) -> float:
    """The loss. Raises MeasurementError for what no later check tells: a loss without a gradient, or with a sparse one,
    random draws, and a function that holds a parameter itself, so that replacing it in the module changes nothing."""
    known = dict(model.module.named_parameters())
    own = {k: known[k] for k in parameters if not known[k].is_inference()}
    frozen = [p for p in own.values() if not p.requires_grad]
    try:
        for p in frozen:
            p.requires_grad_()
        with model.differentiable():
            with refuse_draws("the module or the loss"):
                _, value = model.output_and_loss(parameters, batch)
            tensors = [*parameters.values(), *own.values()]
            grads: tuple[Tensor | None, ...] = ()
            if value.requires_grad:
                grads = torch.autograd.grad(value, tensors, allow_unused=True)
    finally:
        for p in frozen:
            p.requires_grad_(False)
    if not any(g is not None for g in grads[: len(parameters)]):
        raise MeasurementError(
            "the loss does not depend on the parameters by operations that autograd records: expected a loss without "
            ".detach(), .item() and torch.no_grad, and groups of parameters that it uses"
        )
    for name, g in zip(parameters, grads, strict=False):
        if g is not None and g.layout != torch.strided:
            raise MeasurementError(
                f"parameter {name!r} has a sparse gradient: expected a dense one; set sparse=False"
            )
    for name, g in zip(own, grads[len(parameters) :], strict=True):
        if g is not None:
            raise MeasurementError(
                f"the loss or the module holds parameter {name!r} itself, in a closure or an attribute, and would take "
                f"it for a constant: read it from the module at each call (module.get_parameter({name!r}))"
            )
    return float(value.detach())


def check_loss(
    model: Model,
    parameters: Named,
    rows: Rows,
    batch: Batch,
    chunk: int | None,
    needs_mean: str,
    rowwise: bool,
    known: float | None = None,
) -> None:
    """Raises MeasurementError for a loss that is not finite, random, a sum, of every output with every target, or,
    where the reason `needs_mean` is given, not the mean of the losses of the batch's halves, and of the pieces of
    `chunk` examples that it will be cut into. rowwise: the output must have its examples' rows in their order.
    known: the loss of an earlier evaluation."""
    with model.differentiable(graph=False):
        with explained(
            lambda error: batch_failure(tree_leaves(batch[0]), tree_leaves(batch[1]), error)
        ):
            output, value = model.output_and_loss(parameters, batch)
            whole = float(value)
        again = float(model.value(parameters, batch)) if known is None else known
        if not math.isfinite(whole):
            raise MeasurementError(
                f"the loss of a batch is not finite ({whole}): look at the weights and the data"
            )
        if abs(whole - again) > 1e-4 * abs(whole):
            raise MeasurementError(
                "two evaluations of the loss differ: it is random (call .eval(), remove the randomness), or the module "
                "keeps values from one call to the next (counters, hidden states: reset them in its forward pass)"
            )
        refuse_broadcast(model.loss, output, batch[1])
        count = rows.count(batch)
        first = next(iter(parameters.values()))
        if (
            abs(whole) < torch.finfo(first.dtype).eps
        ):  # of a perfect fit: zeros, whose sum is their mean, or rounding
            parameters = {k: 1.1 * p.detach() + 0.01 for k, p in parameters.items()}
            whole = float(model.value(parameters, batch))
            if not math.isfinite(whole):
                return
        for size in {max(1, (count + 1) // 2), min(chunk or count, count)} - {count}:
            try:
                pieces = rows.cut(batch, size)
                losses = [float(model.value(parameters, piece)) for piece in pieces]
                sizes: list[float] = [rows.count(piece) for piece in pieces]
                if needs_mean and not rowwise:
                    labels = [n for piece in pieces if (n := model.labels(parameters, piece))]
                    if any(uneven for _, uneven in labels) and not any(
                        math.isnan(number) for number, _ in labels
                    ):
                        sizes = [number for number, _ in labels]
            except Exception as error:  # of the user's code
                if not needs_mean:
                    return
                raise MeasurementError(
                    f"a part of a batch cannot be measured alone ({first_line(error)}); {needs_mean}{SHARED}"
                ) from error
            used = [(s, loss) for s, loss in zip(sizes, losses, strict=True) if s > 0]
            mean = sum(s * loss for s, loss in used) / sum(sizes)
            share = (
                1e-8
                if first.dtype == torch.float64
                else max(1e-4, 8 * torch.finfo(first.dtype).eps)
            )
            allowed = share * max((abs(t) for t in (*losses, whole) if t == t), default=0.0)
            if abs(whole - sum(loss for _, loss in used)) <= allowed < abs(mean - whole):
                raise MeasurementError(SUM)
            if (
                needs_mean and not abs(mean - whole) <= allowed
            ):  # also NaN: of labels that a loss leaves out
                raise MeasurementError(
                    "the loss of the batch is not the mean of its parts' losses (weights, or examples that depend on "
                    f"each other, or lie along another dimension: batch_dim=...); {needs_mean}{SHARED}"
                )
            if rowwise:
                _check_rows(model, parameters, batch, pieces[0], min(size, count), count)


def _check_rows(
    model: Model, parameters: Named, batch: Batch, half: Batch, size: int, count: int
) -> None:
    outputs = (tree_leaves(model.call(parameters, b[0])) for b in (half, batch))
    one, all_of_them = (
        next((t for t in o if isinstance(t, Tensor) and t.dim()), None) for o in outputs
    )
    if one is None or all_of_them is None:
        return
    expected = all_of_them[: len(all_of_them) * size // count]
    if one.shape != expected.shape or not torch.allclose(
        one, expected, rtol=1e-3, atol=1e-5 * float(one.abs().max())
    ):
        raise MeasurementError(
            f"the output {tuple(all_of_them.shape)} does not have the rows of its {count} examples in their order, so "
            "that the gradient of one example cannot be told: let the module return (B, ...)"
        )
