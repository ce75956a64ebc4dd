"""One softmax-attention layer for regression over tokens (DAG, Exp. 5 and Appendix N.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runner.contract import kind, setting


@dataclass(frozen=True)
class AttentionModel:
    """q, k, v without bias, softmax(q kᵀ/√d) v, mean over tokens, linear head. width: d, that of the tokens."""

    kind: str = kind("attention")
    width: int = setting(16, above=0)

    def network(self) -> dict[str, Any]:
        """The builder `attention_regressor` and its keyword arguments."""
        return {"builder": "attention_regressor", "width": self.width}
