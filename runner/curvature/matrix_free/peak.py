"""Bytes of the tensors that a computation makes and that are alive at the same time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from runner.curvature.graph.errors import MeasurementError
from runner.curvature.graph.modes import Watch


class PeakBytes(Watch):
    """`peak`: the most bytes of storages made inside the context that were alive at once, backward passes included.

    >>> import torch
    >>> with PeakBytes() as counted:
    ...     kept = torch.ones(10)
    ...     _ = kept + 1
    >>> counted.peak
    80
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, Tensor):
                self._enter(value, made=False)
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self._enter(value, made=True)
        self.peak = max(self.peak, self.live)
        return out

    def _enter(self, value: Tensor, made: bool) -> None:
        storage = value.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        size = storage.nbytes() if made else 0
        self.live += size
        weakref.finalize(storage, self._leave, key, size)

    def _leave(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def peak_bytes(function: Callable[[], object]) -> int:
    """Of one call."""
    with PeakBytes() as counted:
        function()
    return counted.peak


def allocations(function: Callable[[], object]) -> list[int]:
    """Bytes alive after every allocation and release of torch's allocators during a call, next to those before it.

    Unlike PeakBytes it sees what an operation needs inside, and looks on where torch.func transforms are nested, in
    which a dispatch mode ends the process (torch 2.13). Raises MeasurementError while a profiler runs.

    >>> import torch
    >>> x = torch.ones(10)
    >>> allocations(lambda: x.exp().sin())  # the first is released once the second is there
    [40, 80, 40, 0]
    """
    from torch.autograd import _disable_profiler_legacy, _enable_profiler_legacy, profiler_legacy

    try:
        _enable_profiler_legacy(profiler_legacy.profile(profile_memory=True).config())
    except RuntimeError as error:
        raise MeasurementError(
            "a profiler is running, and the memory of products is found with torch's own: build the operator before it"
        ) from error
    try:
        function()
    finally:
        records = _disable_profiler_legacy()
    live, found = 0, []
    for event in (event for thread in records for event in thread if event.kind() == "memory_alloc"):
        live += event.cpu_memory_usage() + (event.cuda_memory_usage() if hasattr(event, "cuda_memory_usage") else 0)
        found.append(live)
    return found
