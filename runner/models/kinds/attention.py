"""One softmax-attention layer for regression over tokens (DAG, Exp. 5 and Appendix N.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.contract import kind, setting, since
from runner.models.kinds.initial import INITIAL, initial_setting


@dataclass(frozen=True)
class AttentionModel:
    """q, k, v without bias, softmax(q kᵀ/√d) v, mean over tokens, linear head. width: d, that of the tokens."""

    kind: str = kind("attention")
    width: int = setting(16, above=0)
    initial: str = since("named", free=True, choices=INITIAL)

    def network(self) -> dict[str, Any]:
        """The builder `attention_regressor` and its keyword arguments."""
        return {**initial_setting(self.initial), "builder": "attention_regressor", "width": self.width}

    def control(self, depth: int) -> dict[str, Any]:
        """The builder `positionwise_mlp` of the ReLU control and its keyword arguments."""
        shape = {"width": self.width, "depth": depth, "activation": "relu"}
        return {**initial_setting(self.initial), "builder": "positionwise_mlp", **shape}
