"""Networks of the experiments, each stated as a graph of named stages (see `Network`).

Loaded when asked for: the settings in runner.kinds.model and the names of activations must not cost torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.models.activations import ACTIVATIONS, activation
    from runner.models.architectures import (
        attention_regressor,
        bottleneck_mlp,
        diamond,
        flat_mlp,
        graph_distance,
        mlp,
        positionwise_mlp,
    )
    from runner.models.network import Block, Network, SpectralLinear, Stage, SumMerge, default_init
    from runner.models.resnet import resnet18

_NAMES = {
    "activations": ("ACTIVATIONS", "activation"),
    "architectures": (
        "attention_regressor",
        "bottleneck_mlp",
        "diamond",
        "graph_distance",
        "mlp",
        "flat_mlp",
        "positionwise_mlp",
    ),
    "network": ("Block", "Network", "SpectralLinear", "Stage", "SumMerge", "default_init"),
    "resnet": ("resnet18",),
}
"""Module -> the names that this package offers of it."""


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


def builder(name: str) -> Any:
    """The function that makes a network: a name of this package, or "module.function" of a module that is loaded.

    A module of one's own is loaded with the settings that name it; nothing is imported here.
    Raises ValueError for a name that is neither.
    """
    module, _, function = name.rpartition(".")
    offered = any(name in names for names in _NAMES.values())
    found = getattr(sys.modules.get(module), function, None) if module else __getattr__(name) if offered else None
    if not callable(found):
        raise ValueError(f"builder: expected a function of runner.models or of a loaded module, found {name!r}")
    return found
