"""Networks of the experiments, each stated as a graph of named stages (see
`runner.models.network.Network`).

Loaded when asked for: the settings in runner.kinds.model and the names of activations must not cost
torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def builder(name: str) -> Any:
    """The function that makes a network: one of `runner.models.architectures`, `resnet18`, or
    "module.function" of a module that is loaded.

    A module of one's own is loaded with the settings that name it; nothing else is imported here.
    Raises ValueError for a name that is neither.
    """
    module, _, function = name.rpartition(".")
    own = "runner.models.resnet" if name == "resnet18" else "runner.models.architectures"
    found = getattr(sys.modules.get(module) if module else import_module(own), function, None)
    if not callable(found):
        raise ValueError(
            f"builder: expected a function of runner.models or of a loaded module, found {name!r}"
        )
    return found
