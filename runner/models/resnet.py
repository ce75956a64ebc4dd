"""ResNet-18 in measured segments, with and without shortcuts (DAG, Exp. 6), and its convolutions.

In training on a processor, the library convolves where the image is large, matrix products where it
is small.

A 3x3 convolution of one position reads one of its nine taps, the padding meets the others: the
library multiplies by all nine. In ResNet-18 on 32 x 32 images, whose last layer has one position,
that is a third of a step. Here each output position is one matrix product of the window that lies
inside the image with the taps that meet it. Positions are stored before channels (`channels_last`),
so that windows and taps are slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from runner.models.activations import activation
from runner.models.network import Network, Stage, default_init, follow

SMALL = 4
"""Output positions up to which the products of single positions are faster (one thread,
AVX-512)."""
Window = tuple[slice, slice, slice]
Place = tuple[slice, int, int]


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b.T, in float32 by oneDNN: MKL leaves the AVX-512 units of AMD processors unused, half
    their speed."""
    a, b = (t if t.is_contiguous() or t.t().is_contiguous() else t.contiguous() for t in (a, b))
    if a.dtype == torch.float32 and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
    return a @ b.t()


def spans(size: int, taps: int, stride: int, padding: int) -> list[tuple[slice, slice]]:
    """Of each output position along one axis: the part of the image that it sees, and the taps that
    meet it."""
    starts = range(-padding, size + padding - taps + 1, stride)
    seen = [slice(max(s, 0), min(s + taps, size)) for s in starts]
    met = [slice(max(-s, 0), min(taps, size - s)) for s in starts]
    return list(zip(seen, met, strict=True))


def windows(
    image: Sequence[int], kernel: Sequence[int], stride: int, padding: int
) -> list[tuple[Window, list[tuple[Window, Place]]]]:
    """Each window of the image that kernels meet: its slices, and of each output position that sees
    it the taps and the position. Slices and positions have examples, or outputs of the kernel,
    before them."""
    every = slice(None)
    vertical, horizontal = (
        spans(size, taps, stride, padding) for size, taps in zip(image, kernel, strict=True)
    )
    found: dict[tuple[int, ...], tuple[Window, list[tuple[Window, Place]]]] = {}
    for i, (rows, upper) in enumerate(vertical):
        for j, (columns, left) in enumerate(horizontal):
            key = rows.start, rows.stop, columns.start, columns.stop
            _, positions = found.setdefault(key, ((every, rows, columns), []))
            positions.append(((every, upper, left), (every, i, j)))
    return list(found.values())


class ByPositions(torch.autograd.Function):
    """Convolution without bias, (B, C, H, W) by (O, C, k, k): one matrix product for each window of
    the image."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        ctx.sizes = stride, padding
        image_size = (x.shape[2], x.shape[3])
        kernel_size = (weight.shape[2], weight.shape[3])
        ctx.windows = windows(image_size, kernel_size, stride, padding)
        image = x.permute(0, 2, 3, 1)
        taps = weight.permute(0, 2, 3, 1)
        *_, (_, i, j) = ctx.windows[-1][1][-1]
        out = x.new_empty(len(x), i + 1, j + 1, len(weight))
        ctx.matrices = []
        for inside, positions in ctx.windows:
            parts = [taps[met].flatten(1) for met, _ in positions]
            matrix = torch.cat(parts) if len(parts) > 1 else parts[0].contiguous()
            results = product(image[inside].flatten(1), matrix).chunk(len(parts), 1)
            for result, (_, at) in zip(results, positions, strict=True):
                out[at] = result
            ctx.matrices.append(matrix)
        ctx.save_for_backward(x, weight)
        return out.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        if torch.is_grad_enabled():  # for a second derivative, which torch's own formula has
            stride, padding = ctx.sizes
            sizes = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, [True, True, False]
            backward = torch.ops.aten.convolution_backward
            d_x, d_weight, _ = backward(grad, *ctx.saved_tensors, None, *sizes)
            return d_x, d_weight, None, None
        x, weight, grad = (t.permute(0, 2, 3, 1) for t in (*ctx.saved_tensors, grad))
        d_x = torch.zeros_like(x)
        d_weight = torch.zeros_like(weight)
        for matrix, (inside, positions) in zip(ctx.matrices, ctx.windows, strict=True):
            window = x[inside]
            g = torch.cat([grad[at] for _, at in positions], 1)
            d_x[inside] += product(g, matrix.t()).view_as(window)
            parts = product(g.t(), window.flatten(1).t()).chunk(len(positions))
            for part, (met, _) in zip(parts, positions, strict=True):
                d_weight[met] += part.view_as(d_weight[met])
        return d_x.permute(0, 3, 1, 2), d_weight.permute(0, 3, 1, 2), None, None


class Convolution(nn.Conv2d):
    """nn.Conv2d of a square kernel without bias; in training on a processor by the fastest kernel
    for its size."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int) -> None:
        super().__init__(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or not (self.training or torch.is_inference_mode_enabled()):
            return super().forward(x)
        x = x.contiguous(memory_format=torch.channels_last)
        stride = self.stride[0]
        padding = int(self.padding[0])
        positions = ((x.shape[2] - 1) // stride + 1) * ((x.shape[3] - 1) // stride + 1)
        if positions <= SMALL:
            return ByPositions.apply(x, self.weight, stride, padding)
        return super().forward(x)


class Stem(nn.Module):
    """Convolution 7×7 stride 2, BatchNorm, σ, max-pool 3×3 stride 2: the ImageNet stem, (3, 32, 32)
    -> (64, 8, 8)."""

    def __init__(self, activation_name: str) -> None:
        super().__init__()
        self.conv = Convolution(3, 64, 7, 2)
        self.norm = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.act, _ = activation(activation_name)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.act(self.norm(self.conv(x))))


class ConvBlock(nn.Module):
    """σ(BN(conv(σ(BN(conv h)))) + shortcut(h)); without the shortcut where that is None.

    The shortcut is the identity, or a strided 1×1 convolution with BatchNorm where the shape
    changes.
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, activation_name: str, skip: bool = True
    ) -> None:
        super().__init__()
        self.conv1 = Convolution(inputs, outputs, 3, stride)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = Convolution(outputs, outputs, 3, 1)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module | None = None
        if skip:
            self.shortcut = nn.Identity()
            if inputs != outputs or stride != 1:
                convolution = Convolution(inputs, outputs, 1, stride)
                self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(outputs))
        self.act, _ = activation(activation_name)

    def forward(self, h: Tensor) -> Tensor:
        out = self.norm2(self.conv2(self.act(self.norm1(self.conv1(h)))))
        return self.act(out if self.shortcut is None else out + self.shortcut(h))


class PoolHead(nn.Module):
    """Average over positions, then a linear map to the logits."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, h: Tensor) -> Tensor:
        return self.linear(h.mean((-2, -1)))


def resnet18(
    *,
    outputs: int = 10,
    activation: str = "relu",
    skip: bool = True,
    generator: torch.Generator | None = None,
) -> Network:
    """stem, layer1 … layer4 (two blocks each), head; measured at stem and layers.

    Parameters with ten outputs: 11,181,642; skip=False drops every shortcut with its downsampling
    weights once the network is drawn: 11,007,818, the same as in its twin. Convolutions are drawn
    normal with variance 2/fan_out, the rest is torch's default; all defaults are drawn before, in
    the order of the modules, as in the standard construction of the network.
    """
    with default_init(generator):
        stages: list[Stage] = []
        follow(stages, "stem", Stem(activation))
        channels = 64
        for i, outputs_i in enumerate((64, 128, 256, 512)):
            first = ConvBlock(channels, outputs_i, 1 if i == 0 else 2, activation)
            layer = nn.Sequential(first, ConvBlock(outputs_i, outputs_i, 1, activation))
            follow(stages, f"layer{i + 1}", layer)
            channels = outputs_i
        follow(stages, "head", PoolHead(channels, outputs))
        network = Network(stages, [stage.name for stage in stages[:-1]])
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        for module in network.modules():
            if isinstance(module, ConvBlock) and not skip:
                module.shortcut = None
    return network
