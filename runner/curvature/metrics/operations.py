"""Operations of matrix products and convolutions, counted as they run.

torch.utils.flop_counter counts the same, but takes seconds to set up: it loads the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Operations(TorchDispatchMode):
    """`total`: 2 m n k for each product (m, k) x (k, n), and its counterpart for each convolution and its gradients.

    >>> import torch
    >>> with Operations() as counted:
    ...     _ = torch.ones(3, 4) @ torch.ones(4, 5)
    >>> counted.total
    120.0
    """

    total = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled meanwhile; asking torch to see to that would load the compiler."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        count = _COUNTS.get(func.overloadpacket.__name__)
        if count is not None:
            self.total += 2.0 * count(out, args)
        return out


def _inner(place: int) -> Callable[[Any, Sequence[Any]], int]:
    """Elements of the result times the summed dimension, the last of the argument at `place`."""
    return lambda out, args: out.numel() * int(args[place].shape[-1])


def _convolution(out: Any, args: Sequence[Any]) -> int:
    weight = args[1]
    transposed = len(args) > 6 and bool(args[6])
    return (args[0].numel() if transposed else out.numel()) * weight[0].numel()


def _convolution_backward(out: Any, args: Sequence[Any]) -> int:
    """As many as the forward pass for each of the gradients (input, weight) that are asked for."""
    gradient, inputs, weight = args[0], args[1], args[2]
    transposed, (by_input, by_weight, _) = bool(args[7]), args[10]
    return (int(by_input) + int(by_weight)) * (inputs.numel() if transposed else gradient.numel()) * weight[0].numel()


_COUNTS: dict[str, Callable[[Any, Sequence[Any]], int]] = {
    "mm": _inner(0),
    "bmm": _inner(0),
    "addmm": _inner(1),
    "baddbmm": _inner(1),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
