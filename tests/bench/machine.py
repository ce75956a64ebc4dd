"""What a benchmark is held against: operations counted, and the rate of a large matrix product on
the same thread."""

import ctypes
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests import ROOT

ALONE = """
import sys, time, warnings
import torch
from torch import nn
from tests.bench.machine import forget_the_peak, status

torch.set_num_threads(1)
torch.manual_seed(0)
"""


def status(name: str) -> float:
    """MiB of an entry of /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def forget_the_peak() -> float:
    """Let the peak of memory begin here, with what was freed given back: else it would be taken
    again without a trace. MiB that are resident."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def alone(code: str, *arguments: object) -> list[str]:
    """Words that code prints in a process of its own; it finds what stands in ALONE."""
    words = [sys.executable, "-c", ALONE + code, *map(str, arguments)]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return ended.stdout.split()


def seconds(function: Callable[[], object], count: int = 1) -> float:
    """Mean CPU seconds of a call."""
    start = time.process_time()
    for _ in range(count):
        function()
    return (time.process_time() - start) / count


def in_turns(
    *functions: Callable[[], object], repeats: int, warm: bool = False
) -> list[tuple[float, ...]]:
    """CPU seconds of `repeats` calls of each function, one after the other in every round, after
    one to warm up (warm: they have been called before)."""
    for function in () if warm else functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, found in zip(functions, times, strict=True):
            found.append(seconds(function))
    return [tuple(found) for found in times]


def gradient_of(
    module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor
) -> Callable[[], object]:
    """Takes the gradient of the loss of one batch, of which other costs are multiples."""
    parameters = list(module.parameters())
    return lambda: torch.autograd.grad(loss(module(x), y), parameters)


@cache
def peak(n: int = 1024) -> float:
    """Operations a second of the faster of a float32 product (n, n) x (n, n) and a convolution of
    256 channels on maps of 32 x 32, on the threads that torch has: the best of 10."""
    a, b, out = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    maps, weight = torch.randn(8, 256, 32, 32), torch.randn(256, 256, 3, 3)
    with torch.no_grad():
        products, convolutions = in_turns(
            lambda: torch.mm(a, b, out=out),
            lambda: torch.nn.functional.conv2d(maps, weight),
            repeats=10,
        )
    return max(2 * n**3 / min(products), 2 * 8 * 30**2 * 256**2 * 9 / min(convolutions))


class Operations(TorchDispatchMode):
    """`total`: 2 m n k for each product (m, k) x (k, n), and the same of convolutions.

    torch.utils.flop_counter counts the same operations, but takes seconds to set up: it loads the
    compiler.
    """

    total = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled meanwhile; asking torch to see to that would load its compiler."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
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
    gradient = args[0]
    inputs = args[1]
    weight = args[2]
    transposed = bool(args[7])
    by_input, by_weight, _ = args[10]
    larger = inputs.numel() if transposed else gradient.numel()
    return (int(by_input) + int(by_weight)) * larger * weight[0].numel()


_COUNTS: dict[str, Callable[[Any, Sequence[Any]], int]] = {
    "mm": _inner(0),
    "bmm": _inner(0),
    "addmm": _inner(1),
    "baddbmm": _inner(1),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}


class Counted(Operations):
    """Operations of products and convolutions; zeros that a convolution is padded with are no
    work."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        before = self.total
        out = super().__torch_dispatch__(func, types, args, kwargs)
        name = func.overloadpacket.__name__
        if name == "convolution":
            self.total = before + (self.total - before) * worked(args[0], out, args[1], *args[3:6])
        elif name == "convolution_backward":
            share = worked(args[1], args[0], args[2], *args[4:7])
            self.total = before + (self.total - before) * share
        return out


def worked(inputs: Tensor, outputs: Tensor, weight: Tensor, *places: Sequence[int]) -> float:
    """Share of a convolution's multiplications whose input is no padding. places: stride, padding,
    dilation."""
    share, dimensions = 1.0, weight.dim() - 2
    stride, padding, dilation = (list(p) * (dimensions if len(p) == 1 else 1) for p in places)
    for d in range(dimensions):
        taps = torch.arange(weight.shape[2 + d]) * dilation[d]
        starts = torch.arange(outputs.shape[2 + d]) * stride[d] - padding[d]
        read = starts[:, None] + taps
        share *= float(((read >= 0) & (read < inputs.shape[2 + d])).double().mean())
    return share


def operations(function: Callable[[], object]) -> float:
    """Operations of the matrix products and convolutions of one call, those of its backward passes
    too."""
    with Counted() as counted:
        function()
    return counted.total
