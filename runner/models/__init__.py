"""Networks of the experiments, each stated as a graph of named stages (see `Network`).

Loaded when asked for: the settings in runner.kinds.model and the names of activations must not cost torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.models.activations import ACTIVATIONS as ACTIVATIONS
    from runner.models.activations import activation as activation
    from runner.models.attention import attention_regressor as attention_regressor
    from runner.models.attention import positionwise_mlp as positionwise_mlp
    from runner.models.blocks import Block as Block
    from runner.models.blocks import SpectralLinear as SpectralLinear
    from runner.models.blocks import SumMerge as SumMerge
    from runner.models.diamonds import diamond as diamond
    from runner.models.diamonds import graph_distance as graph_distance
    from runner.models.mlps import bottleneck_mlp as bottleneck_mlp
    from runner.models.mlps import mlp as mlp
    from runner.models.network import Network as Network
    from runner.models.network import Stage as Stage
    from runner.models.network import default_init as default_init
    from runner.models.resnet import resnet18 as resnet18

_PLACES = {
    "ACTIVATIONS": "activations",
    "Block": "blocks",
    "Network": "network",
    "SpectralLinear": "blocks",
    "Stage": "network",
    "SumMerge": "blocks",
    "activation": "activations",
    "attention_regressor": "attention",
    "bottleneck_mlp": "mlps",
    "default_init": "network",
    "diamond": "diamonds",
    "graph_distance": "diamonds",
    "mlp": "mlps",
    "positionwise_mlp": "attention",
    "resnet18": "resnet",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def builder(name: str) -> Any:
    """The function that makes a network: a name of this package, or "module.function" of a module that is loaded.

    A module of one's own is loaded with the settings that name it; nothing is imported here.
    Raises ValueError for a name that is neither.
    """
    module, _, function = name.rpartition(".")
    found = (
        getattr(sys.modules.get(module), function, None) if module else __getattr__(name) if name in _PLACES else None
    )
    if not callable(found):
        raise ValueError(f"builder: expected a function of runner.models or of a loaded module, found {name!r}")
    return found
