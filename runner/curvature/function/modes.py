"""A mode of torch: convolutions with cheap second derivatives.

torch's second derivative of a convolution computes that of its weights, whether it is asked for or
not, with copies of the weights and by kernels of awkward shapes. A convolution is linear in its
input and in its weights, so that its second derivatives are the first ones at other arguments: the
same kernels on as many numbers. A Hessian product of ResNet-50 over its parameters takes a quarter
less time, one of ResNet-18 over activations a third.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode

CONVOLUTIONS: dict[Any, int] = {torch.conv1d: 1, torch.conv2d: 2, torch.conv3d: 3}
"""Functions of torch that are replaced, by their number of dimensions."""

Asked = Literal["inputs", "tangents", "all"]


class _Settings(NamedTuple):
    """How weights are applied to an input.

    linear: the gradient is differentiated with respect to its cotangent alone.
    """

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    linear: bool

    def gradient(
        self, g: Tensor, x: Tensor, weight: Tensor, wanted: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        """Of the input, the weights and the bias, as far as wanted."""
        zero = [0] * len(self.stride)
        channels = [len(weight)]
        found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
            g,
            x,
            weight,
            channels,
            self.stride,
            self.padding,
            self.dilation,
            False,
            zero,
            self.groups,
            list(wanted),
        )
        return found


class _Convolution(torch.autograd.Function):
    alone = True
    """Its derivatives read nothing but what it saved."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, settings: _Settings
    ) -> Tensor:
        ctx.settings = settings
        ctx.like = (x.shape, x.stride())
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        stride, padding, dilation, groups, _ = settings
        zero = [0] * len(stride)
        found: Tensor = torch.ops.aten.convolution(
            x, weight, bias, stride, padding, dilation, False, zero, groups
        )
        return found

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        if x is None:  # only its layout is read
            x = torch.empty_strided(*ctx.like, dtype=g.dtype, device=g.device)
        if ctx.settings.linear:
            x = x.detach()
            weight = weight.detach()
        return *_Gradient.apply(g, x, weight, ctx.settings, ctx.needs_input_grad[:3]), None


class _Gradient(torch.autograd.Function):
    alone = True

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor, settings: _Settings, wanted: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        moves = any(ctx.needs_input_grad[1:3])
        ctx.save_for_backward(g if moves else None, x if moves or wanted[1] else None, weight)
        return settings.gradient(g, x, weight, wanted)

    @staticmethod
    def backward(
        ctx: Any, dx: Tensor | None, dw: Tensor | None, db: Tensor | None
    ) -> tuple[Any, ...]:  # type: ignore[override]
        g, x, weight = ctx.saved_tensors
        along: Any = None
        if dx is not None:
            along = _Convolution.apply(dx, weight, None, ctx.settings)
        if dw is not None or db is not None:
            dw_or_zero = torch.zeros_like(weight) if dw is None else dw
            image = _Convolution.apply(x, dw_or_zero, db, ctx.settings)
            along = image if along is None else along + image
        wanted = (
            ctx.needs_input_grad[1] and dw is not None,
            ctx.needs_input_grad[2] and dx is not None,
            False,
        )
        found: tuple[Any, ...] = (None, None)
        if any(wanted):
            given = (x if dx is None else dx, weight if dw is None else dw)
            found = _Gradient.apply(g, *given, ctx.settings, wanted)[:2]
        return along, *found, None, None


class Convolutions(TorchFunctionMode):
    """While inside, convolutions have second derivatives of their own.

    Asked of what is computed inside are

    inputs      derivatives of all orders with respect to inputs: weights and biases are constants
    tangents    gradients, and the derivatives of these with respect to their cotangents
    all         derivatives of all orders
    """

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func in CONVOLUTIONS:
            given = _arguments(self.asked, CONVOLUTIONS[func], *args, **(kwargs or {}))
            if given is not None:
                return _Convolution.apply(*given)
        return func(*args, **(kwargs or {}))


def _arguments(  # noqa: PLR0913 (as torch calls convolutions)
    asked: Asked,
    dimensions: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor | None, _Settings] | None:
    """What _Convolution takes, or None where torch's own way is needed.

    torch.func and forward mode cannot differentiate functions that state their backward alone.
    """
    nested = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    tensors = (input, weight) if bias is None else (input, weight, bias)
    if not all(type(t) in (Tensor, torch.nn.Parameter) for t in tensors):
        return None
    one_dtype = input.dtype == weight.dtype and input.dtype.is_floating_point
    fits = one_dtype and input.dim() == dimensions + 2 and not isinstance(padding, str)
    if not fits or nested or torch.is_autocast_enabled(input.device.type):
        return None
    if asked == "inputs":
        constant = all(t.grad_fn is None for t in tensors[1:])
        if not input.requires_grad or not constant:
            return None
        weight = weight.detach()
        bias = None if bias is None else bias.detach()
    steps, edges, holes = (_each(value, dimensions) for value in (stride, padding, dilation))
    return input, weight, bias, _Settings(steps, edges, holes, groups, asked == "tangents")


def _each(value: Any, dimensions: int) -> list[int]:
    found = [value]
    if isinstance(value, Sequence):
        found = list(value)
    return found * dimensions if len(found) == 1 else found
