"""Data sets of the experiments: CIFAR, surrogate images, Gaussian classes, token and scalar regression.

Loading is here; downloading is in runner.data.fetch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from runner.data.attention import RegressionData, token_regression
from runner.data.cifar import ARCHIVES, data_root, load
from runner.data.gaussian import gaussian_classes
from runner.data.images import DataError, ImageData, Split
from runner.data.surrogate import surrogate_images

__all__ = [
    "DataError",
    "ImageData",
    "RegressionData",
    "Split",
    "data_root",
    "gaussian_classes",
    "load_images",
    "surrogate_images",
    "token_regression",
]


def load_images(
    kind: str,
    *,
    classes: int,
    train: int,
    test: int,
    generator: torch.Generator,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.5, 0.5, 0.5),
    flat: bool = True,
    root: str | Path | None = None,
) -> ImageData:
    """Images of the data set `kind`: cifar10, cifar100 (first `train` and `test` records), or surrogate.

    generator: makes the surrogate; unused by the others. Raises DataError for an unknown kind, missing or broken files,
    and for a number of classes that the data set does not have.
    """
    if kind == "surrogate":
        return surrogate_images(
            train=train, test=test, generator=generator, classes=classes, mean=mean, std=std, flat=flat
        )
    if kind not in ARCHIVES:
        raise DataError(f"data set: expected one of {', '.join(ARCHIVES)} or surrogate, found {kind!r}")
    data = load(kind, root, train=train, test=test, mean=mean, std=std, flat=flat)
    if data.classes != classes:
        raise DataError(f"{kind}: expected classes={data.classes}, found classes={classes}")
    return data
