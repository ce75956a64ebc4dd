"""Data sets of the experiments, one module a kind: its settings and `load(settings, ctx)`.

Downloading is in runner.data.fetch. Nothing here loads torch before data are asked for: settings are read by listings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.data.attention import RegressionData as RegressionData
    from runner.data.attention import token_regression as token_regression
    from runner.data.cifar import data_root as data_root
    from runner.data.gaussian import gaussian_classes as gaussian_classes
    from runner.data.images import DataError as DataError
    from runner.data.images import ImageData as ImageData
    from runner.data.images import Split as Split
    from runner.data.loading import load as load
    from runner.data.loading import load_images as load_images
    from runner.data.surrogate import surrogate_images as surrogate_images

_PLACES = {
    "DataError": "images",
    "ImageData": "images",
    "RegressionData": "attention",
    "Split": "images",
    "data_root": "cifar",
    "gaussian_classes": "gaussian",
    "load": "loading",
    "load_images": "loading",
    "surrogate_images": "surrogate",
    "token_regression": "attention",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
