"""Two classes of normal vectors, the toy problem of the WS-bound and HSR papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runner.kinds.dataset import GaussianData

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from runner.contract import Context


class GaussianSplits(NamedTuple):
    """(x, q) of the training set, and of every test set by its size."""

    train: tuple[Tensor, Tensor]
    test: dict[int, tuple[Tensor, Tensor]]


def load(settings: GaussianData, ctx: Context) -> GaussianSplits:
    """Training set from the stream "data/train" of the seed, test sets from "data/test<size>"."""
    train = sample(settings, settings.train, ctx, "data/train")
    return GaussianSplits(train, {size: sample(settings, size, ctx, f"data/test{size}") for size in settings.test})


def sample(settings: GaussianData, count: int, ctx: Context, role: str) -> tuple[Tensor, Tensor]:
    """x, q of `count` vectors from the stream `role` of the seed; see gaussian_classes."""
    return gaussian_classes(count, settings.inputs, settings.mean, settings.variance, ctx.torch_generator(role))


def gaussian_classes(
    count: int, inputs: int = 2, mean: float = 1.0, variance: float = 2.0, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """x: (count, inputs) float64, q: (count,) labels 1.0 and 0.0, half of each (WS bound, Appendix C).

    Class 0 is N(+mean, variance I), class 1 is N(-mean, variance I), the mean being the same in every coordinate; the
    rows of class 1 come first, one more of them for an odd count. Raises ValueError for sizes below one or a negative
    variance.
    """
    import torch

    if count < 1 or inputs < 1 or variance < 0:
        raise ValueError(
            f"gaussian_classes: expected count and inputs of at least 1 and variance of at least 0, found {count}, "
            f"{inputs} and {variance}"
        )
    q = (torch.arange(count) < (count + 1) // 2).to(torch.float64)
    x = torch.randn((count, inputs), generator=generator, dtype=torch.float64) * variance**0.5
    return x + mean * (1 - 2 * q)[:, None], q
