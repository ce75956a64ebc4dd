"""Data sets of the experiments: `runner.kinds.dataset` holds their settings, and names the function that loads each.

Downloading is in runner.data.fetch. Nothing here loads torch before data are asked for: settings are read by listings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.data.cifar import data_root
    from runner.data.images import DataError, ImageData, Split, load, load_images
    from runner.data.synthetic import (
        RegressionData,
        gaussian_classes,
        surrogate_images,
        token_regression,
    )

_NAMES = {
    "cifar": ("data_root",),
    "images": ("DataError", "ImageData", "Split", "load", "load_images"),
    "synthetic": ("RegressionData", "gaussian_classes", "surrogate_images", "token_regression"),
}
"""Module -> the names that this package offers of it."""


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
