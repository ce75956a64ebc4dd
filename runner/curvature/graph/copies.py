"""Copies of the user's objects that may hold tensors of a computation: a module that keeps its last output."""

from __future__ import annotations

import contextlib
import copy
from typing import Any, TypeVar

from torch import Tensor
from torch.overrides import TorchFunctionMode

from runner.curvature.graph.errors import MeasurementError

T = TypeVar("T")


class _WithoutGraphs(TorchFunctionMode):
    """torch refuses to deep-copy a tensor that is the result of a computation; its numbers alone can be copied."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
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
            f"{type(value).__name__} cannot be copied, as another precision needs: {type(error).__name__}: {error}. "
            "Build it in that precision"
        ) from error


def copy_of_object(value: Any) -> Any:
    """A copy of what a call may change: any object but numbers, strings and functions (the cache of a language model).
    An object that refuses to be copied is given as it is."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes) or callable(value):
        return value
    with contextlib.suppress(MeasurementError):
        return deep_copy(value)
    return value
