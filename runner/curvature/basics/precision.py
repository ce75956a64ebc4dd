"""Float32 means float32 while something is measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch.backends import cuda, cudnn, mkldnn

from runner.curvature.basics.interrupts import INTERRUPTS

_KINDS: Any = {cuda: ("matmul",), cudnn: ("conv", "rnn"), mkldnn: ("matmul", "conv", "rnn")}
_GET = torch._C._get_fp32_precision_getter
_ON_CPU = [partial(_GET, "mkldnn", kind) for kind in _KINDS[mkldnn]]
_FULL = ("none", "ieee")
_OLDER: tuple[tuple[Callable[[], Any], Callable[[Any], Any], Any], ...] = (
    (lambda: cudnn.allow_tf32, partial(setattr, cudnn, "allow_tf32"), False),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
)


class _Here(threading.local):
    """Whether this thread is inside of `full_precision`: a block within another does nothing."""

    inside = False


_HERE = _Here()
_LOCK = threading.Lock()
_INSIDE: list[Callable[[], None]] = []
"""Functions that restore the settings, one for each block that is inside, of all threads."""


@contextmanager
def full_precision() -> Iterator[None]:
    """While inside, float32 operations keep float32.

    TF32, torch's default for convolutions on a GPU, has relative errors of 1e-4 to 1e-2, and so has
    bfloat16, which autocast uses and torch.set_float32_matmul_precision allows.
    """
    if _HERE.inside:
        yield
        return
    with INTERRUPTS, _LOCK:
        _INSIDE.append(_INSIDE[-1] if _INSIDE else _set())
        _HERE.inside = True
    try:
        with ExitStack() as stack:
            for device in filter(torch.is_autocast_enabled, ("cpu", "cuda")):
                stack.enter_context(torch.autocast(device, enabled=False))
            yield
    finally:
        with INTERRUPTS, _LOCK:
            _HERE.inside = False
            put_back = _INSIDE.pop()
            if not _INSIDE:
                put_back()


def needs_settings(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether operations there need `full_precision`: never of float64, and on a CPU only where its
    library is told that less will do, or under autocast. Settings that a block of another thread
    puts back do not count."""
    if dtype == torch.float64 or _HERE.inside:
        return False
    if device.type != "cpu" or _INSIDE or torch.is_autocast_enabled("cpu"):
        return True
    matmul, conv, rnn = _ON_CPU  # asked before every product
    return matmul() not in _FULL or conv() not in _FULL or rnn() not in _FULL


def _nothing() -> None:
    """Nothing is to be put back."""


def _set() -> Callable[[], None]:
    """Sets full precision; the result undoes it."""
    settings = [getattr(library, kind) for library, kinds in _KINDS.items() for kind in kinds]
    before = [setting.fp32_precision for setting in settings]
    older = []
    if all(precision in _FULL for precision in before):
        return _nothing
    for read, write, full in _OLDER:
        # torch does not tell the older settings where the newer ones were used
        with suppress(RuntimeError):
            older.append((write, read()))
        write(full)  # modules may read these
    for setting in settings:
        if setting.fp32_precision not in _FULL:
            setting.fp32_precision = "ieee"

    def put_back() -> None:
        for write, value in older:
            write(value)
        for setting, precision in zip(settings, before, strict=True):
            if setting.fp32_precision != precision:
                setting.fp32_precision = precision

    return put_back
