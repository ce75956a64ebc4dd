"""Modes of torch: convolutions as linear maps of their input, and operations counted as they run.

torch's second derivative of a convolution also computes that of its weights, whether it is asked for or not (2.13): one
convolution in four of a Hessian product over activations, of an awkward shape, a third of its time in ResNet-18. With
the weights fixed, x -> A x has the derivative g -> A^T g, and that one r -> A r again: the same kernels on the same
numbers, without the one that is thrown away, and without keeping x.

torch.utils.flop_counter counts the same operations, but takes seconds to set up: it loads the compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

CONVOLUTIONS: dict[Any, int] = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
"""Functions of torch that are replaced, by their number of dimensions."""


class _Map(NamedTuple):
    """A: the weights, and how they are laid over an input of this shape and memory layout."""

    weight: Tensor
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    shape: torch.Size
    strides: tuple[int, ...]

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        zero = [0] * len(self.stride)
        found: Tensor = torch.ops.aten.convolution(
            x, self.weight, bias, self.stride, self.padding, self.dilation, False, zero, self.groups
        )
        return found

    def adjoint(self, g: Tensor) -> Tensor:
        shaped = torch.empty_strided(self.shape, self.strides, dtype=g.dtype, device=g.device)  # its numbers are unused
        zero, only_input = [0] * len(self.stride), [True, False, False]
        found: Tensor = torch.ops.aten.convolution_backward(
            g, shaped, self.weight, None, self.stride, self.padding, self.dilation, False, zero, self.groups, only_input
        )[0]
        return found


class _Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, along: _Map) -> Tensor:
        ctx.along = along
        return along.forward(x, bias)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return _Adjoint.apply(g, ctx.along), None, None


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, g: Tensor, along: _Map) -> Tensor:
        ctx.along = along
        return along.adjoint(g)

    @staticmethod
    def backward(ctx: Any, r: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _Forward.apply(r, None, ctx.along), None


class FixedConvolutions(TorchFunctionMode):
    """While inside, convolutions with weights that depend on nothing are linear maps of their input.

    Gradients with respect to such weights and biases are not to be had from what is computed inside.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in CONVOLUTIONS and (given := _arguments(CONVOLUTIONS[func], *args, **(kwargs or {}))) is not None:
            return _Forward.apply(*given)
        return func(*args, **(kwargs or {}))


def _arguments(
    dimensions: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor | None, _Map] | None:
    """What _Forward takes, or None where torch's own way is needed: torch.func and forward mode cannot differentiate
    functions that state their backward alone."""
    nested = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    plain = all(type(t) in (Tensor, torch.nn.Parameter) for t in (input, weight, *(() if bias is None else (bias,))))
    moves = weight.grad_fn is not None or (bias is not None and bias.grad_fn is not None)
    fits = input.dim() == dimensions + 2 and input.dtype == weight.dtype and not isinstance(padding, str)
    if not (plain and fits and input.requires_grad) or moves or nested:
        return None
    steps, edges, holes = (_each(value, dimensions) for value in (stride, padding, dilation))
    along = _Map(weight.detach(), steps, edges, holes, groups, input.shape, input.stride())
    return input, None if bias is None else bias.detach(), along


def _each(value: Any, dimensions: int) -> list[int]:
    found = list(value) if isinstance(value, Sequence) else [value]
    return found * dimensions if len(found) == 1 else found


class Watch(TorchDispatchMode):
    """A mode that looks on. Nothing is compiled meanwhile; asking torch to see to that would load its compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Operations(Watch):
    """`total`: 2 m n k for each product (m, k) x (k, n), and its counterpart for each convolution and its gradients.

    >>> import torch
    >>> with Operations() as counted:
    ...     _ = torch.ones(3, 4) @ torch.ones(4, 5)
    >>> counted.total
    120.0
    """

    total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
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
