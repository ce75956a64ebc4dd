"""Training steps on fixed memory, so that a GPU can replay a whole step as one CUDA graph.

A step of ResNet-18 on 32 x 32 images is some 600 kernels of about 10 microseconds: launched one by
one they take longer to launch than to run. Here a step reads its examples' numbers, crops and flips
from fixed memory, gathers and augments the pixels on the device, and leaves gradient, clipping and
update there too; the learning rate is a tensor and the loss is added up in one. Nothing comes back
to the processor before the end of an epoch. The draws are those of the plain loop, in the same
order: an epoch's are made at its start, on the processor.

Used on CUDA alone, with plain gradient descent (`usable`). The same steps without capture give the
bytes of the plain loop, which the tests hold on the processor; the capture itself has not run on a
GPU where this was written. A step that cannot be captured is run kernel by kernel, and
`Steps.reason` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from runner.data.images import Split
from runner.training.order import StreamAugment, shift_and_flip

Run = Callable[[], None]
Gradient = Callable[[Tensor, Tensor], Tensor]

WARM_UP = 3
"""Steps of a batch size that run kernel by kernel before one is captured: libraries choose their
kernels in them."""


class Draws(Protocol):
    """An augmentation whose random numbers can be drawn before they are used."""

    padding: int

    def draws(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """top, left and flip of the next `count` images, (count,) each."""


def usable(device: torch.device, optimizer: torch.optim.Optimizer, augment: object) -> bool:
    """Whether a training runs by `Steps`: on CUDA, by SGD, with no augmentation or one that can be
    drawn beforehand."""
    drawn = augment is None or (hasattr(augment, "draws") and hasattr(augment, "padding"))
    return device.type == "cuda" and isinstance(optimizer, torch.optim.SGD) and drawn


class Capture(Protocol):
    """What turns a step into one that is replayed."""

    def warm(self, step: Run) -> None:
        """Runs the step, in the way that it will be captured."""

    def record(self, step: Run) -> Run:
        """Records the step without running it; the result runs it. RuntimeError where that cannot
        be."""


class CudaGraphs:
    """Steps as CUDA graphs, warmed up and captured on a stream of their own, as torch asks."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()

    def warm(self, step: Run) -> None:
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            step()
        torch.cuda.current_stream().wait_stream(self.stream)

    def record(self, step: Run) -> Run:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            step()
        return graph.replay


@dataclass
class _Slot:
    """Fixed memory of the batches of one size, and how their step runs."""

    index: Tensor
    draws: tuple[Tensor, ...]
    steps: int = 0
    replay: Run | None = None


class Steps:
    """Steps of one training. capture: None runs every step kernel by kernel.

    reason: why steps are not captured, "" while they are.
    """

    def __init__(
        self,
        split: Split,
        vector: nn.Parameter,
        optimizer: torch.optim.Optimizer,
        gradient: Gradient,
        *,
        batch: int,
        clip: float,
        augment: Draws | None = None,
        capture: Capture | None = None,
    ) -> None:
        assert vector.grad is not None
        self.split = split
        self.vector = vector
        self.grad = vector.grad
        self.optimizer = optimizer
        self.gradient = gradient
        self.batch = batch
        self.clip = clip
        self.augment = augment
        self.capture = capture
        self.reason = "" if capture is not None else "not asked for"
        self.device = split.inputs.device
        self.total = torch.zeros((), device=self.device)
        dtype = torch.float64 if self.device.type == "cpu" else None
        self.rate = torch.zeros((), device=self.device, dtype=dtype)
        self._read = split.reader(batch)
        self._slots: dict[int, _Slot] = {}

    def epoch(self, permutation: Tensor, rate: float) -> float:
        """One pass over the split in this order; mean loss per example."""
        parts = permutation.split(self.batch)
        draws = self._drawn(parts)
        permutation = permutation.to(self.device)
        self.rate.fill_(rate)
        self.optimizer.param_groups[0]["lr"] = self.rate
        self.total.zero_()
        for k, index in enumerate(permutation.split(self.batch)):
            self._step(index, tuple(d[k * self.batch : k * self.batch + len(index)] for d in draws))
        self.optimizer.param_groups[0]["lr"] = rate
        return float(self.total) / len(self.split)

    def _drawn(self, parts: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The random numbers of the epoch, batch after batch as the plain loop draws them, on the
        device."""
        if self.augment is None:
            return ()
        rows = [self.augment.draws(len(part)) for part in parts]
        return tuple(torch.cat(column).to(self.device) for column in zip(*rows, strict=True))

    def _step(self, index: Tensor, draws: tuple[Tensor, ...]) -> None:
        size = len(index)
        if size not in self._slots:
            self._slots[size] = _Slot(
                torch.empty_like(index), tuple(torch.empty_like(d) for d in draws)
            )
        slot = self._slots[size]
        for fixed, new in zip((slot.index, *slot.draws), (index, *draws), strict=True):
            fixed.copy_(new)
        if slot.replay is None and self.capture is not None and slot.steps >= WARM_UP:
            slot.replay = self._captured(slot)
        slot.steps += 1
        if slot.replay is not None:
            slot.replay()
        elif self.capture is not None:
            self.capture.warm(lambda: self._compute(slot))
        else:
            self._compute(slot)

    def _captured(self, slot: _Slot) -> Run | None:
        assert self.capture is not None
        try:
            return self.capture.record(lambda: self._compute(slot))
        except RuntimeError as error:  # of a captured stream; nothing of the step has run then
            self.capture = None
            self.reason = str(error).splitlines()[0]
            return None

    def _compute(self, slot: _Slot) -> None:
        """The step itself: the operations of the plain loop in their order."""
        transform = None
        if slot.draws:
            transform = self._augmented(slot.draws)
        x, y = self._read(slot.index, transform)
        self.total += self.gradient(x, y) * len(slot.index)
        norm = torch.linalg.vector_norm(self.grad)
        self.grad.mul_((self.clip / (norm + 1e-6)).clamp_(max=1.0))
        self.optimizer.step()

    def _augmented(self, draws: tuple[Tensor, ...]) -> Callable[[Tensor], Tensor]:
        assert self.augment is not None
        top, left, flip = draws
        padding = self.augment.padding
        return lambda pixels: shift_and_flip(pixels, top, left, flip, padding)


def augment_of(given: Any) -> Any:
    """The function of the pixels that a generator stands for; others as they are."""
    if isinstance(given, torch.Generator):
        return StreamAugment(given)
    return given


def steps_of(
    split: Split, vector: nn.Parameter, run: Any, gradient: Gradient, batch: int, clip: float
) -> Steps | None:
    """The steps of a training on CUDA, None where the plain loop runs it. run: with `optimizer` and
    `augment`."""
    augment = augment_of(run.augment)
    if not usable(split.inputs.device, run.optimizer, augment):
        return None
    return Steps(
        split,
        vector,
        run.optimizer,
        gradient,
        batch=batch,
        clip=clip,
        augment=augment,
        capture=CudaGraphs(),
    )
