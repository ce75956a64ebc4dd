"""ResNet-18 with and without shortcuts (DAG, Exp. 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.contract import kind, setting
from runner.models.activations import ACTIVATIONS


@dataclass(frozen=True)
class ResNetModel:
    """Stem, four layers of two blocks, head. kind: resnet18, or plain_resnet18, which drops every shortcut."""

    kind: str = kind("resnet18", choices=("resnet18", "plain_resnet18"))
    activation: str = setting("relu", choices=tuple(ACTIVATIONS))

    def network(self, *, outputs: int) -> dict[str, Any]:
        """The builder `resnet18` and its keyword arguments; its inputs are images, not vectors."""
        skip = self.kind == "resnet18"
        return {"builder": "resnet18", "outputs": outputs, "activation": self.activation, "skip": skip}
