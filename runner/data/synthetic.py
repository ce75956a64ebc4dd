"""Data made from a seed, and the digits that come with scikit-learn: no download needed.

Random-field images with the shape, brightness and power spectrum of natural ones stand in for CIFAR
where only the code is tried; no number measured on them says anything about CIFAR. Token sequences
with a fixed teacher (DAG, Exp. 5 and Appendix N.7); two classes of normal vectors (WS bound and
HSR); scalar regression data (scalar spectrum).
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from runner.data.images import ImageData, Split
from runner.kinds.dataset import AttentionData, DigitsData, GaussianData, SurrogateData

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from runner.contract import Context
    from runner.data.images import Split


SIZE = 32
MEAN = 121.0
STD = 63.0
"""Mean and standard deviation of natural pixels, in bytes."""
CHROMA = 0.35
"""Standard deviation of a channel's own field in units of the luminance field that the three
channels share."""
SIGNAL = 0.02
"""Share of an image's variance that its class explains."""
CHUNK = 2000


def load_surrogate(settings: SurrogateData, ctx: Context) -> ImageData:
    """uint8 images (N, 3, 32, 32) of the seed, classes as equal in number as N allows, in random
    order.

    image = MEAN + STD (√s · field of the class + √(1-s) · field of the image), s = SIGNAL, clipped
    to bytes. Fields are normal with amplitude 1/|f| (power 1/f², as natural images) and correlated
    channels.
    """
    import torch

    classes = settings.classes
    generator = ctx.torch_generator("images")
    prototypes = _fields(classes, generator)
    digest = hashlib.sha256()
    splits = []
    for count in (settings.train, settings.test):
        labels = torch.arange(count).remainder(classes)[torch.randperm(count, generator=generator)]
        images = torch.empty(count, 3, SIZE, SIZE, dtype=torch.uint8)
        for start in range(0, count, CHUNK):
            part = slice(start, min(start + CHUNK, count))
            own = _fields(part.stop - part.start, generator)
            field = math.sqrt(SIGNAL) * prototypes[labels[part]] + math.sqrt(1 - SIGNAL) * own
            images[part] = (MEAN + STD * field).round_().clamp_(0, 255).to(torch.uint8)
        digest.update(images.numpy().data)
        digest.update(labels.numpy().data)
        splits.append(Split(images, labels, tuple(settings.mean), tuple(settings.std)))
    return ImageData(splits[0], splits[1], classes, "surrogate", digest.hexdigest()[:16])


def _fields(count: int, generator: torch.Generator) -> Tensor:
    """(count, 3, 32, 32) normal fields of unit variance: white noise times 1/|f| in the frequency
    domain."""
    import torch

    vertical = torch.fft.fftfreq(SIZE)
    horizontal = torch.fft.rfftfreq(SIZE)
    radius = torch.hypot(vertical[:, None], horizontal[None, :]).clamp_min_(1 / SIZE)
    shared = torch.randn(count, 1, SIZE, SIZE, generator=generator)
    own = torch.randn(count, 3, SIZE, SIZE, generator=generator)
    white = (shared + CHROMA * own) / math.hypot(1, CHROMA)
    # the variance of the filtered noise is the mean of the squared amplitude over all frequencies
    full = torch.hypot(vertical[:, None], vertical[None, :]).clamp_min_(1 / SIZE)
    gain = full.pow(-2).mean().sqrt()
    return torch.fft.irfft2(torch.fft.rfft2(white) / (radius * gain), s=(SIZE, SIZE))


class RegressionData(NamedTuple):
    """Training and validation split, and a checksum of both."""

    train: Split
    validation: Split
    fingerprint: str

    @property
    def test(self) -> Split:
        """The validation split, under the name that image data have for theirs."""
        return self.validation


def load_attention(settings: AttentionData, ctx: Context) -> RegressionData:
    """Token sequences x ~ N(0, 1) of the seed with targets y + ε, ε ~ N(0, noise²).

    Inputs (N, S, d) float32, targets (N,) float32. response "tanh": y = 1/S Σ_s tanh(x_sᵀ W) w with
    W, w ~ N(0, 1/d) from `teacher_seed`, the same for all seeds, position-wise, without attention;
    "norm": y = ‖x‖_F/√(S d). Inputs and noise of the training split are drawn before those of the
    validation split. Standardised targets have the training split's mean and standard deviation
    taken out and are then multiplied by `spread` and shifted by `offset`.
    """
    import torch

    from runner.contract.experiment import torch_generator

    tokens = settings.tokens
    width = settings.width
    published = settings.streams == "published"
    generator = (
        torch.Generator().manual_seed(ctx.seed) if published else ctx.torch_generator("inputs")
    )
    teacher = torch_generator(settings.teacher_seed, "teacher")
    matrix = torch.randn(width, width, generator=teacher) * width**-0.5
    vector = torch.randn(width, generator=teacher) * width**-0.5

    def draw(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, tokens, width, generator=generator)
        if settings.response == "tanh":
            y = torch.tanh(x @ matrix).mean(1) @ vector
        else:
            y = x.flatten(1).norm(dim=1) * (tokens * width) ** -0.5
        return x, y + settings.noise * torch.randn(count, generator=generator)

    x, y = draw(settings.train)
    x_val, y_val = draw(settings.validation)
    if settings.standardised:
        mean = y.mean()
        std = y.std(correction=0).clamp_min(1e-12)
        y, y_val = ((t - mean) / std * settings.spread + settings.offset for t in (y, y_val))
    content = b"".join(t.numpy().tobytes() for t in (x, y, x_val, y_val))
    digest = hashlib.sha256(content).hexdigest()[:16]
    return RegressionData(Split(x, y), Split(x_val, y_val), digest)


class GaussianSplits(NamedTuple):
    """(x, q) of the training set, and of every test set by its size."""

    train: tuple[Tensor, Tensor]
    test: dict[int, tuple[Tensor, Tensor]]


def load_gaussian(settings: GaussianData, ctx: Context) -> GaussianSplits:
    """Training set from the stream "data/train" of the seed, test sets from "data/test<size>"."""
    return GaussianSplits(
        sample(settings, settings.train, ctx, "data/train"),
        {size: sample(settings, size, ctx, f"data/test{size}") for size in settings.test},
    )


def sample(settings: GaussianData, count: int, ctx: Context, role: str) -> tuple[Tensor, Tensor]:
    """x, q of `count` vectors from the stream `role` of the seed; see gaussian_classes."""
    return gaussian_classes(
        count, settings.inputs, settings.mean, settings.variance, ctx.torch_generator(role)
    )


def gaussian_classes(
    count: int,
    inputs: int = 2,
    mean: float = 1.0,
    variance: float = 2.0,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """x: (count, inputs) float64, q: (count,) labels 1.0 and 0.0, half of each (WS bound, Appendix
    C).

    Class 0 is N(+mean, variance I), class 1 is N(-mean, variance I), the mean being the same in
    every coordinate; the rows of class 1 come first, one more of them for an odd count.
    """
    import torch

    q = (torch.arange(count) < (count + 1) // 2).to(torch.float64)
    x = torch.randn((count, inputs), generator=generator, dtype=torch.float64) * variance**0.5
    return x + mean * (1 - 2 * q)[:, None], q


def wedge(
    count: int,
    generator: np.random.Generator,
    *,
    right: float = 1.0,
    left: float = 1.0,
    noise: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """x, y: (count,) float64 with x ~ N(0, 1) and y = right·x for x > 0, -left·x for x <= 0, plus
    normal noise.

    The paper names its "wedge data set" (Fig. 3) without defining it; this is the two-sided ramp
    that a ReLU network of one input fits exactly and a linear one does not: |x| at slopes 1 and 1.
    noise: its standard deviation.
    """
    x = generator.standard_normal(count)
    return x, np.where(x > 0, right * x, -left * x) + noise * generator.standard_normal(count)


def linear(
    count: int,
    generator: np.random.Generator,
    *,
    slope: float = 1.0,
    scale: float = 1.0,
    noise: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """x, y: (count,) float64 with x ~ N(0, scale²), y = slope·x + normal noise of standard
    deviation `noise`."""
    x = scale * generator.standard_normal(count)
    return x, slope * x + noise * generator.standard_normal(count)


def load_digits(settings: DigitsData, ctx: Context | None = None) -> tuple[Tensor, Tensor]:
    """x (1797, 64) float32 in [0, 1] and y (1797,) int64. The seed changes nothing here."""
    import torch
    from sklearn.datasets import load_digits

    raw = load_digits()
    pixels = torch.tensor(raw.data, dtype=torch.float32) / 16
    return pixels, torch.tensor(raw.target, dtype=torch.int64)
