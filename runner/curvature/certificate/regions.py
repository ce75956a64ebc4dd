"""Which side of its kinks a network is on: the decisions that its piecewise operations take during one evaluation.

A finite difference is that of one smooth function only where both ends lie in the same region as the point: the same
ReLUs on, the same entries chosen by a maximum, the same outcome of every comparison. All operations of an evaluation
and of its backward pass are seen, whoever wrote the function, so that nothing needs to be known of the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Decisions = list[tuple[str, Tensor]]
"""(operation, the side or the place that it chose, element by element), in the order of the computation."""

COURSE = "the course of the computation"
"""In place of an operation where two evaluations are not made of the same ones."""

_OUTCOME = {"gt", "lt", "ge", "le", "eq", "ne", "floor", "ceil", "round", "trunc", "argmax", "argmin", "argsort"}
_CHOSEN = {
    "max", "min", "topk", "sort", "kthvalue", "median", "mode", "cummax", "cummin", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d",
    "fractional_max_pool3d",
}  # fmt: skip
_AT_ZERO = {"relu", "leaky_relu", "_prelu_kernel", "rrelu_with_noise", "elu", "celu", "selu", "abs", "sign", "sgn"}
_AT_BOUNDS: dict[str, Callable[..., Sequence[Any]]] = {
    "threshold": lambda threshold, *_: (threshold,),
    "hardtanh": lambda low=-1.0, high=1.0: (low, high),
    "hardsigmoid": lambda: (-3.0, 3.0),
    "hardswish": lambda: (-3.0, 3.0),
    "softshrink": lambda lambd=0.5: (-lambd, lambd),
    "hardshrink": lambda lambd=0.5: (-lambd, lambd),
    "clamp": lambda low=None, high=None, **named: (low, high, *named.values()),
    "clamp_min": lambda low=None, **named: (low, *named.values()),
    "clamp_max": lambda high=None, **named: (high, *named.values()),
}
_OF_TWO = {"maximum", "minimum", "fmax", "fmin"}
_OF_A_DISTANCE = {"smooth_l1_loss", "huber_loss"}
_LARGEST = {"amax", "amin"}


class Regions(TorchDispatchMode):
    """While active, files the decisions of all piecewise operations in `seen`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Decisions = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        named = kwargs or {}
        name = func.overloadpacket.__name__
        name = name if name.startswith("__") else name.rstrip("_")
        side = _side_before(name, args, named)  # before: the operation may overwrite its input
        found = func(*args, **named)
        if side is None:
            side = _side_after(name, args, found)
        if side is not None:
            self.seen.append((name.removesuffix("_with_indices"), side))
        return found


def _side_before(name: str, args: tuple, named: dict) -> Tensor | None:
    if not args or not isinstance(args[0], Tensor):
        return None
    t = args[0]
    if name in _AT_ZERO:
        return t.sign().to(torch.int8)
    if name in _AT_BOUNDS:
        bounds = [b for b in _AT_BOUNDS[name](*args[1:], **named) if b is not None]
        sides = [(t > b).to(torch.int8) + (t >= b).to(torch.int8) for b in bounds]
        return torch.stack(sides) if sides else None
    if name in _OF_TWO:
        return (t - args[1]).sign().to(torch.int8)
    if name in _OF_A_DISTANCE:
        width = args[3] if len(args) > 3 else next((named[k] for k in ("beta", "delta") if k in named), 1.0)
        return ((t - args[1]).abs() < width).to(torch.int8)
    return t.clone() if name == "where" and t.dtype == torch.bool else None


def _side_after(name: str, args: tuple, found: Any) -> Tensor | None:
    if name in _OUTCOME and isinstance(found, Tensor):
        return found.clone()
    if name in _CHOSEN and isinstance(found, tuple | list) and len(found) > 1 and isinstance(found[1], Tensor):
        return found[1].clone()
    if name in _CHOSEN and isinstance(found, Tensor) and isinstance(args[0], Tensor):
        return args[0] == found  # of the whole tensor
    if name in _LARGEST:
        dims = args[1] if len(args) > 1 else []
        return args[0] == getattr(torch, name)(args[0], dims, keepdim=True)
    return None


def decisions(evaluate: Callable[[], Any]) -> Decisions | None:
    """The decisions taken while `evaluate` runs; None where it cannot run while being watched."""
    try:
        with Regions() as watched:
            evaluate()
    except Exception:  # a compiled function, or a mode of its own
        return None
    return watched.seen


def crossed(one: Decisions | None, other: Decisions | None) -> str:
    """What changes sides between two evaluations, "relu (3), max_pool2d (1)"; "" for nothing, or nothing known."""
    if one is None or other is None:
        return ""
    if [(name, side.shape) for name, side in one] != [(name, side.shape) for name, side in other]:
        return COURSE
    changes: Counter[str] = Counter()
    for (name, a), (_, b) in zip(one, other, strict=True):
        changes[name] += int((a != b).sum())
    named = {name: count for name, count in changes.items() if count}
    plain = {name: count for name, count in named.items() if name not in _OUTCOME | {"where"}}  # parts of the others
    return ", ".join(f"{name} ({count})" for name, count in (plain or named).items())
