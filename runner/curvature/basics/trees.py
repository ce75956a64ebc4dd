"""Trees, copies and comparison of tensors.

Trees are torch's own, in which dataclasses and dictionaries of other classes are opened as well:
outputs of language models are dataclasses, dictionaries or both. torch takes objects of a class
that it does not know for leaves, so that the tensors inside would count as constants.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import TreeSpec, tree_unflatten

from runner.curvature.basics.errors import MeasurementError


class _Opened:
    """Stands for an object in a tree; it is rebuilt as an object of its own class."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _opens(value: Any) -> bool:
    known = dataclasses.is_dataclass(value) or isinstance(value, dict | SimpleNamespace)
    return known and not isinstance(value, type)


def _fields(value: Any) -> tuple[list[str], list[Any]]:
    """Names of the attributes, and keys of the items."""
    names = []
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value)]
    names = [name for name in names if hasattr(value, name)]
    names += getattr(value, "__dict__", ())
    keys = list(value) if isinstance(value, dict) else []
    return list(dict.fromkeys(names)), keys


def _take(node: _Opened) -> tuple[list[Any], tuple[type, tuple, tuple]]:
    names, keys = _fields(node.value)
    found = [getattr(node.value, name) for name in names]
    found += [dict.__getitem__(node.value, key) for key in keys]
    return [_open(part) for part in found], (type(node.value), tuple(names), tuple(keys))


def _rebuild(parts: Iterable[Any], context: tuple[type, tuple, tuple]) -> Any:
    kind, names, keys = context
    left = iter(parts)
    known: Any = kind  # these have a constructor of their own
    twin = (
        known.__new__(known) if issubclass(kind, dict | SimpleNamespace) else object.__new__(kind)
    )
    for name in names:
        object.__setattr__(twin, name, next(left))
    for key in keys:
        owner: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
        owner.__setitem__(twin, key, next(left))
    return twin


def _take_with_keys(node: _Opened) -> tuple[list[Any], Any]:
    parts, context = _take(node)
    paths = [*map(pytree.GetAttrKey, context[1]), *map(pytree.MappingKey, context[2])]
    return list(zip(paths, parts, strict=True)), context


pytree.register_pytree_node(_Opened, _take, _rebuild, flatten_with_keys_fn=_take_with_keys)


def _open(value: Any) -> Any:
    leaves, spec = pytree.tree_flatten(value)
    if not any(map(_opens, leaves)):
        return value
    return tree_unflatten([_Opened(leaf) if _opens(leaf) else leaf for leaf in leaves], spec)


_LEAF = pytree.tree_flatten(None)[1]


def tree_flatten(
    value: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], TreeSpec]:
    if isinstance(value, Tensor):  # the most frequent tree, quickly
        return [value], _LEAF
    return pytree.tree_flatten(_open(value), is_leaf)


def tree_flatten_with_path(value: Any) -> tuple[list[tuple[Any, Any]], TreeSpec]:
    return pytree.tree_flatten_with_path(_open(value))


def tree_leaves(value: Any) -> list[Any]:
    return tree_flatten(value)[0]


def tree_map(function: Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    leaves, spec = tree_flatten(value)
    return tree_unflatten([function(leaf) for leaf in leaves], spec)


def in_dtype(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Real numbers in `dtype`, complex ones in its complex counterpart, others as they are."""
    if t.is_complex():
        return t.to(dtype.to_complex())
    return t.to(dtype) if t.is_floating_point() else t


def slices_of(sizes: Mapping[K, int]) -> dict[K, slice]:
    """Places of pieces of these sizes, one after another."""
    slices = {}
    start = 0
    for name, size in sizes.items():
        slices[name] = slice(start, start + size)
        start += size
    return slices


K = TypeVar("K")
T = TypeVar("T")


class _WithoutGraphs(TorchFunctionMode):
    """torch refuses to deep-copy a tensor that is the result of a computation; its numbers alone
    can be copied."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func is Tensor.__deepcopy__ and not args[0].is_leaf:
            tensor, memo = args
            return memo.setdefault(id(tensor), tensor.detach().clone())
        return func(*args, **(kwargs or {}))


def deep_copy(value: T, memo: dict[int, Any] | None = None) -> T:
    """copy.deepcopy, in which a tensor with a graph becomes a copy of its numbers.

    >>> import torch
    >>> held = {"last": torch.ones(2, requires_grad=True) * 3}
    >>> deep_copy(held)["last"].requires_grad
    False

    Raises MeasurementError for what refuses to be copied.
    """
    try:
        with _WithoutGraphs():
            return copy.deepcopy(value, memo)
    except Exception as error:
        raise MeasurementError(
            f"{type(value).__name__} cannot be copied, as another precision needs: "
            f"{type(error).__name__}: {error}. Build it in that precision"
        ) from error


def copy_of_object(value: Any) -> Any:
    """A copy of what a call may change: any object but numbers, strings and functions (the cache of
    a language model). An object that refuses to be copied is given as it is."""
    if (
        value is None
        or isinstance(value, bool | int | float | complex | str | bytes)
        or callable(value)
    ):
        return value
    with contextlib.suppress(MeasurementError):
        return deep_copy(value)
    return value


def tolerance(dtype: torch.dtype) -> float:
    """Relative; 2e-12 in float64, 1e-4 in float32 (roundings grow through deep networks), 8
    roundings in half."""
    eps = torch.finfo(dtype).eps
    return min(1e4 * eps, max(8 * eps, 1e-4))


def alike(a: Tensor, b: Tensor) -> bool:
    """Equal shapes, and values that differ by at most `tolerance` of the largest; integers must be
    equal."""
    if a.shape != b.shape:
        return False
    if not b.is_floating_point() or not a.numel():
        return torch.equal(a, b)
    return bool((a - b).abs().max() <= tolerance(b.dtype) * b.abs().max())
