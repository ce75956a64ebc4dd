"""Images made from the seed with the shape, brightness and power spectrum of natural ones: no download needed.

They stand in for CIFAR where only the code is tried. No number measured on them says anything about CIFAR.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.data.images import DataError, ImageData, Split
from runner.kinds.dataset import SurrogateData

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from runner.contract import Context

SIZE = 32
MEAN, STD = 121.0, 63.0
"""Mean and standard deviation of natural pixels, in bytes."""
CHROMA = 0.35
"""Standard deviation of a channel's own field in units of the luminance field that the three channels share."""
SIGNAL = 0.02
"""Share of an image's variance that its class explains."""
CHUNK = 2000


def load(settings: SurrogateData, ctx: Context) -> ImageData:
    """The images of the seed."""
    return surrogate_images(
        train=settings.train,
        test=settings.test,
        generator=ctx.torch_generator("images"),
        classes=settings.classes,
        mean=settings.mean,
        std=settings.std,
    )


def surrogate_images(
    *,
    train: int,
    test: int,
    generator: torch.Generator,
    classes: int = 10,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.5, 0.5, 0.5),
    flat: bool = True,
) -> ImageData:
    """uint8 images (N, 3, 32, 32), classes as equal in number as N allows, in random order.

    image = MEAN + STD (√s · field of the class + √(1-s) · field of the image), s = SIGNAL, clipped to bytes. Fields
    are normal with amplitude 1/|f| (power 1/f², as natural images) and correlated channels. mean, std, flat: see
    runner.data.images.Split. Raises DataError for sizes below one or fewer than two classes.
    """
    import torch

    if min(train, test) < 1 or classes < 2:
        raise DataError(f"surrogate: expected examples and two classes or more, found {train}, {test}, {classes}")
    prototypes = _fields(classes, generator)
    digest = hashlib.sha256()
    splits = []
    for count in (train, test):
        labels = torch.arange(count).remainder(classes)[torch.randperm(count, generator=generator)]
        images = torch.empty(count, 3, SIZE, SIZE, dtype=torch.uint8)
        for start in range(0, count, CHUNK):
            part = slice(start, min(start + CHUNK, count))
            own = _fields(part.stop - part.start, generator)
            field = math.sqrt(SIGNAL) * prototypes[labels[part]] + math.sqrt(1 - SIGNAL) * own
            images[part] = (MEAN + STD * field).round_().clamp_(0, 255).to(torch.uint8)
        digest.update(images.numpy().data)
        digest.update(labels.numpy().data)
        splits.append(Split(images, labels, tuple(mean), tuple(std), flat))
    return ImageData(splits[0], splits[1], classes, "surrogate", digest.hexdigest()[:16])


def _fields(count: int, generator: torch.Generator) -> Tensor:
    """(count, 3, 32, 32) normal fields of unit variance: white noise times 1/|f| in the frequency domain."""
    import torch

    vertical, horizontal = torch.fft.fftfreq(SIZE), torch.fft.rfftfreq(SIZE)
    radius = torch.hypot(vertical[:, None], horizontal[None, :]).clamp_min_(1 / SIZE)
    shared = torch.randn(count, 1, SIZE, SIZE, generator=generator)
    own = torch.randn(count, 3, SIZE, SIZE, generator=generator)
    white = (shared + CHROMA * own) / math.hypot(1, CHROMA)
    # the variance of the filtered noise is the mean of the squared amplitude over all frequencies
    full = torch.hypot(vertical[:, None], vertical[None, :]).clamp_min_(1 / SIZE)
    gain = full.pow(-2).mean().sqrt()
    return torch.fft.irfft2(torch.fft.rfft2(white) / (radius * gain), s=(SIZE, SIZE))
