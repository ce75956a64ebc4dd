"""Evaluate a batched closed form a few parameter vectors at a time.

The closed forms keep several arrays of I D numbers per theta. In one piece, 3,000 networks with N = 10 on 50 samples
would need half a gigabyte; in chunks of a megabyte per array they stay near the cache, at the same speed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

CHUNK_WORDS = 1 << 17

ClosedForm = TypeVar("ClosedForm", bound=Callable[..., Any])


def _joined(parts: list[Tensor], lead: torch.Size) -> Tensor:
    return torch.cat(parts).unflatten(0, lead)


def in_chunks(function: ClosedForm) -> ClosedForm:
    """f(theta, x, q, activation) over the flattened leading dimensions of theta, I D words of temporaries per theta."""

    @wraps(function)
    def chunked(theta: Tensor, x: Tensor, q: Tensor, activation: str = "sigmoid") -> Any:
        lead = theta.shape[:-1]
        words = x.shape[0] * theta.shape[-1] if theta.ndim and x.ndim else CHUNK_WORDS
        size = max(1, CHUNK_WORDS // max(1, words))
        if lead.numel() <= size:
            return function(theta, x, q, activation)
        values = [function(part, x, q, activation) for part in theta.reshape(-1, theta.shape[-1]).split(size)]
        if isinstance(values[0], tuple):
            return _joined([value[0] for value in values], lead), _joined([value[1] for value in values], lead)
        return _joined(values, lead)

    return cast(ClosedForm, chunked)
