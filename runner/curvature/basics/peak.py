"""Bytes of the tensors that a computation makes and that are alive at the same time, and bytes that
are free."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from runner.curvature.basics.errors import MeasurementError


def allocations(function: Callable[[], object]) -> list[int]:
    """Bytes alive after every allocation and release of torch's allocators during a call, next to
    those before it.

    What an operation needs inside is among them, and torch.func transforms may be nested, in which
    a dispatch mode ends the process (torch 2.13). Raises MeasurementError while a profiler runs.

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
            "a profiler is running, and the memory of products is found with torch's own: "
            "build the operator before it"
        ) from error
    collects = gc.isenabled()
    gc.disable()  # what others left in cycles would be released meanwhile, or not, by chance
    try:
        function()
    finally:
        records = _disable_profiler_legacy()
        if collects:
            gc.enable()
    live = 0
    found = []
    for event in (
        event for thread in records for event in thread if event.kind() == "memory_alloc"
    ):
        live += event.cpu_memory_usage() + (
            event.cuda_memory_usage() if hasattr(event, "cuda_memory_usage") else 0
        )
        found.append(live)
    return found


def free_memory(device: torch.device) -> float:
    """Bytes that are free on a device; infinity where the system does not tell."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    with suppress(OSError), Path("/proc/meminfo").open() as lines:
        for line in lines:
            name, _, rest = line.partition(":")
            if name == "MemAvailable":
                return 1024.0 * int(rest.split()[0])
    return math.inf
