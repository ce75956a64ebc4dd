"""The batch of a module as one tensor with one row per example, and back.

A module may take several tensors, masks and keyword arguments; a graph has one input. One tensor stays itself (its
examples moved to dimension 0). Several are written side by side into one row per example; tensors that belong to no
example (a causal mask, positions) and values that are not tensors are kept as constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.tensors import (
    TreeSpec,
    copy_of_object,
    tree_flatten_with_path,
    tree_unflatten,
)


@dataclass(frozen=True)
class Layout:
    """Where a tensor keeps its examples: along dimension `dim`, `rows` consecutive entries each, of `ndim` dimensions.

    >>> Layout(dim=1, rows=1, ndim=3).encode(torch.zeros(7, 2, 5)).shape  # (sequence, batch, width), as in nn.LSTM
    torch.Size([2, 7, 5])
    """

    dim: int
    rows: int
    ndim: int

    @classmethod
    def between(cls, first: torch.Size, n: int, second: torch.Size, m: int) -> Layout | None:
        """The layout of an output of shape `first` at n examples and `second` at m != n; None when there is none."""
        if len(first) != len(second):
            return None
        differing = [d for d in range(len(first)) if first[d] != second[d]]
        if len(differing) != 1:
            return None
        (d,) = differing
        rows, rest = divmod(first[d], n)
        return cls(d, rows, len(first)) if rows and not rest and second[d] == rows * m else None

    def encode(self, t: Tensor) -> Tensor:
        """The same numbers with one row per example, (B, d, ...)."""
        t = t.movedim(self.dim, 0) if self.dim else t
        t = t.unflatten(0, (-1, self.rows)) if self.rows > 1 else t
        return t.unsqueeze(1) if t.dim() == 1 else t

    def decode(self, t: Tensor) -> Tensor:
        """The inverse of encode."""
        t = t.flatten(0, 1) if self.rows > 1 else t.squeeze(1) if self.ndim == 1 else t
        return t.movedim(0, self.dim).contiguous() if self.dim else t

    def shape(self, shape: tuple[int, ...], n: int) -> tuple[int, ...]:
        """`shape` for n examples."""
        return (*shape[: self.dim], n * self.rows, *shape[self.dim + 1 :])

    @property
    def plain(self) -> bool:
        """Whether encode changes nothing."""
        return self.dim == 0 and self.rows == 1 and self.ndim > 1


@dataclass(frozen=True)
class _Part:
    """One tensor among the examples: its place in the tree, its layout, type, and columns of the packed row."""

    index: int
    name: str
    dim: int
    rows: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    columns: slice


def arguments_of(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) of a batch's input: a tensor, a tuple of positional arguments, a dict of keyword arguments, or
    (tuple, dict) for both."""
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, tuple | list):
        if len(given) == 2 and isinstance(given[0], tuple | list) and isinstance(given[1], Mapping):
            return tuple(given[0]), dict(given[1])
        return tuple(given), {}
    return (given,), {}


class Examples(nn.Module):
    """A tree of arguments as one tensor, row b for example b, and back.

    Constants that are tensors are buffers, so that a copy in another dtype has them too. several: tensors may have
    several rows for each example, as the targets of all tokens, (B * S,).
    """

    def __init__(
        self,
        tree: Any,
        batch: int,
        batch_dim: int,
        shared: Iterable[str] = (),
        several: bool = False,
    ) -> None:
        super().__init__()
        found, self.spec = _flatten(tree)
        self.batch = batch
        asked = set(shared)
        unknown = asked - {name for name, _ in found}
        if unknown:
            raise MeasurementError(
                f"shared names {sorted(unknown)}: the batch has {[name for name, _ in found]}"
            )
        self.constants: dict[int, Any] = {}
        self.shared_names: dict[int, str] = {}
        self.parts: list[_Part] = []
        start = 0
        for i, (name, leaf) in enumerate(found):
            place = None if name in asked else example_dim(leaf, batch, batch_dim, several)
            if place is None:
                if isinstance(leaf, Tensor):
                    self.register_buffer(f"shared{i}", leaf.detach(), persistent=False)
                    self.shared_names[i] = name
                else:
                    self.constants[i] = leaf
                continue
            dim, rows = place
            shape = tuple(_rows_first(leaf, dim, rows).shape[1:])
            size = leaf.numel() // batch
            self.parts.append(
                _Part(i, name, dim, rows, shape, leaf.dtype, slice(start, start + size))
            )
            start += size
        if not self.parts:
            raise MeasurementError(
                f"expected a tensor with {batch} examples, found none in {[name for name, _ in found]}"
            )

    def pack(self, tree: Any) -> Tensor:
        """The examples of `tree` as one tensor. Raises ValueError when a number would be rounded on the way, and for a
        batch that differs from the traced one in what belongs to no example, or in the shape of several parts."""
        leaves = [leaf for _, leaf in _flatten(tree)[0]]
        fixed = self.constants | {i: getattr(self, f"shared{i}") for i in self.shared_names}
        same = len(leaves) == len(fixed) + len(self.parts) and not any(
            _differ(v, leaves[i]) for i, v in fixed.items()
        )
        moved = (
            [_rows_first(leaves[p.index].detach(), p.dim, p.rows) for p in self.parts]
            if same
            else []
        )
        if not same or (
            len(moved) > 1
            and any(t.shape[1:] != p.shape for t, p in zip(moved, self.parts, strict=True))
        ):
            raise MeasurementError(
                "the batch differs from the traced one in more than its examples: trace this one"
            )
        if len(moved) == 1:
            return moved[0]
        floating = [t.dtype for t in moved if t.is_floating_point()]
        carrier = torch.int64
        for dtype in floating:
            carrier = torch.promote_types(carrier, dtype)
        for t, part in zip(moved, self.parts, strict=True):
            if not torch.equal(t.to(carrier).to(t.dtype), t):
                raise MeasurementError(
                    f"input {part.name!r} of type {t.dtype} does not fit into {carrier}, in which the inputs are "
                    "carried together: use float64 for the floating inputs"
                )
        return torch.cat([t.to(carrier).reshape(len(t), -1) for t in moved], 1)

    def unpack(self, x: Tensor) -> Any:
        """The tree with the examples of x, in x's precision."""
        leaves: dict[int, Any] = {
            i: copy_of_object(constant) for i, constant in self.constants.items()
        }
        leaves |= {i: getattr(self, f"shared{i}").clone() for i in self.shared_names}
        for part in self.parts:
            t = x if len(self.parts) == 1 else x[:, part.columns].unflatten(1, part.shape or (1,))
            if len(self.parts) > 1:
                t = t if part.shape else t.squeeze(1)
                t = t if part.dtype.is_floating_point else t.to(part.dtype)
            t = t.flatten(0, 1) if part.rows > 1 else t
            leaves[part.index] = t.movedim(0, part.dim).contiguous() if part.dim else t
        return tree_unflatten([leaves[i] for i in range(len(leaves))], self.spec)

    def refuse_rounding(self, one: Tensor, other: Tensor) -> None:
        """Raises MeasurementError where whole numbers among the examples are others in another precision."""
        for part in self.parts if len(self.parts) > 1 else ():
            if not part.dtype.is_floating_point:
                before, after = (t[:, part.columns].to(part.dtype) for t in (one, other))
                if not torch.equal(before, after):
                    raise MeasurementError(
                        f"whole numbers next to floating ones ({part.name!r}) do not fit into {other.dtype}: "
                        "trace a copy of the module in that type"
                    )

    def ambiguous(self) -> list[str]:
        """Square matrices taken for one row per example, though they could be one mask for all of them."""
        return [part.name for part in self.parts[1:] if part.shape == (self.batch,)]


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.shape != getattr(other, "shape", None) or not bool(
            ((one == other.to(one)) | (one != one)).all()
        )
    return (
        isinstance(one, int | float | str)
        and one == one
        and (isinstance(other, Tensor) or one != other)
    )


def _flatten(tree: Any) -> tuple[list[tuple[str, Any]], TreeSpec]:
    """Leaves with their names: "0" or "mask" for an argument, "0.mask" inside one."""
    found, spec = tree_flatten_with_path(tree)
    return [(path_name(path), leaf) for path, leaf in found], spec


def names_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """One name, or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def path_name(path: tuple[Any, ...]) -> str:
    """The name of a leaf of (args, kwargs): "0" or "mask" for an argument, "0.mask" inside one."""
    keys = [getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in path]
    return (
        ".".join(str(key) for key in keys[1:]) or "0"
    )  # the first key only tells args from kwargs


def example_dim(leaf: Any, batch: int, batch_dim: int, several: bool) -> tuple[int, int] | None:
    """Dimension of a tensor's examples, and how many entries of it each has; None for what belongs to no example."""
    if not isinstance(leaf, Tensor):
        return None
    for dim in (batch_dim, 0):
        if leaf.dim() > dim and leaf.shape[dim] == batch:
            return dim, 1
    return (
        (0, leaf.shape[0] // batch)
        if several and leaf.dim() and leaf.shape[0] % batch == 0
        else None
    )


def _rows_first(leaf: Tensor, dim: int, rows: int) -> Tensor:
    moved = leaf.movedim(dim, 0) if dim else leaf
    return moved.unflatten(0, (-1, rows)) if rows > 1 else moved


def count_examples(tree: Any, batch_dim: int, shared: Iterable[str] = ()) -> int:
    """B of the first tensor that is not among the `shared` ones. Raises ValueError when there is none."""
    apart = set(shared)
    for name, leaf in _flatten(tree)[0]:
        if isinstance(leaf, Tensor) and leaf.dim() and name not in apart:
            if leaf.dim() <= batch_dim:
                raise MeasurementError(
                    f"input {name!r} has shape {tuple(leaf.shape)}: it has no dimension {batch_dim}"
                )
            return leaf.shape[batch_dim]
    raise MeasurementError("expected a tensor among the inputs of the batch, found none")
