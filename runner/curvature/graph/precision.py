"""Float32 means float32 while something is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch.backends import cuda, cudnn, mkldnn

_KINDS: Any = {cuda: ("matmul",), cudnn: ("conv", "rnn"), mkldnn: ("matmul", "conv", "rnn")}
_FULL = ("none", "ieee")
_OLDER: tuple[tuple[Callable[[], Any], Callable[[Any], Any], Any], ...] = (
    (lambda: cudnn.allow_tf32, partial(setattr, cudnn, "allow_tf32"), False),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
)


@contextmanager
def full_precision() -> Iterator[None]:
    """While inside, float32 operations are not shortened: TF32, torch's default for convolutions on a GPU, has relative
    errors of 1e-3, and bfloat16, which torch.set_float32_matmul_precision allows, of 1e-2."""
    settings = [getattr(library, kind) for library, kinds in _KINDS.items() for kind in kinds]
    before, older = [setting.fp32_precision for setting in settings], []
    if all(precision in _FULL for precision in before):
        yield
        return
    for read, write, _ in _OLDER:
        with suppress(RuntimeError):  # torch does not tell the older settings where the newer ones were used
            older.append((write, read()))
    try:
        for _, write, full in _OLDER:  # modules may read these
            write(full)
        for setting in settings:
            if setting.fp32_precision not in _FULL:
                setting.fp32_precision = "ieee"
        yield
    finally:
        for write, value in older:
            write(value)
        for setting, precision in zip(settings, before, strict=True):
            if setting.fp32_precision != precision:
                setting.fp32_precision = precision
